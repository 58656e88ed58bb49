"""Whatever fails in the middle of a run is told, the run goes on, and nothing is left behind."""

import base64
import inspect
from collections.abc import Callable
from typing import Any, get_args

import pytest
from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool

from stores.errors import StoreDenied, StoreFull, StoreUnavailable
from tenancy.errors import QuotaExceeded, ResultNotFound, StorageUnavailable
from tenancy.manager import SessionManager
from tenancy.quotas import Limits
from tenancy.seam.hooks import session_hooks
from tenancy.seam.offload import OnFailure
from tenancy.unwanted import Unwanted
from tests.core.interposed import interpose
from tests.haystack.conftest import Events
from tests.haystack.support import agent, call, results_of, run

TEXT = "canary-content " * 3000
_PNG = ImageContent(base64_image=base64.b64encode(b"\x89PNG" * 900).decode(), mime_type="image/png", validation=False)
_PDF = FileContent(base64_data=base64.b64encode(b"%PDF" * 900).decode(), mime_type="application/pdf", validation=False)
#: What the tool returns, each time it is called.
RESULTS: dict[str, Any] = {"a text": TEXT, "three parts": [TextContent(text=TEXT), _PNG, _PDF]}

#: What breaks a manager for a tenant, and what the model is told of it.
FAILURES: dict[str, tuple[Callable[[SessionManager, str], None], str]] = {
    "quota": (
        lambda manager, tenant: manager.set_limits(Limits(tenant_bytes=0), tenant=tenant),
        "the storage limit is reached",
    ),
    "too large": (
        lambda manager, tenant: manager.set_limits(Limits(max_result_bytes=10), tenant=tenant),
        "one may have 10",
    ),
    "disk full": (lambda manager, _: _break(manager, StoreFull("/srv/disk")), "the storage is full"),
    "access denied": (lambda manager, _: _break(manager, StoreDenied("/srv/disk")), "the storage does not answer"),
    "store down": (lambda manager, _: _break(manager, StoreUnavailable("/srv/disk")), "the storage does not answer"),
    "database down": (
        lambda manager, _: manager._backend.catalogue.database.close(),
        "the storage does not answer",
    ),
    "key service down": (lambda manager, _: manager._backend.keyring.close(), "the key service does not answer"),
    "session over": (
        lambda manager, tenant: manager.delete_session(tenant=tenant, user="canary-user", session="chat"),
        "the session has ended",
    ),
}


def _break(manager: SessionManager, error: Exception) -> None:
    def before(operation: str, _: str) -> None:
        if operation == "put":
            raise error

    interpose(manager).before = before


def _tool(result: Any, *, breaks: Callable[[], None]) -> Tool:
    """A tool during whose second call something breaks."""
    calls: list[None] = []

    def fetch() -> Any:
        calls.append(None)
        if len(calls) == 2:
            breaks()
        return result

    schema = {"type": "object", "properties": {}}
    return Tool("fetch", "Fetches.", schema, function=fetch, outputs_to_string={"raw_result": True})


@pytest.mark.case(124)
@pytest.mark.parametrize("way", ["run", "run_async"])
@pytest.mark.parametrize("what", RESULTS)
@pytest.mark.parametrize("policy", get_args(OnFailure))
def test_whatever_fails_in_mid_run_is_told_in_a_bounded_notice_or_as_the_policy_says(
    policy: Any, what: str, way: str, make_manager: Callable[..., SessionManager], events: Events
) -> None:
    before: dict[str, Any] = {}
    for number, (failure, (breaks, why)) in enumerate(FAILURES.items()):
        manager, tenant = make_manager(durability="process"), f"canary-{number}"
        session = manager.session(tenant=tenant, user="canary-user", session="chat")

        def fails(
            manager: SessionManager = manager, tenant: str = tenant, breaks: Callable[..., None] = breaks
        ) -> None:
            before[tenant] = manager.usage(tenant=tenant)
            breaks(manager, tenant)

        events.records.clear()
        asked = agent(
            call("fetch"),
            call("fetch"),
            call("list_results"),
            "done",
            tools=[_tool(RESULTS[what], breaks=fails)],
            offload={"*": AlwaysOffload()},
            on_failure=policy,
        )

        answer = run(asked, way, session=session)

        stored, refused, *listed = [m.tool_call_result.result for m in answer["messages"] if m.tool_call_result]
        assert stored.startswith("Tool result offloaded"), failure
        assert answer["exit_reason"] == ("result_not_stored" if policy == "stop" else "text"), failure
        assert len(listed) == (policy != "stop"), failure
        if policy == "keep":
            assert refused == RESULTS[what], failure
        else:
            assert refused.startswith("[Not stored: "), failure
            assert why in refused.partition("\n")[0], failure
            assert len(refused) < 2000, failure
        assert events.names[0] == "not_stored", failure
        assert set(events.names[1:]) <= {"read_failed"}, failure
        assert "/srv/disk" not in repr(answer["messages"]) + events.text, failure
        assert "canary-" not in events.text, failure

    with make_manager(durability="process") as another:
        assert another.verify().findings == ()
        for number, failure in enumerate(FAILURES):
            tenant, parts = f"canary-{number}", 1 if what == "a text" else 3
            after = another.usage(tenant=tenant)
            assert before[tenant].results == parts
            # Of a session that was deleted nothing may be left; of all others what there was before.
            expected = (0, 0) if failure == "session over" else (before[tenant].used_bytes, parts)
            assert (after.used_bytes, after.results) == expected, failure


