"""`docs/tutorial/your-counter-in-ten-minutes.md` runs in a fresh environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

BASH = shutil.which("bash")
PAGE = DOCS / "tutorial" / "your-counter-in-ten-minutes.md"
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDED = ("blinker", "cachetools", "msgspec", "pluggy", "click", "rich", "pytest", "hatchling")
_MARK = "-- and so much of the page is done --"


def blocks() -> list[tuple[str, str]]:
    """Return the page's console blocks and files, in order."""
    return _BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def script() -> tuple[str, list[str]]:
    """Return the page as one shell program, and the documented output of each command."""
    lines, expected = ["set -u", "exec 2>&1"], []
    for kind, text in blocks():
        if kind == "python":
            path = text.splitlines()[0].removeprefix("# ")
            lines += [f"cat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE"]
            continue
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            lines += [command, f"echo; echo '{_MARK}'"]
            expected.append(printed)
    return "\n".join(lines), expected


def pattern(printed: str) -> re.Pattern[str]:
    """Return the pattern of a documented output, in which `...` matches anything."""
    parts = (re.escape(part) for part in printed.strip().split("..."))
    return re.compile(".*".join(parts), re.DOTALL)


@pytest.fixture
def tutorial_folder(tmp_path: Path) -> Path:
    """A folder next to a clone, with the packages that the page installs."""
    uv = shutil.which("uv")
    if uv is None or BASH is None:
        pytest.skip("the page uses uv and a shell, and one of them is not here")
    (tmp_path / "memman").symlink_to(ROOT)
    subprocess.run([uv, "venv", "--quiet", "--offline", "probe"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [uv, "pip", "install", "--dry-run", "--offline", "--python", "probe", *_NEEDED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"uv has not kept what the page installs: {done.stderr.strip()[-300:]}")
    return tmp_path


def test_counter_tutorial_runs(tutorial_folder: Path) -> None:
    program, expected = script()
    kept = ("PATH", "HOME", "TMPDIR", "LANG", "UV_CACHE_DIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(
        [str(BASH), "-c", program],
        cwd=tutorial_folder,
        env={**environment, "UV_OFFLINE": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    printed = done.stdout.split(_MARK)[:-1]
    assert len(printed) == len(expected) > 10
    differ = [
        f"The page shows\n{shown}\nand printed was\n{line}"
        for line, shown in zip(printed, expected, strict=True)
        if not pattern(shown).fullmatch(line.strip())
    ]
    assert not differ, "\n".join(differ)


def test_counter_tutorial_has_commands_and_a_file() -> None:
    assert [kind for kind, _ in blocks()].count("python") == 1
