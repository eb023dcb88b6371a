"""Values in words: numbers with nouns, shares, speakers and first lines."""

from __future__ import annotations

from memman.entries import Entry, TokenCount
from memman_cli.output import harmless


def plural(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun: `1 message`, `1,200 messages`; `more` is an irregular plural."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def entries_of(number: int) -> str:
    """Return a number of entries with its noun."""
    return plural(number, "entry", "entries")


def percent(part: int, whole: int) -> str:
    """Return a share of a whole, as 12.3 %."""
    return f"{100 * part / whole:.1f} %"


def speaker(entry: Entry) -> str:
    """Return an entry's role or type, with its name: `user`, or `tool_result shell`."""
    name = f" {harmless(entry.name)}" if entry.name else ""
    return f"{entry.role if entry.type == 'message' else entry.type}{name}"


def first_line(text: str, limit: int = 120) -> str:
    """Return the beginning of a text on one line, escaped."""
    line = " ".join(text[: 4 * limit].split())
    return harmless(line if len(line) <= limit else f"{line[: limit - 3]}...")


def counter_note(count: TokenCount, model: str | None) -> str:
    """Return the counter of a count, and the way to a better one if it is an estimate."""
    if count.method == "estimation":
        hint = "--model names a counter" if model is None else f"no plugin counts {model}"
        return f"estimated by {count.counter} ({hint})"
    doubt = "" if count.accuracy == "high" else f" ({count.accuracy} accuracy)"
    return f"counted by {count.counter} for {model}{doubt}"
