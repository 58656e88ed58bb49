import copy
import pickle
import threading
from dataclasses import replace

import pytest

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt
from tenancy.keys.cache import KeyCache
from tenancy.keys.keyring import Keyring
from tenancy.keys.keyset import KeysetEntry, KeyState
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeysetProvider, UnknownKey, WrappedKey

IDS = {"tenant_id": "t" * 32, "user_id": "u" * 32, "session_id": "s" * 32}
ROOT = b"k" * 32


class CountingProvider(KeysetProvider):
    """A real provider that counts what it is asked for, and may be down."""

    def __init__(self, root=ROOT, key_id="a", name="file"):
        super().__init__(name, [KeysetEntry(key_id, KeyState.PRIMARY, None, SecretKey(root))])
        self.unwrapped = 0
        self.is_down = False

    def unwrap(self, wrapped, *, context):
        self.unwrapped += 1
        if self.is_down:
            raise KeyUnavailable("down")
        return super().unwrap(wrapped, context=context)


class ChangingProvider(CountingProvider):
    """One whose keys another process changes: it says so, and what it is asked for may be answered a moment later."""

    def __init__(self):
        super().__init__()
        self.now = 0
        self.meanwhile = None

    def generation(self):
        if self.is_down:
            raise KeyUnavailable("down")
        return self.now

    def unwrap(self, wrapped, *, context):
        key = super().unwrap(wrapped, context=context)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return key


class Time:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def bytes_of(key):
    with key.exposed() as view:
        return bytes(view)


@pytest.fixture
def keyring():
    return Keyring(CountingProvider())


@pytest.fixture
def rows(keyring):
    tenant_key = keyring.new_tenant_key(tenant_id=IDS["tenant_id"])
    return tenant_key, keyring.new_session_key(tenant_key, **IDS)


def test_a_session_key_opens_in_every_process_that_has_the_key(keyring, rows):
    first = bytes_of(keyring.session_key(*rows, **IDS))
    assert bytes_of(Keyring(CountingProvider()).session_key(*rows, **IDS)) == first


def test_a_row_says_how_its_key_is_wrapped_and_shows_no_wrapped_key(rows):
    tenant_key, session_key = rows
    assert (tenant_key.version, tenant_key.provider, tenant_key.key_id) == (1, "file", "a")
    assert (session_key.version, session_key.tenant_key_version) == (1, 1)
    assert len(tenant_key.wrapped) == len(session_key.wrapped) == 104
    assert "wrapped" not in repr(rows)


def test_every_tenant_and_session_has_its_own_key(keyring):
    opened = set()
    for tenant in ("t", "v"):
        tenant_key = keyring.new_tenant_key(tenant_id=tenant)
        for session in ("s", "r"):
            ids = {"tenant_id": tenant, "user_id": "u", "session_id": session}
            opened.add(bytes_of(keyring.session_key(tenant_key, keyring.new_session_key(tenant_key, **ids), **ids)))
    assert len(opened) == 4


def changed_rows(rows):
    tenant_key, session_key = rows
    for key, position in ((tenant_key, 0), (session_key, 1)):
        changes = [{"wrapped": key.wrapped[:-1] + bytes([key.wrapped[-1] ^ 1])}, {"wrapped": b""}]
        changes += [{"version": version} for version in (0, 2, -1, 1 << 64)]
        if position:
            changes += [{"tenant_key_version": version} for version in (0, 2, -1)]
        else:
            changes += [{"floor": key.version + 1}]
        for change in changes:
            row = replace(key, **change)
            yield (row, session_key) if position == 0 else (tenant_key, row)


@pytest.mark.case(25)
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_changed_row_is_refused_by_a_warm_cache_and_by_a_cold_one(keyring, rows, is_warm):
    reader = keyring if is_warm else Keyring(CountingProvider())
    if is_warm:
        reader.session_key(*rows, **IDS).close()
    for changed in changed_rows(rows):
        with pytest.raises(ResultCorrupt):
            reader.session_key(*changed, **IDS)
    if is_warm:
        keyring.session_key(*rows, **IDS).close()


