"""Where settings come from, what they accept, and that a wrong one is named and never shown."""

import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from tenancy.errors import ConfigurationError
from tenancy.quotas import DEFAULT_LIMITS, Limits
from tenancy.settings import Settings
from tests.cli.conftest import unprivileged

SECRET = "correct-horse-battery"
PASSWORD_URL = f"postgresql+psycopg://app:{SECRET}@db/tenancy"
REQUIRED = {"database_url": "sqlite:////srv/catalogue.sqlite3", "store_url": "database:", "keys": "env:SOME_KEY"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tenancy.toml"
    path.write_text(
        'database_url = "sqlite:////srv/file.sqlite3"\n'
        'store_url = "file:///srv/results"\n'
        'keys = "file:/srv/keys.json"\n'
        '[limits]\nuser_bytes = "2GiB"\ntenant_sessions = 10\n[lifetime]\nidle = "2h"\n'
    )
    return path


def test_defaults_are_those_of_the_design() -> None:
    settings = Settings(**REQUIRED)
    assert settings.limits == DEFAULT_LIMITS
    assert (settings.lifetime.idle, settings.lifetime.maximum) == (timedelta(hours=24), timedelta(days=30))
    assert (settings.durability, settings.inline_bytes, settings.compression) == ("power", 32768, "zstd")


def test_a_file_is_read(config: Path) -> None:
    settings = Settings.load(config)
    assert settings.store_url == "file:///srv/results"
    assert settings.limits.user_bytes == 2 * 2**30
    assert settings.limits.tenant_sessions == 10
    assert settings.limits.max_result_bytes == DEFAULT_LIMITS.max_result_bytes
    assert settings.lifetime.idle == timedelta(hours=2)


def test_the_environment_names_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_CONFIG", str(config))
    assert Settings.load().keys == "file:/srv/keys.json"
    assert Settings().keys == "file:/srv/keys.json"


def test_each_source_overrides_the_next_field_by_field(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "database_url").write_text("sqlite:////srv/secret.sqlite3\n")
    (secrets / "HAYSTACK_TENANCY_STORE_URL").write_text("memory:")
    (secrets / "limits__user_results").write_text("7")
    (secrets / "somebody_elses").write_text("x")
    monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", str(secrets))
    assert Settings.load(config).database_url == "sqlite:////srv/secret.sqlite3"
    assert Settings.load(config).keys == "file:/srv/keys.json"

    monkeypatch.setenv("HAYSTACK_TENANCY_STORE_URL", "database:")
    monkeypatch.setenv("HAYSTACK_TENANCY_LIMITS__USER_BYTES", "unlimited")
    settings = Settings.load(config)
    assert settings.store_url == "database:"
    assert settings.limits.user_bytes is None
    assert (settings.limits.user_results, settings.limits.tenant_sessions) == (7, 10)

    (secrets / "other_keys__acme").write_text("secret-file:/run/acme")
    monkeypatch.setenv("HAYSTACK_TENANCY_OTHER_KEYS__GLOBEX", "env:GLOBEX_KEY")
    others = Settings.load(config).other_keys
    assert others == {"acme": "secret-file:/run/acme", "globex": "env:GLOBEX_KEY"}

    monkeypatch.setenv("HAYSTACK_TENANCY_CONFIG", str(config))
    assert Settings(store_url="memory:", limits={"user_bytes": 1}).store_url == "memory:"
    assert Settings(store_url="memory:", limits={"user_bytes": 1}).limits.user_bytes == 1


def test_an_empty_variable_counts_as_not_set(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_STORE_URL", "")
    monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", "")
    assert Settings.load(config).store_url == "file:///srv/results"


def test_no_file_is_found_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tenancy.toml", "pyproject.toml", ".env", "config.toml"):
        (tmp_path / name).write_text("".join(f'{key} = "{value}"\n' for key, value in REQUIRED.items()))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="database_url is missing"):
        Settings.load()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(store_url="database:")
    assert "database_url is missing" in str(caught.value)
    assert "keys is missing" in str(caught.value)
    assert "store_url" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("database_url", f"mysql://root:{SECRET}@db/x"),
        ("database_url", f"{SECRET}"),
        ("database_url", ["postgresql+psycopg://", SECRET]),
        ("database_url", "sqlite://"),
        ("store_url", f"s3://{SECRET}"),
        ("store_url", f"file://{SECRET}/relative"),
        ("store_url", "file:///"),
        ("keys", SECRET),
        ("keys", f"awskms:{SECRET}"),
        ("keys", "file:"),
        ("durability", SECRET),
        ("inline_bytes", SECRET),
        ("inline_bytes", -1),
        ("inline_bytes", True),
        ("inline_bytes", 2**20 + 1),
        ("inline_bytes", "unlimited"),
        ("compression", SECRET),
        ("compression", "ZSTD"),
        ("compression", True),
        ("limits", SECRET),
        ("limits", {"user_bytes": SECRET}),
        ("limits", {"user_bytes": -5}),
        ("limits", {"user_bytes": 2**63}),
        ("limits", {"user_bytes": 1.5}),
        ("limits", {"user_bytes": True}),
        ("limits", {"user_results": "5MiB"}),
        ("lifetime", {"idle": SECRET}),
        ("lifetime", {"idle": "0s"}),
        ("lifetime", {"idle": -1}),
        ("lifetime", {"maximum": "unlimited"}),
        ("lifetime", {"maximum": "200w200"}),
        ("lifetime", {"maximum": 1e300}),
        ("lifetime", {"maximum": float("nan")}),
    ],
)
def test_a_wrong_value_is_named_and_never_shown(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(**{**REQUIRED, field: value})
    assert field in str(caught.value)
    # Not even by way of the exception's context, which crash reporters walk.
    everything = [caught.value]
    while everything[-1].__context__ is not None:
        everything.append(everything[-1].__context__)
    assert not any(SECRET in str(error) or isinstance(error, ValidationError) for error in everything)
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(**{**REQUIRED, "keys": SECRET, "limits": {"user_bytes": -1, "user_sessions": -1, "users": 1}})
    for name in ("keys", "limits.user_bytes", "limits.user_sessions", "limits.users is not a setting"):
        assert name in str(caught.value)


def test_an_unknown_key_is_refused(config: Path) -> None:
    config.write_text(f'database_uri = "{SECRET}"\n' + config.read_text())
    with pytest.raises(ConfigurationError, match="database_uri is not a setting") as caught:
        Settings.load(config)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["LIMITS__USER_BYTE", "LIMIT__USER_BYTES", "LIFETIME__IDEL", "LIMITS__"])
