"""Links lead somewhere, and every page can be found."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import memman
from tests.docs.pages import DOCS, PAGES, ROOT, included_page, links

_OTHERS = {"memman.tenant"}  # a setting of PostgreSQL
_TELEMETRY = DOCS / "how-to/trace-with-opentelemetry.md"  # has names of attributes and metrics


def _is_there(name: str) -> bool:
    found: Any = memman
    path = found.__name__
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
        except ImportError:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file(page: Path) -> None:
    missing = [target for target in links(page) if not (page.parent / target).is_file()]
    assert missing == []


@pytest.mark.parametrize(
    "page",
    [each for each in PAGES if each != _TELEMETRY],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_names_of_the_package_exist(page: Path) -> None:
    names = set(re.findall(r"`(memman(?:\.[A-Za-z_]\w*)+)", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(names - _OTHERS) if not _is_there(name)] == []


def test_index_lists_every_page() -> None:
    index = DOCS / "README.md"
    listed = {(DOCS / target).resolve() for target in links(index) if target.endswith(".md")}
    assert listed == {included_page(page) or page for page in DOCS.rglob("*.md")} - {index}
