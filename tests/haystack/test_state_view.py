"""A view of a State shows what it is told to, and lets everything else through."""

from typing import Any

import pytest
from haystack.components.agents.state import State

from tenancy.seam.state_view import StateView

SCHEMA: dict[str, Any] = {"words": {"type": list[str]}, "count": {"type": int}, "shown": {"type": list[str]}}


def test_a_replaced_value_is_kept_apart() -> None:
    live = State(SCHEMA, {"shown": ["live"], "words": ["a"]})
    view = StateView(live, shown=["view"])
    view.set("shown", ["more"])
    assert view.data["shown"] == view.get("shown") == ["view", "more"]
    view.set("shown", ["new"], handler_override=lambda _, new: new)
    assert view.get("shown") == ["new"]
    assert live.data["shown"] == ["live"]
    assert view.has("shown")


def test_everything_else_is_the_live_one() -> None:
    live = State(SCHEMA, {"words": ["a"]})
    view = StateView(live, shown=[])
    view.set("words", ["b"])
    view.set("count", 3)
    assert (live.data["words"], live.data["count"]) == (["a", "b"], 3)
    live.set("count", 4)
    assert (view.get("count"), view.data["count"], view.get("none", 7)) == (4, 4, 7)
    assert view.has("words")
    assert not view.has("none")
    assert view.to_dict() == live.to_dict()
    with pytest.raises(ValueError, match="none"):
        view.set("none", 1)


def test_a_view_is_a_state_and_its_data_is_a_dictionary_of_its_own() -> None:
    live = State(SCHEMA, {"count": 1})
    view = StateView(live, shown=[])
    view.data["count"] = 9
    assert isinstance(view, State)
    assert live.data["count"] == 1
