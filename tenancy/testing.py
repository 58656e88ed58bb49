"""
The suite every key provider must pass, shipped so that a provider of your own can join it. Needs pytest.

    pytest.register_assert_rewrite("tenancy.testing")  # in conftest.py, for failures that show their values

    from tenancy.testing import KeyProviderContract

    class TestMyProvider(KeyProviderContract):
        @pytest.fixture
        def open_provider(self):
            return lambda: MyProvider(...)
"""

# ruff: noqa: S101 - this is a test suite, which speaks in asserts

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

import pytest

from tenancy.errors import KeyDestroyed, KeyUnavailable, ResultCorrupt, TenancyError
from tenancy.keys.abilities import generation_of, keys_of
from tenancy.keys.keyset import KeyState
from tenancy.keys.material import KEY_BYTES, SecretKey
from tenancy.keys.providers import KeyProvider, WrappedKey, rewrap_key

__all__ = ["KeyProviderContract"]

_CONTEXT: Final = b"\x05\x00\x00\x00label\x20\x00\x00\x00" + b"t" * 32
#: Whatever is bound must be bound to the last bit, and as a whole.
_OTHER_CONTEXTS: Final = {
    "one bit": _CONTEXT[:-1] + bytes([_CONTEXT[-1] ^ 1]),
    "shorter": _CONTEXT[:-1],
    "longer": _CONTEXT + b"\0",
    "another case": _CONTEXT.upper(),
    "one byte": b"x",
}
#: How an id or data that was tampered with may be refused: some providers find their key by it.
_REFUSALS: Final = (ResultCorrupt, KeyUnavailable, KeyDestroyed)


