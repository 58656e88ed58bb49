"""
AWS KMS: tenant keys wrapped by a key that never leaves the service. Needs the extra `aws`.

Of what a key is bound to, the service sees a SHA-256 digest only. KMS writes its encryption context into CloudTrail in
the clear. The bytes of ours hold no name of a tenant's or user's, but a tenant's random id, which the digest keeps out
of those logs as well. Equal contexts have equal digests: whoever has the catalogue can tell whose key was opened when.

What Python cannot promise: a key on its way is also in buffers of boto3, of the HTTP client and of TLS, which are freed
and not overwritten. Nothing here keeps any of it longer than the call.
"""

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

from stores.locks import ProcessLock
from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt
from tenancy.keys.aws_calls import CORRUPT, ODD, OPENING, REWRAPPING, USING, asked, unlogged
from tenancy.keys.locations import KMS_KEY, KMS_KEY_ARN
from tenancy.keys.material import KEY_BYTES, SecretKey
from tenancy.keys.providers import KeyProvider, UnknownKey, WrappedKey

#: The one field of the encryption context, as policies may demand it (`kms:EncryptionContextKeys`).
CONTEXT_NAME: Final = "haystack-tenancy"
#: The only algorithm that binds a context.
_ALGORITHM: Final = "SYMMETRIC_DEFAULT"
_MAX_BLOB_BYTES: Final = 6144
#: The longest a call may take is about half a minute: three attempts, and pauses of at most 1 and 2 seconds.
_CONNECT_SECONDS: Final = 3.0
_READ_SECONDS: Final = 5.0
_ATTEMPTS: Final = 3


class KmsClient(Protocol):
    """What we use of boto3's client, which has no types."""

    def encrypt(self, **parameters: object) -> dict[str, Any]:
        """See the service's Encrypt."""

    def decrypt(self, **parameters: object) -> dict[str, Any]:
        """See the service's Decrypt."""

    def re_encrypt(self, **parameters: object) -> dict[str, Any]:
        """See the service's ReEncrypt."""

    def describe_key(self, **parameters: object) -> dict[str, Any]:
        """See the service's DescribeKey."""

    def close(self) -> None:
        """Close its connections."""


def open_aws_kms(key: str) -> KeyProvider:
    """
    Open AWS KMS. The service is not asked yet.

    :param key: Of the form `KMS_KEY`. The region is an ARN's own; else that, the endpoint and the credentials come from
        where boto3 looks for them.
    :raises ConfigurationError: If boto3 is not installed or not usable as it is configured, or there is no region.
    """
    found = KMS_KEY.fullmatch(key)
    region = None if found is None else found["region"]
    return AwsKmsProvider(key, new_client=lambda: new_client(region))


