"""The errors of memman.

MemmanError
├── InvalidInput (ValueError)        an argument is invalid; nothing changed
│   ├── ConfigError                  a setting is unknown, of the wrong type, or contradicts another
│   ├── IdConflict                   the same id was added before with other content, or was deleted
│   ├── FormatError                  messages of an unknown format, or malformed
│   ├── StateError                   a session document that cannot be imported (`problems`)
│   └── AsyncPortRefused             an async port where only sync ones are allowed
├── NotFound (LookupError)
│   ├── SessionNotFound
│   ├── EntryNotFound
│   └── PluginNotFound               no format, counter, summarizer or store has this name
├── Refused                          the window does not allow it (undo, pin, delete)
├── BudgetExceeded                   protected entries do not fit (`required`, `available`, `culprits`)
├── CompressionFailed                a stage or `redact` failed, or the summarizer with `on_failure="raise"`
├── CounterUnavailable               a counter cannot work here (`reason`)
├── SummarizerFailed                 a summarizer returned no summary
│   └── SummarizerUnavailable        an SDK, a key or a program is missing
├── WrongEventLoop (RuntimeError)    a method is used in the wrong event loop, or without one
├── FileError (OSError)              an archive's file cannot be read or written
└── StoreError
    ├── StoreBusy                    another process held it too long; nothing changed, retry
    ├── StoreConflict                the window changed shape since it was read
    ├── StoreFull                    the disk is full; nothing changed
    └── SessionExists                an import would overwrite a session
"""

from __future__ import annotations

from collections.abc import Sequence


class MemmanError(Exception):
    """The root of all errors that memman raises deliberately."""


class InvalidInput(MemmanError, ValueError):
    """An argument is invalid. Nothing was changed."""


class ConfigError(InvalidInput):
    """A setting is unknown, has the wrong type or range, or contradicts another."""


class IdConflict(InvalidInput):
    """An entry with this id was added before with other content, or was deleted."""


class FormatError(InvalidInput):
    """The format of messages is unknown, or they do not conform to the given one.

    `index` is the position, from 0, of the malformed message; None if it is not a single one.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class StateError(InvalidInput):
    """A session document cannot be imported; `problems` lists every fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(self.problems[:5])
        more = len(self.problems) - 5
        super().__init__(
            f"cannot import this session, nothing was changed: {shown}"
            + (f"; and {more} more (see .problems)" if more > 0 else "")
        )


class AsyncPortRefused(InvalidInput, TypeError):
    """A port must be awaited, and only a sync one is allowed; see `MemoryManager(async_ports=True)`."""


class NotFound(MemmanError, LookupError):
    """A session, an entry or a plugin does not exist."""


class SessionNotFound(NotFound):
    """No session has this id. The `add_*` methods create one; reading does not."""


class EntryNotFound(NotFound):
    """No entry or compression of the session has this id."""


class PluginNotFound(NotFound):
    """No format, counter, summarizer or store has this name."""


class Refused(MemmanError):
    """The state of the window does not allow this operation; the message names the obstacle."""


class BudgetExceeded(MemmanError):
    """The entries that must stay in the context do not fit the budget.

    `required` and `available` are tokens; `culprits` are (name, tokens), largest first. Entries are named
    by their addresses in the log, never by their content; those of no log by their ids. `pinned` is whether
    any stored one is pinned.
    """

    def __init__(
        self,
        required: int,
        available: int,
        culprits: Sequence[tuple[str, int]],
        *,
        pinned: bool = True,
    ) -> None:
        self.required = required
        self.available = available
        self.culprits = tuple(culprits)
        named = ", ".join(f"{what} ({tokens:,})" for what, tokens in self.culprits[:4])
        super().__init__(
            f"the context needs at least {required:,} tokens and the budget is {available:,}. "
            f"What must stay: {named or 'framing alone'}. Raise the budget, "
            f"{'unpin entries, ' if pinned else ''}or shorten them."
        )


class CompressionFailed(MemmanError):
    """A stage of the strategy or `redact` failed, or the summarizer did and `on_failure="raise"`.
    Nothing changed.
    """


class CounterUnavailable(MemmanError):
    """A token counter cannot work here, for `reason`. Resolution tries the next one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SummarizerFailed(MemmanError):
    """A summarizer returned no summary. A compression then continues by `on_failure`.

    `exit_status` is that of a program that failed.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        self.exit_status = exit_status
        super().__init__(message)


class SummarizerUnavailable(SummarizerFailed):
    """A summarizer cannot work here; the message names the missing SDK, key or program."""


class WrongEventLoop(MemmanError, RuntimeError):
    """A method was called in an event loop in which it cannot work, or awaited without asyncio."""


class FileError(MemmanError, OSError):
    """The file of an archive cannot be read or written."""


class StoreError(MemmanError):
    """A store operation failed."""


class StoreConflict(StoreError):
    """The window changed shape since it was read, so the commit was refused."""


class StoreBusy(StoreError):
    """Another process held the store for longer than the timeout. A retry may succeed."""


class StoreFull(StoreError):
    """The store is full. Acknowledged entries are safe, and adding works again once there is space."""


class SessionExists(StoreError):
    """The session exists already; pass `on_conflict="skip"` or `"new_session"`, or delete it."""