class KeyProviderContract:
    """
    What a key provider promises. Subclass it, call the class `Test…` and give it a fixture `open_provider`: a callable
    that opens the provider anew, each time with the same keys, as another process would.
    """

    @pytest.fixture
    def provider(self, open_provider: Callable[[], KeyProvider]) -> Iterator[KeyProvider]:
        """An open provider."""
        with closing(open_provider()) as provider:
            yield provider

    @pytest.fixture
    def key(self) -> Iterator[SecretKey]:
        """A key to wrap."""
        with SecretKey.generate() as key:
            yield key

    def test_its_name_and_the_id_of_its_key_fit_into_the_catalogue(self, provider: KeyProvider) -> None:
        for text, limit in ((provider.name, 32), (provider.primary_key_id, 255)):
            assert type(text) is str
            assert 1 <= len(text) <= limit
            assert text.isascii()
            assert text.isprintable()

    def test_a_key_comes_back_exactly_and_stays_the_callers(self, provider: KeyProvider, key: SecretKey) -> None:
        wrapped = provider.wrap(key, context=_CONTEXT)
        assert type(wrapped.data) is bytes
        assert wrapped.key_id == provider.primary_key_id
        with provider.unwrap(wrapped, context=_CONTEXT) as first, provider.unwrap(wrapped, context=_CONTEXT) as second:
            assert first is not second
            first.close()
            assert second.equals(key)

    @pytest.mark.parametrize("content", [bytes(KEY_BYTES), b"\xff" * KEY_BYTES, b"{" * KEY_BYTES])
    def test_any_key_comes_back(self, provider: KeyProvider, content: bytes) -> None:
        with SecretKey(content) as key, provider.unwrap(provider.wrap(key, context=b"c"), context=b"c") as opened:
            assert opened.equals(key)

    def test_a_key_opens_in_every_process_that_has_the_same_keys(
        self, open_provider: Callable[[], KeyProvider], key: SecretKey
    ) -> None:
        with closing(open_provider()) as one:
            wrapped = one.wrap(key, context=_CONTEXT)
        with closing(open_provider()) as other, other.unwrap(wrapped, context=_CONTEXT) as opened:
            assert opened.equals(key)
            assert other.name == one.name

    def test_what_is_wrapped_twice_differs_and_shows_nothing_of_the_key(
        self, provider: KeyProvider, key: SecretKey
    ) -> None:
        wrapped = {provider.wrap(key, context=_CONTEXT).data for _ in range(3)}
        assert len(wrapped) == 3
        with key.exposed() as view:
            assert not any(bytes(view[:8]) in data for data in wrapped)

    @pytest.mark.parametrize("context", [b"\0", b"\xff\xfe\n{}", os.urandom(20_000)], ids=["NUL", "no text", "long"])
    def test_any_bytes_may_be_a_context(self, provider: KeyProvider, key: SecretKey, context: bytes) -> None:
        wrapped = provider.wrap(key, context=context)
        with provider.unwrap(wrapped, context=context) as opened:
            assert opened.equals(key)
        with pytest.raises(ResultCorrupt):
            provider.unwrap(wrapped, context=context + b"\0")

    @pytest.mark.parametrize("context", _OTHER_CONTEXTS.values(), ids=_OTHER_CONTEXTS)
    def test_a_key_opens_with_its_own_context_only(self, provider: KeyProvider, key: SecretKey, context: bytes) -> None:
        with pytest.raises(ResultCorrupt) as refusal:
            provider.unwrap(provider.wrap(key, context=_CONTEXT), context=context)
        _require_silent(refusal.value, context)

    def test_what_was_changed_is_refused(self, provider: KeyProvider, key: SecretKey) -> None:
        wrapped = provider.wrap(key, context=_CONTEXT)
        data = wrapped.data
        for position in {*range(0, len(data), max(1, len(data) // 12)), len(data) - 1}:
            changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
            _require_refused(provider, WrappedKey(wrapped.key_id, changed))
        for changed in (b"", b"x", data[:-1], data[1:], data + b"\0", data + data, os.urandom(len(data))):
            _require_refused(provider, WrappedKey(wrapped.key_id, changed))
        # Where no provider keeps what it finds its key by.
        with pytest.raises(ResultCorrupt):
            provider.unwrap(WrappedKey(wrapped.key_id, data[:-1] + bytes([data[-1] ^ 1])), context=_CONTEXT)

    @pytest.mark.parametrize("data", [None, 7, "text", 1.5, bytearray(b"bytes")])
    def test_what_is_not_bytes_is_refused_as_changed(self, provider: KeyProvider, data: Any) -> None:
        # A database may hand back whatever somebody put into it.
        with pytest.raises(ResultCorrupt):
            provider.unwrap(WrappedKey(provider.primary_key_id, data), context=_CONTEXT)

    @pytest.mark.parametrize("form", ["", "x", "{}0", "0{}", "{}\n", "k" * 255, 7])
    def test_under_the_id_of_another_key_nothing_opens(self, provider: KeyProvider, key: SecretKey, form: Any) -> None:
        wrapped = provider.wrap(key, context=_CONTEXT)
        key_id = form.format(wrapped.key_id) if isinstance(form, str) else form
        _require_refused(provider, WrappedKey(key_id, wrapped.data))

    def test_a_key_is_rewrapped_for_another_context(self, provider: KeyProvider, key: SecretKey) -> None:
        before = provider.wrap(key, context=_CONTEXT)
        after = rewrap_key(provider, before, context=_CONTEXT, new_context=b"new")
        assert after.key_id == provider.primary_key_id
        for wrapped, right, wrong in ((before, _CONTEXT, b"new"), (after, b"new", _CONTEXT)):
            with provider.unwrap(wrapped, context=right) as opened:
                assert opened.equals(key)
            with pytest.raises(ResultCorrupt):
                provider.unwrap(wrapped, context=wrong)
        for wrapped, context in ((before, b"new"), (WrappedKey(before.key_id, b""), _CONTEXT)):
            with pytest.raises(ResultCorrupt):
                rewrap_key(provider, wrapped, context=context, new_context=b"new")

    def test_its_keys_do_not_change_while_nobody_changes_them(self, provider: KeyProvider, key: SecretKey) -> None:
        before = generation_of(provider), keys_of(provider)
        with provider.unwrap(provider.wrap(key, context=_CONTEXT), context=_CONTEXT):
            assert (generation_of(provider), keys_of(provider)) == before
        hash(before[0])

    def test_if_it_lists_its_keys_the_primary_one_is_among_them(self, provider: KeyProvider) -> None:
        infos = keys_of(provider)
        primary = [info.key_id for info in infos or () if info.state is KeyState.PRIMARY]
        assert infos is None or primary == [provider.primary_key_id]

    def test_eight_threads_do_not_get_into_each_others_way(self, provider: KeyProvider) -> None:
        def work(number: int) -> bool:
            context = b"%d" % number
            with (
                SecretKey.generate() as key,
                provider.unwrap(provider.wrap(key, context=context), context=context) as opened,
            ):
                return opened.equals(key)

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(16)))

    def test_it_may_be_closed_twice_and_shows_no_id_of_a_key(self, provider: KeyProvider) -> None:
        # A short one may be part of any text.
        if len(provider.primary_key_id) > 8:
            assert provider.primary_key_id not in repr(provider) + str(provider)
        provider.close()
        provider.close()


def _require_refused(provider: KeyProvider, wrapped: WrappedKey) -> None:
    with pytest.raises(_REFUSALS) as refusal:
        provider.unwrap(wrapped, context=_CONTEXT)
    _require_silent(refusal.value, wrapped.data)


def _require_silent(error: TenancyError, secret: bytes) -> None:
    """A message is for everybody, and nothing travels along with it."""
    assert error.__cause__ is None
    assert len(secret) < 4 or not any(form in str(error) for form in (repr(secret), secret.hex()))
