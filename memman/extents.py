"""The size of plain data as JSON, measured before it is encoded.

A list that contains the same list twice is written twice, so thirty lists can expand to a thousand million
values. Each container is measured once, so the time is linear in the size in memory.
"""

from __future__ import annotations

from typing import Any, Final

from memman.errors import InvalidInput

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 1_000_000
MAX_ENTRY_BYTES: Final = 64 * 2**20
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_Extent = tuple[int, int, int]  # values, characters, levels


def check_extent(
    value: Any,
    what: str,
    *,
    values: int = MAX_VALUES,
    characters: int = MAX_ENTRY_BYTES,
    depth: int = MAX_DEPTH,
) -> None:
    """Raise `InvalidInput` for data with too many values, characters or levels.

    The message names the limit.
    """
    if isinstance(value, _CONTAINERS):
        _Measure(what, values, characters, depth).measured(value, 1)


class _Measure:
    """Measures containers, each once, up to the first that is too large."""

    def __init__(self, what: str, values: int, characters: int, depth: int) -> None:
        self._what = what
        self._values = values
        self._characters = characters
        self._depth = depth
        self._known: dict[int, _Extent] = {}

    def measured(self, container: Any, level: int) -> _Extent:
        """Return the extent of a container at a level."""
        known = self._known.get(id(container))
        if known is None:
            known = self._known[id(container)] = self._measure(container, level)
        if level - 1 + known[2] > self._depth:
            self._refuse(f"nested deeper than {self._depth} levels")
        return known

    def _measure(self, container: Any, level: int) -> _Extent:
        if level > self._depth:  # a container that holds itself ends here too
            self._refuse(f"nested deeper than {self._depth} levels")
        values, characters, levels = len(container), 0, 0
        if values > self._values:
            self._refuse(f"more than {self._values:,} values, the limit")
        keyed = isinstance(container, dict)
        for item in (*container, *container.values()) if keyed else container:
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, _CONTAINERS):
                inside = self.measured(item, level + 1)
                values += inside[0]
                characters += inside[1]
                levels = max(levels, inside[2])
                if values > self._values:
                    self._refuse(f"more than {self._values:,} values, the limit")
        if characters > self._characters:
            self._refuse(f"more than {self._characters:,} characters, the limit")
        return values, characters, levels + 1

    def _refuse(self, fault: str) -> None:
        raise InvalidInput(f"{self._what}: {fault}")
