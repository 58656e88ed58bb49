"""A tenant with two users and a second tenant, and what their erasure counts."""

from tenancy import (
    Receipt,
    Session,
    SessionManager,
)


def erase_user(manager: SessionManager) -> Receipt:
    return manager.erase_user(tenant="acme", user="ann")


def erase_tenant(manager: SessionManager) -> Receipt:
    return manager.erase_tenant(tenant="acme")


LEVELS = {"user": erase_user, "tenant": erase_tenant}


class People:
    """A tenant with two users and a second tenant, all of whom have something stored."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self.victims = [self.fill("acme", "ann", name) for name in ("one", "two", None)]
        self.colleague = self.fill("acme", "bob", "one")
        self.stranger = self.fill("globex", "ann", "one")

    def fill(self, tenant: str, user: str, name: str | None) -> tuple[Session, dict[str, str | bytes]]:
        session = self.manager.session(tenant=tenant, user=user, session=name)
        contents: list[str | bytes] = [f"small of {tenant} {user}", user.encode() * 15_000]
        return session, {session.write(content): content for content in contents}

    def require_intact(self, *others: tuple[Session, dict[str, str | bytes]]) -> None:
        for session, contents in others:
            assert {reference: session.read(reference) for reference in contents} == contents


def numbers(receipt: Receipt) -> tuple[int, ...]:
    return (receipt.users, receipt.sessions, receipt.results, receipt.used_bytes, receipt.keys_destroyed)


SMALL = len("small of acme ann")


USER = (1, 3, 6, 3 * (SMALL + 45_000), 3)


TENANT = (2, 4, 8, 4 * (SMALL + 45_000), 5)


def require_nothing(receipt: Receipt) -> None:
    assert numbers(receipt) == (0, 0, 0, 0, 0)
    assert (receipt.receipt_id, receipt.started_at, receipt.finished_at) == (None, None, None)
    assert receipt.statement == "There was nothing to erase."
