"""What ends a command early: the exit codes, and the errors that are the command's own.

0  done
1  a finding: a rule broken, over budget, nothing found, not to be undone yet
2  usage: an option, a value or a file name that cannot be taken
3  input that cannot be read: missing, truncated, in no known format, not sound
4  with --strict: a counter or the summarizer failed
"""

from __future__ import annotations

from memman.errors import (
    BudgetExceeded,
    CompressionFailed,
    EntryNotFound,
    FormatError,
    MemmanError,
    Refused,
    StateError,
)

FINDING, USAGE, UNREADABLE, FAILED = 1, 2, 3, 4


class UnreadableError(MemmanError):
    """Input that cannot be read; the message names it and says what to do."""


class UnusableError(MemmanError):
    """Something the command was asked to do and will not, such as overwriting a foreign file."""


class FindingError(MemmanError):
    """The command did its work, and what it found is not good."""


class FailedError(MemmanError):
    """A counter or a summarizer failed, and `--strict` takes nothing in its place."""


_CODES: tuple[tuple[type[MemmanError], int], ...] = (
    (UnreadableError, UNREADABLE),
    (FormatError, UNREADABLE),
    (StateError, UNREADABLE),
    (FailedError, FAILED),
    (FindingError, FINDING),
    (BudgetExceeded, FINDING),
    (CompressionFailed, FINDING),
    (EntryNotFound, FINDING),
    (Refused, FINDING),
)


def exit_code(error: MemmanError) -> int:
    """The exit code of an error; what is not known better is a usage error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), USAGE)


def lines_of(error: MemmanError) -> list[str]:
    """The error as lines: one, and one more for each fault when a session has several."""
    if isinstance(error, StateError) and len(error.problems) > 1:
        head = f"cannot read this session, it has {len(error.problems)} faults:"
        return [head, *(f"  - {_flat(problem)}" for problem in error.problems)]
    return [_flat(str(error))]


def _flat(text: str) -> str:
    return " ".join(text.split())
