"""Text for people: tables, the bar of a context window, and progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

import click
import msgspec

from memman_cli.output import harmless
from memman_cli.report.usage import Usage
from memman_cli.words import percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_BAR_CELLS = 64
_WIDTH_FOR_HINTS = 80
_PIPE_COLUMNS = 160
_UNCUT_COLUMNS = 10_000
_GAP = 2  # between columns
_LEAST_TEXT, _LEAST_CELLS = 20, 16  # below these a text is not readable
# Letters replace colours on a console without them.
_LOOKS: dict[str, tuple[str, str]] = {
    "system_prompt": ("p", "bright_white"),
    "tools": ("t", "bright_blue"),
    "message": ("m", "cyan"),
    "tool_call": ("c", "blue"),
    "tool_result": ("r", "yellow"),
    "context": ("x", "magenta"),
    "summary": ("s", "green"),
    "state": ("o", "bright_cyan"),
    "framing": ("f", "bright_black"),
    "free": (".", "bright_black"),
}
_HINTS = {"state": "of what left the window", "framing": "sent around the entries, or reserved"}


# ---------------------------------------------------------------- the console


def open_console(stream: Literal["stdout", "stderr"] = "stdout") -> Console:
    """Return a rich console, with colours on a terminal only and never with NO_COLOR or `--no-color`."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1; the command decides

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            """Escape everything that is printed, except rich's own control codes."""
            for piece in super().render(renderable, options):
                yield piece if piece.control else Segment(harmless(piece.text), piece.style)

    file: TextIO = getattr(sys, stream)
    terminal = file.isatty()
    context = click.get_current_context(silent=True)
    plain = bool(os.environ.get("NO_COLOR")) or (context is not None and context.color is False)
    return SafeConsole(
        file=file,
        color_system="auto" if terminal and not plain else None,
        force_terminal=terminal,
        width=None if terminal else _columns() or _PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _columns() -> int:
    """Return the value of COLUMNS; 0 if it has none."""
    given = os.environ.get("COLUMNS", "")
    return max(_LEAST_TEXT, int(given)) if given.isdecimal() else 0


def has_colours(console: Console) -> bool:
    """Return whether the console shows colours and block characters."""
    return console.color_system is not None and has_unicode(console)


def has_unicode(console: Console) -> bool:
    """Return whether the console's encoding has all characters."""
    return console.encoding.startswith("utf")


def arrow(console: Console) -> str:
    """Return an arrow that the console can show."""
    return "→" if has_unicode(console) else "->"


def print_lines(console: Console, lines: Iterable[Text | str]) -> None:
    """Print lines unchanged, without wrapping."""
    for line in lines:
        console.print(line, soft_wrap=True)


def cut_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines cut to the width of the console."""
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis")


@contextmanager
def progress(description: str) -> Iterator[Callable[[BinaryIO], BinaryIO]]:
    """Show on a terminal that work is in progress.

    The function it yields wraps a file, so that a bar shows how much of the file has been read.
    """
    console = open_console("stderr")
    if not console.is_terminal or not has_colours(console):  # it moves the cursor
        yield lambda file: file
        return
    from rich import progress as bars

    columns = [bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.BarColumn()]
    columns += [bars.TaskProgressColumn(), bars.TimeElapsedColumn()]
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)

        def watch(file: BinaryIO) -> BinaryIO:
            bar.reset(task)
            return bar.wrap_file(file, os.fstat(file.fileno()).st_size, task_id=task)

        yield watch


# ---------------------------------------------------------------- tables


class Row(msgspec.Struct, frozen=True):
    """A line of a table, and its style."""

    cells: tuple[str, ...]
    style: str = ""


def print_table(
    console: Console, headings: Sequence[str], rows: Sequence[Row], spare: Sequence[str] = ()
) -> None:
    """Print rows in columns; the text in the last one is cut to fit the width.

    A column of numbers has a heading that begins with ">". If the columns are too wide, the `spare` ones
    are narrowed in turn, or left out if they would not be readable.
    """
    from rich.table import Table
    from rich.text import Text

    names = [heading.removeprefix(">") for heading in headings]
    # Whole lines go to a program that reads the table, unless COLUMNS limits them.
    width = console.width if console.is_terminal or _columns() else _UNCUT_COLUMNS
    widths = _widths(names, rows, width, spare)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, name in zip(headings[:-1], names[:-1], strict=True):
        if widths[name]:
            justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
            table.add_column(name, justify=justify, no_wrap=True, width=widths[name])
    table.add_column(names[-1])
    for row in rows:
        *cells, last = (harmless(cell) for cell in row.cells)
        kept = [Text(cell) for name, cell in zip(names[:-1], cells, strict=True) if widths[name]]
        text = Text(last, no_wrap=True, overflow="ellipsis")
        table.add_row(*kept, text, style=row.style)
    _print_trimmed(console, table, width)


def print_pairs(console: Console, left: str, right: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print texts in two columns of equal width, wrapped, with a rule between the pairs."""
    from rich.box import MINIMAL
    from rich.table import Table
    from rich.text import Text

    table = Table(box=MINIMAL, show_edge=False, show_lines=True, header_style="bold", expand=True)
    for heading in (left, right):
        table.add_column(heading, ratio=1, overflow="fold")
    for one, other in pairs:
        table.add_row(Text(harmless(one)), Text(harmless(other)))
    _print_trimmed(console, table)


def _print_trimmed(console: Console, table: Table, width: int | None = None) -> None:
    """Print a table, on a console without colours without spaces at the ends of its lines."""
    if console.color_system is not None:
        console.print(table, width=width)
        return
    with console.capture() as captured:
        console.print(table, width=width)
    print_lines(console, (line.rstrip() for line in captured.get().splitlines()))


def _widths(
    names: Sequence[str], rows: Sequence[Row], width: int, spare: Sequence[str]
) -> dict[str, int]:
    """Return the cells of each column before the last one, 0 for a column that is left out."""
    from rich.cells import cell_len

    widths = {
        name: max(cell_len(name), *(cell_len(harmless(row.cells[index])) for row in rows))
        for index, name in enumerate(names[:-1])
    }
    for name in spare:
        over = sum(cells + _GAP for cells in widths.values() if cells) + _LEAST_TEXT - width
        if over > 0:
            left = widths[name] - over
            widths[name] = left if left >= _LEAST_CELLS else 0
    return widths


# ---------------------------------------------------------------- the use of a window


def usage_lines(console: Console, usage: Usage, zeros: bool = True) -> list[Text]:
    """Return the bar, and a line for each part with its tokens and share of the window.

    Without `zeros`, parts without tokens have no line.
    """
    from rich.text import Text

    colours = has_colours(console)
    free = usage.free or 0
    parts = [*usage.parts.items(), ("free", max(0, free))]
    used = f"{usage.used:,} tokens, no limit is known"
    if usage.window is not None:
        used = f"{usage.used:,} of {usage.window:,} tokens, {percent(usage.used, usage.window)}"
    head = Text.assemble(("Context window", "bold"), f"   {used}")
    if free < 0:
        head.append(f"   over by {-free:,}", "red")
    limited = usage.window is not None
    whole = usage.window or max(1, usage.used)
    hints = console.width >= _WIDTH_FOR_HINTS
    lines = [
        _usage_line(name, tokens, whole, colours, hints)
        for name, tokens in parts
        if zeros or tokens or (limited and name == "free")
    ]
    return [head, _bar(parts, colours, min(_BAR_CELLS, console.width - 4)), Text(), *lines]


def _bar(parts: Sequence[tuple[str, int]], colours: bool, length: int) -> Text:
    from rich.text import Text

    bar = Text("  " if colours else "  [")
    cells = _cells([tokens for _, tokens in parts], length)
    for (name, _), number in zip(parts, cells, strict=True):
        letter, style = _LOOKS.get(name, ("?", "white"))
        glyph = ("░" if name == "free" else "█") if colours else letter
        bar.append(glyph * number, style)
    return bar if colours else bar.append("]")


def _cells(tokens: Sequence[int], length: int) -> list[int]:
    """Return the cells of each part: at least one for a part with tokens, `length` in all."""
    total = sum(tokens)
    if not total:
        return [0] * len(tokens)
    cells = [max(1, round(length * part / total)) if part else 0 for part in tokens]
    cells[cells.index(max(cells))] += length - sum(cells)
    return cells


def _usage_line(name: str, tokens: int, whole: int, colours: bool, hints: bool) -> Text:
    from rich.text import Text

    letter, style = _LOOKS.get(name, ("?", "white"))
    square = "□" if name == "free" else "■"
    line = Text("  ").append(square if colours else letter, style)
    said = "outline" if name == "state" else name
    line.append(f" {said:<12}{tokens:>9,}  {percent(tokens, whole):>7}", "" if tokens else "dim")
    if hints and name in _HINTS:
        line.append(f"   {_HINTS[name]}", "dim")
    return line