@pytest.mark.case(130)
@pytest.mark.parametrize("field", IDS)
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_wrapped_key_opens_for_nobody_else(keyring, rows, field, is_warm):
    reader = keyring if is_warm else Keyring(CountingProvider())
    if is_warm:
        reader.session_key(*rows, **IDS).close()
    with pytest.raises(ResultCorrupt):
        reader.session_key(*rows, **IDS | {field: "x" * 32})


def test_the_wrapped_key_of_another_session_or_tenant_is_refused(keyring, rows):
    tenant_key, session_key = rows
    keyring.session_key(*rows, **IDS).close()
    theirs = keyring.new_session_key(tenant_key, **IDS | {"session_id": "x"})
    with pytest.raises(ResultCorrupt):
        keyring.session_key(tenant_key, replace(session_key, wrapped=theirs.wrapped), **IDS)
    other_tenant = keyring.new_tenant_key(tenant_id="x")
    for stolen in (other_tenant, replace(tenant_key, wrapped=other_tenant.wrapped)):
        with pytest.raises(ResultCorrupt):
            keyring.session_key(stolen, session_key, **IDS)
    # A session's key is no tenant's.
    with pytest.raises(ResultCorrupt):
        keyring.session_key(replace(tenant_key, wrapped=session_key.wrapped), session_key, **IDS)


def test_a_key_of_a_later_version_is_bound_to_it(keyring):
    tenant_key = keyring.new_tenant_key(tenant_id=IDS["tenant_id"], version=3)
    session_key = keyring.new_session_key(tenant_key, **IDS, version=5)
    assert (tenant_key.version, session_key.version, session_key.tenant_key_version) == (3, 5, 3)
    cold = Keyring(CountingProvider())
    cold.session_key(tenant_key, session_key, **IDS).close()
    with pytest.raises(ResultCorrupt):
        cold.session_key(replace(tenant_key, version=4), replace(session_key, tenant_key_version=4), **IDS)


def test_another_root_key_opens_nothing(rows):
    with pytest.raises(ResultCorrupt):
        Keyring(CountingProvider(b"x" * 32)).session_key(*rows, **IDS)
    with pytest.raises(UnknownKey):
        Keyring(CountingProvider(key_id="b")).session_key(*rows, **IDS)
    with pytest.raises(UnknownKey):
        Keyring(CountingProvider(name="env")).session_key(*rows, **IDS)


def test_a_provider_that_is_down_is_neither_corruption_nor_the_end(rows):
    provider = CountingProvider()
    keyring = Keyring(provider)
    provider.is_down = True
    with pytest.raises(KeyUnavailable) as refusal:
        keyring.session_key(*rows, **IDS)
    assert refusal.value.retryable
    with pytest.raises(KeyUnavailable):
        keyring.new_session_key(rows[0], **IDS)
    provider.is_down = False
    keyring.session_key(*rows, **IDS).close()


def test_the_provider_is_asked_once_for_what_is_kept(rows):
    provider = CountingProvider()
    keyring = Keyring(provider)
    for _ in range(3):
        keyring.session_key(*rows, **IDS).close()
    keyring.session_key(rows[0], keyring.new_session_key(rows[0], **IDS | {"user_id": "x"}), **IDS | {"user_id": "x"})
    assert provider.unwrapped == 1


def test_a_new_key_is_kept_from_the_start(keyring, rows):
    keyring.session_key(*rows, **IDS).close()
    assert keyring._providers.find("file").unwrapped == 0
    # Found under what it was kept by, not kept a second time.
    assert len(keyring._cache) == 2


def test_a_kept_key_ends_with_its_age(rows):
    provider, time = CountingProvider(), Time()
    keyring = Keyring(provider, cache_seconds=300.0, monotonic=time)
    keyring.session_key(*rows, **IDS).close()
    time.seconds = 299.9
    keyring.session_key(*rows, **IDS).close()
    assert provider.unwrapped == 1
    # Use does not make it younger.
    time.seconds = 300.0
    provider.is_down = True
    with pytest.raises(KeyUnavailable):
        keyring.session_key(*rows, **IDS)


