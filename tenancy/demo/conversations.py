"""Six users talk to one agent at once, each in a session of their own."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Barrier

from haystack.dataclasses import ChatMessage, ChatRole

from tenancy.demo.agent import fetching, result_of
from tenancy.demo.canaries import canaries_of
from tenancy.demo.documents import Document
from tenancy.demo.house import House
from tenancy.demo.people import SESSION, Person
from tenancy.demo.requests import request
from tenancy.demo.script import reference_in
from tenancy.demo.witness import Testimony
from tenancy.session import Session

#: A user whose thread does not get this far has failed, and the others must not wait for ever.
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """
    One user's conversation of two turns.

    :param reading: What the model saw in the first turn: documents fetched and read.
    :param finding: What it saw in the second: results listed and searched.
    :param stored: Which document each reference stands for, as the pointers said.
    :param query: What was searched for.
    :param tokens_with: The conversation when the results had come in, with pointers.
    :param tokens_without: The same with the results themselves, which is what a model would get without offloading.
    """

    person: Person
    session: Session
    reading: Testimony
    finding: Testimony
    stored: dict[str, Document]
    query: str = field(repr=False)
    tokens_with: int
    tokens_without: int

    @property
    def seen(self) -> bytes:
        """All the model read or wrote for this user."""
        return self.reading.seen + b"\n" + self.finding.seen

    def again(self, house: House) -> "Conversation":
        """Return the conversation with its session opened by the manager that is open now."""
        person = self.person
        session = house.manager.session(tenant=person.tenant, user=person.user, session=SESSION)
        return replace(self, session=session)


def converse(house: House) -> list[Conversation]:
    """
    Let everybody talk at once.

    :param house: The installation.
    :raises Exception: What the first failing conversation raised; the others have ended too by then.
    """
    together = Barrier(len(house.people))

    def talk(person: Person) -> Conversation:
        try:
            session = house.manager.session(tenant=person.tenant, user=person.user, session=SESSION)
            together.wait(_START_SECONDS)
            return _talk(house, person, session)
        except BaseException:
            together.abort()
            house.shared.witness.stop()
            raise

    with ThreadPoolExecutor(len(house.people)) as pool:
        try:
            return list(pool.map(talk, house.people))
        except BaseException:
            # Interrupted, perhaps before everybody was started: nobody may wait for those who will not come, nor still
            # be writing, since the directory is about to go.
            together.abort()
            house.shared.witness.stop()
            raise


def are_readable(conversations: Sequence[Conversation]) -> bool:
    """Whether every session has what was stored in it, and nothing more."""
    return all(
        {result.reference for result in each.session.results()} == set(each.stored) != set()
        and all(each.session.read(reference) == document.content for reference, document in each.stored.items())
        for each in conversations
    )


def query_for(document: Document) -> str:
    """Choose a piece of a text to search for: the rarest of a few."""
    pieces = [piece.decode("utf-8", "ignore").strip() for piece in canaries_of(document.data, count=8)]
    text = str(document.content)
    return min((piece for piece in pieces if piece in text), key=text.count)


def _talk(house: House, person: Person, session: Session) -> Conversation:
    run = f"{person.tenant}/{person.user}"
    calls = [fetching(document) for document in person.documents]
    first = request(calls, run=f"{run}/reading", read_on=True, scripted=house.is_scripted)
    messages, reading = house.converse(session, [first], run=f"{run}/reading")
    query = query_for(person.texts[0])
    second = request([("list_results", {}), ("search_result", {"query": query})], run=f"{run}/finding")
    history = [message for message in messages if not message.is_from(ChatRole.SYSTEM)]
    _, finding = house.converse(session, [*history, second], run=f"{run}/finding")
    names = {document.name: document for document in person.documents}
    return Conversation(
        person=person,
        session=session,
        reading=reading,
        finding=finding,
        stored=_stored(reading, names),
        query=query,
        tokens_with=house.counter.count(reading.fetched),
        tokens_without=house.counter.count([_whole(message, names) for message in reading.fetched]),
    )


def _stored(reading: Testimony, names: dict[str, Document]) -> dict[str, Document]:
    stored = {}
    for answer in reading.answers:
        reference = reference_in(answer.text)
        document = names.get(str(answer.call.arguments.get("name")))
        if reference is not None and document is not None:
            stored[reference] = document
    return stored


def _whole(message: ChatMessage, names: dict[str, Document]) -> ChatMessage:
    result = message.tool_call_result
    document = names.get(str(result.origin.arguments.get("name"))) if result is not None else None
    if result is None or document is None:
        return message
    return ChatMessage.from_tool(tool_result=result_of(document), origin=result.origin)
