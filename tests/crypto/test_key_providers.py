"""Every provider keeps the contract. The example of `docs/keys.md` does in `tests/test_documents.py`."""

import base64

import pytest

from tenancy.keys.keyset import parse_single_key
from tenancy.keys.providers import KeysetProvider, create_key_file, open_key_provider
from tenancy.testing import KeyProviderContract
from tests.crypto.kms import running

KEY = base64.b64encode(bytes(range(32))).decode()


class TestKeyFile(KeyProviderContract):
    @pytest.fixture
    def open_provider(self, tmp_path):
        create_key_file(tmp_path / "keys.json")
        return lambda: open_key_provider(f"file:{tmp_path / 'keys.json'}")


class TestVariable(KeyProviderContract):
    @pytest.fixture
    def open_provider(self, monkeypatch):
        monkeypatch.setenv("TENANCY_TEST_KEYS", KEY)
        return lambda: open_key_provider("env:TENANCY_TEST_KEYS")


class TestSecretFile(KeyProviderContract):
    @pytest.fixture
    def open_provider(self, tmp_path):
        (tmp_path / "secret").write_text(KEY)
        (tmp_path / "secret").chmod(0o400)
        return lambda: open_key_provider(f"secret-file:{tmp_path / 'secret'}")


@pytest.fixture(scope="module")
def kms_key():
    """A key of a service that is there for all tests here."""
    with pytest.MonkeyPatch.context() as patch, running(patch) as service:
        yield service.create_key()


class TestAwsKms(KeyProviderContract):
    @pytest.fixture
    def open_provider(self, kms_key):
        return lambda: open_key_provider(f"aws-kms:{kms_key}")


class TestInstalled(KeyProviderContract):
    @pytest.fixture
    def open_provider(self, install):
        install(other=lambda rest: KeysetProvider("other", parse_single_key(rest)))
        return lambda: open_key_provider(f"other:{KEY}")
