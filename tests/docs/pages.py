"""Functions that read the documentation's pages: their tables and links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]

_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def table(page: str, first_column: str) -> list[dict[str, str]]:
    """Return the rows of the page's table whose first column has this title, by column title."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    titles = _cells(lines[start])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(titles, _cells(line), strict=True)))
    return rows


def code(cell: str) -> list[str]:
    """Return the texts between backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links to other files of the repository."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = _LINK.findall(prose)
    return [target for target in found if not target.startswith("http")]


def included_page(page: Path) -> Path | None:
    """Return the page that a page of the site includes, None for a page of its own."""
    found = re.fullmatch(
        r"# .+\n\nThis page is \[.+\]\((.+)\)\.\n", page.read_text(encoding="utf-8")
    )
    return (page.parent / found[1]).resolve() if found else None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
