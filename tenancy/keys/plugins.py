"""Key providers that others have written and installed."""

from collections.abc import Callable, Hashable
from typing import Any, Final, NoReturn, TypeVar, final

from tenancy.errors import ConfigurationError, KeyUnavailable, TenancyError
from tenancy.keys.abilities import generation_of, is_destroyed, keys_of
from tenancy.keys.keyset import KeyInfo
from tenancy.keys.locations import BUILT_IN, PROVIDER_NAME, RESERVED
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeyProvider, WrappedKey, rewrap_key

#: The group of entry points. Each is a name and a callable that takes the rest of the setting and returns a provider.
GROUP: Final = "haystack_tenancy.key_providers"
_MAX_KEY_ID_CHARS: Final = 255
_MAX_WRAPPED_BYTES: Final = 64 * 1024
_T = TypeVar("_T")


def open_installed(name: str, rest: str) -> KeyProvider:
    """
    Open an installed provider.

    :param name: The name of its entry point, which its provider has to have as well.
    :param rest: What follows the colon in the setting. The provider decides what it means.
    :returns: The provider, held to what `KeyProvider` promises of names, ids and errors.
    :raises ConfigurationError: If no provider or more than one has that name, it cannot be loaded or opened, or its
        name or key id breaks the limits.
    :raises KeyUnavailable: If it has to ask somebody, who does not answer.
    """
    opener = _loaded(name)
    provider: Any = None
    fault: str | None
    try:
        provider = opener(rest)
        fault = _fault_of(provider, name)
    except TenancyError as error:
        _close(provider)
        # What it was raised from is somebody else's error.
        error.__cause__ = error.__context__ = None
        raise
    except Exception:  # noqa: BLE001 - somebody else's code, whose errors may show what is in the setting
        fault = "cannot be opened"
    if fault is not None:
        _close(provider)
        raise ConfigurationError(f"The key provider {name} {fault}.")
    return GuardedProvider(provider)


def installed_names() -> list[str]:
    """Return the names of the providers that are installed, without those that cannot be reached."""
    from importlib.metadata import entry_points

    names = {entry.name for entry in entry_points(group=GROUP)} - RESERVED
    return sorted(name for name in names if PROVIDER_NAME.fullmatch(name))


@final
class GuardedProvider:
    """
    A provider of others, of which nothing gets into the catalogue that does not fit, and no error out but ours.

    :param provider: Closed with this.
    """

    def __init__(self, provider: KeyProvider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """See `KeyProvider`."""
        return self._provider.name

    @property
    def primary_key_id(self) -> str:
        """See `KeyProvider`."""
        return _guarded(lambda: _fitting_id(self._provider.primary_key_id))

    def generation(self) -> Hashable:
        """See `generation_of`."""
        return _guarded(lambda: _hashable(generation_of(self._provider)))

    def keys(self) -> tuple[KeyInfo, ...] | None:
        """See `keys_of`."""
        return _guarded(lambda: _fitting_infos(keys_of(self._provider)))

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:
        """See `KeyProvider`."""
        return _guarded(lambda: _fitting(self._provider.wrap(key, context=context)))

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:
        """See `KeyProvider`."""
        return _guarded(lambda: _secret(self._provider.unwrap(wrapped, context=context)))

    def rewrap(self, wrapped: WrappedKey, *, context: bytes, new_context: bytes) -> WrappedKey:
        """See `rewrap_key`."""
        return _guarded(lambda: _fitting(rewrap_key(self._provider, wrapped, context=context, new_context=new_context)))

    def is_destroyed(self, key_id: str) -> bool | None:
        """See `is_destroyed`. Whatever is no clear answer is none."""
        answer = _guarded(lambda: is_destroyed(self._provider, key_id))
        return answer if isinstance(answer, bool) else None

    def close(self) -> None:
        """See `KeyProvider`. An error of the provider's is nobody's any more."""
        _close(self._provider)

    def __repr__(self) -> str:
        return "GuardedProvider(…)"


def _loaded(name: str) -> Callable[[str], Any]:
    from importlib.metadata import entry_points

    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        # The name that was asked for is not repeated: it may be the beginning of a key.
        known = ", ".join((*BUILT_IN, *installed_names()))
        raise ConfigurationError(f"The setting keys names a provider that is not installed. There are: {known}.")
    if len(found) > 1:
        raise ConfigurationError(f"Several installed packages have a key provider called {name}. Remove all but one.")
    try:
        opener: Callable[[str], Any] = found[0].load()
    except Exception:  # noqa: BLE001 - somebody else's module
        opener = _unloadable
    return opener


def _unloadable(_: str) -> NoReturn:
    raise ConfigurationError("The key provider cannot be loaded; importing its package fails.")


def _fault_of(provider: Any, name: str) -> str | None:
    if not all(callable(getattr(provider, method, None)) for method in ("wrap", "unwrap", "close")):
        return "is none: it lacks wrap, unwrap or close"
    if provider.name != name:
        return "must have the name of its entry point, which stands with what it wraps"
    try:
        fits = _fits(provider.primary_key_id)
    except KeyUnavailable:
        # A service that is away keeps nobody from starting. Each id is looked at again when it is used.
        fits = True
    return None if fits else f"has a key id that is not {_ID_RULE}"


_ID_RULE: Final = f"1 to {_MAX_KEY_ID_CHARS} printable ASCII characters"


def _fits(key_id: object) -> bool:
    return (
        isinstance(key_id, str) and 1 <= len(key_id) <= _MAX_KEY_ID_CHARS and key_id.isascii() and key_id.isprintable()
    )


def _fitting_id(key_id: str) -> str:
    if not _fits(key_id):
        raise KeyUnavailable(f"The key provider gave a key id that is not {_ID_RULE}.")
    return key_id


def _fitting(wrapped: WrappedKey) -> WrappedKey:
    _fitting_id(wrapped.key_id)
    if type(wrapped.data) is not bytes or not 1 <= len(wrapped.data) <= _MAX_WRAPPED_BYTES:
        raise KeyUnavailable(f"The key provider gave a wrapped key that is not 1 to {_MAX_WRAPPED_BYTES} bytes.")
    return wrapped


def _hashable(generation: Hashable) -> Hashable:
    # Whatever says that it can be hashed may hold something that cannot, as a tuple of lists does.
    hash(generation)
    return generation


def _fitting_infos(infos: tuple[KeyInfo, ...] | None) -> tuple[KeyInfo, ...] | None:
    if infos is None:
        return None
    infos = tuple(infos)
    if not all(isinstance(info, KeyInfo) and _fits(info.key_id) for info in infos):
        raise KeyUnavailable("The key provider listed something else than its keys.")
    return infos


def _secret(key: SecretKey) -> SecretKey:
    if not isinstance(key, SecretKey):
        raise KeyUnavailable("The key provider gave something else than a key.")
    return key


def _guarded(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except TenancyError as error:
        # What it was raised from is somebody else's error.
        error.__cause__ = error.__context__ = None
        raise
    except Exception:  # noqa: BLE001 - somebody else's code, whose errors may show keys or the answers of a service
        sentence = "The key provider failed with an error of its own."
    raise KeyUnavailable(sentence)


def _close(provider: Any) -> None:
    try:
        provider.close()
    except Exception:  # noqa: BLE001 - there may be no provider, and nothing more is asked of it anyway
        return
