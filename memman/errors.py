"""Everything memman raises.

MemmanError
├── InvalidInput (ValueError)        an argument cannot be taken; nothing changed
│   ├── ConfigError                  a setting is unknown, of the wrong type, or contradicts another
│   ├── IdConflict                   the same id was added before with other content, or was deleted
│   ├── FormatError                  messages in no known format, or broken ones
│   ├── StateError                   a session document that cannot be imported (`problems`)
│   └── AsyncPortRefused             an async store, counter or summarizer given to the sync door
├── NotFound (LookupError)
│   ├── SessionNotFound
│   ├── EntryNotFound
│   └── PluginNotFound               a format, counter, summarizer or store asked for by name
├── Refused                          the window does not allow it (undo, pin, delete)
├── BudgetExceeded                   what must stay does not fit (`required`, `available`, `culprits`)
├── CompressionFailed                a stage or `redact` failed, or the summarizer with `on_failure="raise"`
├── CounterUnavailable               a counter cannot work here (`reason`)
├── SummarizerFailed                 a summarizer gave no summary
│   └── SummarizerUnavailable        it cannot work here: an SDK, a key or a program is missing
├── WrongEventLoop (RuntimeError)    an async manager is used outside of its event loop
├── FileError (OSError)              an archive's file cannot be read or written
└── StoreError
    ├── StoreBusy                    another process held it too long; nothing changed, try again
    ├── StoreConflict                the window changed shape meanwhile
    ├── StoreFull                    there is no room left; nothing changed
    └── SessionExists                an import would overwrite a session
"""

from __future__ import annotations

from collections.abc import Sequence


class MemmanError(Exception):
    """The root: catching it catches all that memman raises on purpose."""


class InvalidInput(MemmanError, ValueError):
    """An argument cannot be taken. Nothing was changed."""


class ConfigError(InvalidInput):
    """A setting is unknown, has the wrong type or range, or contradicts another."""


class IdConflict(InvalidInput):
    """An entry with this id was added before with other content, or was deleted."""


class FormatError(InvalidInput):
    """Messages are in no known format, or do not follow the one they were said to be in.

    `index` is the place, from 0, of the message that is at fault; None where it is no single one.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class StateError(InvalidInput):
    """A session document cannot be imported; `problems` names every fault found."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(self.problems[:5])
        more = len(self.problems) - 5
        super().__init__(
            f"cannot import this session, nothing was changed: {shown}"
            + (f"; and {more} more (see .problems)" if more > 0 else "")
        )


class AsyncPortRefused(InvalidInput, TypeError):
    """The sync `MemoryManager` was given something that must be awaited."""


class NotFound(MemmanError, LookupError):
    """Something asked for by name or id is not there."""


class SessionNotFound(NotFound):
    """No session of this id. An `add` creates one; reading does not."""


class EntryNotFound(NotFound):
    """No entry or compression of this id in the session."""


class PluginNotFound(NotFound):
    """No format, counter, summarizer or store answers to this name."""


class Refused(MemmanError):
    """The state of the window does not allow this operation; the message names what stands in the way."""


class BudgetExceeded(MemmanError):
    """What must stay in the context does not fit the budget.

    `required` and `available` are tokens; `culprits` are (what, tokens), largest first. Entries are
    named by their addresses in the log, never by their words. `pinned` is whether any is pinned.
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
    """A token counter cannot work here; `reason` says why. Resolution goes on to the next one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SummarizerFailed(MemmanError):
    """A summarizer gave no summary. A compression tells it and goes on by `on_failure`.

    `exit_status` is that of a program that ended with one.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        self.exit_status = exit_status
        super().__init__(message)


class SummarizerUnavailable(SummarizerFailed):
    """A summarizer cannot work here: an SDK, a key or a program is missing; the message says which."""


class WrongEventLoop(MemmanError, RuntimeError):
    """`AsyncMemoryManager` was used in a second event loop while its first is open, or without asyncio."""


class FileError(MemmanError, OSError):
    """The file of an archive cannot be read or written."""


class StoreError(MemmanError):
    """A store could not do what it was asked."""


class StoreConflict(StoreError):
    """The window changed shape since it was read, so a commit on the old shape was refused."""


class StoreBusy(StoreError):
    """Another process held the store for longer than it was to be waited for. Trying again may work."""


class StoreFull(StoreError):
    """The store has no room left. What was acknowledged is there; it goes on once there is room."""


class SessionExists(StoreError):
    """A session of this id exists; pass `on_conflict="skip"` or `"new_session"`, or delete it."""
