import base64
import os

import pytest

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt
from tenancy.keys.abilities import generation_of, is_destroyed, keys_of
from tenancy.keys.keyset import KeyInfo, KeyState, parse_single_key
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import (
    KeysetProvider,
    UnknownKey,
    WrappedKey,
    open_key_provider,
    rewrap_key,
)

KEY = base64.b64encode(bytes(range(32))).decode()
CANARY = "canary-of-a-service"
WRAPPED = WrappedKey("id", b"data")


class Provider(KeysetProvider):
    """Wraps as it should, but for what a test changes."""

    def __init__(self, name="other", key_id=None, **answers):
        super().__init__(name, parse_single_key(KEY))
        self.key_id = key_id
        self.answers = answers
        self.closed = 0

    @property
    def primary_key_id(self):
        if "primary_key_id" in self.answers:
            return self._answered("primary_key_id")
        return super().primary_key_id if self.key_id is None else self.key_id

    def _answered(self, call):
        answer = self.answers[call]
        if isinstance(answer, Exception):
            # As a client of a service would: the error of ours while theirs is handled.
            try:
                os.stat(CANARY)
            except OSError:
                raise answer  # noqa: B904
        return answer

    def wrap(self, key, *, context):
        return self._answered("wrap") if "wrap" in self.answers else super().wrap(key, context=context)

    def unwrap(self, wrapped, *, context):
        return self._answered("unwrap") if "unwrap" in self.answers else super().unwrap(wrapped, context=context)

    def close(self):
        self.closed += 1
        super().close()
        if "close" in self.answers:
            self._answered("close")


def refused(location="other:rest"):
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider(location)
    assert refusal.value.__context__ is None
    assert CANARY not in str(refusal.value)
    return str(refusal.value)


def test_the_rest_of_the_setting_is_the_providers(install):
    given = []
    install(other=lambda rest: given.append(rest) or Provider())
    provider = open_key_provider("other:https://host/a:b?c")
    assert given == ["https://host/a:b?c"]
    assert provider.name == "other"
    assert provider.primary_key_id == Provider().primary_key_id


def test_an_unknown_name_is_told_what_there_is_and_not_repeated(install):
    install(one=Provider, two=Provider)
    message = refused("canary:rest")
    assert message.endswith("There are: aws-kms, env, file, none, secret-file, one, two.")
    assert "canary" not in message


@pytest.mark.parametrize("name", ["file", "env", "secret-file", "aws-kms", "awskms", "none"])
def test_the_names_of_our_own_cannot_be_taken(install, name):
    install((name, lambda rest: pytest.fail("was asked")))
    assert refused("unknown:rest").endswith("There are: aws-kms, env, file, none, secret-file.")
    with pytest.raises(ConfigurationError):
        open_key_provider(f"{name}:?")


@pytest.mark.parametrize("name", ["Other", "o" * 33, "o ther", "", "-o", "\u00f6ther"])
def test_a_name_that_does_not_fit_is_not_looked_for(install, name):
    install((name, lambda rest: pytest.fail("was asked")))
    assert refused(f"{name}:rest").startswith("The setting keys must say where the key is")
    assert name == "" or name not in refused("unknown:rest")


def test_of_two_packages_with_one_name_neither_is_taken(install):
    install(("other", lambda rest: Provider()), ("other", lambda rest: Provider()))
    assert "Several installed packages" in refused()


def test_a_package_that_cannot_be_imported_is_a_sentence(install):
    install(other=ImportError(CANARY))
    assert "cannot be loaded" in refused()


@pytest.mark.parametrize("error", [OSError(CANARY), KeyError(CANARY), RuntimeError(CANARY)])
def test_a_provider_that_does_not_open_is_a_sentence(install, error):
    def opener(rest):
        raise error

    install(other=opener)
    assert refused() == "The key provider other cannot be opened."


@pytest.mark.parametrize("error", [KeyUnavailable("away"), ConfigurationError("no such place")])
def test_an_error_of_ours_passes_without_what_it_came_from(install, error):
    def opener(rest):
        try:
            os.stat(CANARY)
        except OSError as theirs:
            raise error from theirs

    install(other=opener)
    with pytest.raises(type(error)) as refusal:
        open_key_provider("other:rest")
    assert refusal.value is error
    assert error.__cause__ is error.__context__ is None


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: None, "it lacks wrap, unwrap or close"),
        (lambda: "text", "it lacks wrap, unwrap or close"),
        (lambda: Provider(name="another"), "the name of its entry point"),
        (lambda: Provider(name="file"), "the name of its entry point"),
        (lambda: Provider(name=None), "the name of its entry point"),
        (lambda: Provider(key_id=""), "key id"),
        (lambda: Provider(key_id="k" * 256), "key id"),
        (lambda: Provider(key_id="k\u00e9y"), "key id"),
        (lambda: Provider(key_id="k\ny"), "key id"),
        (lambda: Provider(key_id=7), "key id"),
    ],
)
def test_a_provider_that_breaks_the_limits_is_refused_and_closed(install, made, says):
    opened = []
    install(other=lambda rest: opened.append(made()) or opened[-1])
    assert says in refused()
    assert getattr(opened[0], "closed", 1) == 1


def test_a_service_that_does_not_tell_its_key_yet_keeps_nobody_from_starting(open_other):
    provider = open_other(primary_key_id=KeyUnavailable("away"))
    with pytest.raises(KeyUnavailable, match="away"):
        _ = provider.primary_key_id


@pytest.fixture
def open_other(install):
    def open_other(**answers):
        install(other=lambda rest: Provider(**answers))
        return open_key_provider("other:rest")

    return open_other


