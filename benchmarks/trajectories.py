"""Recorded conversations: gzipped JSON lines, or the demo that comes with memman."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from memman_cli.demo_log import demo_messages

Message = dict[str, Any]
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Trajectory(msgspec.Struct, frozen=True):
    """One recorded conversation as OpenAI chat messages. Other keys of its line are ignored."""

    id: str
    messages: list[Message]


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