def new_client(region: str | None, *, attempts: int = _ATTEMPTS) -> KmsClient:
    """
    Make a client that gives up in bounded time, whatever the environment says of time-outs and attempts.

    :param region: `None` for the configured one.
    :param attempts: How often at most one call asks.
    :raises ConfigurationError: See `open_aws_kms`.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError:
        raise ConfigurationError(
            "The setting keys names AWS KMS, which needs boto3: pip install 'haystack-tenancy[aws]'"
        ) from None
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )
    with unlogged():
        try:
            # A session of our own: boto3's default one is shared, and not made for threads.
            client: KmsClient = boto3.session.Session().client("kms", region_name=region, config=config)
        except NoRegionError:
            fault = "no AWS region is configured; set AWS_DEFAULT_REGION, or give the key's whole ARN"
        except Exception:  # noqa: BLE001 - a wrong endpoint is a ValueError, a broken file whatever its parser raises
            fault = "boto3 cannot be used as it is configured; check profile, region and endpoint"
        else:
            return client
    # Out of the handler: such errors hold names of profiles, paths and endpoints.
    raise ConfigurationError(f"The setting keys names AWS KMS, but {fault}.")


@final
class AwsKmsProvider:
    """
    Wraps with a key of AWS KMS. See `KeyProvider`. Safe for threads, and after a fork.

    A wrapped key stands with the ARN of the key that the service used, so that an alias may be moved at any time: new
    keys go under the new one, and old ones open. Only keys of the configured key's own account are ever asked to open
    one, in its region (of a multi-Region key, its replica there): a row that names somebody else's key could otherwise
    put new data under a key that person knows.

    Needs `kms:Encrypt` and `kms:Decrypt`; `kms:DescribeKey` unless the key is given by its ARN; and for `rewrap`
    `kms:ReEncryptFrom` and `kms:ReEncryptTo`.

    :param key: Of the form `KMS_KEY`.
    :param new_client: Makes a client, now and in every forked child.
    """

    def __init__(self, key: str, *, new_client: Callable[[], KmsClient]) -> None:
        self._key = key
        self._new_client = new_client
        self._lock = ProcessLock()
        # A connection that is shared with a parent mixes up its answers with ours.
        self._client_and_process: tuple[KmsClient, int] | None = new_client(), os.getpid()
        # The key of the last answer: an alias may move, but not to another account or region.
        self._resolved = key if KMS_KEY_ARN.fullmatch(key) else None

    @property
    def name(self) -> str:
        """`"aws-kms"`."""
        return "aws-kms"

    @property
    def primary_key_id(self) -> str:
        """See `KeyProvider`. The ARN; unless that is what is configured, the service is asked: an alias may move."""
        if not KMS_KEY_ARN.fullmatch(self._key):
            answer = asked(self._client().describe_key, USING, KeyId=self._key)
            self._resolved = _key_arn(answer.get("KeyMetadata", {}).get("Arn"))
        return self._resolved or self._key

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:
        """See `KeyProvider`. A primary key that the service does not know is `UnknownKey`: it may be misspelt."""
        client = self._client()
        with key.exposed() as view:
            plaintext = bytearray(view)
        try:
            answer = asked(
                client.encrypt,
                USING,
                KeyId=self._key,
                Plaintext=plaintext,
                EncryptionContext=_encryption_context(context),
                EncryptionAlgorithm=_ALGORITHM,
            )
        finally:
            plaintext[:] = bytes(len(plaintext))
        return self._wrapped(answer)

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:
        """
        See `KeyProvider`. The key is looked up by its id, never found out from the wrapped bytes.

        A key that is scheduled for deletion is unavailable. It is destroyed when the service knows it no longer: an ARN
        stands in our rows because the service used that key, and is given to no other.
        """
        key_id = self._stored_key(wrapped)
        answer = asked(
            self._client().decrypt,
            OPENING,
            KeyId=key_id,
            CiphertextBlob=_blob(wrapped),
            EncryptionContext=_encryption_context(context),
            EncryptionAlgorithm=_ALGORITHM,
        )
        key = _secret_of(answer) if answer.get("KeyId") == key_id else None
        if key is None:
            answer.clear()
            raise ResultCorrupt(CORRUPT)
        return key

    def rewrap(self, wrapped: WrappedKey, *, context: bytes, new_context: bytes) -> WrappedKey:
        """See `RewrappingKeyProvider`. The key in the clear stays in the service."""
        answer = asked(
            self._client().re_encrypt,
            REWRAPPING,
            SourceKeyId=self._stored_key(wrapped),
            CiphertextBlob=_blob(wrapped),
            SourceEncryptionContext=_encryption_context(context),
            SourceEncryptionAlgorithm=_ALGORITHM,
            DestinationKeyId=self._key,
            DestinationEncryptionContext=_encryption_context(new_context),
            DestinationEncryptionAlgorithm=_ALGORITHM,
        )
        return self._wrapped(answer)

    def is_destroyed(self, key_id: str) -> bool | None:
        """
        See `TellingKeyProvider`. Needs `kms:DescribeKey`.

        Of a multi-Region key that is gone here a replica may be left elsewhere, with the same key in it.
        """
        stored = self._stored_key(WrappedKey(key_id, b""))
        try:
            asked(self._client().describe_key, OPENING, KeyId=stored)
        except KeyDestroyed:
            return None if stored.rpartition("/")[2].startswith("mrk-") else True
        return False

    def close(self) -> None:
        """Close the connections. There is no secret to forget: credentials are boto3's."""
        with self._lock:
            held, self._client_and_process = self._client_and_process, None
        if held is not None and held[1] == os.getpid():
            held[0].close()

    def _client(self) -> KmsClient:
        with self._lock:
            if self._client_and_process is None:
                raise KeyUnavailable("The key service was closed; what it belonged to is closed too.")
            if self._client_and_process[1] != os.getpid():
                self._client_and_process = self._new_client(), os.getpid()
            return self._client_and_process[0]

    def _stored_key(self, wrapped: WrappedKey) -> str:
        stored = KMS_KEY_ARN.fullmatch(wrapped.key_id) if isinstance(wrapped.key_id, str) else None
        home = KMS_KEY.fullmatch(self._key)
        if home is None or home["account"] is None:
            home = KMS_KEY_ARN.fullmatch(self._resolved or self.primary_key_id)
        if stored is None or home is None or stored.group("partition", "account") != home.group("partition", "account"):
            raise UnknownKey("The key this data is under is not one of the account that is configured.")
        if stored["region"] != home["region"] and not stored["id"].startswith("mrk-"):
            raise UnknownKey("The key this data is under is not one of the region that is configured.")
        return f"arn:{home['partition']}:kms:{home['region']}:{home['account']}:key/{stored['id']}"

    def _wrapped(self, answer: Mapping[str, Any]) -> WrappedKey:
        data = answer.get("CiphertextBlob")
        if type(data) is not bytes or not data:
            raise KeyUnavailable(ODD)
        self._resolved = _key_arn(answer.get("KeyId"))
        return WrappedKey(self._resolved, data)

    def __repr__(self) -> str:
        return "AwsKmsProvider(…)"


def _encryption_context(context: bytes) -> dict[str, str]:
    # A digest has one length too, where the service takes 8 KiB of context at most.
    return {CONTEXT_NAME: base64.b64encode(hashlib.sha256(context).digest()).decode("ascii")}


def _blob(wrapped: WrappedKey) -> bytes:
    # SQLite keeps whatever it is given, text and numbers too; boto3 would refuse those with their value in its words.
    if type(wrapped.data) is not bytes or not 1 <= len(wrapped.data) <= _MAX_BLOB_BYTES:
        raise ResultCorrupt(CORRUPT)
    return wrapped.data


def _key_arn(value: object) -> str:
    if not isinstance(value, str) or not KMS_KEY_ARN.fullmatch(value):
        raise KeyUnavailable(ODD)
    return value


def _secret_of(answer: dict[str, Any]) -> SecretKey | None:
    plaintext = answer.pop("Plaintext", None)
    return SecretKey(plaintext) if type(plaintext) is bytes and len(plaintext) == KEY_BYTES else None
