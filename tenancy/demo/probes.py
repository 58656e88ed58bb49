"""Attempts that must come to nothing: at somebody else's results, and at more than a quota allows."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tenancy.demo.agent import fetching
from tenancy.demo.canaries import occurring
from tenancy.demo.conversations import Conversation, query_for
from tenancy.demo.house import House
from tenancy.demo.witness import Testimony
from tenancy.errors import QuotaExceeded, ResultNotFound
from tenancy.quotas import Limits, Usage
from tenancy.seam.notices import MAX_NOTICE_CHARS
from tenancy.session import Session

#: A session may hold so much in the attempt at its quota: less than any document has.
_LIMIT_BYTES: Final = 500
_TAG = re.compile(r"-[a-z2-7]{10}(?=\.|$)")


def are_kept_out(house: House, conversations: Sequence[Conversation]) -> bool:
    """
    Whether everybody else's references are not found: by the session, by the read tools in an agent's run, at all.

    What a model is told must not differ from what it is told about a reference that never was.
    """
    if not all(each.stored for each in conversations):
        return False
    for each in conversations:
        others = [other for other in conversations if other is not each]
        if not all(_refuses(each.session, reference) for other in others for reference in other.stored):
            return False
        if not all(_learns_nothing(house, each, other) for other in others):
            return False
    # The owners still have what others tried to delete.
    return all(each.session.read(reference) for each in conversations for reference in each.stored)


@dataclass(frozen=True, slots=True)
class QuotaAttempt:
    """
    A run in a session that may hold next to nothing.

    :param seen: What the model saw.
    :param usage: What the session had in use afterwards.
    :param is_refused_to_code: Whether application code got the typed error.
    """

    seen: Testimony
    usage: Usage
    is_refused_to_code: bool

    @property
    def ended_in_a_notice(self) -> bool:
        """Whether the model got one bounded notice, nothing was stored, and the run went on to its end."""
        (answer,) = self.seen.answers
        return (
            answer.text.startswith("[Not stored: ")
            and len(answer.text) <= MAX_NOTICE_CHARS
            and (self.usage.used_bytes, self.usage.results) == (0, 0)
            and self.is_refused_to_code
            and self.seen.said == ["Done."]
        )


def overrun(house: House) -> QuotaAttempt:
    """Fetch a document in a session that has no room for it."""
    person = house.people[0]
    document = max(person.texts, key=lambda each: len(each.content))
    limits = Limits(session_bytes=_LIMIT_BYTES)
    with house.manager.session(tenant=person.tenant, user=person.user, session="small", limits=limits) as session:
        seen = house.ask(session, [fetching(document)], run="quota")
        try:
            session.write(document.content)
        except QuotaExceeded:
            is_refused = True
        else:
            is_refused = False
        return QuotaAttempt(seen, session.usage(), is_refused)


def _refuses(session: Session, reference: str) -> bool:
    attempts = (
        lambda: session.read(reference),
        lambda: session.read_page(reference, max_chars=100),
        lambda: session.delete(reference),
    )
    for attempt in attempts:
        with suppress(ResultNotFound):
            attempt()
            return False
    return True


def _learns_nothing(house: House, each: Conversation, other: Conversation) -> bool:
    reference = next(iter(other.stored))
    never_was = _TAG.sub("-" + "a" * 10, reference)
    query = query_for(other.person.texts[0])
    calls = [
        *(("read_result", {"reference": asked}) for asked in (reference, never_was)),
        *(("search_result", {"query": query, "reference": asked}) for asked in (reference, never_was)),
    ]
    run = "/".join((each.person.tenant, each.person.user, "at", other.person.tenant, other.person.user))
    seen = house.ask(each.session, calls, run=run)
    read, unread, searched, unsearched = (answer.text for answer in seen.answers)
    return (read, searched) == (unread, unsearched) and not occurring(other.person.canaries, seen.seen)
