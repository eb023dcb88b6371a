"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`): items of the Responses API, each in an envelope.

A user's words stand there twice, as `response_item` and as `event_msg`: the first counts. A `compacted`
line replaces everything before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from memman.entries import text_of
from memman.formats.logs.reading import one
from memman.formats.openai_responses import OpenAIResponsesFormat
from memman.ports import Compaction, ReadEntry

_NAME = "codex"
_LINES = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_REASON = "compacted by Codex"


class CodexLog:
    """`{"timestamp": ..., "type": "response_item" | ..., "payload": ...}` a line."""

    name = _NAME

    def detect(self, items: Sequence[Any]) -> int:
        """Sure of its envelopes; lines of types that are yet to come may be among them."""
        known = [item for item in items if isinstance(item, dict) and item.get("type") in _LINES]
        return 9 if known and all(isinstance(item.get("payload"), dict) for item in known) else 0

    def conversations(self, items: Sequence[Any]) -> list[tuple[str, list[Any]]]:
        """A file is one session."""
        return one(items)

    def parse(self, items: Sequence[Any]) -> list[ReadEntry | Compaction]:
        """The items in order, with a compaction where the history was replaced."""
        found: list[ReadEntry | Compaction] = []
        run: list[tuple[Any, Any]] = []
        parts = 0
        for line in items:
            kind, payload = _read(line)
            if kind == "response_item":
                run.append((payload, line.get("timestamp")))
            elif kind == "compacted":
                found += _entries(run, parts)
                parts += 1
                run = []
                found.append(Compaction(_summary(payload), _REASON, line.get("timestamp")))
        return found + list(_entries(run, parts))


def _read(line: Any) -> tuple[str, dict[str, Any]]:
    """(type, payload) of a line; "" for what says nothing to the model."""
    payload = line.get("payload") if isinstance(line, dict) else None
    return (str(line.get("type")), payload) if isinstance(payload, dict) else ("", {})


def _entries(run: list[tuple[Any, Any]], part: int) -> list[ReadEntry]:
    """The entries of a run of items; those that came of one item have its time."""
    if not run:
        return []
    times = [at for _, at in run]
    drafts = OpenAIResponsesFormat().parse([item for item, _ in run])
    at = times[0] if isinstance(times[0], str) else None
    return [
        ReadEntry(
            msgspec.structs.replace(draft, message_id=f"{part}-{draft.message_id}")
            if draft.message_id is not None
            else draft,
            at,
        )
        for draft in drafts
    ]


def _summary(payload: dict[str, Any]) -> str:
    """What stands for the history: the message, or the texts of what replaced it."""
    message = payload.get("message")
    if isinstance(message, str) and message.strip():
        return message
    history = payload.get("replacement_history")
    drafts = OpenAIResponsesFormat().parse(history) if isinstance(history, list) else []
    texts = [text_of(draft.content) for draft in drafts]
    return "\n\n".join(text for text in texts if text) or "[the summary is encrypted]"
