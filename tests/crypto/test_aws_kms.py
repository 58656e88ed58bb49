import base64
import hashlib
import json
import logging
import sys
import traceback

import pytest
from botocore import exceptions

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt, TenancyError
from tenancy.keys import aws_kms
from tenancy.keys.abilities import is_destroyed
from tenancy.keys.aws_kms import AwsKmsProvider
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import UnknownKey, WrappedKey, open_key_provider, rewrap_key
from tests.crypto.kms import REAL_CLIENT, REGION, SERVICE_TEXT, running
from tests.forked import in_a_child

CANARY = bytes(range(60, 92))
CONTEXT = b"context-canary"
ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
ARN = f"arn:aws:kms:{REGION}:123456789012:key/{ID}"


@pytest.fixture(scope="module")
def service():
    """One for all tests here: making a key takes it a while."""
    with pytest.MonkeyPatch.context() as patch, running(patch) as service:
        yield service


@pytest.fixture(scope="module")
def arn(service):
    return service.create_key()


@pytest.fixture
def kms(service):
    service.requests.clear()
    yield service
    service.fault = None


@pytest.fixture
def key():
    with SecretKey(CANARY) as key:
        yield key


@pytest.fixture
def provider(kms, arn):
    opened = kms.provider(arn)
    yield opened
    opened.close()


class Client:
    """A client that answers what it is told to."""

    def __init__(self, **answer):
        self.answer = answer
        self.sent = []
        self.is_closed = False

    def _ask(self, **parameters):
        self.sent.append(parameters)
        return dict(self.answer)

    encrypt = decrypt = re_encrypt = describe_key = _ask

    def close(self):
        self.is_closed = True


KEYS = [ID, f"mrk-{'0' * 32}", "alias/tenants", "alias/a/b-c_d", ARN]
KEYS += [f"arn:aws-us-gov:kms:us-gov-east-1:{'1' * 12}:alias/x"]


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("scheme", ["aws-kms", "awskms"])
def test_a_key_may_be_written_in_every_way_the_service_takes(kms, name, scheme):
    assert open_key_provider(f"{scheme}:{name}").name == "aws-kms"
    assert kms.requests == []


NONE = [
    "",
    "x",
    "tenants",
    ID.upper(),
    f"{ID}\n",
    f"key/{ID}",
    f"{ARN}0",
    ARN.replace("kms", "s3"),
    "alias/",
    "alias/a b",
]
NONE += [ARN.replace("123456789012", ""), f"arn:aws:kms::{'1' * 12}:key/{ID}", base64.b64encode(CANARY).decode()]


@pytest.mark.parametrize("name", NONE)
def test_a_key_that_is_none_is_refused_before_anybody_is_asked_and_not_repeated(kms, name):
    with pytest.raises(ConfigurationError, match="aws-kms:KEY") as refusal:
        open_key_provider(f"aws-kms:{name}")
    assert len(name) < 9 or name not in str(refusal.value)
    assert kms.requests == []


def test_without_boto3_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(aws_kms, "new_client", REAL_CLIENT)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider(f"aws-kms:{ARN}")
    assert "pip install 'haystack-tenancy[aws]'" in str(refusal.value)


def test_the_region_is_the_one_of_the_arn_and_else_the_configured_one(kms, monkeypatch):
    monkeypatch.setattr(aws_kms, "new_client", REAL_CLIENT)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(ConfigurationError, match="no AWS region"):
        open_key_provider(f"aws-kms:{ID}")
    assert open_key_provider(f"aws-kms:{ARN}")._client().meta.region_name == REGION
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert open_key_provider(f"aws-kms:{ID}")._client().meta.region_name == "eu-west-1"
    assert open_key_provider(f"aws-kms:{ARN}")._client().meta.region_name == REGION


