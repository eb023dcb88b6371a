"""Types hold at the seams: mypy finds a wrong call of a store and of a session."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MUTANTS = {
    "memman/session/log.py": (
        r"_shared\.store\.delete\(self\.id\)",
        "_shared.store.delet(self.id)",
        'has no attribute "delet"',
    ),
    "memman/core/methods.py": (
        r"session\.add\(checked, entry_id,",
        "session.add(entry_id, checked,",
        'Argument 1 to "add" of ',
    ),
}


pytestmark = pytest.mark.package("mypy")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the library, with mypy's cache if it exists."""
    for name in ("memman", ".mypy_cache"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.long
def test_mypy_finds_misspelt_store_method_and_swapped_arguments(tree: Path) -> None:
    for name, (pattern, wrong, _) in MUTANTS.items():
        text, times = re.subn(pattern, wrong, (tree / name).read_text())
        assert times == 1, f"{name} no longer has {pattern}"
        (tree / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "memman"], cwd=tree, capture_output=True, text=True
    )
    for name, (_, _, error) in MUTANTS.items():
        assert any(line.startswith(name) and error in line for line in done.stdout.splitlines())
    assert {line.partition(":")[0] for line in done.stdout.splitlines() if ": error:" in line} == {
        *MUTANTS
    }