@pytest.mark.parametrize("uses", ["session_key", "new_session_key"])
def test_nothing_is_kept_beyond_a_change_of_the_providers_keys(rows, uses):
    provider = ChangingProvider()
    keyring = Keyring(provider)
    kept = []
    for generation in range(3):
        provider.now = generation
        for _ in range(2):
            getattr(keyring, uses)(*(rows if uses == "session_key" else rows[:1]), **IDS)
            assert provider.unwrapped == generation + 1
        # Not left to their age.
        assert all(is_closed(key) for key in kept)
        kept = [with_its_bytes(key) for _, key in keyring._cache._kept.values()]
        assert kept


def test_a_key_that_was_opened_while_the_providers_keys_changed_is_not_kept(rows):
    provider = ChangingProvider()
    keyring = Keyring(provider)
    other = Keyring(CountingProvider()).new_tenant_key(tenant_id="x")

    def changes():
        provider.now += 1
        # Another thread is the first to see it.
        keyring.new_session_key(other, **IDS | {"tenant_id": "x"})

    provider.meanwhile = changes
    keyring.session_key(*rows, **IDS).close()
    provider.unwrapped = 0
    keyring.session_key(*rows, **IDS).close()
    assert provider.unwrapped == 1
    # Neither is the tenant's alone.
    provider.meanwhile = changes
    provider.now += 1
    keyring.new_session_key(rows[0], **IDS)
    provider.unwrapped = 0
    keyring.new_session_key(rows[0], **IDS)
    assert provider.unwrapped == 1


def test_a_new_key_that_was_wrapped_while_the_providers_keys_changed_is_not_kept():
    provider = ChangingProvider()
    keyring = Keyring(provider)
    wrap = provider.wrap

    def wrapping(key, *, context):
        wrapped = wrap(key, context=context)
        provider.now += 1
        keyring._generation("file")
        return wrapped

    provider.wrap = wrapping
    new = keyring.new_tenant_key(tenant_id="x")
    keyring.new_session_key(new, **IDS | {"tenant_id": "x"})
    assert provider.unwrapped == 1


def test_while_a_provider_cannot_tell_whether_its_keys_changed_nothing_is_opened_and_nothing_kept(rows):
    provider = ChangingProvider()
    keyring = Keyring(provider)
    keyring.session_key(*rows, **IDS).close()
    kept = [with_its_bytes(key) for _, key in keyring._cache._kept.values()]
    provider.is_down = True
    for use in (
        lambda: keyring.session_key(*rows, **IDS),
        lambda: keyring.new_session_key(rows[0], **IDS),
        lambda: keyring.new_tenant_key(tenant_id="x"),
    ):
        with pytest.raises(KeyUnavailable):
            use()
    assert all(is_closed(key) for key in kept)
    provider.is_down = False
    keyring.session_key(*rows, **IDS).close()
    assert provider.unwrapped == 2


def test_nothing_is_kept_where_nothing_may_be(rows):
    provider = CountingProvider()
    keyring = Keyring(provider, cache_entries=0)
    assert bytes_of(keyring.session_key(*rows, **IDS)) == bytes_of(keyring.session_key(*rows, **IDS))
    assert provider.unwrapped == 2


def test_the_callers_key_is_the_callers(keyring, rows):
    first = keyring.session_key(*rows, **IDS)
    expected = bytes_of(first)
    first.close()
    assert bytes_of(keyring.session_key(*rows, **IDS)) == expected


def test_a_closed_keyring_keeps_no_key_and_opens_none(keyring, rows):
    held = keyring.session_key(*rows, **IDS)
    expected = bytes_of(held)
    buffers = [key._memory.view.obj for _, key in keyring._cache._kept.values()]
    assert buffers
    keyring.close()
    keyring.close()
    with pytest.raises(KeyUnavailable):
        keyring.session_key(*rows, **IDS)
    # Whoever holds a key finishes what he began.
    assert bytes_of(held) == expected
    assert [buffer == bytes(32) for buffer in buffers].count(False) == 1
    held.close()
    assert all(buffer == bytes(32) for buffer in buffers)