@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_ENDPOINT_URL_KMS"])
def test_a_configuration_that_boto3_refuses_is_refused_and_not_repeated(kms, monkeypatch, name):
    monkeypatch.setattr(aws_kms, "new_client", REAL_CLIENT)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv(name, "canary of a value")
    with pytest.raises(ConfigurationError, match="boto3 cannot be used as it is configured") as refusal:
        open_key_provider(f"aws-kms:{ARN}")
    assert "canary" not in str(refusal.value)
    assert refusal.value.__context__ is None


def test_a_call_ends_in_bounded_time_whatever_the_environment_says(kms, monkeypatch):
    monkeypatch.setattr(aws_kms, "new_client", REAL_CLIENT)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "50")
    monkeypatch.setenv("AWS_RETRY_MODE", "legacy")
    config = open_key_provider(f"aws-kms:{ARN}")._client().meta.config
    assert (config.connect_timeout, config.read_timeout) == (3, 5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}


def test_what_goes_over_the_line_is_pinned_to_a_key_and_names_nobody(kms, provider, arn, key):
    provider.unwrap(provider.wrap(key, context=CONTEXT), context=CONTEXT).close()
    (encrypt, sent), (decrypt, asked) = kms.requests
    digest = base64.b64encode(hashlib.sha256(CONTEXT).digest()).decode()
    assert (encrypt, decrypt) == ("Encrypt", "Decrypt")
    assert sent["EncryptionContext"] == asked["EncryptionContext"] == {"haystack-tenancy": digest}
    assert sent["KeyId"] == asked["KeyId"] == arn
    assert sent["EncryptionAlgorithm"] == asked["EncryptionAlgorithm"] == "SYMMETRIC_DEFAULT"
    # A digest of the context, and neither it nor what else it could be written as.
    line = json.dumps(kms.requests)
    for form in (CONTEXT.decode(), CONTEXT.hex(), base64.b64encode(CONTEXT).decode().rstrip("=")):
        assert form not in line


def test_an_alias_may_be_moved_and_what_it_wrapped_before_opens(kms, key):
    old, new = kms.create_key(), kms.create_key()
    kms.admin.create_alias(AliasName="alias/tenants", TargetKeyId=old)
    provider = kms.provider("alias/tenants")
    assert provider.primary_key_id == old
    before = provider.wrap(key, context=CONTEXT)
    kms.admin.update_alias(AliasName="alias/tenants", TargetKeyId=new)
    # Whoever rotates asks which key it is now, not which it was at the last answer.
    assert provider.primary_key_id == new
    after = provider.wrap(key, context=CONTEXT)
    assert (before.key_id, after.key_id, provider.primary_key_id) == (old, new, new)
    # Also for a process that starts now, and while the alias' new key is disabled.
    later = kms.provider("alias/tenants")
    kms.admin.disable_key(KeyId=new[-36:])
    with later.unwrap(before, context=CONTEXT) as opened:
        assert opened.equals(key)
    kms.admin.enable_key(KeyId=new[-36:])
    moved = later.rewrap(before, context=CONTEXT, new_context=CONTEXT)
    assert moved.key_id == new


STRANGE = ["", "x", ID, "alias/tenants", f"{ARN}\n", ARN.replace("123456789012", "210987654321"), 7, None]
STRANGE += [ARN.replace("arn:aws:", "arn:aws-cn:"), ARN.replace(REGION, "eu-west-1")]


@pytest.mark.parametrize("key_id", STRANGE)
def test_a_key_of_another_account_or_region_is_never_asked(kms, provider, key, key_id):
    wrapped = provider.wrap(key, context=CONTEXT)
    kms.requests.clear()
    for call in (provider.unwrap, lambda *_, context: rewrap_key(provider, *_, context=context, new_context=b"n")):
        with pytest.raises(UnknownKey):
            call(WrappedKey(key_id, wrapped.data), context=CONTEXT)
    assert kms.requests == []


