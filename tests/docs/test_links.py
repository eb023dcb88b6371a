"""Links lead somewhere, and every page can be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_of_a_page_leads_to_a_file(page: Path) -> None:
    missing = [target for target in links(page) if not (page.parent / target).is_file()]
    assert missing == []


def test_the_index_lists_every_page() -> None:
    listed = {(DOCS / target).resolve() for target in links(DOCS / "README.md")}
    assert listed == {page for page in DOCS.rglob("*.md") if page.name != "README.md"}
