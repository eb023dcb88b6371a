"""What is shown: the use of a context window, and text that cannot harm a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

import msgspec

from memman.entries import ENTRY_TYPES, TokenCount
from memman.manager import MemoryManager

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_BAR_CELLS = 64
_PIPE_COLUMNS = 160
# Letters stand in for colours where there are none.
_LOOKS: dict[str, tuple[str, str]] = {
    "system_prompt": ("p", "bright_white"),
    "tools": ("t", "bright_blue"),
    "message": ("m", "cyan"),
    "tool_call": ("c", "blue"),
    "tool_result": ("r", "yellow"),
    "context": ("x", "magenta"),
    "summary": ("s", "green"),
    "framing": ("f", "bright_black"),
    "reserved": ("-", "bright_black"),
    "free": (".", "bright_black"),
}
_EMPTY = ("reserved", "free")
_HINTS = {
    "framing": "roles, ids and names around the entries",
    "reserved": "for what memman does not see",
}


class Row(msgspec.Struct, frozen=True):
    """A line of a table, with the style of all of it."""

    cells: tuple[str, ...]
    style: str = ""


class Usage(msgspec.Struct, frozen=True):
    """The use of a context window, in tokens: `parts` by type in the order of their display."""

    window: int
    parts: dict[str, int]

    @property
    def used(self) -> int:
        """All that is taken."""
        return sum(self.parts.values())

    @property
    def free(self) -> int:
        """What is left; negative when over."""
        return self.window - self.used

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"window": self.window, "used": self.used, "free": self.free, "parts": self.parts}


def usage_of(memory: MemoryManager, session_id: str) -> Usage:
    """How a session's whole window, rendered as OpenAI chat, fills its budget."""
    stats = memory.get_stats(session_id)
    # A budget that nothing exceeds: what is shown is the window, not a copy cut to fit.
    shares = memory.build_context(session_id, budget=2**53).breakdown
    always = (*ENTRY_TYPES, "framing", "reserved")
    extra = [name for name in shares if name not in always]
    parts = {name: shares.get(name, 0) for name in (*extra, *always)}
    return Usage(stats.max_tokens, parts)


def usage_block(usage: Usage, colours: bool) -> list[Text]:
    """The bar, then a line for each part with its tokens and share of the window."""
    from rich.text import Text

    rows = [*usage.parts.items(), ("free", max(0, usage.free))]
    head = Text.assemble(
        ("Context window", "bold"),
        f"   {usage.used:,} of {usage.window:,} tokens, {_percent(usage.used, usage.window)}",
    )
    if usage.free < 0:
        head.append(f"   over by {-usage.free:,}", "red")
    lines = [head, _bar(rows, colours), Text()]
    return lines + [_row(name, tokens, usage.window, colours) for name, tokens in rows]


def _bar(rows: Sequence[tuple[str, int]], colours: bool) -> Text:
    from rich.text import Text

    bar = Text("  " if colours else "  [")
    for (name, _), cells in zip(rows, _cells([tokens for _, tokens in rows]), strict=True):
        letter, style = _LOOKS.get(name, ("?", "white"))
        glyph = ("░" if name in _EMPTY else "█") if colours else letter
        bar.append(glyph * cells, style)
    return bar if colours else bar.append("]")


def _cells(tokens: Sequence[int]) -> list[int]:
    """The cells of each part: at least one for what is there, together exactly the bar."""
    total = sum(tokens)
    if not total:
        return [0] * len(tokens)
    cells = [max(1, round(_BAR_CELLS * part / total)) if part else 0 for part in tokens]
    cells[cells.index(max(cells))] += _BAR_CELLS - sum(cells)
    return cells


def _row(name: str, tokens: int, window: int, colours: bool) -> Text:
    from rich.text import Text

    letter, style = _LOOKS.get(name, ("?", "white"))
    row = Text("  ")
    square = "□" if name in _EMPTY else "■"
    row.append(square if colours else letter, style)
    row.append(f" {name:<12}{tokens:>9,}  {_percent(tokens, window):>7}", "" if tokens else "dim")
    if name in _HINTS:
        row.append(f"   {_HINTS[name]}", "dim")
    return row


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def console(stream: Literal["stdout", "stderr"] = "stdout") -> Console:
    """A rich console: colours on a terminal only, and never with NO_COLOR."""
    from rich.console import Console

    file: TextIO = getattr(sys, stream)
    terminal = file.isatty()
    return Console(
        file=file,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        force_terminal=terminal,
        width=None if terminal else _PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def has_colours(shown_on: Console) -> bool:
    """Whether colours tell parts apart there, and block characters can be written."""
    return shown_on.color_system is not None and shown_on.encoding.startswith("utf")


def print_lines(shown_on: Console, lines: Iterable[Text | str]) -> None:
    """Prints lines as they are, without wrapping."""
    for line in lines:
        shown_on.print(line, soft_wrap=True)


def arrow(shown_on: Console) -> str:
    """An arrow that the console can show."""
    return "→" if shown_on.encoding.startswith("utf") else "->"


def mark(good: bool, shown_on: Console) -> Text:
    """A sign for what is as it should be, or is not."""
    from rich.text import Text

    signs = ("✗", "✓") if shown_on.encoding.startswith("utf") else ("!!", "ok")
    return Text(signs[good], "green" if good else "bold red")


def counted_by(count: TokenCount, model: str | None) -> str:
    """Who counted for the model, and what would count better than an estimate."""
    if count.method == "estimation":
        hint = "--model names a counter" if model is None else f"no plugin counts {model}"
        return f"estimated by {count.counter} ({hint})"
    doubt = "" if count.accuracy == "high" else f" ({count.accuracy} accuracy)"
    return f"counted by {count.counter} for {model}{doubt}"


def table(shown_on: Console, headings: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints rows in columns; only the last one, which is text, is cut to fit the width.

    Headings that begin with ">" stand over numbers.
    """
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings, 1):
        drawn.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            no_wrap=number < len(headings),
        )
    for row in rows:
        *cells, last = (harmless(cell) for cell in row.cells)
        text = Text(last, no_wrap=True, overflow="ellipsis")
        drawn.add_row(*map(Text, cells), text, style=row.style)
    if shown_on.color_system is not None:
        shown_on.print(drawn)
        return
    with shown_on.capture() as captured:
        shown_on.print(drawn)
    print_lines(shown_on, (line.rstrip() for line in captured.get().splitlines()))


def first_line(text: str, limit: int = 120) -> str:
    """The beginning of a text on one line, harmless to a terminal."""
    line = " ".join(text[: 4 * limit].split())
    return harmless(line if len(line) <= limit else f"{line[: limit - 3]}...")


def harmless(text: str) -> str:
    """The text with control characters shown as escapes, so that it cannot steer a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