def test_a_key_of_several_regions_is_asked_where_we_are():
    replica = f"arn:aws:kms:{REGION}:123456789012:key/mrk-{'0' * 32}"
    client = Client(KeyId=replica, Plaintext=CANARY)
    provider = AwsKmsProvider(ARN, new_client=lambda: client)
    provider.unwrap(WrappedKey(replica.replace(REGION, "us-east-1"), b"data"), context=CONTEXT).close()
    assert client.sent[0]["KeyId"] == replica


@pytest.mark.parametrize(
    ("fault", "told"),
    [(None, False), ("NotFoundException", True), ("AccessDeniedException", None), ("SomethingNewException", None)],
)
def test_the_service_tells_what_has_become_of_a_key_or_it_is_not_known(kms, provider, key, fault, told):
    key_id = provider.wrap(key, context=CONTEXT).key_id
    kms.fault = fault
    assert is_destroyed(provider, key_id) is told


def test_a_key_that_waits_for_its_deletion_can_be_had_back(kms, key):
    key_id = kms.create_key()
    kms.admin.schedule_key_deletion(KeyId=key_id[-36:], PendingWindowInDays=7)
    assert is_destroyed(kms.provider(key_id), key_id) is False


def test_a_key_that_may_have_replicas_elsewhere_or_is_anothers_is_not_called_destroyed(kms, provider, key):
    home = provider.wrap(key, context=CONTEXT).key_id.rpartition("/")[0]
    kms.requests.clear()
    kms.fault = "NotFoundException"
    assert is_destroyed(provider, f"{home}/mrk-{'0' * 32}") is None
    assert len(kms.requests) == 1
    for other in ("", "text", ARN.replace(REGION, "us-east-1"), f"{home}/"):
        assert is_destroyed(provider, other) is None
    assert len(kms.requests) == 1


AWAY = {
    "AccessDeniedException": "let us",
    "DisabledException": "disabled",
    "KMSInvalidStateException": "to be deleted",
    "KeyUnavailableException": "at the moment",
    "ThrottlingException": "too many",
    "LimitExceededException": "too many",
    "DependencyTimeoutException": "in time",
    "KMSInternalException": "failed",
    "InvalidKeyUsageException": "symmetrically",
    "UnrecognizedClientException": "let us",
    "InvalidSignatureException": "let us",
    "ExpiredTokenException": "let us",
    "ServiceUnavailable": "failed",
    "SomethingNewException": "failed",
    SERVICE_TEXT: "failed",
}
CALLS = ("wrap", "unwrap", "rewrap")
BY_CALL = [(code, call, KeyUnavailable, says) for code, says in AWAY.items() for call in CALLS]
BY_CALL += [("NotFoundException", call, UnknownKey, "no such key") for call in ("wrap", "rewrap")]
BY_CALL += [("InvalidArnException", call, UnknownKey, "no such key") for call in CALLS]
BY_CALL += [("NotFoundException", "unwrap", KeyDestroyed, "any more")]
for wrong in ("InvalidCiphertextException", "IncorrectKeyException"):
    BY_CALL += [(wrong, call, ResultCorrupt, "damaged") for call in ("unwrap", "rewrap")]
    BY_CALL += [(wrong, "wrap", KeyUnavailable, "failed")]


def ask(provider, call, key, wrapped):
    if call == "wrap":
        return provider.wrap(key, context=CONTEXT)
    if call == "unwrap":
        return provider.unwrap(wrapped, context=CONTEXT)
    return rewrap_key(provider, wrapped, context=CONTEXT, new_context=b"new")


def require_silent(error, *secrets):
    """Nothing of it in the error, in what caused it, or in a traceback that prints variables."""
    assert error.__context__ is None
    assert error.__cause__ is None
    frames = traceback.walk_tb(error.__traceback__.tb_next)
    printed = "".join(traceback.StackSummary.extract(frames, capture_locals=True).format())
    for secret in (CANARY, base64.b64encode(CANARY), CANARY.hex()):
        assert repr(secret) not in printed
    for secret in (SERVICE_TEXT, CONTEXT.decode(), "arn:aws", *secrets):
        assert secret not in str(error)


