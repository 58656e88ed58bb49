"""One call of AWS KMS: what may come of it in our words, and nobody's log of it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from tenancy.errors import KeyDestroyed, KeyUnavailable, ResultCorrupt, TenancyError
from tenancy.keys.providers import UnknownKey

CORRUPT: Final = "A stored key is damaged or was tampered with, or was wrapped by another key."
ODD: Final = "The key service gave an answer that is none of its own."
_AWAY: Final = KeyUnavailable, "The key service did not answer in time, or cannot be reached."
_DENIED: Final = KeyUnavailable, "The key service does not let us use this key."
_SLOWER: Final = KeyUnavailable, "The key service has too many requests."
_FAILED: Final = KeyUnavailable, "The key service failed."
_UNKNOWN: Final = UnknownKey, "The key service has no such key; check the setting keys."
Faults = Mapping[str, tuple[type[TenancyError], str]]
#: By the service's code of an error. https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html and the
#: pages of the four operations. What is not here is `_FAILED` too: it is an outage, and nobody is told more.
USING: Final[Faults] = {
    "AccessDeniedException": _DENIED,
    "DisabledException": (KeyUnavailable, "The key of the key service is disabled."),
    "KMSInvalidStateException": (
        KeyUnavailable,
        "The key of the key service cannot be used now: it is to be deleted, waits for its material, or is being made.",
    ),
    "KeyUnavailableException": (KeyUnavailable, "The key service cannot use this key at the moment."),
    "InvalidKeyUsageException": (KeyUnavailable, "The key of the key service is not one that encrypts symmetrically."),
    "NotFoundException": _UNKNOWN,
    "InvalidArnException": _UNKNOWN,
    "ThrottlingException": _SLOWER,
    "LimitExceededException": _SLOWER,
    "DependencyTimeoutException": _AWAY,
    "UnrecognizedClientException": _DENIED,
    "InvalidSignatureException": _DENIED,
    "ExpiredTokenException": _DENIED,
}
REWRAPPING: Final[Faults] = {
    **USING,
    "InvalidCiphertextException": (ResultCorrupt, CORRUPT),
    "IncorrectKeyException": (ResultCorrupt, CORRUPT),
}
OPENING: Final[Faults] = {
    **REWRAPPING,
    "NotFoundException": (KeyDestroyed, "The key this data is under is not in the key service any more."),
}


def asked(call: Callable[..., dict[str, Any]], faults: Faults, **parameters: object) -> dict[str, Any]:
    """
    Ask the service.

    :param call: A method of the client's.
    :param faults: Which error a refusal is, by its code.
    :raises TenancyError: As `faults` has it. Nothing of what the service or boto3 said travels along.
    """
    from botocore.exceptions import ClientError, CredentialRetrievalError, NoCredentialsError, PartialCredentialsError

    with unlogged():
        try:
            return call(**parameters)
        except ClientError as error:
            kind, sentence = faults.get(str(error.response.get("Error", {}).get("Code")), _FAILED)
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError):
            kind, sentence = KeyUnavailable, "There are no credentials for the key service, or they cannot be read."
        except Exception:  # noqa: BLE001 - fail closed; and whatever it is, it may show what was sent
            kind, sentence = _AWAY
    # Out of the handlers, so that no cause travels along.
    raise kind(sentence)


_IS_ASKING: Final[ContextVar[bool]] = ContextVar("tenancy.keys.aws_kms", default=False)


class _Silence(logging.Filter):
    def filter(self, _: logging.LogRecord) -> bool:
        return not _IS_ASKING.get()


_SILENCE: Final = _Silence()


@contextmanager
def unlogged() -> Iterator[None]:
    """
    Keep boto3's own log silent about what we ask: at the level DEBUG it writes down whole requests and answers, keys in
    the clear included. What others ask of it, at the same time in other threads too, is logged as ever.
    """
    # Each time, since a logger is made when its module is first needed; and on each, since records pass by the filters
    # of the logger they were made by only.
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] in ("boto3", "botocore", "urllib3") and isinstance(logger, logging.Logger):
            logger.addFilter(_SILENCE)
    before = _IS_ASKING.set(True)
    try:
        yield
    finally:
        _IS_ASKING.reset(before)
