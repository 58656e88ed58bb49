"""A window on an Agent's `State` through which Haystack's own hooks are driven."""

from collections.abc import Callable
from typing import Any

from haystack.components.agents.state import State


class StateView(State):
    """
    A `State` in which some values are replaced; everything else is the live one's.

    Haystack's hooks take the whole `State`. The view shows them one message, or our store, without changing what others
    see. Writes to a replaced key stay in the view; all others go through.
    """

    def __init__(self, live: State, **replaced: Any) -> None:
        """
        Make a view.

        :param live: The Agent's `State`.
        :param replaced: The values that differ.
        """
        # Not State's own constructor: it copies the schema at every call and would own the data.
        self.live = live
        self.schema = live.schema
        self._replaced = replaced

    @property
    def data(self) -> dict[str, Any]:
        """The live data with the replaced values in it, as a dictionary of its own."""
        return {**self.live.data, **self._replaced}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value: the replaced one as it is, the live one as `State.get` copies it."""
        return self._replaced[key] if key in self._replaced else self.live.get(key, default)

    def set(self, key: str, value: Any, handler_override: Callable[[Any, Any], Any] | None = None) -> None:
        """Set or merge a value as `State.set` does, in the view if it is replaced here, else in the live `State`."""
        if key in self._replaced:
            handler = handler_override or self.schema[key]["handler"]
            self._replaced[key] = handler(self._replaced[key], value)
        else:
            self.live.set(key, value, handler_override)

    def has(self, key: str) -> bool:
        """Whether the key exists here or in the live `State`."""
        return key in self._replaced or self.live.has(key)

    def to_dict(self, skip_keys: list[str] | None = None) -> dict[str, Any]:
        """Serialise the live `State`."""
        return self.live.to_dict(skip_keys)
