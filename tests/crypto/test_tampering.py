"""Everything that can be changed from outside, changed. Both readers refuse and return nothing."""

import os
from dataclasses import fields, replace

import pytest

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.sealing.envelope import Binding, Envelope, open_card
from tests.crypto.conftest import BINDING

#: Incompressible, so that its chunks are where its characters are: three full ones and a short one.
NOISE = os.urandom(25_000).hex()


def flips(data):
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def chunks_of(body):
    return [body[at : at + 16400] for at in range(0, len(body), 16400)]


@pytest.mark.case(25)
@pytest.mark.parametrize("content", ["a small result", b"a small result"])
def test_any_flipped_bit_is_refused(sealed, content):
    result = sealed(content)
    for header in flips(result.envelope.header):
        result.changed(header=header).require_corrupt()
    for card in flips(result.envelope.card):
        result.changed(card=card).require_corrupt()
    for body in flips(result.body):
        replace(result, body=body).require_corrupt()


@pytest.mark.case(26)
@pytest.mark.parametrize("content", ["a small result", b""])
def test_any_truncation_is_refused(sealed, content):
    result = sealed(content)
    for length in range(len(result.body)):
        cut = replace(result, body=result.body[:length])
        cut.require_corrupt()
        cut.changed(stored_bytes=length).require_corrupt()
    for length in range(len(result.envelope.card)):
        result.changed(card=result.envelope.card[:length]).require_corrupt()
    for length in range(56):
        result.changed(header=result.envelope.header[:length]).require_corrupt()


@pytest.mark.case(26)
@pytest.mark.parametrize("size", [16384, 32768, 40_000])
def test_a_truncation_at_every_border_of_a_large_result_is_refused(sealed, size):
    result = sealed(NOISE[:size], compress=False)
    for border in range(0, len(result.body), 16400):
        for length in {max(0, border - 1), border, border + 1, border + 15, border + 16, border + 17}:
            if length < len(result.body):
                cut = replace(result, body=result.body[:length])
                cut.require_corrupt()
                cut.changed(stored_bytes=length).require_corrupt()


@pytest.mark.case(27)
@pytest.mark.parametrize("appended", [b"\0", bytes(16), os.urandom(16400), "a chunk of its own"])
def test_whatever_is_appended_is_refused(sealed, appended):
    for content in ("small", NOISE):
        result = sealed(content, compress=False)
        more = chunks_of(result.body)[0] if isinstance(appended, str) else appended
        longer = replace(result, body=result.body + more)
        with pytest.raises(ResultCorrupt):
            longer.open_whole()
        longer.changed(stored_bytes=len(longer.body)).require_corrupt()
    result.changed(card=result.envelope.card + b"\0").require_corrupt()
    result.changed(header=result.envelope.header + b"\0").require_corrupt()


@pytest.mark.case(28)
def test_moved_chunks_are_refused(sealed):
    result = sealed(NOISE, compress=False)
    first, second, third, last = chunks_of(result.body)
    for body in (
        second + first + third + last,
        first + third + second + last,
        last + second + third + first,
        first + first + third + last,
        first + second + second + last,
    ):
        with pytest.raises(ResultCorrupt):
            replace(result, body=body).open_whole()
        with pytest.raises(ResultCorrupt):
            replace(result, body=body).read_chars()
    for body in (first + third + last, first + second + third, second + third + last, last):
        dropped = replace(result, body=body)
        dropped.require_corrupt()
        dropped.changed(stored_bytes=len(body)).require_corrupt()


def test_a_page_is_refused_when_one_of_its_chunks_is_damaged_and_reads_on_when_another_is(sealed):
    result = sealed(NOISE, compress=False)
    body = bytearray(result.body)
    body[16400 + 5] ^= 1
    damaged = replace(result, body=bytes(body))
    damaged.require_content_corrupt_from(20_000)
    assert damaged.read_chars(33_000, 9) == NOISE[33_000:33_009]