def test_a_check_value_tells_the_right_key_from_every_other():
    keyring = Keyring(CountingProvider())
    stored = keyring.check_value(catalogue_id="c" * 32)
    assert stored.key_id == keyring.primary_keys()["file"] == "a"
    assert keyring.provider_name == "file"
    Keyring(CountingProvider()).require_check_value(stored, provider="file", catalogue_id="c" * 32)
    others = [
        (CountingProvider(b"x" * 32), stored, "file", "c" * 32),
        (CountingProvider(key_id="b"), stored, "file", "c" * 32),
        (CountingProvider(name="env"), stored, "file", "c" * 32),
        (CountingProvider(), stored, "env", "c" * 32),
        (CountingProvider(), stored, "file", "d" * 32),
        (CountingProvider(), WrappedKey("a", b""), "file", "c" * 32),
    ]
    for provider, value, name, catalogue_id in others:
        with pytest.raises(ConfigurationError, match="this catalogue was made with") as refusal:
            Keyring(provider).require_check_value(value, provider=name, catalogue_id=catalogue_id)
        assert refusal.value.__context__ is None


def test_a_key_that_cannot_be_checked_now_is_not_called_wrong():
    provider = CountingProvider()
    keyring = Keyring(provider)
    stored = keyring.check_value(catalogue_id="c")
    provider.is_down = True
    with pytest.raises(KeyUnavailable):
        keyring.require_check_value(stored, provider="file", catalogue_id="c")


def known_to(*providers):
    """What a catalogue remembers of them."""
    return [("file", Keyring(provider).check_value(catalogue_id="c")) for provider in providers]


def test_a_key_that_cannot_be_checked_now_is_checked_before_it_is_used(rows):
    known = known_to(CountingProvider())
    for root, refusal in ((ROOT, None), (b"x" * 32, ConfigurationError)):
        provider = CountingProvider(root)
        keyring = Keyring(provider)
        provider.is_down = True
        keyring.hold_to(lambda known=known: known, catalogue_id="c")
        uses = [
            lambda keyring=keyring: keyring.new_tenant_key(tenant_id="new"),
            lambda keyring=keyring: keyring.new_session_key(rows[0], **IDS),
            lambda keyring=keyring: keyring.session_key(*rows, **IDS),
            keyring.require_key,
        ]
        for use in uses:
            with pytest.raises(KeyUnavailable):
                use()
        provider.is_down = False
        for use in uses:
            if refusal is None:
                use()
                continue
            with pytest.raises(refusal):
                use()
        assert len(keyring._cache) == (0 if refusal else 4)


def test_a_key_that_was_checked_is_not_checked_again(rows):
    provider = CountingProvider()
    keyring = Keyring(provider)
    keyring.hold_to(lambda: known_to(CountingProvider()), catalogue_id="c")
    keyring.require_key()
    keyring.session_key(*rows, **IDS).close()
    assert provider.unwrapped == 2


class Succeeded(CountingProvider):
    """Has a second key, and lost the first."""

    def unwrap(self, wrapped, *, context):
        if wrapped.key_id == "a":
            raise KeyDestroyed("gone")
        return super().unwrap(wrapped, context=context)


def test_one_key_at_hand_of_several_is_enough_and_a_wrong_one_is_too_much():
    old, new = known_to(CountingProvider(), CountingProvider(key_id="b"))
    for known in ([old, new], [new, old]):
        keyring = Keyring(Succeeded(key_id="b"))
        keyring.hold_to(lambda known=known: known, catalogue_id="c")
        keyring.new_tenant_key(tenant_id="t")
        with pytest.raises(ConfigurationError):
            Keyring(Succeeded(b"x" * 32, key_id="b")).hold_to(lambda known=known: known, catalogue_id="c")
    keyring = Keyring(Succeeded(key_id="b"))
    keyring.hold_to(lambda: [old], catalogue_id="c")
    with pytest.raises(KeyDestroyed):
        keyring.new_tenant_key(tenant_id="t")


