"""
The published vectors of Cobblestone-256, through both readers.

`C2SP_VECTORS` names the folder they are in; under `CI=true` it must. Vectors of our own, in the same form, are checked
in, damaged here in every way, and always run: a machine without the published ones still tests all of it.
"""

import hashlib
import json
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.cobblestone import Cobblestone256Decryptor
from cryptography.exceptions import AlreadyFinalized, InvalidTag

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.sealing.cipher import HEADER_BYTES, message_bytes, open_message
from tenancy.sealing.ranges import RangedReader, derive_message_key

FILE_NAME = "c2sp_chunked_encryption_aes_256_gcm_test.json"
PUBLISHED_COUNT = 35


@dataclass(frozen=True)
class Vector:
    key: bytes
    context: bytes
    sealed: bytes
    is_valid: bool
    flags: tuple[str, ...]
    facts: dict

    @property
    def header(self):
        return self.sealed[:HEADER_BYTES]

    @property
    def body(self):
        return self.sealed[HEADER_BYTES:]

    @property
    def opens_partly(self):
        """How many bytes are authentic before the damage; none for valid ones."""
        return 0 if self.is_valid else self.facts.get("msgLength", 0)


def published_folder():
    folder = os.environ.get("C2SP_VECTORS")
    if folder is None and os.environ.get("CI") == "true":
        pytest.fail("C2SP_VECTORS must name the folder of the published vectors.", pytrace=False)
    return None if folder is None else Path(folder)


def read_vectors(path):
    for group in json.loads(path.read_bytes())["testGroups"]:
        for test in group["tests"]:
            sealed = zlib.decompress(bytes.fromhex(test["ct"]))
            key, context = bytes.fromhex(test["key"]), bytes.fromhex(test["ctx"])
            yield Vector(key, context, sealed, test["result"] == "valid", tuple(test["flags"]), test)


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damaged(whole):
    """Every kind of damage to a message of three chunks."""
    header, body = whole.header, whole.body
    first, second, last = body[:16400], body[16400:32800], body[32800:]
    # What is stored then, how many bytes before the damage are good, and whether the last chunk is.
    kinds = {
        "first-flipped": (header + flipped(first, 5) + second + last, 0, True),
        "second-flipped": (header + first + flipped(second, 5) + last, 16384, True),
        "last-flipped": (header + first + second + flipped(last, 0), 32768, False),
        "last-missing": (header + first + second, 32768, False),
        "middle-missing": (header + first + last, 16384, False),
        "byte-missing": (header + body[:-1], 32768, False),
        "byte-appended": (header + body + b"\0", 32768, False),
        "chunk-appended": (header + body + first, 32768, False),
        "swapped": (header + second + first + last, 0, True),
        "duplicated": (header + first + first + last, 16384, True),
        "header-only": (header, 0, False),
        "header-cut": (header[:55], 0, False),
        "nothing": (b"", 0, False),
        "salt-flipped": (flipped(header, 3) + body, 0, False),
        "commitment-flipped": (flipped(header, 30) + body, 0, False),
    }
    message = read_all(whole)
    for name, (sealed, good_bytes, end_is_good) in kinds.items():
        good = message[:good_bytes]
        facts = {"msgLength": good_bytes, "msgSha512": hashlib.sha512(good).hexdigest()}
        flags = ("ValidFinalChunk",) if end_is_good else ()
        yield name, replace(whole, sealed=sealed, is_valid=False, flags=flags, facts=facts)
    for name, change in {
        "another-key": {"key": bytes(32)},
        "short-key": {"key": whole.key[:31]},
        "another-context": {"context": whole.context + b"x"},
    }.items():
        yield name, replace(whole, is_valid=False, flags=(), facts={}, **change)


def load():
    own = list(read_vectors(Path(__file__).with_name("vectors.json")))
    named = [*((str(vector.facts["tcId"]), vector) for vector in own), *damaged(own[-1])]
    yield from (pytest.param(vector, id=f"own-{name}") for name, vector in named)
    if (folder := published_folder()) is not None:
        for vector in read_vectors(folder / FILE_NAME):
            yield pytest.param(vector, id=f"published-{vector.facts['tcId']}")


