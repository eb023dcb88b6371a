"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`): items of the Responses API in envelopes.

A user's words are there twice, as `response_item` and as `event_msg`: the first counts. A `compacted`
line replaces everything before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memman.entries import JSON, JSONObject, text_of
from memman.formats.openai_responses import OpenAIResponsesFormat
from memman_cli.log_formats.common import may_cut, parse_piece
from memman_cli.log_formats.protocol import Compaction, ReadEntry, ReadItem

_NAME = "codex"
# Not a set: the type of a line may be any value, even an unhashable one.
_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_REASON = "compacted by Codex"


class _Item(msgspec.Struct, frozen=True):
    """An item of the Responses API, the position of its line, and its time."""

    index: int
    payload: JSONObject
    at: str | None


class CodexLog:
    """`{"timestamp": ..., "type": "response_item" | ..., "payload": ...}` a line."""

    name = _NAME

    def detect(self, items: Sequence[JSON]) -> int:
        """Return the highest certainty for its envelopes; lines of future types may be among them."""
        known = [item for item in items if isinstance(item, dict) and item.get("type") in _LINES]
        return 9 if known and all(isinstance(item.get("payload"), dict) for item in known) else 0

    def conversations(self, items: Iterable[JSON]) -> Iterable[tuple[str, Iterable[JSON]]]:
        """Return the file as one session."""
        return [("", items)]

    def parse(self, items: Iterable[JSON]) -> Iterator[ReadItem]:
        """Yield the items in order, and a compaction if the history was replaced."""
        run: list[_Item] = []
        parts = 0
        for index, line in enumerate(items):
            kind, payload = _read(line)
            at = line["timestamp"] if kind and isinstance(line.get("timestamp"), str) else None
            if kind == "response_item":
                if run and may_cut(run[-1].payload, payload, len(run)):
                    yield from _entries(run, parts)
                    run, parts = [], parts + 1
                run.append(_Item(index, payload, at))
            elif kind == "compacted":
                yield from _entries(run, parts)
                run, parts = [], parts + 1
                yield Compaction(_summary(payload), _REASON, at)
        yield from _entries(run, parts)


def _read(line: JSON) -> tuple[str, JSONObject]:
    """Return the type and payload of a line; "" for lines that the model does not see."""
    payload = line.get("payload") if isinstance(line, dict) else None
    return (str(line.get("type")), payload) if isinstance(payload, dict) else ("", {})


def _entries(run: list[_Item], part: int) -> list[ReadEntry]:
    """Return the entries of a run of items, one for each."""
    piece = [(item.index, item.payload) for item in run]
    new_entries = parse_piece(OpenAIResponsesFormat(), piece, part, "its response_item: ")
    return [ReadEntry(new_entry, item.at) for item, new_entry in zip(run, new_entries, strict=True)]


def _summary(payload: JSONObject) -> str:
    """Return the text that replaced the history: the message, or the texts of the new history."""
    message = payload.get("message")
    if isinstance(message, str) and message.strip():
        return message
    history = payload.get("replacement_history")
    new_entries = OpenAIResponsesFormat().parse(history) if isinstance(history, list) else []
    texts = [text_of(new_entry.content) for new_entry in new_entries]
    return "\n\n".join(text for text in texts if text) or "[the summary is encrypted]"