@pytest.mark.parametrize(("code", "call", "expected", "says"), BY_CALL)
def test_each_refusal_of_the_service_is_the_error_it_means(kms, provider, key, code, call, expected, says):
    wrapped = provider.wrap(key, context=CONTEXT)
    kms.fault = code
    with pytest.raises(TenancyError, match=says) as refusal:
        ask(provider, call, key, wrapped)
    assert type(refusal.value) is expected
    assert refusal.value.retryable is issubclass(expected, KeyUnavailable)
    require_silent(refusal.value)
    kms.fault = None
    with provider.unwrap(wrapped, context=CONTEXT) as opened:
        assert opened.equals(key)


URL = "https://canary-of-the-service/"
OUTAGES = [
    (exceptions.ConnectTimeoutError(endpoint_url=URL), "in time"),
    (exceptions.ReadTimeoutError(endpoint_url=URL), "in time"),
    (exceptions.EndpointConnectionError(endpoint_url=URL), "in time"),
    (exceptions.SSLError(endpoint_url=URL, error=SERVICE_TEXT), "in time"),
    (exceptions.ProxyConnectionError(proxy_url=URL), "in time"),
    (exceptions.NoCredentialsError(), "credentials"),
    (exceptions.PartialCredentialsError(provider=SERVICE_TEXT, cred_var="x"), "credentials"),
    (exceptions.CredentialRetrievalError(provider=SERVICE_TEXT, error_msg="x"), "credentials"),
    (exceptions.TokenRetrievalError(provider=SERVICE_TEXT, error_msg="x"), "in time"),
    (OSError(5, SERVICE_TEXT), "in time"),
    (ValueError(CANARY), "in time"),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("error", "says"), OUTAGES, ids=lambda value: type(value).__name__)
def test_an_outage_is_an_error_to_try_again_after(kms, provider, key, error, says, call):
    wrapped = provider.wrap(key, context=CONTEXT)
    kms.fault = error
    with pytest.raises(KeyUnavailable, match=says) as refusal:
        ask(provider, call, key, wrapped)
    assert refusal.value.retryable
    require_silent(refusal.value)


def test_a_key_that_waits_for_its_deletion_can_still_be_saved(kms, provider, key):
    wrapped = provider.wrap(key, context=CONTEXT)
    # moto takes the short form only.
    key_id = wrapped.key_id[-36:]
    kms.admin.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=7)
    with pytest.raises(KeyUnavailable) as refusal:
        provider.unwrap(wrapped, context=CONTEXT)
    assert refusal.value.retryable
    kms.admin.cancel_key_deletion(KeyId=key_id)
    kms.admin.enable_key(KeyId=key_id)
    provider.unwrap(wrapped, context=CONTEXT).close()


def test_a_call_that_was_throttled_is_tried_again(kms, arn, key):
    provider = kms.provider(arn, attempts=2)
    kms.fault_once = "ThrottlingException"
    provider.wrap(key, context=CONTEXT)
    assert [operation for operation, _ in kms.requests] == ["Encrypt", "Encrypt"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"KeyId": ARN},
        {"KeyId": ARN, "Plaintext": b""},
        {"KeyId": ARN, "Plaintext": CANARY[:-1]},
        {"KeyId": ARN, "Plaintext": CANARY + b"\0"},
        {"KeyId": ARN, "Plaintext": "x" * 32},
        {"KeyId": ARN[:-1] + "0", "Plaintext": CANARY},
        {"Plaintext": CANARY},
    ],
)
def test_an_answer_that_is_not_the_key_is_refused(answer):
    provider = AwsKmsProvider(ARN, new_client=lambda: Client(**answer))
    with pytest.raises(ResultCorrupt) as refusal:
        provider.unwrap(WrappedKey(ARN, b"data"), context=CONTEXT)
    require_silent(refusal.value)


