"""Commands on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# One process for all commands, because each start takes time.
_PROGRAM = """
import shlex, sys
from memman_cli.app import run
codes, *lines = sys.argv[1:]
for line in lines:
    print("====", line, flush=True)
    try:
        run(shlex.split(line))
    except SystemExit as end:
        if str(end.code) not in codes:
            raise
"""


def on_a_terminal(
    *lines: str, folder: Path | None = None, codes: str = "0", **environ: str
) -> list[str]:
    """Return what each command shows on a terminal; a line is as in a shell, after `memman`.

    `codes` are the digits of the exit codes that are no failure of a test.
    """
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, codes, *lines],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=kept | {"TERM": "xterm-256color", "COLUMNS": "120"} | environ,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # Linux, when the other side has been closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    shown = written.decode()
    assert process.wait(60) == 0, shown
    found = []
    for line in lines:
        before, _, shown = shown.partition(f"==== {line}\r\n")
        found.append(before)
    return [*found[1:], shown]
