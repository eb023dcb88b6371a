"""The outlines of four invented sessions, as a model reads them: those of docs/explanation/outlines.md.

    python -m benchmarks.outlines [NAME] [--budget TOKENS]

Plays `texts/outline_NAME.jsonl` message by message, without a summarizer, and prints the outline of the
last context. Clock and ids are fixed, so only the session's nonce differs between two runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memman import MemoryConfig, MemoryManager
from memman.testing import FakeClock, sequential_ids

# `chars4` takes four Chinese characters for a token: its 1,500 of that session are 3,900 of gpt-4o.
BUDGETS = {"coding": 4_000, "support": 4_000, "chinese": 1_500, "dialogue": 2_000}
_BEGAN, _TICK = datetime(2026, 10, 14, 9, tzinfo=UTC), timedelta(seconds=5)
_BEGINS = "[memman outline"
_TEXTS = Path(__file__).parent / "texts"


def session(name: str) -> list[dict[str, Any]]:
    """Return the messages of a session, in the format of OpenAI's chat completions."""
    path = _TEXTS / f"outline_{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def outline(name: str, budget: int | None = None) -> str:
    """Return the outline in the last context of a session, or "" if nothing has left the window.

    Args:
        name: a key of `BUDGETS`.
        budget: the window in tokens of four characters; None for that of `BUDGETS`.
    """
    config = MemoryConfig(max_tokens=budget or BUDGETS[name], max_entries=None)
    clock, new_id = FakeClock(_BEGAN, _TICK), sequential_ids()
    with MemoryManager(counter="chars4", config=config, clock=clock, new_id=new_id) as memory:
        for message in session(name):
            memory.add_messages("s", [message], format="openai-chat")
        messages = memory.build_context("s", format="openai-chat").messages
    texts = (str(message["content"]) for message in messages)
    return next((text for text in texts if text.startswith(_BEGINS)), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outlines", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", choices=BUDGETS)
    parser.add_argument("--budget", type=int, metavar="TOKENS", help="of each session")
    options = parser.parse_args(arguments)
    for name in [options.name] if options.name else BUDGETS:
        print(f"== {name}\n{outline(name, options.budget)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