@pytest.mark.parametrize(
    "wrapped",
    [None, b"data", WrappedKey("", b"data"), WrappedKey("k" * 256, b"data"), WrappedKey(7, b"data")]
    + [WrappedKey("id", data) for data in (b"", "data", None, bytearray(b"data"), b"x" * 65_537)],
)
def test_what_does_not_fit_never_gets_into_the_catalogue(open_other, wrapped):
    provider = open_other(wrap=wrapped)
    good = Provider()
    with SecretKey.generate() as key:
        with pytest.raises(KeyUnavailable):
            provider.wrap(key, context=b"c")
        with pytest.raises(KeyUnavailable):
            rewrap_key(provider, good.wrap(key, context=b"c"), context=b"c", new_context=b"n")


@pytest.mark.parametrize("answer", [None, b"k" * 32])
def test_what_is_no_key_is_refused(open_other, answer):
    with pytest.raises(KeyUnavailable):
        open_other(unwrap=answer).unwrap(WRAPPED, context=b"c")


@pytest.mark.parametrize("error", [OSError(CANARY), ValueError(CANARY), AssertionError(CANARY)])
@pytest.mark.parametrize("call", ["wrap", "unwrap"])
def test_an_error_of_the_providers_own_is_an_outage_and_shows_nothing(open_other, call, error):
    provider = open_other(**{call: error})
    with SecretKey.generate() as key, pytest.raises(KeyUnavailable) as refusal:
        provider.wrap(key, context=b"c") if call == "wrap" else provider.unwrap(WRAPPED, context=b"c")
    assert CANARY not in str(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("error", [KeyUnavailable("x"), KeyDestroyed("x"), ResultCorrupt("x"), UnknownKey("x")])
def test_an_error_of_ours_is_what_it_is(open_other, error):
    provider = open_other(unwrap=error)
    with pytest.raises(type(error)) as refusal:
        provider.unwrap(WRAPPED, context=b"c")
    assert refusal.value is error
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [(True, True), (False, False), ("yes", None), (1, None), (KeyUnavailable("x"), None), (OSError(CANARY), None)],
)
def test_what_has_become_of_a_key_is_a_clear_answer_or_none(install, answer, told):
    class Telling(Provider):
        def is_destroyed(self, key_id):
            return self._answered("is_destroyed")

    install(other=lambda rest: Telling(is_destroyed=answer))
    assert is_destroyed(open_key_provider("other:rest"), "id") is told


class Silent(Provider):
    """Tells nothing of its keys."""

    is_destroyed = None


def test_a_provider_need_not_tell_what_has_become_of_a_key(install):
    install(other=lambda rest: Silent())
    assert is_destroyed(open_key_provider("other:rest"), "id") is None
    assert is_destroyed(open_key_provider("none:"), "id") is None


def test_closing_never_fails_and_a_repr_shows_nothing(open_other):
    provider = open_other(close=OSError(CANARY))
    provider.close()
    assert repr(provider) == "GuardedProvider(…)"


class Rewrapping(Provider):
    """Does it alone, and can do nothing else."""

    def rewrap(self, wrapped, *, context, new_context):
        return WrappedKey("new", wrapped.data + context + new_context)


def test_a_provider_that_can_rewrap_is_asked_to_and_another_unwraps_and_wraps(install):
    install(other=lambda rest: Rewrapping(unwrap=AssertionError(), wrap=AssertionError()))
    alone = rewrap_key(open_key_provider("other:x"), WRAPPED, context=b"c", new_context=b"n")
    assert alone == WrappedKey("new", b"datacn")
    plain = Provider()
    with SecretKey.generate() as key:
        after = rewrap_key(plain, plain.wrap(key, context=b"c"), context=b"c", new_context=b"n")
        with plain.unwrap(after, context=b"n") as opened:
            assert opened.equals(key)


@pytest.mark.parametrize("generation", [0, "text", (1, b"2")])
def test_a_provider_may_say_that_its_keys_changed(install, generation):
    inner = Provider()
    inner.generation = lambda: generation
    install(other=lambda rest: inner)
    assert generation_of(open_key_provider("other:rest")) == generation


def test_of_a_provider_that_does_not_say_the_keys_stay_the_same_and_are_not_listed(install):
    class Plain:
        name, primary_key_id = "other", "id"

        def wrap(self, key, *, context):
            return WRAPPED

        unwrap = close = wrap

    install(other=lambda rest: Plain())
    for provider in (Plain(), open_key_provider("other:rest")):
        assert generation_of(provider) == generation_of(provider)
        assert keys_of(provider) is None
    # What happens to have that name.
    Plain.keys = {"id": KEY}
    assert keys_of(open_key_provider("other:rest")) is None


def test_the_keys_of_a_provider_are_listed(install):
    install(other=lambda rest: Provider())
    (info,) = keys_of(open_key_provider("other:rest"))
    assert (info.key_id, info.state, info.created_at) == (Provider().primary_key_id, KeyState.PRIMARY, None)


@pytest.mark.parametrize("answer", [7, [CANARY], [None], [KeyInfo("", KeyState.PRIMARY, None)], OSError(CANARY)])
@pytest.mark.parametrize("ability", ["generation", "keys"])
def test_nothing_but_a_generation_or_keys_gets_in_and_no_error_out_but_ours(install, ability, answer):
    def answers():
        if isinstance(answer, Exception):
            raise answer
        return answer

    inner = Provider()
    setattr(inner, ability, answers)
    install(other=lambda rest: inner)
    provider = open_key_provider("other:rest")
    if (ability, answer) == ("generation", 7):
        assert provider.generation() == 7
        return
    with pytest.raises(KeyUnavailable) as refusal:
        getattr(provider, ability)()
    assert CANARY not in str(refusal.value)
    assert refusal.value.__context__ is None
