"""How things end: by the clock, by erasure, by deletion. Nothing may be left, and nothing else may go."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tenancy.cleanup import CleanupReport
from tenancy.demo.agent import fetching
from tenancy.demo.canaries import occurring
from tenancy.demo.conversations import Conversation
from tenancy.demo.house import House
from tenancy.demo.people import SESSION, Person
from tenancy.errors import ResultNotFound, SessionNotFound
from tenancy.quotas import Lifetime, Usage
from tenancy.receipts import Receipt
from tenancy.session import Session

_BRIEF: Final = "brief"
_LIFETIME: Final = Lifetime(idle=timedelta(minutes=5), maximum=timedelta(minutes=5))
_LATER: Final = timedelta(minutes=6)


@dataclass(frozen=True, slots=True)
class Expiry:
    """
    A session that ran out.

    :param before: What its user had in use before it was opened.
    :param with_it: What with it.
    :param is_gone: Whether nothing could reach it although no cleanup had run.
    :param foreseen: What a dry run said it would reclaim.
    :param report: What the cleanup said it did.
    :param after: What the user had in use after the cleanup.
    :param is_off_the_disk: Whether the files it had are gone, and no others.
    """

    before: Usage
    with_it: Usage
    is_gone: bool
    foreseen: CleanupReport
    report: CleanupReport
    after: Usage
    is_off_the_disk: bool

    @property
    def is_reclaimed(self) -> bool:
        """Whether the cleanup gave back exactly what the session took."""
        taken = (1, self.with_it.results - self.before.results, self.with_it.used_bytes - self.before.used_bytes)
        reports = (self.foreseen, self.report)
        return (
            taken[1] > 0
            and all((each.sessions, each.results, each.reclaimed_bytes) == taken for each in reports)
            and self.report.complete
            and self.after == self.before
            and self.is_off_the_disk
        )


def expire(house: House) -> Expiry:
    """Fill a session that lives five minutes, move the clock on by six, look for it, and clean up."""
    # Of the user with the largest document, which is likely to be a file and not only a row.
    person = max(house.people, key=lambda each: max(len(document.data) for document in each.documents))
    before, files = house.manager.usage(tenant=person.tenant, user=person.user), house.files()
    session = house.manager.session(tenant=person.tenant, user=person.user, session=_BRIEF, lifetime=_LIFETIME)
    house.ask(session, [fetching(document) for document in person.documents], run="expiry")
    references = [result.reference for result in session.results()]
    with_it = house.manager.usage(tenant=person.tenant, user=person.user)
    house.manager.clock.advance(_LATER)
    is_gone = _is_expired(house, person, session=session, references=references)
    foreseen = house.manager.cleanup(dry_run=True)
    report = house.manager.cleanup()
    after = house.manager.usage(tenant=person.tenant, user=person.user)
    return Expiry(before, with_it, is_gone, foreseen, report, after, house.files() == files)


@dataclass(frozen=True, slots=True)
class Erasure:
    """
    An erased user.

    :param before: What the user had in use.
    :param receipt: What the erasure said it did.
    :param is_gone: Whether nothing of the user could be reached.
    :param others_remain: Whether everybody else still had everything.
    :param again: What erasing the same user once more came to.
    """

    before: Usage
    receipt: Receipt
    is_gone: bool
    others_remain: bool
    again: Receipt

    @property
    def is_complete(self) -> bool:
        """Whether all of the user went, with a receipt that says so and names nobody."""
        receipt = self.receipt
        return (
            self.is_gone
            and self.others_remain
            and self.before.results > 0
            and (receipt.sessions, receipt.results, receipt.used_bytes)
            == (self.before.sessions, self.before.results, self.before.used_bytes)
            and receipt.users == 1
            and receipt.keys_destroyed >= receipt.sessions
            and bool(receipt.receipt_id)
            and receipt.finished_at is not None
            and (self.again.receipt_id, self.again.users, self.again.results) == (None, 0, 0)
        )


def erase(house: House, conversations: Sequence[Conversation]) -> Erasure:
    """Erase one user."""
    erased, *others = conversations
    person = erased.person
    before = house.manager.usage(tenant=person.tenant, user=person.user)
    receipt = house.manager.erase_user(tenant=person.tenant, user=person.user)
    after = house.manager.usage(tenant=person.tenant, user=person.user)
    return Erasure(
        before=before,
        receipt=receipt,
        is_gone=is_nothing(after)
        and not list(house.manager.sessions(tenant=person.tenant, user=person.user))
        and not any(_reads(erased.session, reference) for reference in erased.stored),
        others_remain=all(each.session.read(ref) == doc.content for each in others for ref, doc in each.stored.items()),
        again=house.manager.erase_user(tenant=person.tenant, user=person.user),
    )


def clear(house: House, conversations: Sequence[Conversation]) -> None:
    """Remove everything that is left: one tenant result by result, one at a stroke, one session by session."""
    by_result, at_a_stroke, *_ = dict.fromkeys(each.person.tenant for each in conversations)
    house.manager.erase_tenant(tenant=at_a_stroke)
    for each in conversations:
        if each.person.tenant == by_result:
            # The user that was erased has no session any more.
            with suppress(SessionNotFound):
                for result in list(each.session.results()):
                    each.session.delete(result.reference)
    for info in list(house.manager.sessions()):
        house.manager.delete_session(tenant=info.tenant, user=info.user, session=info.session)


def are_charged_exactly(conversations: Sequence[Conversation]) -> bool:
    """Whether everybody is charged for exactly what they hold."""
    return all(
        each.session.usage().used_bytes == sum(len(document.data) for document in each.stored.values()) > 0
        for each in conversations
    )


def everything_is_zero(house: House) -> bool:
    """Whether nobody has anything in use, no session lives, no file is left, and catalogue and store agree."""
    usages = [
        house.manager.usage(tenant=person.tenant, user=user) for person in house.people for user in (person.user, None)
    ]
    is_empty = all(map(is_nothing, usages)) and not list(house.manager.sessions()) and not house.files()
    return is_empty and house.manager.verify().ok


def is_nothing(usage: Usage) -> bool:
    """Whether nothing at all is in use."""
    return (usage.used_bytes, usage.results, usage.sessions) == (0, 0, 0)


def _is_expired(house: House, person: Person, *, session: Session, references: Sequence[str]) -> bool:
    if not references or any(_reads(session, reference) for reference in references):
        return False
    names = {info.session for info in house.manager.sessions(tenant=person.tenant, user=person.user)}
    if _BRIEF in names or SESSION not in names:
        return False
    # Asked through the agent, the handle of an expired session shows nothing either.
    calls = [("read_result", {"reference": reference}) for reference in references]
    return not occurring(person.canaries, house.ask(session, calls, run="after expiry").seen)


def _reads(session: Session, reference: str) -> bool:
    try:
        session.read(reference)
    except (SessionNotFound, ResultNotFound):
        return False
    return True
