"""The processes of the frameworks, each with the environment that `.ci/adapters` made for it.

Their dependencies conflict. ADAPTER_ENVS is the folder of the environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.adapters.leg import PLAIN, ROOT

ENVS = os.environ.get("ADAPTER_ENVS")
FRAMEWORKS = (
    "adk",
    "agent-framework",
    "langchain",
    "llama-index",
    "openai-agents",
    "pydantic-ai",
    "strands",
)


class Session:
    """A session on a database, with a budget in tokens.

    `small` is the window of a second model, which answers every other turn; 0 for one model.
    """

    def __init__(self, folder: Path, budget: int, holds: int = 0, small: int = 0) -> None:
        self.store = str(folder / "moves.db")
        self.session = "customer-17"
        self.budget = budget
        self.holds = holds
        self.small = small


class Leg:
    """The process of one framework, or of a plain loop."""

    def __init__(self, name: str) -> None:
        self.python = sys.executable if name == PLAIN else f"{ENVS}/{name}-newest/bin/python"
        command = [self.python, "-W", "ignore", "-m", "tests.adapters.leg", name]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(self, session: Session, text: str, *, is_cut: bool = False) -> dict[str, Any]:
        """Run a turn, and return what `leg` answers."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        asked = {**vars(session), "text": text, "is_cut": is_cut}
        stdin.write(json.dumps(asked) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the process has ended: see its error above"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)