def test_a_misspelt_limit_in_the_environment_is_refused(
    name: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HAYSTACK_TENANCY_{name}", "5")
    with pytest.raises(ConfigurationError, match="not a setting"):
        Settings.load(config)


def test_what_an_orchestrator_adds_to_the_environment_does_no_harm(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HAYSTACK_TENANCY_PORT", "tcp://10.0.0.1:80")
    assert Settings.load(config).store_url == "file:///srv/results"


def test_a_section_given_whole_and_in_fields_is_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_LIMITS", '{"user_bytes": 1}')
    monkeypatch.setenv("HAYSTACK_TENANCY_LIMITS__USER_BYTES", "1")
    with pytest.raises(ConfigurationError, match="limits is given both"):
        Settings.load(config)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.toml does not exist\."):
        Settings.load(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'keys = "\xe4"')
    for unreadable in (tmp_path / "latin.toml", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read as text"):
            Settings.load(unreadable)


def test_what_this_user_may_not_open_is_called_that(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as outer:
        # Not pytest's directory, which somebody else may not even enter.
        Path(outer).chmod(0o755)
        config, secrets = Path(outer, "tenancy.toml"), Path(outer, "secrets")
        config.write_text(f'keys = "{SECRET}"')
        secrets.mkdir()
        (secrets / "store_url").write_text(SECRET)
        monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", str(secrets))
        for path, what in (
            (secrets, "directory of secret files"),
            (secrets / "store_url", "secret file"),
            (config, "configuration file"),
        ):
            mode = path.stat().st_mode
            path.chmod(0o000)
            with unprivileged(), pytest.raises(ConfigurationError) as caught:
                Settings.load(config)
            path.chmod(mode)
            assert str(caught.value) == f"The {what} {path} cannot be opened by this user."


def test_a_broken_file_is_refused_by_line_and_not_quoted(config: Path) -> None:
    config.write_text(f'keys = "{SECRET}"\ndatabase_url = "{SECRET}" "{SECRET}"\n')
    with pytest.raises(ConfigurationError, match=r"not valid TOML \(line 2\)") as caught:
        Settings.load(config)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_directory_of_secret_files_must_be_there(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="directory of secret files"):
        Settings.load(config)


@pytest.mark.parametrize("content", [b"\xff\xfe" + SECRET.encode(), b"x" * (64 * 2**10 + 1)])
def test_an_unreadable_secret_file_is_refused(
    content: bytes, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_bytes(content)
    monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="secret file") as caught:
        Settings.load(config)
    assert caught.value.__context__ is None


def test_two_secret_files_for_one_setting_are_refused(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("env:ONE")
    (tmp_path / "HAYSTACK_TENANCY_KEYS").write_text("env:TWO")
    monkeypatch.setenv("HAYSTACK_TENANCY_SECRETS_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="like the setting keys"):
        Settings.load(config)


def test_settings_do_not_change_and_do_not_show_the_password() -> None:
    settings = Settings(**{**REQUIRED, "database_url": PASSWORD_URL})
    assert settings.database_url == PASSWORD_URL
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)
    with pytest.raises(AttributeError) as caught:
        settings.keys = SECRET  # type: ignore[misc]
    assert SECRET not in str(caught.value)
    assert settings.keys == REQUIRED["keys"]


def test_text_that_is_no_settings_is_not_shown_either() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate_json(f'{{"keys": "{SECRET}')
    assert SECRET not in str(caught.value)


def test_limits_that_were_built_in_code_are_completed_by_the_defaults() -> None:
    settings = Settings(**REQUIRED, limits=Limits(user_bytes=5))
    assert settings.limits == Limits(user_bytes=5).over(DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("written", "amount"),
    [("0", 0), (7, 7), ("64MiB", 64 * 2**20), ("2 GB", 2 * 10**9), ("1kb", 1000), ("10B", 10), ("unlimited", None)],
)
def test_sizes_are_written_in_these_ways(written: object, amount: int | None) -> None:
    assert Settings(**REQUIRED, limits={"user_bytes": written}).limits.user_bytes == amount


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("24h", 86400), ("30d", 30 * 86400), ("90", 90), (90, 90), (1.5, 1.5), ("PT24H", 86400), ("P2W", 14 * 86400)],
)
def test_durations_are_written_in_these_ways(written: object, seconds: float) -> None:
    assert Settings(**REQUIRED, lifetime={"idle": written}).lifetime.idle == timedelta(seconds=seconds)


def test_a_result_may_live_as_long_as_its_session() -> None:
    assert Settings(**REQUIRED, lifetime={"result": "unlimited"}).lifetime.result is None
    assert Settings(**REQUIRED, lifetime={"result": "1h"}).lifetime.result == timedelta(hours=1)
