"""
What was sealed once opens for ever, by this library and by a reader that knows `docs/format.md` alone.

A golden file is never edited and never made anew. A new format gets a file of its own beside it.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.keys.keyring import Keyring
from tenancy.keys.keyset import parse_keyset
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeysetProvider, WrappedKey
from tenancy.keys.stored import SessionKey, TenantKey
from tenancy.sealing.envelope import Binding, Card, Envelope, open_card, open_whole, read_chars, seal
from tests.crypto import second_reader
from tests.crypto.conftest import BINDING, CARD

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
PATH = Path(__file__).parents[1] / "golden" / "format-1.json"
SHA256 = "2cb5c50409597c56e645d335afec0293f53b2789337ededd0329a18e12c98c68"
GOLDEN = json.loads(PATH.read_bytes())
every_result = pytest.mark.parametrize("golden", GOLDEN["results"], ids=lambda golden: golden["what"])
LONG_TEXT = st.integers(1, 60_000).map(lambda count: "wörd\n" * count)


def decoded(fields):
    """Everything that stands in base64, as bytes."""
    encoded = ("header", "card", "wrapped", "check_value")
    return {name: base64.b64decode(value) if name in encoded else value for name, value in fields.items()}


def names_of(golden):
    return {
        name: None if value is None else base64.b64decode(value).decode("utf-8", "surrogatepass")
        for name, value in golden["names"].items()
    }


@pytest.fixture
def keyring():
    return Keyring(KeysetProvider("file", parse_keyset(json.dumps(GOLDEN["keyset"]).encode())))


@pytest.fixture
def session_key(keyring):
    tenant_key, session_key = TenantKey(**decoded(GOLDEN["tenant_key"])), SessionKey(**decoded(GOLDEN["session_key"]))
    return keyring.session_key(tenant_key, session_key, **GOLDEN["ids"])


def require_content(golden, content):
    assert isinstance(content, bytes if golden["row"]["kind"] else str)
    plain = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    assert hashlib.sha256(plain).hexdigest() == golden["content_sha256"]
    assert "content" not in golden or base64.b64decode(golden["content"]) == plain


def test_the_golden_file_is_the_one_that_was_made_with_the_format():
    assert hashlib.sha256(PATH.read_bytes()).hexdigest() == SHA256


@every_result
def test_a_golden_result_opens(session_key, golden):
    envelope, body = Envelope(**decoded(golden["row"])), base64.b64decode(golden["body"])
    bound = {"key": session_key, "binding": Binding(**GOLDEN["ids"], result_id=golden["result_id"])}
    contents = open_card(envelope, **bound)
    content = open_whole(envelope, contents, body, key=session_key)
    require_content(golden, content)
    assert contents.card == Card(**names_of(golden))
    assert (contents.total_chars, contents.total_lines) == (golden["total_chars"], golden["total_lines"])
    if isinstance(content, str):

        def fetch(ranges):
            return [body[start : start + length] for start, length in ranges]

        for offset in (0, 40_000, len(content)):
            page, _ = read_chars(envelope, contents, fetch, key=session_key, offset=offset, max_chars=5000)
            assert page == content[offset : offset + 5000]


def test_a_golden_check_value_is_accepted(keyring):
    root = decoded(GOLDEN["root_key"])
    stored = WrappedKey(root["key_id"], root["check_value"])
    assert keyring.require_check_value(stored, provider="file", catalogue_id=GOLDEN["catalogue_id"]) is None


@pytest.fixture(scope="module")
def second_readers_key():
    """The way from the keyset to the session's key, as the page tells it."""
    ids, tenant_key, session_key = GOLDEN["ids"], decoded(GOLDEN["tenant_key"]), decoded(GOLDEN["session_key"])
    root_key = base64.urlsafe_b64decode(GOLDEN["keyset"]["keys"][0]["key"])
    context = ("haystack-tenancy tenant key v1", ids["tenant_id"], tenant_key["version"])
    opened = second_reader.open_wrapped_key(root_key, tenant_key["wrapped"], *context)
    context = (
        "haystack-tenancy session key v1",
        *(ids["tenant_id"], ids["user_id"], ids["session_id"]),
        *(session_key["tenant_key_version"], session_key["version"]),
    )
    return second_reader.open_wrapped_key(opened, session_key["wrapped"], *context)


@every_result
def test_the_page_is_enough_to_open_a_golden_result(second_readers_key, golden):
    ids = GOLDEN["ids"] | {"result_id": golden["result_id"]}
    body = base64.b64decode(golden["body"])
    names, content = second_reader.open_result(second_readers_key, decoded(golden["row"]), ids, body)
    require_content(golden, content)
    assert names == names_of(golden)


def test_the_keyset_on_the_page_is_one():
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (entry,) = parse_keyset(example.encode())
    assert entry.key.equals(SecretKey(bytes(range(32))))


def test_the_page_is_enough_to_open_a_golden_check_value():
    root_key = base64.urlsafe_b64decode(GOLDEN["keyset"]["keys"][0]["key"])
    context = ("haystack-tenancy check value v1", GOLDEN["catalogue_id"])
    opened = second_reader.open_wrapped_key(root_key, decoded(GOLDEN["root_key"])["check_value"], *context)
    assert opened == bytes(32)


@given(st.text(st.characters(codec=None)) | st.binary() | LONG_TEXT)
def test_the_page_is_enough_to_open_whatever_is_sealed_today(content):
    raw = bytes(range(32))
    envelope, body = seal(content, key=SecretKey(raw), key_version=1, binding=BINDING, card=CARD)
    row = {name: getattr(envelope, name) for name in Envelope.__slots__}
    ids = {name: getattr(BINDING, name) for name in Binding.__slots__}
    names, opened = second_reader.open_result(raw, row, ids, body)
    assert opened == content
    assert names["tool"] == CARD.tool