@pytest.mark.parametrize(
    "error", [StorageUnavailable(), QuotaExceeded(level="tenant", unit="bytes", limit=1, used=1, requested=1)]
)
def test_nothing_in_a_text_makes_a_notice_ask_a_storage_that_does_not_answer(
    error: Exception, make_manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_manager(durability="process").session(tenant="acme", user="u", session="chat")
    asked: list[str] = []

    def refuse(*_: Any, **__: Any) -> str:
        raise error

    def look(_: Any, reference: str) -> Any:
        asked.append(reference)
        raise ResultNotFound if len(asked) < 4 else StorageUnavailable

    monkeypatch.setattr(type(session), "write_result", refuse)
    monkeypatch.setattr(type(session), "result", look)
    tool = _tool("".join(f"web-{n}-aaaaaaaaaa " for n in range(1, 900)) * 2, breaks=lambda: None)

    answer = run(agent(call("fetch"), "done", tools=[tool], offload={"*": AlwaysOffload()}), session=session)

    assert results_of(answer["messages"])[0].startswith("[Not stored")
    # A storage that does answer is asked, as long as it does.
    assert len(asked) == (4 if isinstance(error, QuotaExceeded) else 0)


@pytest.mark.case(98)
@pytest.mark.parametrize("way", ["run", "run_async"])
def test_parts_before_one_that_failed_go_as_soon_as_the_database_is_back(way: str, make_manager: Any) -> None:
    manager = make_manager(durability="process")
    session = manager.session(tenant="acme", user="u", session="chat")
    is_away, written = [False], []
    write, delete = type(session).write_result, type(session).delete

    class Failing(type(session)):  # type: ignore[misc]
        def write_result(self, *arguments: Any, **settings: Any) -> str:
            written.append(None)
            is_away[0] = len(written) == 2
            return str(self._there(write, *arguments, **settings))

        def delete(self, reference: str) -> None:
            self._there(delete, reference)

        def _there(self, call: Any, *arguments: Any, **settings: Any) -> Any:
            if is_away[0]:
                raise StorageUnavailable
            return call(self, *arguments, **settings)

    session.__class__ = Failing
    session.unwanted = Unwanted(session.delete)
    parts = [TextContent(text=f"{number} " * 900) for number in range(3)]
    tool = _tool(parts, breaks=lambda: None)
    asked = agent(call("fetch"), "done", tools=[tool], offload={"*": AlwaysOffload()})

    answer = run(asked, way, session=session)

    (refused,) = results_of(answer["messages"])
    assert refused.startswith("[Not stored: the storage does not answer.")
    assert manager.usage(tenant="acme").results == 1
    assert list(session.results()) == []
    is_away[0] = False
    kept = session.write("another")
    session.delete(kept)
    usage = manager.usage(tenant="acme")
    assert (usage.used_bytes, usage.results) == (0, 0)
    assert manager.verify().findings == ()


@pytest.mark.case(124)
def test_the_policy_is_a_notice_unless_somebody_says_otherwise_and_the_documentation_says_so() -> None:
    assert inspect.signature(session_hooks).parameters["on_failure"].default == "notice"
    documented = inspect.getdoc(session_hooks) or ""
    assert all(f'`"{policy}"`' in documented for policy in get_args(OnFailure))