def whole(vector):
    with SecretKey(vector.key).exposed() as key:
        return open_message(vector.header, vector.body, key=key, context=vector.context)


def ranged(vector):
    def fetch(ranges):
        return [vector.body[start : start + length] for start, length in ranges]

    with SecretKey(vector.key).exposed() as key:
        return RangedReader(vector.header, body_bytes=len(vector.body), fetch=fetch, key=key, context=vector.context)


def read_all(vector):
    reader = ranged(vector)
    return reader.read(0, reader.size_bytes)


VECTORS = list(load())
every_vector = pytest.mark.parametrize("vector", VECTORS)


def require_message(vector, message):
    assert len(message) == vector.facts["msgLength"]
    assert hashlib.sha512(message).hexdigest() == vector.facts["msgSha512"]


@pytest.mark.case(45)
@every_vector
@pytest.mark.parametrize("reader", [whole, read_all])
def test_each_reader_gives_the_exact_verdict(vector, reader):
    if vector.is_valid:
        require_message(vector, reader(vector))
    else:
        # A key of another length is refused before there is a message.
        with pytest.raises(ValueError if len(vector.key) != 32 else ResultCorrupt):
            reader(vector)


@pytest.mark.case(45)
@every_vector
def test_the_ranged_reader_returns_nothing_outside_of_what_it_verified(vector):
    try:
        reader = ranged(vector)
        reader.verify_length()
    except (ResultCorrupt, ValueError):
        assert not vector.is_valid
        return
    # The end is authentic, so damage is in the middle: each chunk is authentic or refused, and nothing in between.
    assert vector.is_valid or "ValidFinalChunk" in vector.flags
    good = b""
    for start in range(0, reader.size_bytes, 16384):
        try:
            good += ranged(vector).read(start, min(16384, reader.size_bytes - start))
        except ResultCorrupt:
            assert not vector.is_valid
            break
    else:
        assert vector.is_valid
    if vector.is_valid or vector.opens_partly:
        require_message(vector, good)
    else:
        assert good == b""


@pytest.mark.parametrize("vector", [param for param in VECTORS if "aeadKey" in param.values[0].facts])
def test_the_key_schedule_is_the_published_one(vector):
    with SecretKey(vector.key).exposed() as key:
        cipher, nonce, commitment = derive_message_key(key, salt=vector.sealed[:24], context=vector.context)
    assert nonce.to_bytes(12, "big").hex() == vector.facts["baseNonce"]
    assert commitment == vector.sealed[24:56]
    if vector.is_valid:
        chunk = vector.body[:16400]
        assert cipher.decrypt(nonce.to_bytes(12, "big"), chunk, None) == whole(vector)[:16384]


@pytest.mark.case(45)
@pytest.mark.parametrize("vector", [param for param in VECTORS if "ValidFinalChunk" in param.values[0].flags])
def test_a_reader_is_of_no_use_after_a_failure(vector):
    reader = ranged(vector)
    with pytest.raises(ResultCorrupt):
        reader.read(0, reader.size_bytes)
    with pytest.raises(ResultCorrupt):
        # The last chunk is authentic; a fresh reader would open it.
        reader.read(reader.size_bytes, 0)
    decryptor = Cobblestone256Decryptor(vector.key, vector.context)
    with pytest.raises(InvalidTag):
        decryptor.update(vector.sealed)
    with pytest.raises(AlreadyFinalized):
        decryptor.update(b"")


def test_there_is_one_message_length_for_a_body_or_none():
    lengths = {}
    for size in range(3 * 16384):
        lengths[size + 16 * (size // 16384 + 1)] = size
    for body_bytes in range(-20_000, 3 * 16400):
        if body_bytes in lengths:
            assert message_bytes(body_bytes) == lengths[body_bytes]
        else:
            with pytest.raises(ResultCorrupt):
                message_bytes(body_bytes)


def test_all_published_vectors_are_there_if_any():
    published = sum(param.id.startswith("published-") for param in VECTORS)
    assert published == (0 if published_folder() is None else PUBLISHED_COUNT)
