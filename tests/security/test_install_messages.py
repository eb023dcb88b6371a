"""No message recommends installing memman from a package index, which does not have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memman.plugins import how_to_install

_ROOT = Path(__file__).parents[2]
_FROM_AN_INDEX = re.compile(r"(?:pip install|uv add|uv pip install)[^\n]*[\s\"'](?<!/)memman-\w+")


def test_no_text_installs_memman_from_an_index() -> None:
    """No message or page names a distribution of memman as if it were on an index"""
    folders = (_ROOT / "memman", _ROOT / "docs", *(_ROOT / "plugins").glob("*/memman_*"))
    pages = [*_ROOT.glob("*.md"), *(_ROOT / "plugins").glob("*/README.md")]
    pages += [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md")
    ]
    wrong = [
        f"{path.relative_to(_ROOT)}: {found[0]}"
        for path in pages
        for found in _FROM_AN_INDEX.finditer(path.read_text(encoding="utf-8"))
        if "--editable" not in found[0] and "-e " not in found[0]
    ]
    assert len(pages) > 100
    assert wrong == []


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("memman-core[zstd]", "pip install '.[zstd]'"),
        ("memman-openai", "pip install './plugins/memman-openai'"),
        ("memman-cli[mcp]", "pip install './plugins/memman-cli[mcp]'"),
        ("acme-counter", "pip install acme-counter"),
    ],
)
def test_parts_of_memman_come_from_a_clone(requirement: str, message: str) -> None:
    """memman's own distributions come from a clone, others from an index"""
    assert how_to_install(requirement).endswith(message)


def test_every_plugin_of_the_clone_is_known() -> None:
    """Each distribution under plugins is installed from the clone"""
    for folder in (_ROOT / "plugins").iterdir():
        if (folder / "pyproject.toml").exists():
            assert "clone" in how_to_install(folder.name)
