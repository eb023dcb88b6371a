"""The settings that a session is shown with: the options, its own, or those that its log observed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from memman.config import MemoryConfig, readable
from memman.counting.lookup import Models
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.protocols import Store
from memman.records import NOT_OBSERVED, SessionTotals, SettingsInEffect

LimitSource = Literal["option", "session", "observed", "model", "unknown"]

_SOURCES: dict[LimitSource, str] = {
    "option": "",
    "session": " (the session's own)",
    "observed": " (as the program ran)",
    "model": "",
    "unknown": " (--budget or --model give one)",
}
_LEAST_TARGET, _MOST_TARGET = 0.01, 0.8  # the range of `MemoryConfig` with its other defaults


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The model, the limits and the counter that a session is shown with.

    `source` is where the limit comes from: an option of the command, the session's own settings, the
    settings that a program recorded, or the table of models. `max_tokens` is None without a source.
    """

    model: str | None
    max_tokens: int | None
    max_entries: int | None
    target_tokens: int | None
    counter: str
    source: LimitSource

    @property
    def limits(self) -> str:
        """The limits in words, and their source."""
        tokens = "none known" if self.max_tokens is None else f"{self.max_tokens:,} tokens"
        entries = "" if self.max_entries is None else f", {self.max_entries:,} entries"
        return f"{tokens}{entries}{_SOURCES[self.source]}"

    def __str__(self) -> str:
        model = "" if self.model is None else f"; model {self.model}"
        return f"Limits: {self.limits}{model}; counter {self.counter}"


class ShownWith(msgspec.Struct, frozen=True):
    """The model of a session as it is shown, and the source of its limit."""

    model: str | None
    source: LimitSource


def apply_settings(
    memory: MemoryManager, store: Store, session_id: str, model: str | None, budget: int | None
) -> ShownWith:
    """Give a manager the settings to show its session with; `model` and `budget` are options.

    The settings that the session's log observed replace defaults of the manager. An option becomes a
    setting of the session only if the session has one of its own. No record changes.
    """
    snapshot = store.load(session_id)
    totals = SessionTotals() if snapshot is None else snapshot.totals
    own, observed = readable(totals.settings), totals.observed
    if model is not None and model != observed.model:
        observed = NOT_OBSERVED  # its limits are those of another model
    given = {"model": model, "max_tokens": budget}
    options = {name: value for name, value in given.items() if value is not None}
    defaults = {name: value for name, value in _settings_of(observed).items() if name not in own}
    memory.update_config(**(defaults | options))
    over = {name: value for name, value in options.items() if name in own}
    if over:
        memory.update_config(session_id, **over)
    shown = model or own.get("model") or observed.model
    if budget is not None:
        return ShownWith(shown, "option")
    if MemoryConfig().updated(own).max_tokens is not None:
        return ShownWith(shown, "session")
    if observed.max_tokens is not None:
        return ShownWith(shown, "observed")
    known = shown and Models(shared_plugins).info(shown)
    return ShownWith(shown, "model" if known else "unknown")


def effective_settings(memory: MemoryManager, session_id: str, shown: ShownWith) -> Effective:
    """Return the settings in effect for a session, after `apply_settings`."""
    trigger, stats = memory.explain(session_id).trigger, memory.get_stats(session_id)
    known = shown.source != "unknown"
    return Effective(
        model=shown.model,
        max_tokens=stats.max_tokens if known else None,
        max_entries=stats.max_entries if known else None,
        target_tokens=trigger.target_tokens if known else None,
        counter=stats.counter,
        source=shown.source,
    )


def _settings_of(observed: SettingsInEffect) -> dict[str, Any]:
    """Return the settings with which a manager works as the observed program did."""
    found: dict[str, Any] = {} if observed.model is None else {"model": observed.model}
    if observed.max_tokens is not None:
        found |= {"max_tokens": observed.max_tokens, "max_entries": observed.max_entries}
        if observed.target_tokens is not None:
            share = round(observed.target_tokens / observed.max_tokens, 4)
            found["target_ratio"] = min(_MOST_TARGET, max(_LEAST_TARGET, share))
    return found
