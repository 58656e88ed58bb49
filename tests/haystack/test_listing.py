"""`list_results` and `search_result` leave nothing out, whatever fits and whatever is damaged."""

import re
from collections.abc import Callable

import pytest
from haystack.components.agents import Agent
from haystack.hooks.tool_result_offloading import AlwaysOffload

from tenancy.manager import SessionManager
from tenancy.seam.hooks import session_hooks
from tenancy.seam.tools import SessionToolset
from tenancy.session import Session
from tests.haystack.support import agent, call, model, results_of, run

_NEXT = re.compile(r"list_results\(page=(\d+)(?:, skip=(\d+))?\)")


@pytest.mark.case(121)
@pytest.mark.parametrize("page_tokens", [100, 1000])
@pytest.mark.parametrize("tool", ["t", "naïve 漢字漢字漢字 " * 5], ids=["short", "long"])
def test_every_result_stands_on_a_page(session: Session, page_tokens: int, tool: str) -> None:
    written = [session.write_result("x", tool=tool) for _ in range(45)]
    seen: list[str] = []
    where: dict[str, int] = {}
    for _ in range(60):
        lister = Agent(
            chat_generator=model(call("list_results", **where), "done"),
            tools=[SessionToolset(page_tokens=page_tokens)],
            hooks=session_hooks(offload={"*": AlwaysOffload()}),
        )
        text = results_of(run(lister, session=session)["messages"])[-1]
        seen += re.findall(r"^([a-z]+-\d+-[a-z2-7]{10})  ", text, re.MULTILINE)
        further = sorted(_NEXT.findall(text), key=lambda one: one[1] == "")
        if not further:
            break
        where = {"page": int(further[0][0]), "skip": int(further[0][1] or 0)}
    assert seen == written[::-1]


def test_one_damaged_result_does_not_hide_the_others(make_manager: Callable[..., SessionManager]) -> None:
    manager = make_manager(durability="process", inline_bytes=0)
    session = manager.session(tenant="a", user="u")
    folder = make_manager.results  # type: ignore[attr-defined]
    whole = session.write("a needle here")
    before = {path for path in folder.rglob("*") if path.is_file()}
    damaged = session.write("a needle there")
    (file,) = {path for path in folder.rglob("*") if path.is_file()} - before
    file.write_bytes(b"x" * file.stat().st_size)
    steps = [call("search_result", query="needle"), call("search_result", query="needle", reference=damaged)]
    answer = run(agent(steps, "done", offload={"*": AlwaysOffload()}), session=session)
    all_of_it, one = results_of(answer["messages"])
    assert f"{whole} line 1" in all_of_it
    assert "Some results could not be read." in all_of_it
    assert "can no longer be read" in one
