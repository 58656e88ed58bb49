"""
A catalogue with very many results, made of real ones by copying rows.

Every tenant is real, and so are some sessions, the probes. All other users, sessions and results are rows like theirs
under ids of their own: found, listed, counted and reclaimed like any other, but nothing opens their keys. Counters are
the sums of their rows.
"""

import base64
import random
from dataclasses import dataclass
from typing import Any, Final

from tenancy import SessionManager
from tests.core.bulk_rows import Row, Rows, rows_of

#: In the order of their foreign keys.
TABLES: Final = (
    "tenancy_users",
    "tenancy_sessions",
    "tenancy_session_keys",
    "tenancy_usage",
    "tenancy_results",
    "tenancy_blobs",
)
RESULTS_OF_SESSION: Final = 20
SESSIONS_OF_USER: Final = 5
RESULTS_OF_TENANT: Final = 1000
PROBES: Final = 64
RESULTS_OF_PROBE: Final = 5
#: So many of the longest session's results, the newest, are real: a listing opens what is on its page.
NEWEST_OF_LONGEST: Final = 50
CONTENT: Final = "What a tool said, in a line or two, as it does most of the time. " * 4
_DAY_US: Final = 86_400_000_000
_ROWS_AT_ONCE: Final = 20_000


@dataclass(frozen=True, slots=True)
class Probe:
    """A real session with real results in it."""

    names: dict[str, str]
    references: list[str]


