"""Recorded conversations: gzipped JSON lines, or the demo that comes with memman."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from memman_cli.demo_log import demo_messages

Message = dict[str, Any]
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
HALVES = ("tune", "test")
_TASK = re.compile(r"([a-z0-9-]+)__([a-z0-9-]+)-\d+")  # of SWE-bench: owner__name-number


class Trajectory(msgspec.Struct, frozen=True):
    """One recorded conversation as OpenAI chat messages. Other keys of its line are ignored."""

    id: str
    messages: list[Message]
    source: str = ""

    @property
    def repository(self) -> str:
        """Return the repository that the agent worked in, or the one that published the conversation."""
        if task := _TASK.search(self.source):
            return f"{task[1]}/{task[2]}"
        return self.source.partition(" ")[0]


def half_of(name: str) -> str:
    """Return the half of the data that a conversation is in, by a hash of its id."""
    return HALVES[sha256(name.encode()).digest()[0] % 2]


def is_in(half: str, name: str) -> bool:
    """Return whether a conversation is in this half; "both" has all."""
    return half in ("both", half_of(name))


def read_trajectories(path: Path, limit: int | None = None) -> list[Trajectory]:
    """The first `limit` trajectories of a `.jsonl.gz` file, all by default.

    Raises `OSError` when the file cannot be read, and `msgspec.MsgspecError` for other content.
    """
    decode = msgspec.json.Decoder(Trajectory).decode
    with gzip.open(path, "rb") as lines:
        return [decode(line) for line in islice(lines, limit)]


def demo_trajectory() -> Trajectory:
    """The bundled demo conversation, for machines without recorded ones."""
    return Trajectory("memman demo", list(demo_messages()))
