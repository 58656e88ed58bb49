"""Tenants with a key of their own: moved there, kept there, and nobody else's trouble."""

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenancy import (
    ConfigurationError,
    KeyDestroyed,
    KeyUnavailable,
    SessionManager,
    SessionNotFound,
    Settings,
    StorageUnavailable,
)
from tenancy.keys.keyset_editing import add_primary_key, destroy_key, disable_key
from tenancy.keys.providers import create_key_file
from tenancy.rotation.report import RotationReport
from tests.conftest import ManagerFactory
from tests.core.test_rotation import LEVELS, People, files, rows
from tests.crypto.kms import Service, running

Move = Callable[..., SessionManager]


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own" / "keys.json"
    path.parent.mkdir(mode=0o700)
    create_key_file(path)
    return path


@pytest.fixture
def start(make_manager: ManagerFactory, own_file: Path) -> Move:
    """Starts a manager that knows the key of acme's own."""
    return lambda **settings: make_manager(**{"other_keys": {"acme-key": f"file:{own_file}"}, **settings})


@pytest.fixture
def kms() -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch, running(patch) as service:
        yield service


def id_of(path: Path) -> str:
    (primary,) = (key["id"] for key in json.loads(path.read_text())["keys"] if key["state"] == "primary")
    return str(primary)


def providers(manager: SessionManager) -> dict[str, set[str]]:
    """Which providers the keys of each tenant are with, as they stand in the catalogue."""
    found: dict[str, set[str]] = {}
    for name, provider in rows(
        manager, "SELECT name, provider FROM tenancy_tenants JOIN tenancy_tenant_keys USING (tenant_id)"
    ):
        found.setdefault(name, set()).add(provider)
    return found


def states(manager: SessionManager) -> dict[tuple[str, str], tuple[str, int]]:
    return {(key.provider, key.key_id): (key.state, key.tenants) for key in manager.key_report().root_keys}


def test_a_moved_tenant_reads_and_writes_on_and_stays_with_its_key_whatever_is_rotated(
    make_manager: ManagerFactory, start: Move, own_file: Path
) -> None:
    manager, other = start(), start()
    people = People(manager)
    before = files(make_manager)
    report = manager.move_keys(tenant="acme", to="acme-key")
    assert (report.level, report.changed, report.failed, report.left) == ("root", 1, 0, 0)
    assert providers(manager) == {"acme": {"acme-key"}, "globex": {"file"}}
    assert files(make_manager) == before
    people.require_all(other)
    assert manager.move_keys(tenant="acme", to="acme-key").changed == 0
    for level in LEVELS:
        report = manager.rotate_keys(level)
        assert (report.changed, report.left) == (0 if level == "root" else 4, 0)
        assert providers(manager) == {"acme": {"acme-key"}, "globex": {"file"}}
        people.require_all(other)
    people.write()
    people.require_all(start())
    shared, own = ("file", id_of(make_manager.key_file)), ("acme-key", id_of(own_file))
    assert states(manager) == {shared: ("primary", 1), own: ("primary", 1)}
    assert manager.key_report().due == dict.fromkeys(LEVELS, 0)


def test_a_new_primary_key_of_a_tenants_own_takes_over_there_and_that_of_all_others_elsewhere(
    make_manager: ManagerFactory, start: Move, own_file: Path
) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    old = {"file": id_of(make_manager.key_file), "acme-key": id_of(own_file)}
    for path in (own_file, make_manager.key_file):
        add_primary_key(path)
        assert manager.key_report().due["root"] == 1
        assert manager.rotate_keys("root").changed == 1
    assert providers(manager) == {"acme": {"acme-key"}, "globex": {"file"}}
    for path, name in ((own_file, "acme-key"), (make_manager.key_file, "file")):
        disable_key(path, old[name])
        destroy_key(path, old[name])
    people.require_all(start())


