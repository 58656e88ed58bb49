"""AWS KMS in this process: moto, with the states of keys it leaves out, and outages on demand. No other is asked."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pytest

from tenancy.keys import aws_kms

REGION: Final = "eu-central-1"
#: What the service answers for a key that is not enabled.
_STATES: Final = {"Disabled": "DisabledException", "PendingDeletion": "KMSInvalidStateException"}
#: Stands in every message of the service's, so that a test can look for it.
SERVICE_TEXT: Final = "canary-of-the-service"
_ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


class Service:
    """
    The service, and everything it was asked.

    :param backend: moto's.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        #: What every call ends with: an error's code, or an error of the client's own.
        self.fault: str | Exception | None = None
        #: What the next call ends with, an error's code.
        self.fault_once: str | None = None
        #: Operation and parameters of each request, as they went over the line.
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.admin = self.new_client(REGION, attempts=2)

    def create_key(self) -> str:
        """Return the ARN of a new key."""
        return str(self.admin.create_key()["KeyMetadata"]["Arn"])

    def provider(self, key: str, *, attempts: int = 1) -> aws_kms.AwsKmsProvider:
        """Open the provider on it."""
        return aws_kms.AwsKmsProvider(key, new_client=lambda: self.new_client(REGION, attempts=attempts))

    def new_client(self, region: str | None, *, attempts: int = 1) -> Any:
        """What the library would make, but that it gives up at once and what it sends passes by here."""
        return _clients(region, attempts).using(self)

    def answer(self, request: Any) -> Any:
        """Answer in place of moto, or return `None`."""
        operation, parameters = request.headers["X-Amz-Target"].decode().split(".")[1], json.loads(request.body)
        self.requests.append((operation, parameters))
        if isinstance(self.fault, Exception):
            raise self.fault
        code, self.fault_once = self.fault_once or self.fault, None
        if code is None and operation in ("Encrypt", "Decrypt", "ReEncrypt"):
            code = next(filter(None, map(self._fault_of, parameters.items())), None)
        return None if code is None else _refusal(request.url, code)

    def _fault_of(self, parameter: tuple[str, Any]) -> str | None:
        name, key = parameter
        if not name.endswith("KeyId"):
            return None
        key = self._backend.get_key_id_from_alias(key.rsplit(":", 1)[-1]) if "alias/" in key else key
        found = self._backend.keys.get(str(key).rsplit("/", 1)[-1])
        return None if found is None else _STATES.get(found.key_state)


class Line:
    """
    One client of boto3's, which takes a third of a second to make, for all services one after the other.

    :param client: Nothing it sends leaves this process.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._service: Service | None = None
        client.meta.events.register_first("before-send.kms", self._answer)

    def using(self, service: Service) -> Any:
        """Return the client, which talks to `service` from here on."""
        self._service = service
        return self._client

    def _answer(self, request: Any, **_: object) -> Any:
        assert self._service is not None
        return self._service.answer(request)


#: What the library makes clients with when no test stands in between.
REAL_CLIENT: Final = aws_kms.new_client


@cache
def _clients(region: str | None, attempts: int) -> Line:
    return Line(REAL_CLIENT(region, attempts=attempts))


def _refusal(url: str, code: str) -> Any:
    from botocore.awsrequest import AWSResponse

    class Raw(io.BytesIO):
        def stream(self) -> Iterator[bytes]:
            yield self.read()

    body = json.dumps({"__type": code, "message": f"{SERVICE_TEXT} arn:aws:kms:x"}).encode()
    return AWSResponse(url, 400, {"Content-Type": "application/x-amz-json-1.1"}, Raw(body))


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Start the service. What the library opens meanwhile asks this one."""
    # Here, since each worker of the tests would load it at its start otherwise.
    from moto import mock_aws
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.kms.models import kms_backends

    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        service = Service(kms_backends[DEFAULT_ACCOUNT_ID][REGION])
        monkeypatch.setattr(aws_kms, "new_client", service.new_client)
        yield service
