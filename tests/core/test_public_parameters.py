"""Every text that anybody may hand in is known for what it is, and none of them is a way out or a way around."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stores.filesystem import FilesystemStore
from tenancy import (
    ConfigurationError,
    Limits,
    NoActiveSession,
    ResultCorrupt,
    ResultNotFound,
    RoutedStore,
    ScopeError,
    Session,
    SessionManager,
    SessionNotFound,
    Settings,
)
from tenancy.housekeeping import Housekeeping
from tests.conftest import ManagerFactory
from tests.core.hostile import IDENTIFIERS, SHARED, TEXTS, require_nothing_outside
from tests.core.interposed import Statements
from tests.core.ledger import Ledger

NUMBERS: Final = itertools.count()
WHO: Final = {"tenant": "acme", "user": "ann", "session": "chat"}
_OF_A_SESSION = dict.fromkeys(("tenant", "user", "session"), "identifier")
_OF_A_USER = dict.fromkeys(("tenant", "user"), "identifier")

#: Every parameter of the public face that takes a text, and what it is. `operator`: said by whoever sets the library
#: up, and a path where it says so. Nothing else is one.
TEXT_PARAMETERS: Final[Mapping[str, Mapping[str, str]]] = {
    "SessionManager.local": {"path": "operator", "durability": "operator", "compression": "operator"},
    "SessionManager.session": _OF_A_SESSION,
    "SessionManager.session_async": _OF_A_SESSION,
    "SessionManager.sessions": _OF_A_USER,
    "SessionManager.usage": _OF_A_SESSION,
    "SessionManager.limits": _OF_A_SESSION,
    "SessionManager.set_limits": _OF_A_SESSION,
    "SessionManager.delete_session": _OF_A_SESSION,
    "SessionManager.erase_user": _OF_A_USER,
    "SessionManager.erase_tenant": {"tenant": "identifier"},
    "SessionManager.receipt": {"receipt_id": "receipt"},
    "Housekeeping.require_key": {"provider": "operator"},
    "Housekeeping.rotate_keys": {"level": "operator", "tenant": "identifier"},
    "Housekeeping.rewrap_keys": {"level": "operator", "tenant": "identifier"},
    "Housekeeping.move_keys": {"to": "operator", "tenant": "identifier", "source": "operator"},
    "Session.write": {"content": "content", "name": "key"},
    "Session.write_async": {"content": "content", "name": "key"},
    "Session.write_result": {"content": "content", "name": "key", "tool": "key", "media_type": "key"},
    "Session.read": {"reference": "reference"},
    "Session.read_async": {"reference": "reference"},
    "Session.read_page": {"reference": "reference"},
    "Session.read_page_async": {"reference": "reference"},
    "Session.result": {"reference": "reference"},
    "Session.delete": {"reference": "reference"},
    "Session.delete_async": {"reference": "reference"},
    "RoutedStore.write": {"key": "key", "content": "content"},
    "RoutedStore.read": {"reference": "reference"},
    "Settings.load": {"config": "operator"},
}
#: Every option there is for whoever sets the library up.
OPTIONS: Final = {
    "SessionManager.local": {"path", "limits", "lifetime", "durability", "inline_bytes", "compression"},
    "Settings": {
        "database_url", "maintenance_url", "owner_url", "store_url", "keys", "other_keys", "limits", "lifetime",
        "durability", "inline_bytes", "compression",
    },
    "FilesystemStore": {"path", "durability", "open_directories", "random_bytes", "sleep"},
}  # fmt: skip


def public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        f"{kind.__name__}.{name}": getattr(kind, name)
        for name in vars(kind)
        if not name.startswith("_") and inspect.isroutine(getattr(kind, name))
    }


def text_parameters(function: Callable[..., Any]) -> set[str]:
    found = inspect.signature(function).parameters.values()
    return {
        one.name
        for one in found
        if one.kind is not inspect.Parameter.VAR_KEYWORD
        and any(kind in str(one.annotation) for kind in ("str", "Path", "Literal"))
    }


@pytest.mark.case(83)
def test_every_text_that_may_be_handed_in_is_known() -> None:
    methods = {
        name: function
        for kind in (SessionManager, Housekeeping, Session, RoutedStore)
        for name, function in public_methods(kind).items()
    }
    methods["Settings.load"] = Settings.load
    taken = {name: text_parameters(function) for name, function in methods.items()}
    assert {name: texts for name, texts in taken.items() if texts} == {
        name: set(texts) for name, texts in TEXT_PARAMETERS.items()
    }


def fuzzed(manager: SessionManager, session: Session) -> dict[tuple[str, str], Callable[[str], Any]]:
    """A call for each text that comes from outside, with everything else as it should be."""
    reference = session.write("mine", name="web.txt")
    others: dict[str, Mapping[str, Any]] = {
        "SessionManager.set_limits": {"limits": Limits(max_result_bytes=10_000)},
        "Session.write": {"content": "x"},
        "Session.write_async": {"content": "x"},
        "Session.write_result": {"content": "x"},
        "Session.read_page": {"max_chars": 5},
        "Session.read_page_async": {"max_chars": 5},
        "RoutedStore.write": {"content": "x", "key": "x"},
        "Housekeeping.rotate_keys": {"level": "root"},
        "Housekeeping.rewrap_keys": {"level": "tenant"},
        "Housekeeping.move_keys": {"to": "file"},
    }
    owners = {"SessionManager": manager, "Housekeeping": manager, "Session": session, "RoutedStore": RoutedStore()}
    calls: dict[tuple[str, str], Callable[[str], Any]] = {}
    for name, parameters in TEXT_PARAMETERS.items():
        owner, _, method = name.partition(".")
        for parameter, kind in parameters.items():
            if kind == "operator":
                continue
            given_too: dict[str, Any] = {**others.get(name, {})}
            if kind == "identifier":
                given_too |= {one: WHO[one] for one, of in parameters.items() if of == "identifier"}
            if "reference" in parameters:
                given_too["reference"] = reference
            call = getattr(owners[owner], method)

            def run(text: str, call: Any = call, parameter: str = parameter, more: Any = given_too) -> Any:
                answer = call(**{**more, parameter: text})
                if inspect.isawaitable(answer):
                    return asyncio.run(_awaited(answer))
                return list(answer) if inspect.isgenerator(answer) else answer

            calls[name, parameter] = run
    return calls


async def _awaited(answer: Any) -> Any:
    return await answer


@pytest.mark.case(79, 83)
@settings(SHARED, max_examples=5)
@given(text=TEXTS.filter(lambda text: text not in WHO.values()))
def test_a_hostile_text_in_any_place_is_taken_or_refused_in_our_words_and_names_nothing(
    manager: SessionManager, make_manager: ManagerFactory, ledger: Ledger, text: str
) -> None:
    calls = fuzzed(manager, manager.session(**WHO))
    assert len(calls) > 30
    for place, call in calls.items():
        # Whatever else it raised would be an error of this test.
        with suppress(ScopeError, ResultNotFound, SessionNotFound, NoActiveSession):
            answer = call(text)
            if place[0].startswith("Session.read"):
                raise AssertionError(f"{place} found {answer!r}")
    require_nothing_outside(make_manager)
    for info in list(manager.sessions()):
        manager.erase_tenant(tenant=info.tenant)
    ledger.require_empty()


@pytest.mark.case(69, 97)
@SHARED
@given(column=TEXTS, value=TEXTS)
def test_what_to_filter_by_is_never_taken_from_outside(
    manager: SessionManager, statements: Statements, column: str, value: str
) -> None:
    with statements.counted() as said:
        for call in (manager.sessions, manager.usage, manager.limits, manager.cleanup, manager.verify):
            if column not in inspect.signature(call).parameters:
                with pytest.raises(TypeError):
                    call(**{column: value})
        for order in ("order_by", "sort", "where", "filter", "limit", "columns"):
            with pytest.raises(TypeError):
                manager.sessions(**{order: column})  # type: ignore[arg-type]
    assert said == []


@pytest.mark.case(69, 96, 97)
@settings(SHARED, max_examples=4)
@given(names=st.tuples(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS))
def test_no_name_is_part_of_what_is_said_to_the_database(
    manager: SessionManager, statements: Statements, names: tuple[str, str, str]
) -> None:
    def said_for(name: str, user: str, session: str) -> list[str]:
        # Nobody who was here before: a manager remembers ids of tenants.
        tenant = f"{next(NUMBERS)} {name}"[:255]
        who = {"tenant": tenant, "user": user, "session": session}
        with statements.counted() as said:
            manager.session(**who).write("x", name=tenant)
            list(manager.sessions(tenant=tenant, user=user))
            list(manager.sessions())
            manager.usage(**who)
            manager.set_limits(Limits(session_bytes=5), **who)
            manager.delete_session(**who)
            manager.erase_user(tenant=tenant, user=user)
            manager.erase_tenant(tenant=tenant)
        return said

    assert said_for(*names) == said_for("acme", "ann", "chat")


def plant_a_link(path: Any, target: Any) -> None:
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.case(93)
@pytest.mark.parametrize("durability", ["power", "process"])
def test_no_option_turns_confinement_off(make_manager: ManagerFactory, durability: str) -> None:
    assert {
        "SessionManager.local": set(inspect.signature(SessionManager.local).parameters),
        "Settings": set(Settings.model_fields),
        "FilesystemStore": set(inspect.signature(FilesystemStore).parameters),
    } == OPTIONS
    lifted = Limits(**dict.fromkeys(Limits.__dataclass_fields__))
    for number, (limits, more) in enumerate(itertools.product((Limits(), lifted), ({}, {"limits": lifted}))):
        manager = make_manager(durability=durability, **more)
        session = manager.session(tenant="acme", user="ann", session=str(number), limits=Limits(session_bytes=None))
        manager.set_limits(limits, tenant="acme")
        reference = session.write(b"x" * 50_000)
        (path,) = [path for path in make_manager.results.rglob("*") if path.is_file() and not path.is_symlink()]
        plant_a_link(path, make_manager.folder.parent / f"outside-{number}")
        with pytest.raises(ResultCorrupt):
            session.read(reference)
        with pytest.raises(ResultNotFound):
            manager.session(tenant="globex", user="ann", session=str(number)).read(reference)


@pytest.mark.case(93)
@pytest.mark.parametrize(
    "option",
    [
        "follow_symlinks",
        "allow_links",
        "unsafe",
        "trust_paths",
        "root",
        "encrypt",
        "encryption",
        "plaintext",
        "confine",
        "tenant",
    ],
)
def test_an_option_that_there_is_not_is_refused(make_manager: ManagerFactory, option: str) -> None:
    for value in (True, False, None, "no"):
        with pytest.raises(ConfigurationError):
            make_manager(**{option: value})


@pytest.mark.case(103)
def test_nobody_has_no_default(manager: SessionManager, ledger: Ledger, statements: Statements) -> None:
    before = ledger.snapshot()
    of_a_user: list[Callable[..., Any]] = [
        manager.session,
        manager.session_async,
        manager.erase_user,
        manager.delete_session,
    ]
    of_a_tenant: list[Callable[..., Any]] = [manager.usage, manager.limits, manager.erase_tenant]
    with statements.counted() as said:
        for call in (*of_a_user, *of_a_tenant):
            with pytest.raises(TypeError):
                call()
            with pytest.raises(TypeError):
                call(user="ann")
        for call in of_a_user:
            with pytest.raises(TypeError):
                call(tenant="acme")
        with pytest.raises(TypeError):
            manager.delete_session(tenant="acme", user="ann")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            manager.set_limits(Limits())  # type: ignore[call-arg]
        with pytest.raises(ConfigurationError):
            manager.sessions(user="ann")
        for store in (RoutedStore(), RoutedStore.from_dict(RoutedStore().to_dict())):
            with pytest.raises(NoActiveSession):
                store.write(key="key", content="x")
            with pytest.raises(NoActiveSession):
                store.read("result-1-aaaaaaaaaa")
    assert said == []
    assert ledger.snapshot() == before