@dataclass(frozen=True, slots=True)
class Shape:
    """
    How a catalogue's results are spread.

    One tenant has half of all, one of its sessions a twentieth of all. The others are alike.
    """

    results: int

    @property
    def of_huge(self) -> int:
        return self.results // 2

    @property
    def of_longest(self) -> int:
        return self.results // 20

    @property
    def tenants(self) -> int:
        """How many there are beside the huge one."""
        return max(1, (self.results - self.of_huge) // RESULTS_OF_TENANT)


def fill(manager: SessionManager, database_url: str, shape: Shape, *, seed: int = 1) -> list[Probe]:
    """
    Fill a catalogue that holds nothing yet.

    :returns: The probes. The first one's session is the longest.
    """
    names = ["huge", *(f"tenant {number}" for number in range(shape.tenants))]
    for name in names:
        manager.session(tenant=name, user="first", session="first")
    probes = [
        _probe(manager, names[number * len(names) // PROBES], f"prober {number}", "probe") for number in range(PROBES)
    ]
    with rows_of(database_url) as database:
        filling = Filling(database, model="prober 0", seed=seed)
        # In the order of their ids, here and below: pages that are full are not touched again.
        for row in sorted(database.rows("tenancy_tenants", "state = 'live'"), key=lambda row: row["tenant_id"]):
            tenant_id, name = row["tenant_id"], row["name"]
            if name == "huge":
                filling.lengthen(probes[0].names["user"], shape.of_longest)
                filling.add(tenant_id, shape.of_huge - shape.of_longest)
            else:
                filling.add(tenant_id, (shape.results - shape.of_huge) // shape.tenants)
        filling.flush()
        database.finish()
    longest = manager.session(**probes[0].names)
    for _ in range(NEWEST_OF_LONGEST):
        longest.write(CONTENT)
    return probes


def _probe(manager: SessionManager, tenant: str, user: str, session: str) -> Probe:
    names = {"tenant": tenant, "user": user, "session": session}
    opened = manager.session(**names)
    return Probe(names, [opened.write(CONTENT) for _ in range(RESULTS_OF_PROBE)])


def drifts(database_url: str) -> int:
    """How many counters are not the sum of their rows."""
    owners = {"session_id": "0", "user_id": "count(DISTINCT session_id)", "tenant_id": "count(DISTINCT session_id)"}
    with rows_of(database_url) as database:
        return sum(
            database.number(
                f"""
                SELECT count(*) FROM tenancy_usage AS usage
                JOIN (
                    SELECT s.tenant_id, s.{owner} AS owner_id, {sessions.replace("session_id", "s.session_id")} AS n,
                           count(r.number) AS results, coalesce(sum(r.size_bytes), 0) AS used_bytes
                    FROM tenancy_sessions AS s LEFT JOIN tenancy_results AS r
                        ON r.tenant_id = s.tenant_id AND r.session_id = s.session_id
                    GROUP BY s.tenant_id, s.{owner}
                ) AS found ON found.tenant_id = usage.tenant_id AND found.owner_id = usage.owner_id
                WHERE usage.used_bytes <> found.used_bytes OR usage.results <> found.results OR usage.sessions <> n
                """
            )
            for owner, sessions in owners.items()
        )


class Filling:
    """
    Rows on their way into a database.

    :param model: The user whose only session all others are made like, and whose first result all others are.
    """

    def __init__(
        self, database: Rows, *, model: str, seed: int = 1, results_of_session: int = RESULTS_OF_SESSION
    ) -> None:
        self._database = database
        self._chance = random.Random(seed)
        self._of_session = results_of_session
        probe = database.rows("tenancy_users", f"name = '{model}'")[0]
        session = database.rows("tenancy_sessions", f"user_id = '{probe['user_id']}'")[0]
        of_session = f"session_id = '{session['session_id']}'"
        self._models: dict[str, Row] = {
            "tenancy_users": probe,
            "tenancy_sessions": session,
            "tenancy_session_keys": database.rows("tenancy_session_keys", of_session)[0],
            "tenancy_usage": database.rows("tenancy_usage", f"owner_id = '{session['session_id']}'")[0],
            "tenancy_results": database.rows("tenancy_results", f"{of_session} AND number = 1")[0],
            "tenancy_blobs": database.rows("tenancy_blobs", f"inner_name = '{session['session_id']}'")[0],
        }
        self._columns = {table: tuple(model) for table, model in self._models.items()}
        self._waiting: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        self._count = 0

    def add(self, tenant_id: str, results: int) -> None:
        """Add so many results to a tenant, in users and sessions that are new."""
        sessions = sorted(self._name() for _ in range(results // self._of_session))
        size = 0
        for number in range(0, len(sessions), SESSIONS_OF_USER):
            user_id, of_user = self._name(), sessions[number : number + SESSIONS_OF_USER]
            self._row("tenancy_users", tenant_id=tenant_id, user_id=user_id, name=f"copied {number}")
            added = sum(self._session(tenant_id, user_id, session_id) for session_id in of_user)
            self._usage(tenant_id, user_id, added, len(of_user) * self._of_session, sessions=len(of_user))
            size += added
        self._database.add_usage(tenant_id, tenant_id, (size, len(sessions) * self._of_session, len(sessions), 0))

    def lengthen(self, user: str, results: int) -> None:
        """Add so many results to the session of a user of which there is one."""
        user_id = self._database.rows("tenancy_users", f"name = '{user}'")[0]["user_id"]
        session = self._database.rows("tenancy_sessions", f"user_id = '{user_id}'")[0]
        tenant_id, session_id = session["tenant_id"], session["session_id"]
        size = self._results(tenant_id, session_id, range(RESULTS_OF_PROBE + 1, RESULTS_OF_PROBE + 1 + results))
        for owner_id in (session_id, user_id, tenant_id):
            numbers = results if owner_id == session_id else 0
            self._database.add_usage(tenant_id, owner_id, (size, results, 0, numbers))

    def flush(self) -> None:
        """Write what is waiting."""
        for table, rows in self._waiting.items():
            self._database.insert(table, self._columns[table], rows)
            rows.clear()
        self._count = 0

    def _session(self, tenant_id: str, user_id: str, session_id: str) -> int:
        model = self._models["tenancy_sessions"]
        expires_at_us = model["created_at_us"] + self._chance.randrange(_DAY_US, 30 * _DAY_US)
        self._row(
            "tenancy_sessions",
            tenant_id=tenant_id,
            session_id=session_id,
            user_id=user_id,
            name=f"chat {session_id[:8]}",
            expires_at_us=expires_at_us,
        )
        self._row("tenancy_session_keys", tenant_id=tenant_id, session_id=session_id)
        # Of one session in ten the results have an end of their own.
        own_end = expires_at_us if self._chance.random() < 0.1 else None
        size = self._results(tenant_id, session_id, range(1, self._of_session + 1), expires_at_us=own_end)
        self._usage(tenant_id, session_id, size, self._of_session, last_number=self._of_session)
        return size

    def _results(self, tenant_id: str, session_id: str, numbers: range, expires_at_us: int | None = None) -> int:
        for number in numbers:
            result_id = self._name()
            self._row(
                "tenancy_results",
                tenant_id=tenant_id,
                session_id=session_id,
                number=number,
                result_id=result_id,
                reference_hash=self._chance.randbytes(16),
                expires_at_us=expires_at_us,
            )
            self._row("tenancy_blobs", outer_name=tenant_id, inner_name=session_id, name=result_id)
        size: int = self._models["tenancy_results"]["size_bytes"]
        return size * len(numbers)

    def _usage(
        self, tenant_id: str, owner_id: str, size: int, results: int, *, sessions: int = 0, last_number: int = 0
    ) -> None:
        self._row(
            "tenancy_usage",
            tenant_id=tenant_id,
            owner_id=owner_id,
            used_bytes=size,
            results=results,
            sessions=sessions,
            last_number=last_number,
        )

    def _row(self, table: str, **changed: Any) -> None:
        self._waiting[table].append(tuple({**self._models[table], **changed}.values()))
        self._count += 1
        if self._count >= _ROWS_AT_ONCE:
            self.flush()

    def _name(self) -> str:
        return base64.b32encode(self._chance.randbytes(20)).decode().lower()
