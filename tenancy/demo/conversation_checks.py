"""What must hold of conversations: small, exact, findable, and nobody else's."""

import re
from collections.abc import Sequence
from itertools import pairwise

from tenancy.demo.agent import CONTEXT_WINDOW
from tenancy.demo.canaries import occurring
from tenancy.demo.conversations import Conversation
from tenancy.demo.documents import Document
from tenancy.demo.script import MAX_PAGES, SeenPage, page_in
from tenancy.session import Session

#: Characters a page when the application reads, not the model. No divisor of anything.
APPLICATION_PAGE_CHARS = 10_007
#: How far from the offset it names a match may begin: the search shows a little of what stands before.
_CONTEXT_CHARS = 200
_MATCH = re.compile(r"^(\S+) line \d+, offset (\d+): ", re.MULTILINE)


def are_small(conversations: Sequence[Conversation]) -> bool:
    """Whether pointers made every conversation smaller, and none ever outgrew the window."""
    return all(
        0 < each.tokens_with < each.tokens_without
        and max(each.reading.peak_tokens, each.finding.peak_tokens) <= CONTEXT_WINDOW
        for each in conversations
    )


def are_read_back_exactly(conversations: Sequence[Conversation], *, scripted: bool) -> bool:
    """
    Whether every page the model saw, and every page and result the application reads, is the original's.

    :param scripted: Whether the model is known to have fetched everything and read it to the end.
    """
    for each in conversations:
        if not each.stored or (scripted and set(each.stored.values()) != set(each.person.documents)):
            return False
        for reference, document in each.stored.items():
            if each.session.read(reference) != document.content:
                return False
            if not isinstance(document.content, str):
                continue
            if read_in_pages(each.session, reference) != document.content:
                return False
            pages = pages_of(each, reference)
            if any(page.text != document.content[page.start : page.end] for page in pages):
                return False
            if scripted and not _tile(pages, document):
                return False
    return True


def pages_of(conversation: Conversation, reference: str) -> list[SeenPage]:
    """Return the pages of a result that the model saw, in the order in which it did."""
    answers = conversation.reading.of_tool("read_result")
    pages = (page_in(answer.text) for answer in answers if answer.call.arguments.get("reference") == reference)
    return [page for page in pages if page is not None]


def read_in_pages(session: Session, reference: str) -> str:
    """Read a text page by page as an application does, and put it together."""
    text, offset = [], 0
    while True:
        page = session.read_page(reference, offset=offset, max_chars=APPLICATION_PAGE_CHARS)
        text.append(page.text)
        if page.next_offset is None:
            return "".join(text)
        if page.next_offset <= offset:
            raise ValueError("a page that does not lead on")
        offset = page.next_offset


def are_found(conversations: Sequence[Conversation]) -> bool:
    """Whether listing showed every result, and searching found the place."""
    for each in conversations:
        (listing,), (matches,) = each.finding.of_tool("list_results"), each.finding.of_tool("search_result")
        if not each.stored or not all(reference in listing.text for reference in each.stored):
            return False
        if not any(
            _is_place(each.stored.get(reference), int(offset), each.query)
            for reference, offset in _MATCH.findall(matches.text)
        ):
            return False
    return True


def are_apart(conversations: Sequence[Conversation]) -> bool:
    """
    Whether nothing that one user saw or holds has anything of another's.

    Everybody's own pieces must be found in what they hold, so that an empty room or a blind search does not pass.
    """
    for each in conversations:
        held = b"\n".join(_as_bytes(each.session.read(result.reference)) for result in each.session.results())
        if not occurring(each.person.canaries, held):
            return False
        for other in conversations:
            if other is not each and occurring(other.person.canaries, each.seen + b"\n" + held):
                return False
    return len({id(each.session) for each in conversations}) == len(conversations) > 1


def _tile(pages: Sequence[SeenPage], document: Document) -> bool:
    if "".join(page.text for page in pages) == document.content:
        return pages[-1].is_last
    # Only a result that is longer than the script has patience for may end before its end.
    follow = all(page.end == following.start for page, following in pairwise(pages))
    return len(pages) == MAX_PAGES and pages[0].start == 0 and follow and not pages[-1].is_last


def _is_place(document: Document | None, offset: int, query: str) -> bool:
    if document is None or not isinstance(document.content, str):
        return False
    return query.lower() in document.content[offset : offset + _CONTEXT_CHARS + len(query)].lower()


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
