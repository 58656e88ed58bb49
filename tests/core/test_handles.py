"""Handles and managers: closed means closed, a copy is itself, and nothing shows a key or a name."""

import contextlib
import copy
import gc
import json
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenancy import ConfigurationError, KeyUnavailable, Session, SessionManager, SessionNotFound
from tenancy.keys.material import SecretKey
from tests.conftest import ManagerFactory
from tests.core.interposed import Statements, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]


def everything(session: Session, reference: str) -> list[Callable[[], Any]]:
    """All that a session can be asked for."""
    return [
        lambda: session.write("x"),
        lambda: session.write_result("x", tool="t"),
        lambda: session.read(reference),
        lambda: session.read("no reference"),
        lambda: session.read_page(reference, max_chars=1),
        lambda: session.results(),
        lambda: session.delete(reference),
        lambda: session.usage(),
    ]


def test_a_closed_handle_answers_nothing_and_asks_nobody(
    session: Session, open_session: Open, store: Store, statements: Statements, ledger: Ledger
) -> None:
    reference = session.write("kept")
    listing = session.results()
    session.close()
    session.close()
    statements.texts.clear()
    store.calls.clear()
    for call in everything(session, reference):
        with pytest.raises(SessionNotFound):
            call()
    assert (statements.texts, store.calls) == ([], [])
    # A listing that was under way ends as well.
    with pytest.raises(SessionNotFound):
        list(listing)
    # The session itself lives on.
    assert open_session().read(reference) == "kept"
    assert ledger.where() == ledger.ways(small=1)


def test_the_handles_of_a_closed_manager_answer_nothing(make_manager: ManagerFactory) -> None:
    manager = make_manager(durability="process")
    session = manager.session(tenant="acme", user="ann")
    reference = session.write("x")
    manager.close()
    manager.close()
    for call in everything(session, reference):
        with pytest.raises(SessionNotFound):
            call()
    who = {"tenant": "acme", "user": "ann"}
    calls: list[Callable[[], Any]] = [
        lambda: manager.session(**who),
        lambda: manager.usage(**who),
        lambda: manager.limits(**who),
        lambda: manager.delete_session(**who, session=None),
        lambda: manager.erase_user(**who),
        lambda: manager.erase_tenant(tenant="acme"),
        lambda: manager.sessions(),
        manager.cleanup,
        manager.verify,
        manager.cleaned_at,
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()


def test_a_manager_in_a_with_block_is_closed_behind_it(make_manager: ManagerFactory) -> None:
    with make_manager(durability="process") as manager, manager.session(tenant="acme", user="ann") as session:
        assert repr(manager) == "SessionManager(open)"
    assert repr(manager) == "SessionManager(closed)"
    with pytest.raises(SessionNotFound):
        session.usage()


def test_a_listing_ends_when_its_manager_closes(make_manager: ManagerFactory) -> None:
    manager = make_manager(durability="process")
    session = manager.session(tenant="acme", user="ann")
    session.write("x")
    session.write("y")
    listing = session.results()
    next(listing)
    manager.close()
    with pytest.raises(SessionNotFound):
        next(listing)


def test_a_copy_of_a_handle_is_the_handle(manager: SessionManager, session: Session) -> None:
    assert copy.copy(session) is session
    assert copy.deepcopy(session) is session
    assert copy.deepcopy({"deep": [session]})["deep"][0] is session
    assert copy.copy(manager) is manager
    assert copy.deepcopy([manager])[0] is manager
    context = session.hook_context
    assert copy.deepcopy(context).keys() == context.keys()
    assert session.hook_context is not context


def test_a_handle_and_a_manager_cannot_be_pickled(manager: SessionManager, session: Session) -> None:
    for one in (session, manager, session.hook_context, session._backend.keyring):
        with pytest.raises(TypeError):
            pickle.dumps(one)
    with pytest.raises(TypeError):
        json.dumps({"session": session})


def keys_in_memory() -> list[bytes]:
    """Every key that this process holds in the clear."""
    found = []
    for one in gc.get_objects():
        if isinstance(one, SecretKey):
            with contextlib.suppress(KeyUnavailable), one.exposed() as view:
                found.append(bytes(view))
    return found


def reachable(start: object) -> Iterator[tuple[object, object]]:
    """Everything of ours that can be reached from an object by its attributes, with what it was reached from."""
    seen: set[int] = set()
    waiting: list[object] = [start]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        attributes = dict(getattr(one, "__dict__", {}))
        for kind in type(one).__mro__:
            slots = getattr(kind, "__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                attributes[slot] = getattr(one, slot, None)
        for value in attributes.values():
            yield one, value
            values = (
                value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
            )
            waiting += [each for each in values if type(each).__module__.split(".")[0] in ("tenancy", "stores")]


@pytest.mark.case(43)
def test_no_representation_of_anything_reachable_shows_a_key_or_a_name(manager: SessionManager) -> None:
    session = manager.session(tenant="secret-tenant", user="secret-user", session="secret-session")
    session.read(session.write("secret-content", name="secret-name"))
    keys = keys_in_memory()
    assert len(keys) >= 2
    forms = [form for key in keys for form in (repr(key)[2:-1], key.hex(), str(list(key))[1:-1])]
    shown = [repr(session), str(session), repr(manager), repr(session.store), repr(session.hook_context)]
    shown += [repr(owner) for owner, _ in reachable(session)]
    assert len(shown) > 15
    for text in shown:
        assert not [form for form in forms if form in text]
        assert "secret-" not in text
    # What an error tracker collects of a handle and a manager.
    for text in (repr(vars(session)), repr(vars(manager))):
        assert not [form for form in forms if form in text]
        assert "secret-" not in text


@pytest.mark.case(43)
def test_a_traceback_with_all_its_locals_shows_no_key(session: Session, store: Store) -> None:
    # What does not compress is in a file: what is in the database comes with its row, and asks the store for nothing.
    content = os.urandom(50_000)
    reference = session.write(content)
    shown: list[str] = []

    def fail(operation: str, name: str) -> None:
        raise RuntimeError("a bug somewhere")

    for moment in ("before", "after"):
        setattr(store, moment, fail)
        for call in (lambda: session.write(content), lambda: session.read(reference)):
            try:
                call()
            except RuntimeError as error:
                trace = traceback.TracebackException.from_exception(error, capture_locals=True)
                shown.append("".join(trace.format()))
        setattr(store, moment, lambda operation, name: None)
    assert len(shown) == 4
    keys = keys_in_memory()
    assert keys
    for text in shown:
        assert "SecretKey" in text or "key" in text
        for key in keys:
            assert repr(key)[2:-1] not in text
            assert key.hex() not in text
