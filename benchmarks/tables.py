"""Plain-text tables of figures."""

from __future__ import annotations

from collections.abc import Sequence


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell: the first to the left, the others to the right."""
    cells = [list(headers), *([_shown(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = [_line(row, widths) for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def _shown(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.3f}" if abs(cell) < 10 else f"{cell:,.1f}"
