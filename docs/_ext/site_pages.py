"""The pages of the site: the list of `README.md` is its navigation, and some pages stand elsewhere.

A page that only says where another one stands ("This page is [...](...).") shows that one, with its links
as they are from here. Blocks marked `output` and `console` are shown as what was printed, and typed.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.lexers.special import TextLexer
from pygments.token import Generic
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
_SECTION = re.compile(r"^## (.+)\n\n((?:- .*\n)+)", re.MULTILINE)


def _told(page: Path) -> Path | None:
    """The page that a page only points to ("This page is [...](...)."), None for any other."""
    found = re.fullmatch(
        r"# .+\n\nThis page is \[.+\]\((.+)\)\.\n", page.read_text(encoding="utf-8")
    )
    return (page.parent / found[1]).resolve() if found else None


ELSEWHERE = {
    told: page
    for page in sorted(DOCS.rglob("*.md"))
    if "_build" not in page.parts and (told := _told(page)) is not None
}


def _here(source: Path, shown_at: Path) -> Any:
    """Rewrites the links of a page for where it is shown."""

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if not target.exists():  # an address, or code that looks like a link
            return link[0]
        there = os.path.relpath(ELSEWHERE.get(target, target), shown_at.parent)
        return f"]({there}{link[2] or ''})"

    return moved


def _navigation(text: str) -> str:
    """The lists of a page, each below its title, as the site's navigation."""
    trees = []
    for title, items in _SECTION.findall(text):
        pages = [target for target, _ in _LINK.findall(items) if target.endswith(".md")]
        lines = "\n".join(pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "\n".join([text, *trees])


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    shown_at = Path(app.env.doc2path(docname))
    page = _told(shown_at) or shown_at
    if page != shown_at:
        app.env.note_dependency(str(page))
    text = _LINK.sub(_here(page, shown_at), page.read_text(encoding="utf-8"))
    source[0] = _navigation(text) if docname == app.config.root_doc else text


def _publish(app: Sphinx, failed: Exception | None) -> None:
    """Puts the schemas where their names say, beside the page that lists them."""
    to = Path(app.outdir, "reference/schemas")
    to.mkdir(parents=True, exist_ok=True)
    for schema in sorted(DOCS.glob("reference/schemas/*.json")):
        shutil.copy(schema, to)


class Console(RegexLexer):
    """What stands behind `$ ` was typed; everything else was printed."""

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"(?m)^(\$ )(.*\n)", bygroups(Generic.Prompt, Generic.Strong)),
            (r".*\n", Generic.Output),
        ]
    }


def setup(app: Sphinx) -> None:
    """Sphinx asks this of an extension."""
    app.connect("source-read", _read)
    app.connect("build-finished", _publish)
    app.add_lexer("output", TextLexer)
    app.add_lexer("console", Console)
