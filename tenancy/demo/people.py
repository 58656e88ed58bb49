"""Who uses the demo's agent: three tenants with two users each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tenancy.demo.documents import Document, deal, own_canaries

#: The same user names everywhere, and all call their session the same: only the whole scope tells them apart.
SCOPES: Final = tuple((tenant, user) for tenant in ("acme", "globex", "initech") for user in ("ann", "bob"))
SESSION: Final = "chat"


@dataclass(frozen=True, slots=True)
class Person:
    """
    One user of one tenant.

    :param documents: What this user asks for, and nobody else.
    :param canaries: Pieces of them that no other user's documents hold.
    """

    tenant: str
    user: str
    documents: tuple[Document, ...] = field(repr=False)
    canaries: tuple[bytes, ...] = field(repr=False)

    @property
    def texts(self) -> tuple[Document, ...]:
        """The documents that are not images; at least one."""
        return tuple(each for each in self.documents if isinstance(each.content, str))


def gather(documents: Sequence[Document]) -> list[Person]:
    """
    Deal the documents to the people.

    :param documents: What there is.
    :raises InputRefused: If it is not enough.
    """
    hands = deal(documents, hands=len(SCOPES))
    people = []
    for (tenant, user), hand in zip(SCOPES, hands, strict=True):
        others = [each for other in hands if other is not hand for each in other]
        people.append(Person(tenant, user, tuple(hand), tuple(own_canaries(hand, others=others))))
    return people
