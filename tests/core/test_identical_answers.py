"""Somebody who asks for a session by a name that is not theirs learns nothing, not even whether it is anybody's."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenancy import Lifetime, Limits, SessionManager, SessionNotFound
from tests.core.interposed import Statements

#: What the catalogue is asked for by name. Tenant and user are the application's word; the session's name is not.
QUESTIONS: dict[str, Callable[[SessionManager, str], Any]] = {
    "limits": lambda manager, name: manager.limits(tenant="acme", user="ann", session=name),
    "set_limits": lambda manager, name: manager.set_limits(
        Limits(session_bytes=1), tenant="acme", user="ann", session=name
    ),
    "usage": lambda manager, name: manager.usage(tenant="acme", user="ann", session=name),
    "delete_session": lambda manager, name: manager.delete_session(tenant="acme", user="ann", session=name),
}


@pytest.mark.case(70, 100)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_session_that_is_missing_expired_erased_or_anothers_is_answered_alike(
    manager: SessionManager, statements: Statements, question: str
) -> None:
    ask = QUESTIONS[question]
    short = Lifetime(idle=timedelta(hours=1))
    manager.session(tenant="acme", user="ann", session="mine").write("mine")
    manager.session(tenant="acme", user="ann", session="expired", lifetime=short).write("gone")
    manager.session(tenant="acme", user="ann", session="deleted").write("gone")
    manager.session(tenant="acme", user="bob", session="of bob").write("foreign")
    manager.session(tenant="acme", user="cid", session="of cid").write("erased")
    manager.session(tenant="globex", user="ann", session="of globex").write("foreign")
    manager.session(tenant="initech", user="ann", session="of initech").write("erased")
    manager.delete_session(tenant="acme", user="ann", session="deleted")
    manager.erase_user(tenant="acme", user="cid")
    manager.erase_tenant(tenant="initech")
    manager.clock.advance(timedelta(hours=1))
    names = ["never was", "expired", "deleted", "of bob", "of cid", "of globex", "of initech"]
    if question == "delete_session":
        # What has just expired still has bytes, and deleting it takes them.
        names.remove("expired")
    answers = []
    for name in names:
        with statements.counted() as said:
            try:
                answer = ask(manager, name)
            except SessionNotFound as error:
                answer = (type(error), error.args, vars(error))
        answers.append((answer, list(said)))
    assert answers == [answers[0]] * len(names)
    assert manager.usage(tenant="acme", user="bob").results == 1
    assert manager.usage(tenant="globex", user="ann").results == 1
    assert manager.usage(tenant="acme", user="ann", session="mine").results == 1


@pytest.mark.case(100)
def test_the_name_of_anothers_session_opens_a_room_of_ones_own(manager: SessionManager) -> None:
    foreign = manager.session(tenant="acme", user="bob", session="shared").write("foreign")
    for tenant, user in (("acme", "ann"), ("globex", "bob")):
        own = manager.session(tenant=tenant, user=user, session="shared")
        assert list(own.results()) == []
        assert own.usage().results == 0
        with pytest.raises(LookupError):
            own.read(foreign)
    assert manager.session(tenant="acme", user="bob", session="shared").read(foreign) == "foreign"
