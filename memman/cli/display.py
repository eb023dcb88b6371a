"""What is shown: the use of a context window, and tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click
import msgspec

from memman.cli.output import harmless
from memman.entries import Entry, TokenCount
from memman.report.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_BAR_CELLS = 64
_ROOM_FOR_HINTS = 80
_PIPE_COLUMNS = 160
_WHOLE_LINES = 10_000
_GAP = 2  # between columns
_LEAST_TEXT, _LEAST_CELLS = 20, 16  # below these a text says nothing any more
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
    "free": (".", "bright_black"),
}
_EMPTY = ("free",)
_HINTS = {
    "framing": "sent around the entries, or set aside",
}


class Row(msgspec.Struct, frozen=True):
    """A line of a table, with the style of all of it."""

    cells: tuple[str, ...]
    style: str = ""


def usage_block(
    usage: Usage, colours: bool, width: int = _PIPE_COLUMNS, zeros: bool = True
) -> list[Text]:
    """The bar, then a line for each part with its tokens and share of the window.

    The bar is cut to `width`, the hints are left out where there is no room for them; without
    `zeros` only parts that there are have a line.
    """
    from rich.text import Text

    free = usage.free or 0
    rows = [*usage.parts.items(), ("free", max(0, free))]
    used = f"{usage.used:,} tokens, no limit is known"
    if usage.window is not None:
        used = f"{usage.used:,} of {usage.window:,} tokens, {percent(usage.used, usage.window)}"
    head = Text.assemble(("Context window", "bold"), f"   {used}")
    if free < 0:
        head.append(f"   over by {-free:,}", "red")
    limited = usage.window is not None
    told = [row for row in rows if zeros or row[1] or (limited and row[0] == "free")]
    whole = usage.window or max(1, usage.used)
    hints = width >= _ROOM_FOR_HINTS
    return [
        head,
        _bar(rows, colours, min(_BAR_CELLS, width - 4)),
        Text(),
        *(_row(name, tokens, whole, colours, hints) for name, tokens in told),
    ]


def _bar(rows: Sequence[tuple[str, int]], colours: bool, length: int) -> Text:
    from rich.text import Text

    bar = Text("  " if colours else "  [")
    for (name, _), cells in zip(rows, _cells([tokens for _, tokens in rows], length), strict=True):
        letter, style = _LOOKS.get(name, ("?", "white"))
        glyph = ("░" if name in _EMPTY else "█") if colours else letter
        bar.append(glyph * cells, style)
    return bar if colours else bar.append("]")


def _cells(tokens: Sequence[int], length: int) -> list[int]:
    """The cells of each part: at least one for what is there, together exactly the bar."""
    total = sum(tokens)
    if not total:
        return [0] * len(tokens)
    cells = [max(1, round(length * part / total)) if part else 0 for part in tokens]
    cells[cells.index(max(cells))] += length - sum(cells)
    return cells


def _row(name: str, tokens: int, window: int, colours: bool, hints: bool) -> Text:
    from rich.text import Text

    letter, style = _LOOKS.get(name, ("?", "white"))
    row = Text("  ")
    square = "□" if name in _EMPTY else "■"
    row.append(square if colours else letter, style)
    row.append(f" {name:<12}{tokens:>9,}  {percent(tokens, window):>7}", "" if tokens else "dim")
    if hints and name in _HINTS:
        row.append(f"   {_HINTS[name]}", "dim")
    return row


def percent(part: int, whole: int) -> str:
    """A share of a whole, as 12.3 %."""
    return f"{100 * part / whole:.1f} %"


def console(stream: Literal["stdout", "stderr"] = "stdout") -> Console:
    """A rich console: colours on a terminal only, and never with NO_COLOR or `--no-color`."""
    from rich.console import Console
    from rich.segment import Segment

    class Shown(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with 1; the command decides

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            """Escape everything that is printed, whoever made it; rich's own controls pass."""
            for piece in super().render(renderable, options):
                yield piece if piece.control else Segment(harmless(piece.text), piece.style)

    file: TextIO = getattr(sys, stream)
    terminal = file.isatty()
    return Shown(
        file=file,
        color_system="auto" if terminal and not _is_colour_off() else None,
        force_terminal=terminal,
        width=None if terminal else _columns() or _PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _columns() -> int:
    """The columns that COLUMNS asks for; 0 if it asks for none."""
    given = os.environ.get("COLUMNS", "")
    return max(_LEAST_TEXT, int(given)) if given.isdecimal() else 0


def _is_colour_off() -> bool:
    context = click.get_current_context(silent=True)
    return bool(os.environ.get("NO_COLOR")) or (context is not None and context.color is False)


def has_colours(shown_on: Console) -> bool:
    """Whether colours tell parts apart there, and block characters can be written."""
    return shown_on.color_system is not None and shown_on.encoding.startswith("utf")


def print_lines(shown_on: Console, lines: Iterable[Text | str]) -> None:
    """Prints lines as they are, without wrapping."""
    for line in lines:
        shown_on.print(line, soft_wrap=True)


def cut_lines(shown_on: Console, lines: Iterable[str]) -> None:
    """Prints lines cut to the width."""
    from rich.text import Text

    cut = [Text(line) for line in lines]
    for line in cut:
        line.truncate(shown_on.width, overflow="ellipsis")
    print_lines(shown_on, cut)


def beside(shown_on: Console, left: str, right: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Prints texts in two columns of equal width, wrapped, a rule between the pairs."""
    from rich.box import MINIMAL
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=MINIMAL, show_edge=False, show_lines=True, header_style="bold", expand=True)
    for heading in (left, right):
        drawn.add_column(heading, ratio=1, overflow="fold")
    for one, other in pairs:
        drawn.add_row(Text(harmless(one)), Text(harmless(other)))
    _print_trimmed(shown_on, drawn)


def arrow(shown_on: Console) -> str:
    """An arrow that the console can show."""
    return "→" if shown_on.encoding.startswith("utf") else "->"


def mark(good: bool | None, shown_on: Console) -> Text:
    """A sign for what is as it should be, or is not; a dash for what was not checked."""
    from rich.text import Text

    if good is None:
        return Text("-" if shown_on.encoding.startswith("utf") else "--", "dim")
    signs = ("✗", "✓") if shown_on.encoding.startswith("utf") else ("!!", "ok")
    return Text(signs[good], "green" if good else "bold red")


def counted_by(count: TokenCount, model: str | None) -> str:
    """Who counted for the model, and what would count better than an estimate."""
    if count.method == "estimation":
        hint = "--model names a counter" if model is None else f"no plugin counts {model}"
        return f"estimated by {count.counter} ({hint})"
    doubt = "" if count.accuracy == "high" else f" ({count.accuracy} accuracy)"
    return f"counted by {count.counter} for {model}{doubt}"


def counted(number: int, one: str, more: str = "") -> str:
    """A number with its noun: `1 message`, `1,200 messages`; `more` where an s does not make it."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def table(
    shown_on: Console, headings: Sequence[str], rows: Sequence[Row], spare: Sequence[str] = ()
) -> None:
    """Prints rows in columns; the last one, which is text, is cut to fit the width.

    Headings that begin with ">" stand over numbers. Where the width does not allow all columns, the
    `spare` ones give way, the first of them first: cut while that is readable, else left out.
    """
    from rich.table import Table
    from rich.text import Text

    names = [heading.removeprefix(">") for heading in headings]
    width = _table_width(shown_on)
    widths = _widths(names, rows, width, spare)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading, name in zip(headings[:-1], names[:-1], strict=True):
        if widths[name]:
            justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
            drawn.add_column(name, justify=justify, no_wrap=True, width=widths[name])
    drawn.add_column(names[-1])
    for row in rows:
        *cells, last = (harmless(cell) for cell in row.cells)
        kept = [Text(cell) for name, cell in zip(names[:-1], cells, strict=True) if widths[name]]
        text = Text(last, no_wrap=True, overflow="ellipsis")
        drawn.add_row(*kept, text, style=row.style)
    _print_trimmed(shown_on, drawn, width)


def _table_width(shown_on: Console) -> int:
    """The width of a table: a program that reads it gets whole lines, if COLUMNS does not limit them."""
    whole = not shown_on.is_terminal and not _columns()
    return _WHOLE_LINES if whole else shown_on.width


def _print_trimmed(shown_on: Console, drawn: Table, width: int | None = None) -> None:
    """Prints a table; where there are no colours without spaces at the ends of its lines."""
    if shown_on.color_system is not None:
        shown_on.print(drawn, width=width)
        return
    with shown_on.capture() as captured:
        shown_on.print(drawn, width=width)
    print_lines(shown_on, (line.rstrip() for line in captured.get().splitlines()))


def _widths(
    names: Sequence[str], rows: Sequence[Row], width: int, spare: Sequence[str]
) -> dict[str, int]:
    """The cells of each column before the last one; none for those that are left out."""
    from rich.cells import cell_len

    widths = {
        name: max(cell_len(name), *(cell_len(harmless(row.cells[place])) for row in rows))
        for place, name in enumerate(names[:-1])
    }
    for name in spare:
        taken = sum(cells + _GAP for cells in widths.values() if cells)
        over = taken + _LEAST_TEXT - width
        if over > 0:
            left = widths[name] - over
            widths[name] = left if left >= _LEAST_CELLS else 0
    return widths


def speaker(entry: Entry) -> str:
    """Who or what an entry is of: `user`, or `tool_result shell`."""
    name = f" {harmless(entry.name)}" if entry.name else ""
    return f"{entry.role if entry.type == 'message' else entry.type}{name}"


def first_line(text: str, limit: int = 120) -> str:
    """The beginning of a text on one line, harmless to a terminal."""
    line = " ".join(text[: 4 * limit].split())
    return harmless(line if len(line) <= limit else f"{line[: limit - 3]}...")
