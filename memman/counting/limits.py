"""Model limits: context, input and output in tokens, from a bundled table.

The table is a snapshot made by `python -m benchmarks.make_limits`, which documents its sources and rules.
It is read when first needed, never at import. Limits depend on the server: one in four of a cloud's
differs from its vendor's, so a server that is not in the table is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from memman.counting.models import SNAPSHOT
from memman.protocols import ModelInfo, ModelRef

# The servers of a model that is named without one: its vendors.
_VENDORS: Final = (
    "openai", "anthropic", "gemini", "mistral", "xai", "deepseek", "cohere", "zai", "moonshot",
    "perplexity",
)  # fmt: skip
_DATED: Final = rf"(.+?){SNAPSHOT}"

_Row = tuple[int, int, int, int]  # context, max_input, max_output, and the number of its source


class _Head(msgspec.Struct, frozen=True):
    date: str
    sources: dict[str, str]


class _Table(msgspec.Struct, frozen=True):
    head: _Head
    models: dict[str, _Row]  # by server/name

    def info(self, key: str) -> ModelInfo:
        """Return the row of an existing key."""
        context, max_input, max_output, source = self.models[key]
        return ModelInfo(
            context, max_input, max_output, self.head.sources[str(source)], self.head.date
        )


def limits_of(ref: ModelRef) -> ModelInfo | None:
    """Return a model's limits, None if the table does not have them: never a guess.

    An unlisted dated snapshot has the limits of its model if all listed snapshots of that model have them
    too.
    """
    table = _table()
    servers = _VENDORS if ref.provider is None else (ref.provider,)
    keys = [key for server in servers if (key := _key(server, ref.name)) is not None]
    infos = {table.models[key][:3]: key for key in keys}
    # Two vendors may have a model of one name.
    return table.info(next(iter(infos.values()))) if len(infos) == 1 else None


def known_limits() -> Iterator[tuple[str, ModelInfo]]:
    """Yield (server/name, limits) of every model in the table, in alphabetical order."""
    table = _table()
    for key in table.models:
        yield key, table.info(key)


def _key(server: str, name: str) -> str | None:
    """Return the key of a model at a server."""
    models = _table().models
    key = f"{server}/{name}"
    if key in models:
        return key
    dated = re.fullmatch(_DATED, name)
    if dated is None or (base := f"{server}/{dated[1]}") not in models:
        return None
    sibling = re.compile(re.escape(base) + SNAPSHOT)
    listed = {row[:3] for other, row in models.items() if sibling.fullmatch(other)}
    return base if listed == {models[base][:3]} else None


@lru_cache(maxsize=1)
def _table() -> _Table:
    return msgspec.json.decode(
        (Path(__file__).parent / "model_limits.json").read_bytes(), type=_Table
    )
