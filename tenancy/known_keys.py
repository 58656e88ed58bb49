"""What the catalogue knows of key-encryption keys: each is known before anything hangs on it, and none by mistake."""

from contextlib import suppress
from typing import Final

from stores.errors import Conflict
from tenancy.catalogue.identity import IdentityTable, RootKey
from tenancy.errors import KeyDestroyed, KeyUnavailable, StorageUnavailable
from tenancy.keys.keyring import Keyring

#: How often others may come first.
_ATTEMPTS: Final = 5


def remember(identity: IdentityTable, keyring: Keyring, provider: str, *, primary: str | None = None) -> None:
    """
    Have the catalogue know a provider's primary key, by which every later start tells whether it has the right one.

    :param primary: Its id, where that is at hand.
    :raises ConfigurationError: If the provider's keys are not those that are known of it. Nothing is remembered then.
    :raises KeyUnavailable: If it does not answer.
    :raises KeyDestroyed: If its primary key is gone for good.
    """
    for _ in range(_ATTEMPTS):
        beside = {known.check.key_id for known in identity.root_keys() if known.provider == provider}
        if primary in beside:
            return
        # Not what has come back as another one. Whether all that is known is still at hand is not the question.
        with suppress(KeyUnavailable, KeyDestroyed):
            keyring.hold(provider)
        check = keyring.check_value(catalogue_id=identity.catalogue_id(), provider=provider)
        try:
            identity.remember_root_key(RootKey(provider=provider, check=check), beside=beside)
        except Conflict:
            continue
        else:
            return
    raise StorageUnavailable("What is known of a key could not be written: others kept changing it.")