@pytest.mark.parametrize(
    "answer",
    [{}, {"KeyId": ARN}, {"CiphertextBlob": b"x"}, {"KeyId": "alias/x", "CiphertextBlob": b"x"}]
    + [{"KeyId": ARN, "CiphertextBlob": value} for value in (b"", "x", None)],
)
def test_an_answer_that_is_no_wrapped_key_never_gets_into_the_catalogue(key, answer):
    provider = AwsKmsProvider(ARN, new_client=lambda: Client(**answer))
    for call in ("wrap", "rewrap"):
        with pytest.raises(KeyUnavailable, match="none of its own"):
            ask(provider, call, key, WrappedKey(ARN, b"data"))


@pytest.mark.parametrize("data", [b"", b"x" * 6145])
def test_data_that_no_key_of_the_service_made_is_not_sent(data):
    client = Client()
    with pytest.raises(ResultCorrupt):
        AwsKmsProvider(ARN, new_client=lambda: client).unwrap(WrappedKey(ARN, data), context=CONTEXT)
    assert client.sent == []


def test_a_key_is_rewrapped_by_the_service_alone(kms, provider, key):
    wrapped = provider.wrap(key, context=CONTEXT)
    kms.requests.clear()
    rewrap_key(provider, wrapped, context=CONTEXT, new_context=b"new")
    ((operation, sent),) = kms.requests
    assert operation == "ReEncrypt"
    assert sent["SourceKeyId"] == wrapped.key_id
    assert sent["SourceEncryptionContext"] != sent["DestinationEncryptionContext"]


def test_the_bytes_that_were_sent_are_overwritten_and_not_kept(key):
    client = Client(KeyId=ARN, CiphertextBlob=b"data")
    provider = AwsKmsProvider(ARN, new_client=lambda: client)
    provider.wrap(key, context=CONTEXT)
    assert client.sent[0]["Plaintext"] == bytearray(32)
    assert key.equals(SecretKey(CANARY))


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.name} {record.getMessage()} {record.exc_info}")


@pytest.fixture
def everything_logged():
    root, handler = logging.getLogger(), Kept()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler.lines
    root.setLevel(before)
    root.removeHandler(handler)


def test_boto3_logs_nothing_of_ours_and_everything_of_others(kms, provider, key, everything_logged):
    wrapped = provider.wrap(key, context=CONTEXT)
    provider.unwrap(wrapped, context=CONTEXT).close()
    rewrap_key(provider, wrapped, context=CONTEXT, new_context=b"new")
    kms.fault = "AccessDeniedException"
    with pytest.raises(KeyUnavailable):
        provider.unwrap(wrapped, context=CONTEXT)
    assert [line for line in everything_logged if line.startswith(("boto", "urllib3"))] == []
    for secret in (base64.b64encode(CANARY).decode(), repr(CANARY), wrapped.key_id, "arn:aws", SERVICE_TEXT):
        assert secret not in "".join(everything_logged)
    kms.fault = None
    kms.admin.describe_key(KeyId=wrapped.key_id)
    assert wrapped.key_id in "".join(line for line in everything_logged if line.startswith("botocore"))


def test_it_shows_nothing_and_refuses_once_closed(key):
    client = Client()
    provider = AwsKmsProvider(ARN, new_client=lambda: client)
    assert repr(provider) == str(provider) == "AwsKmsProvider(…)"
    provider.close()
    provider.close()
    assert client.is_closed
    for call in CALLS:
        with pytest.raises(KeyUnavailable, match="closed"):
            ask(provider, call, key, WrappedKey(ARN, b"data"))
    assert client.sent == []


def test_a_forked_child_shares_no_connection_with_its_parent(key):
    made = []

    def new_client():
        made.append(Client(KeyId=ARN, CiphertextBlob=b"data"))
        return made[-1]

    provider = AwsKmsProvider(ARN, new_client=new_client)

    def work():
        provider.wrap(key, context=CONTEXT)
        provider.wrap(key, context=CONTEXT)
        return [len(client.sent) for client in made]

    assert in_a_child(work) == [0, 2]
    assert work() == [2]
