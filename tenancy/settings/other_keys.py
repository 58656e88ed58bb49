"""The setting `other_keys`: by name, where the keys are of tenants that have their own."""

from collections.abc import Iterator, Mapping
from typing import Final

from tenancy.keys.locations import NO_KEY, PROVIDER_NAME, parse_location

_NAME_RULE: Final = "a name in other_keys must be 1 to 32 of a-z, 0-9, '_', '.' and '-', and begin with a letter"


class OtherKeys(Mapping[str, str]):
    """Locations by name. Does not change, and its repr shows no location, which may be a path."""

    def __init__(self, locations: Mapping[str, str] | None = None) -> None:
        self._locations = dict(locations or {})

    def __getitem__(self, name: str) -> str:
        """Return where that one is."""
        return self._locations[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._locations)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._locations)

    def __hash__(self) -> int:
        """Equal ones are equal to each other, as settings are."""
        return hash(frozenset(self._locations.items()))

    def __repr__(self) -> str:
        """Show the names."""
        return f"OtherKeys({', '.join(self._locations)})"


def other_keys_of(value: object) -> OtherKeys:
    """
    Return the keys that a mapping of written forms means.

    :raises ValueError: Naming every one that is wrong, and no value.
    """
    if not isinstance(value, Mapping):
        # A ValueError, since that is what pydantic collects.
        raise ValueError("other_keys must be given one by one (other_keys.NAME and so on)")  # noqa: TRY004
    found, wrong = {}, []
    for name, location in value.items():
        if not isinstance(name, str) or not PROVIDER_NAME.fullmatch(name):
            # Not repeated: somebody may have put the key there.
            wrong.append(_NAME_RULE)
            continue
        found[name] = location if isinstance(location, str) else ""
        try:
            if parse_location(found[name])[0] == NO_KEY:
                wrong.append(f"other_keys.{name} must name a key")
        except ValueError as error:
            wrong.append(f"other_keys.{name} {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return OtherKeys(found)