def test_a_page_is_refused_when_the_end_is_damaged(sealed):
    result = sealed(NOISE, compress=False)
    damaged = replace(result, body=result.body[:-1] + bytes([result.body[-1] ^ 1]))
    damaged.require_content_corrupt_from(0)
    # Also where there is nothing to read: that there is nothing is what the end proves.
    damaged.require_content_corrupt_from(len(NOISE))


@pytest.mark.case(30, 31, 130)
@pytest.mark.parametrize("content", ["one result of many", b"one result of many"])
@pytest.mark.parametrize("field", [field.name for field in fields(Binding)])
def test_parts_of_another_result_session_user_or_tenant_are_refused(sealed, content, field):
    mine = sealed(content)
    theirs = sealed(content, binding=replace(BINDING, **{field: "x" * 32}))
    for one, other in ((mine, theirs), (theirs, mine)):
        one.changed(header=other.envelope.header).require_corrupt()
        one.changed(card=other.envelope.card).require_corrupt()
        replace(one, body=other.body).require_corrupt()
        # The whole row and body, moved to where it does not belong.
        replace(one, binding=other.binding).require_corrupt()


@pytest.mark.case(34)
@pytest.mark.parametrize("content", ["sealed twice", b"sealed twice"])
def test_parts_of_another_sealing_of_the_same_result_are_refused(sealed, content):
    one, other = sealed(content), sealed(content)
    one.changed(header=other.envelope.header).require_corrupt()
    one.changed(card=other.envelope.card).require_corrupt()
    replace(one, body=other.body).require_corrupt()
    replace(one, body=other.body).changed(header=other.envelope.header).require_corrupt()


CHANGES = {
    "format": [0, 2, -1, 1 << 64],
    "suite": [0, 2, -1, 1 << 64],
    "kind": [2, -1, 1 << 64],
    "codec": [2, -1, 1 << 64],
    "size_bytes": [0, -1, 1 << 62, 1 << 63, 1 << 64],
    "stored_bytes": [0, -1, 15, 16, 17, 16399, 16400, 16416, 1 << 62],
    "key_version": [0, 2, -1, 1 << 63, 1 << 64],
    "header": [b"", bytes(56)],
    "card": [b"", bytes(56), bytes(200)],
}


@pytest.mark.case(32, 132)
@pytest.mark.parametrize(("column", "values"), CHANGES.items())
@pytest.mark.parametrize("content", ["text " * 1000, "text", b"bytes"])
def test_any_changed_column_is_refused(sealed, content, column, values):
    result = sealed(content)
    for value in values:
        result.changed(**{column: value}).require_corrupt()
    if column in ("size_bytes", "stored_bytes"):
        for step in (1, -1):
            result.changed(**{column: getattr(result.envelope, column) + step}).require_corrupt()
    if column in ("kind", "codec"):
        result.changed(**{column: 1 - getattr(result.envelope, column)}).require_corrupt()


@pytest.mark.parametrize("column", [field.name for field in fields(Envelope)])
def test_a_column_of_another_type_is_refused_even_where_it_is_equal(sealed, column):
    # SQLite keeps whatever it is given.
    result = sealed("text")
    value = getattr(result.envelope, column)
    others = [float(value), bool(value), str(value)] if isinstance(value, int) else [bytearray(value), value.hex(), 3]
    for other in (*others, None):
        result.changed(**{column: other}).require_corrupt()


def test_an_overwritten_header_ends_the_card_too(sealed):
    result = sealed("deleted")
    with pytest.raises(ResultCorrupt):
        open_card(replace(result.envelope, header=b""), key=SecretKey(result.key_bytes), binding=BINDING)


def test_plain_text_in_the_place_of_a_body_is_refused(sealed):
    for content in ("plain text " * 100, b"plain bytes " * 100):
        result = sealed(content)
        plain = content.encode() if isinstance(content, str) else content
        replace(result, body=plain).require_corrupt()
        replace(result, body=plain).changed(stored_bytes=len(plain)).require_corrupt()
