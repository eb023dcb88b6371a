"""The store of `docs/tutorial/your-store-in-an-hour.md` keeps every law."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "your-store-in-an-hour.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the files of the page: each block is appended to the file that its first line names."""
    for block in re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        first, _, rest = block.partition("\n")
        with (tmp_path / first.removeprefix("# ")).open("a", encoding="utf-8") as file:
            file.write(f"{rest}\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(PAGE.parents[2])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_store_of_the_page_keeps_every_law(folder: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}"]
    done = run(folder, "-m", "pytest", *options, "test_lines_store.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 45


def test_sessions_of_the_page_survive_their_process(folder: Path) -> None:
    [shown] = re.findall(
        r"^```output\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert run(folder, "use_it.py").stdout == shown


def test_unfinished_last_line_is_left_out(folder: Path) -> None:
    run(folder, "use_it.py")
    file = folder / "chat.jsonl"
    whole = file.read_bytes()
    code = "from lines_store import LinesStore as S; print(len(S('chat.jsonl').read('trip')))"
    before = run(folder, "-c", code).stdout
    file.write_bytes(whole + whole.splitlines()[0][:40])
    assert run(folder, "-c", code).stdout == before
    assert file.read_bytes() == whole
    file.write_bytes(b"not a line\n")
    assert "is not a file of this store" in run(folder, "-c", code).stderr