def test_of_a_key_of_another_provider_nothing_is_known():
    keyring = Keyring(CountingProvider())
    assert keyring.is_destroyed("file", "a") is False
    assert keyring.is_destroyed("env", "a") is None


@pytest.mark.case(43)
def test_a_keyring_shows_no_key_and_is_not_copied(keyring, rows):
    opened = bytes_of(keyring.session_key(*rows, **IDS))
    shown = (
        repr(keyring)
        + repr(vars(keyring))
        + repr(vars(keyring._cache))
        + repr(vars(keyring._providers))
        + repr(vars(keyring._providers.find("file")))
    )
    for secret in (opened, ROOT):
        assert repr(secret) not in shown
        assert secret.hex() not in shown
    for copier in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(keyring)


def with_its_bytes(key):
    return key, key._memory.view.obj


def is_closed(kept):
    """Whether the cache closed a key, rather than dropped it and left the rest to the collector."""
    key, its_bytes = kept
    try:
        bytes_of(key)
    except KeyUnavailable:
        return its_bytes == bytes(32)
    return False


def test_the_cache_never_holds_more_than_it_may_and_overwrites_what_leaves():
    cache = KeyCache(entries=3, seconds=100.0, monotonic=Time())
    kept = []
    for number in range(10):
        cache.put(number, SecretKey(bytes([number + 1]) * 32))
        kept.append(with_its_bytes(cache._kept[number][1]))
        assert len(cache) <= 3
    assert [number for number in range(10) if cache.get(number) is not None] == [7, 8, 9]
    assert [is_closed(key) for key in kept] == [True] * 7 + [False] * 3
    cache.close()
    assert all(is_closed(key) for key in kept)


def test_the_cache_overwrites_what_is_too_old_on_the_next_call_of_any_kind():
    time = Time()
    cache = KeyCache(entries=100, seconds=10.0, monotonic=time)
    for number in range(5):
        time.seconds = float(number)
        cache.put(number, SecretKey(bytes([number + 1]) * 32))
    kept = [with_its_bytes(key) for _, key in cache._kept.values()]
    time.seconds = 12.5
    assert cache.get("something else") is None
    assert [is_closed(key) for key in kept] == [True] * 3 + [False] * 2
    time.seconds = 14.0
    cache.put("something else", SecretKey(bytes(32)))
    assert len(cache) == 1


def test_the_cache_overwrites_a_key_that_is_put_again():
    cache = KeyCache(entries=3, seconds=10.0, monotonic=Time())
    cache.put("a", SecretKey(b"1" * 32))
    kept = with_its_bytes(cache._kept["a"][1])
    cache.put("a", SecretKey(b"2" * 32))
    assert is_closed(kept)
    assert bytes_of(cache.get("a")) == b"2" * 32


def test_a_key_that_leaves_while_it_is_handed_out_is_not_there():
    cache = KeyCache(entries=3, seconds=10.0, monotonic=Time())
    cache.put("a", SecretKey(bytes(32)))
    # What another thread does to it just after it was found.
    cache._kept["a"][1].close()
    assert cache.get("a") is None


def test_a_key_that_is_put_after_all_others_have_left_grows_old_as_well():
    time = Time()
    cache = KeyCache(entries=3, seconds=10.0, monotonic=time)
    for empty in (cache.close, lambda: cache.drop("b")):
        cache.put("bc", SecretKey(bytes(32)))
        empty()
        cache.put("a", SecretKey(bytes(32)))
        time.seconds += 9.0
        assert cache.get("a") is not None
        time.seconds += 1.0
        assert cache.get("a") is None
        assert len(cache) == 0


def test_no_thread_ever_gets_a_key_that_another_ones_eviction_touched():
    cache = KeyCache(entries=2, seconds=100.0)
    wrong = []

    def work(seed):
        for round_ in range(2000):
            number = (seed + round_) % 5 + 1
            cache.put(number, SecretKey(bytes([number]) * 32))
            other = round_ % 5 + 1
            key = cache.get(other)
            if key is not None and bytes_of(key) != bytes([other]) * 32:
                wrong.append(other)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) == 2
