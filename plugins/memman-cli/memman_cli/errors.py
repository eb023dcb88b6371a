"""Exit codes, and the errors of the command itself.

0  done
1  a finding: a broken rule, a window over its budget, no match, a compression that cannot be undone yet
2  usage: an invalid option, value or file name
3  unreadable input: missing, truncated, unsound or in an unknown format
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
    """The input cannot be read; the message names it and the way out."""


class UnusableError(MemmanError):
    """The command refuses its arguments, such as a file that must not be overwritten."""


class FindingError(MemmanError):
    """The command did its work, and the result is a problem."""


class FailedError(MemmanError):
    """A counter or a summarizer failed, and `--strict` accepts no substitute."""


_CODES: tuple[tuple[type[MemmanError] | tuple[type[MemmanError], ...], int], ...] = (
    ((UnreadableError, FormatError, StateError), UNREADABLE),
    (FailedError, FAILED),
    ((FindingError, BudgetExceeded, CompressionFailed, EntryNotFound, Refused), FINDING),
)


def exit_code(error: MemmanError) -> int:
    """Return the exit code of an error: that of a usage error unless its type has another."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), USAGE)


def lines_of(error: MemmanError) -> list[str]:
    """Return an error as one line, followed by a line for each fault of an unsound session."""
    if isinstance(error, StateError) and len(error.problems) > 1:
        head = f"cannot read this session, it has {len(error.problems)} faults:"
        return [head, *(f"  - {on_one_line(problem)}" for problem in error.problems)]
    return [on_one_line(str(error))]


def on_one_line(text: str) -> str:
    """Return the text with each run of white space as one space."""
    return " ".join(text.split())
