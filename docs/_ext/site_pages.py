"""The pages of the site, which are plain Markdown on a code host.

The list in `README.md` is the navigation. A page that only names another file ("This page is [...](...).")
shows that file, with its links rewritten. Sections between `<!-- tabs -->` and `<!-- /tabs -->` are tabs.
Blocks marked `output` and `console` are highlighted as printed and typed text.
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
_TABS = re.compile(r"<!-- tabs -->\n(.*?)<!-- /tabs -->\n", re.DOTALL)
_SECTION = re.compile(r"^## (.+)\n\n((?:- .*\n)+)", re.MULTILINE)


def _told(page: Path) -> Path | None:
    """Return the file that a page only points to, None for a page with text of its own."""
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
    """Return a function that rewrites the links of a page for the place where it is shown."""

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if not target.exists():  # an address, or code that looks like a link
            return link[0]
        there = os.path.relpath(ELSEWHERE.get(target, target), shown_at.parent)
        return f"]({there}{link[2] or ''})"

    return moved


def _navigation(text: str) -> str:
    """Append the lists of a page, each below its title, as the navigation of the site."""
    trees = []
    for title, items in _SECTION.findall(text):
        pages = [target for target, _ in _LINK.findall(items) if target.endswith(".md")]
        lines = "\n".join(pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "\n".join([text, *trees])


def _tabs(region: re.Match[str]) -> str:
    """Make a set of tabs of the third-level sections between two comments."""
    sections = re.split(r"^### (.+)\n", region[1], flags=re.MULTILINE)[1:]
    items = [
        f"`````{{tab-item}} {title}\n:sync: {title}\n{body}`````\n"
        for title, body in zip(sections[::2], sections[1::2], strict=True)
    ]
    return "\n".join(["``````{tab-set}", *items, "``````\n"])


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    shown_at = Path(app.env.doc2path(docname))
    page = _told(shown_at) or shown_at
    if page != shown_at:
        app.env.note_dependency(str(page))
    text = _LINK.sub(_here(page, shown_at), page.read_text(encoding="utf-8"))
    text = _TABS.sub(_tabs, text)
    source[0] = _navigation(text) if docname == app.config.root_doc else text


def _publish(app: Sphinx, failed: Exception | None) -> None:
    """Copy the schemas next to the page that lists them."""
    to = Path(app.outdir, "reference/schemas")
    to.mkdir(parents=True, exist_ok=True)
    for schema in sorted(DOCS.glob("reference/schemas/*.json")):
        shutil.copy(schema, to)


class Console(RegexLexer):
    """Lines that begin with `$ ` are typed text, all others are output."""

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"(?m)^(\$ )(.*\n)", bygroups(Generic.Prompt, Generic.Strong)),
            (r".*\n", Generic.Output),
        ]
    }


def setup(app: Sphinx) -> None:
    """Register the extension with Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _publish)
    app.add_lexer("output", TextLexer)
    app.add_lexer("console", Console)