def test_a_tenant_is_moved_back(make_manager: ManagerFactory, start: Move) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    assert manager.move_keys(tenant="acme", to="file").changed == 1
    assert manager.rotate_keys("root").left == 0
    # Nothing asks for the key any more that nothing hangs on.
    people.require_all(make_manager())


def test_everything_of_one_provider_goes_to_another_and_what_is_with_a_third_stays(
    make_manager: ManagerFactory, start: Move, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    monkeypatch.setenv("NEXT_KEY", base64.b64encode(os.urandom(32)).decode())
    keys = {"file": f"file:{make_manager.key_file}", "acme-key": f"file:{own_file}"}
    manager = make_manager(keys="env:NEXT_KEY", other_keys=keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXT_KEY", base64.b64encode(os.urandom(32)).decode())
        with pytest.raises(ConfigurationError, match="not the one"):
            make_manager(keys="env:NEXT_KEY", other_keys=keys)
    handle = manager.session(tenant="initech", user="bill")
    reference = handle.write("new")
    assert providers(manager) == {"acme": {"acme-key"}, "globex": {"file"}, "initech": {"env"}}
    # Who has not heard of it yet goes on with what was there.
    people.require_all(start())
    assert manager.move_keys(source="file", to="env").changed == 1
    assert providers(manager) == {"acme": {"acme-key"}, "globex": {"env"}, "initech": {"env"}}
    assert manager.rotate_keys("root").changed == 0
    make_manager.key_file.unlink()
    after = make_manager(keys="env:NEXT_KEY", other_keys={"acme-key": keys["acme-key"]})
    for (tenant, name), written in people.written.items():
        fresh = after.session(tenant=tenant, user="anna", session=name)
        assert {each: fresh.read(each) for each in written} == written
    assert after.session(tenant="initech", user="bill").read(reference) == "new"


def test_a_key_of_its_own_that_is_away_is_missed_by_its_tenant_and_by_nobody_else(
    make_manager: ManagerFactory, start: Move, own_file: Path
) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    people.require_all(manager)
    away = own_file.rename(own_file.with_name("away.json"))
    kept = len(manager._backend.keyring._cache)
    references = people.written["globex", "chat"]
    for _ in range(3):
        with pytest.raises(KeyUnavailable):
            people.handles["acme", "chat"].read(next(iter(people.written["acme", "chat"])))
        # What others have opened is not thrown away with it.
        assert 0 < len(manager._backend.keyring._cache) < kept
        assert {each: people.handles["globex", "chat"].read(each) for each in references} == references
    for level in LEVELS:
        add_primary_key(make_manager.key_file)
        report = manager.rotate_keys(level)
        assert report.changed == (1 if level == "root" else 2)
    assert {state for (provider, _), (state, _) in states(manager).items() if provider == "acme-key"} == {"unknown"}
    manager.delete_session(tenant="acme", user="anna", session="mail")
    away.rename(own_file)
    assert [manager.rewrap_keys(level).left for level in LEVELS] == [0, 0, 0]
    for who in (("acme", "mail"),):
        del people.handles[who], people.written[who]
    people.require_all(start())


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_without_a_tenants_key_serves_all_others_and_says_so(
    make_manager: ManagerFactory, start: Move, own_file: Path, level: str
) -> None:
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    manager = make_manager()
    reference = next(iter(people.written["acme", "chat"]))
    for call in (
        lambda: manager.session(tenant="acme", user="anna", session="chat").read(reference),
        lambda: manager.session(tenant="acme", user="anna", session="new"),
        lambda: manager.require_key("acme-key"),
    ):
        with pytest.raises(KeyUnavailable, match="other_keys"):
            call()
    globex = people.written["globex", "chat"]
    assert all(manager.session(tenant="globex", user="anna", session="chat").read(each) for each in globex)
    assert states(manager)["acme-key", id_of(own_file)] == ("foreign", 1)
    report = manager.rotate_keys(level)
    assert (report.changed, report.failed > 0, report.left > 0) == (0 if level == "root" else 2, True, True)
    assert providers(manager)["acme"] == {"acme-key"}
    assert [start().rewrap_keys(each).left for each in LEVELS] == [0, 0, 0]
    people.require_all(start())


@pytest.mark.parametrize("key_id", ["of the same id", "of another id"])
def test_another_key_under_the_same_name_opens_and_wraps_nothing(start: Move, own_file: Path, key_id: str) -> None:
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    document = json.loads(own_file.read_text())
    document["keys"][0]["key"] = base64.urlsafe_b64encode(os.urandom(32)).decode()
    if key_id == "of another id":
        document["keys"][0]["id"] = "another"
    own_file.write_text(json.dumps(document))
    manager = start()
    with pytest.raises(ConfigurationError, match="not the one"):
        manager.session(tenant="acme", user="anna", session="chat").read(next(iter(people.written["acme", "chat"])))
    with pytest.raises(ConfigurationError, match="not the one"):
        manager.move_keys(tenant="globex", to="acme-key")
    assert manager.rotate_keys("root").failed == (key_id == "of another id")
    assert manager.rotate_keys("tenant").failed == 2
    assert providers(manager) == {"acme": {"acme-key"}, "globex": {"file"}}
    assert len(rows(manager, "SELECT key_id FROM tenancy_root_keys")) == 2


def test_a_rotation_that_began_before_a_move_does_not_bring_the_tenant_back(
    start: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, mover = start(), start()
    people = People(manager)
    make = manager._backend.keyring.new_tenant_key

    def moved_meanwhile(**which: Any) -> Any:
        key = make(**which)
        if which["provider"] == "file":
            mover.move_keys(tenant="acme", to="acme-key")
        return key

    monkeypatch.setattr(manager._backend.keyring, "new_tenant_key", moved_meanwhile)
    assert manager.rotate_keys("tenant", tenant="acme").left == 0
    assert providers(manager)["acme"] == {"acme-key"}
    people.require_all(start())


def test_a_tenant_is_moved_to_and_fro_while_it_reads_writes_and_has_its_keys_rotated(start: Move) -> None:
    manager = start()
    people = People(manager)
    over = threading.Event()
    faults: list[BaseException] = []

    def meanwhile(work: Callable[[SessionManager], object]) -> threading.Thread:
        own = start()

        def go() -> None:
            try:
                while not over.is_set():
                    work(own)
            except BaseException as error:
                faults.append(error)

        thread = threading.Thread(target=go)
        thread.start()
        return thread

    def read_and_write(own: SessionManager) -> None:
        session = own.session(tenant="acme", user="anna", session="busy")
        reference = session.write("text")
        assert session.read(reference) == "text"
        session.delete(reference)

    rotated: list[RotationReport] = []

    def rotate(own: SessionManager) -> None:
        # Where the others are in the way too often it says so, to be tried again.
        with suppress(StorageUnavailable):
            rotated.append(own.rotate_keys("tenant", tenant="acme"))
        over.wait(0.005)

    threads = [meanwhile(read_and_write), meanwhile(rotate)]
    for number in range(12):
        to = ("acme-key", "file")[number % 2]
        assert manager.move_keys(tenant="acme", to=to).left == 0
        assert providers(manager)["acme"] == {to}
    over.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert rotated
    people.require_all(start())


@pytest.mark.parametrize(
    "which",
    [
        {"to": "acme-key"},
        {"to": "acme-key", "tenant": "acme", "source": "file"},
        {"to": "acme-kei", "tenant": "acme"},
        {"to": "aws-kms", "tenant": "acme"},
        {"to": "acme-key", "source": "filé"},
    ],
)
def test_what_says_not_whose_or_not_where_is_refused(start: Move, which: dict[str, str]) -> None:
    manager = start()
    People(manager)
    with pytest.raises(ConfigurationError):
        manager.move_keys(**which)
    assert providers(manager) == {"acme": {"file"}, "globex": {"file"}}


def test_a_tenant_that_is_not_there_is_not_moved(start: Move) -> None:
    with pytest.raises(SessionNotFound):
        start().move_keys(tenant="acme", to="acme-key")


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({"file": "file:OWN"}, "provider of the setting keys"),
        ({"aws-kms": "file:OWN"}, "kind of provider"),
        ({"own": "file:/nowhere/keys.json"}, "/nowhere/keys.json"),
        ({"Own": "file:OWN"}, "a-z"),
        ({"own": "none:"}, "other_keys.own must name a key"),
        ({"own": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "other_keys.own must say where"),
        ("file:OWN", "one by one"),
    ],
)
def test_names_that_could_be_taken_for_others_and_keys_that_are_not_there_are_refused(
    make_manager: ManagerFactory, own_file: Path, others: Any, says: str
) -> None:
    if isinstance(others, dict):
        others = {
            name: value.format(own=own_file).replace("file:OWN", f"file:{own_file}") for name, value in others.items()
        }
    with pytest.raises(ConfigurationError, match=says) as refusal:
        make_manager(other_keys=others)
    assert "AAEC" not in str(refusal.value)


def test_a_job_without_a_key_opens_no_others_either_and_removes(start: Move, own_file: Path) -> None:
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    own_file.unlink()
    job = start(keys="none:")
    job.erase_tenant(tenant="acme")
    with pytest.raises(KeyUnavailable, match="none:"):
        job.session(tenant="globex", user="anna", session="chat").read(next(iter(people.written["globex", "chat"])))


def test_the_receipt_of_an_erasure_asks_the_tenants_own_provider(start: Move, own_file: Path) -> None:
    manager = start()
    People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    old = id_of(own_file)
    receipt = manager.erase_user(tenant="acme", user="anna")
    assert receipt.key_ids == (f"acme-key:{old}",)
    assert manager.receipt(receipt.receipt_id).reached == "removed"
    add_primary_key(own_file)
    manager.rotate_keys("root", tenant="acme")
    disable_key(own_file, old)
    destroy_key(own_file, old)
    # The tenant's key went under the key of all others once, which is still there.
    assert manager.receipt(receipt.receipt_id).reached == "key_destroyed"


def test_a_tenant_is_moved_to_a_key_of_aws_kms_and_ends_with_it(make_manager: ManagerFactory, kms: Service) -> None:
    arn = kms.create_key()
    settings = {"other_keys": {"acme": f"aws-kms:{arn}"}}
    manager = make_manager(**settings)
    people = People(manager)
    assert manager.move_keys(tenant="acme", to="acme").changed == 1
    people.require_all(make_manager(**settings))
    assert states(manager)["acme", arn] == ("primary", 1)
    kms.admin.disable_key(KeyId=arn.rpartition("/")[2])
    fresh = make_manager(**settings)
    reference = next(iter(people.written["acme", "chat"]))
    with pytest.raises(KeyUnavailable):
        fresh.session(tenant="acme", user="anna", session="chat").read(reference)
    globex = people.written["globex", "chat"]
    assert all(fresh.session(tenant="globex", user="anna", session="chat").read(each) for each in globex)
    kms.fault = "NotFoundException"
    with pytest.raises(KeyDestroyed):
        fresh.session(tenant="acme", user="anna", session="chat").read(reference)


def wrong(path: Path) -> Path:
    """Another key file, as `tenancy init` makes one on a second host."""
    other = path.with_name("other.json")
    create_key_file(other)
    return other


@pytest.mark.parametrize("call", ["move", "root", "tenant", "write"])
def test_a_process_that_has_another_key_under_a_name_that_became_known_since_it_started_does_no_harm(
    start: Move, own_file: Path, call: str
) -> None:
    late = start(other_keys={"acme-key": f"file:{wrong(own_file)}"})
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    if call == "move":
        with pytest.raises(ConfigurationError, match="not the one"):
            late.move_keys(tenant="globex", to="acme-key")
    elif call == "write":
        with pytest.raises(ConfigurationError, match="not the one"):
            late.session(tenant="acme", user="anna", session="chat").write("text")
    else:
        assert late.rotate_keys(call).failed > 0
    assert len(rows(late, "SELECT key_id FROM tenancy_root_keys")) == 2
    assert [start().rewrap_keys(level).left for level in LEVELS] == [0, 0, 0]
    people.require_all(start())


def test_the_key_of_a_tenants_own_stays_known_however_it_came_into_use(start: Move, own_file: Path) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    new = add_primary_key(own_file)
    # Goes under the new one without a rotation at the level root.
    manager.rotate_keys("tenant", tenant="acme")
    manager.rewrap_keys("root")
    known = rows(manager, "SELECT key_id FROM tenancy_root_keys WHERE provider = 'acme-key'")
    assert known == [(new,)]
    people.require_all(start())
    with pytest.raises(ConfigurationError, match="not the one"):
        start(other_keys={"acme-key": f"file:{wrong(own_file)}"}).require_key("acme-key")


def test_a_default_of_another_kind_is_refused_unless_it_succeeds_the_right_one(
    make_manager: ManagerFactory, start: Move, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    People(start())
    start().move_keys(tenant="acme", to="acme-key")
    monkeypatch.setenv("WRONG_KEY", base64.b64encode(os.urandom(32)).decode())
    for others in (
        {},
        {"acme-key": f"file:{own_file}"},
        {"file": f"file:{wrong(own_file)}"},
        {"file": f"file:{wrong(own_file.parent.parent / 'keys.json')}", "acme-key": f"file:{own_file}"},
    ):
        with pytest.raises(ConfigurationError, match="this catalogue was made with"):
            make_manager(keys="env:WRONG_KEY", other_keys=others)
    assert {provider for (provider,) in rows(start(), "SELECT provider FROM tenancy_root_keys")} == {"file", "acme-key"}


def test_whoever_does_not_know_the_successor_yet_forgets_nothing_of_it(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_manager()
    people = People(old)
    right = base64.b64encode(os.urandom(32)).decode()
    monkeypatch.setenv("NEXT_KEY", right)
    settings = {"keys": "env:NEXT_KEY", "other_keys": {"file": f"file:{make_manager.key_file}"}}
    make_manager(**settings)
    old.rewrap_keys("root")
    monkeypatch.setenv("NEXT_KEY", base64.b64encode(os.urandom(32)).decode())
    with pytest.raises(ConfigurationError, match="not the one"):
        make_manager(**settings)
    monkeypatch.setenv("NEXT_KEY", right)
    people.require_all(make_manager(**settings))


def test_a_tenant_whose_own_key_is_away_keeps_nobody_from_any_number_of_rotations(start: Move, own_file: Path) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    away = own_file.rename(own_file.with_name("away.json"))
    for before in range(3):
        for level in ("tenant", "session"):
            report = manager.rotate_keys(level)  # type: ignore[arg-type]
            # Of a session that has had its key renewed there are two to be put under the tenant's new one, and so on.
            assert (report.changed, report.failed, report.left) == (2 + 2 * before * (level == "tenant"), 2, 2)
        assert manager.rotate_keys("root").left == 1
        with pytest.raises(KeyUnavailable):
            manager.move_keys(tenant="globex", to="acme-key")
    assert not manager.verify().alarm
    away.rename(own_file)
    people.require_all(start())


def test_a_wrong_key_of_one_tenants_is_no_key_to_verify(start: Move, own_file: Path) -> None:
    people = People(start())
    start().move_keys(tenant="acme", to="acme-key")
    manager = start(other_keys={"acme-key": f"file:{wrong(own_file)}"})
    found = manager.verify()
    hers = sum(len(written) for (tenant, _), written in people.written.items() if tenant == "acme")
    assert [(finding.kind, finding.count) for finding in found.findings] == [("no_key", hers)]


def test_a_half_moved_tenant_is_its_own_trouble_only(start: Move, own_file: Path, make_manager: ManagerFactory) -> None:
    manager = start()
    people = People(manager)
    manager.move_keys(tenant="acme", to="acme-key")
    # A second version that is with all others, as a move leaves it that dies half way.
    manager._backend.catalogue.rotation.mark("tenant", tenant_id=tenant_id_of(manager))
    key = manager._backend.keyring.new_tenant_key(tenant_id=tenant_id_of(manager), version=2, provider="acme-key")
    manager._backend.catalogue.rotation.add_tenant_key(tenant_id_of(manager), key)
    (second,) = (
        key
        for key in manager._backend.catalogue.rotation.tenant_keys(tenant_id_of(manager)).by_version.values()  # type: ignore[union-attr]
        if key.version == 2
    )
    moved = manager._backend.keyring.rewrap_tenant_key(second, tenant_id=tenant_id_of(manager), to="file")
    assert manager._backend.catalogue.rotation.replace_tenant_key(tenant_id_of(manager), old=second, new=moved)
    assert providers(manager)["acme"] == {"acme-key", "file"}
    away = own_file.rename(own_file.with_name("away.json"))
    assert manager.rotate_keys("tenant").changed == 2
    away.rename(own_file)
    assert manager.move_keys(tenant="acme", to="file").left == 0
    assert [manager.rewrap_keys(level).left for level in LEVELS] == [0, 0, 0]
    people.require_all(start())


def tenant_id_of(manager: SessionManager) -> str:
    found = manager._backend.catalogue.rotation.tenant_id("acme")
    assert found is not None
    return found


def test_a_move_ends_where_the_key_it_goes_to_does_not_answer(make_manager: ManagerFactory, kms: Service) -> None:
    settings = {"other_keys": {"kms": f"aws-kms:{kms.create_key()}"}}
    manager = make_manager(**settings)
    people = People(manager)
    manager.move_keys(tenant="acme", to="kms")
    kms.fault = "ThrottlingException"
    with pytest.raises(KeyUnavailable):
        manager.move_keys(source="file", to="kms")
    assert providers(manager) == {"acme": {"kms"}, "globex": {"file"}}
    kms.fault = None
    assert manager.move_keys(source="file", to="kms").changed == 1
    people.require_all(make_manager(**settings))


def test_a_move_to_a_key_whose_id_is_not_told_moves(make_manager: ManagerFactory, kms: Service) -> None:
    arn = kms.create_key()
    settings = {"other_keys": {"kms": f"aws-kms:{arn.rpartition('/')[2]}"}}
    manager = make_manager(**settings)
    People(manager)
    keyring = manager._backend.keyring
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyring, "primary_keys", lambda: {**type(keyring).primary_keys(keyring), "kms": None})
        report = manager.move_keys(tenant="acme", to="kms")
        assert (report.changed, providers(manager)["acme"]) == (1, {"kms"})
        # A rotation of all says of whom it cannot tell.
        assert manager.rotate_keys("root").failed == 1
    assert manager.rotate_keys("root").left == 0


def test_settings_with_such_keys_are_frozen_like_all_others(own_file: Path) -> None:
    required = {"database_url": "sqlite:////srv/catalogue.sqlite3", "store_url": "database:", "keys": "env:SOME_KEY"}
    settings = Settings(**required, other_keys={"own": f"file:{own_file}"})
    assert hash(settings) == hash(Settings(**required, other_keys={"own": f"file:{own_file}"}))
    with pytest.raises(TypeError):
        settings.other_keys["own"] = "env:OTHER"  # type: ignore[index]
    assert str(own_file) not in repr(settings) + repr(settings.other_keys)
