"""The settings that a session is shown with: those asked for, its own, or those its log has observed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from memman.config import MemoryConfig, readable
from memman.counting import Models
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.protocols import Store
from memman.records import NOT_OBSERVED, SessionTotals, SettingsInEffect

LimitSource = Literal["option", "session", "observed", "model", "unknown"]


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The model, the limits and the counter that a session is shown with.

    `source` says where the limit is from: an option of the command, the session's own settings, what a
    program has recorded of itself, or the table of models. `max_tokens` is None if none of these has one.
    """

    model: str | None
    max_tokens: int | None
    max_entries: int | None
    target_tokens: int | None
    counter: str
    source: LimitSource

    @property
    def limits(self) -> str:
        """The limits in words, and where they are from."""
        said = "none known" if self.max_tokens is None else f"{self.max_tokens:,} tokens"
        entries = "" if self.max_entries is None else f", {self.max_entries:,} entries"
        return f"{said}{entries}{_FROM[self.source]}"

    def __str__(self) -> str:
        model = "" if self.model is None else f"; model {self.model}"
        return f"Limits: {self.limits}{model}; counter {self.counter}"


_FROM: dict[LimitSource, str] = {
    "option": "",
    "session": " (the session's own)",
    "observed": " (as the program ran)",
    "model": "",
    "unknown": " (--budget or --model give one)",
}


class Wanted(msgspec.Struct, frozen=True):
    """The model and the budget that a command was asked to show a session with."""

    model: str | None = None
    budget: int | None = None


class ResolvedConfig(msgspec.Struct, frozen=True):
    """The model of a session as it is shown, and the source of its limit."""

    model: str | None
    source: LimitSource


def settle(memory: MemoryManager, store: Store, session_id: str, wanted: Wanted) -> ResolvedConfig:
    """Gives a manager the settings that its session is to be shown with.

    What the session's log has observed stands in for defaults of the manager. It changes no record; an
    option becomes a setting of the session only where the session has one of its own.
    """
    snapshot = store.load(session_id)
    totals = SessionTotals() if snapshot is None else snapshot.totals
    own, seen = readable(totals.settings), totals.observed
    if wanted.model is not None and wanted.model != seen.model:
        seen = NOT_OBSERVED  # the limits of another model
    asked = {
        name: value
        for name, value in (("model", wanted.model), ("max_tokens", wanted.budget))
        if value is not None
    }
    observed = {name: value for name, value in _observed(seen).items() if name not in own}
    memory.update_config(**(observed | asked))
    over = {name: value for name, value in asked.items() if name in own}
    if over:
        memory.update_config(session_id, **over)
    model = wanted.model or own.get("model") or seen.model
    return ResolvedConfig(model, _source(wanted, own, seen, model))


def _source(
    wanted: Wanted, own: dict[str, Any], seen: SettingsInEffect, model: str | None
) -> LimitSource:
    if wanted.budget is not None:
        return "option"
    if MemoryConfig().updated(own).max_tokens is not None:
        return "session"
    if seen.max_tokens is not None:
        return "observed"
    return "model" if model and Models(shared_plugins).info(model) else "unknown"


def effective(memory: MemoryManager, session_id: str, settled: ResolvedConfig) -> Effective:
    """The settings that a session is shown with, once they are settled."""
    trigger, stats = memory.explain(session_id).trigger, memory.get_stats(session_id)
    known = settled.source != "unknown"
    return Effective(
        model=settled.model,
        max_tokens=stats.max_tokens if known else None,
        max_entries=stats.max_entries if known else None,
        target_tokens=trigger.target_tokens if known else None,
        counter=stats.counter,
        source=settled.source,
    )


def _observed(seen: SettingsInEffect) -> dict[str, Any]:
    """The settings of a manager that works as the program did that was observed."""
    found: dict[str, Any] = {} if seen.model is None else {"model": seen.model}
    if seen.max_tokens is not None:
        found |= {"max_tokens": seen.max_tokens, "max_entries": seen.max_entries}
        if seen.target_tokens is not None:
            share = round(seen.target_tokens / seen.max_tokens, 4)
            found["target_ratio"] = min(_MOST_TARGET, max(_LEAST_TARGET, share))
    return found


_LEAST_TARGET, _MOST_TARGET = 0.01, 0.8  # what `MemoryConfig` takes with its other defaults
