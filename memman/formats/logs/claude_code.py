"""Claude Code's session files (`~/.claude/projects/**/*.jsonl`): a graph of lines with one live path.

A line names its parent; the newest line of the main chain is where the conversation stands, and what leads
there is what the model saw. Side chains (sub-agents) and abandoned branches are not part of it. A
`compact_boundary` and the summary behind it are a compaction of everything before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from memman.entries import Draft, text_of
from memman.errors import FormatError
from memman.formats.anthropic import AnthropicFormat
from memman.formats.logs.reading import beside_entry, one
from memman.formats.patch import others
from memman.ports import Compaction, ReadEntry

_NAME = "claude-code"
_SPOKEN = ("user", "assistant")
_MARKS = frozenset(("uuid", "parentUuid", "sessionId"))
_KEPT = ("model", "usage", "stop_reason", "id")
# What the graph is made of and what became the entry itself; the rest of a line is kept.
_OF_LINE = frozenset(("message", "parentUuid", "type", "timestamp", "isSidechain", "sessionId", "cwd",
                      "version", "gitBranch", "userType", "toolUseResult"))  # fmt: skip


class ClaudeCodeLog:
    """`{"type": "user" | "assistant" | ..., "uuid": ..., "parentUuid": ..., "message": ...}` a line."""

    name = _NAME

    def detect(self, items: Sequence[Any]) -> int:
        """Sure of lines with an id, a parent and a session."""
        return 9 if any(isinstance(item, dict) and item.keys() >= _MARKS for item in items) else 0

    def conversations(self, items: Sequence[Any]) -> list[tuple[str, list[Any]]]:
        """A file is one session."""
        return one(items)

    def parse(self, items: Sequence[Any]) -> list[ReadEntry | Compaction]:
        """The live path, in the order of the file."""
        names: dict[str, str] = {}
        found: list[ReadEntry | Compaction] = []
        reason = ""
        for number, line in enumerate(_merged(_live(items))):
            if line.get("subtype") == "compact_boundary":
                trigger = _dict(line.get("compactMetadata")).get("trigger")
                reason = f"compacted by Claude Code ({trigger or 'unknown'})"
            elif line.get("isCompactSummary") is True:
                said = "\n".join(
                    text_of(entry.draft.content) for entry in _entries(line, number, names)
                )
                why = reason or "compacted by Claude Code"
                found.append(Compaction(said, why, line.get("timestamp")))
            elif line.get("type") in _SPOKEN:
                found += _entries(line, number, names)
        return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _live(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The lines of the live path, in the order of the file."""
    lines = [item for item in items if isinstance(item, dict) and isinstance(item.get("uuid"), str)]
    nodes = {line["uuid"]: line for line in lines}
    main = [line for line in lines if not line.get("isSidechain") and line.get("type") in _SPOKEN]
    if not main:
        raise FormatError("this session of Claude Code has no message of its main chain")
    path: set[str] = set()
    at: Any = main[-1]["uuid"]
    while isinstance(at, str) and at in nodes and at not in path:
        path.add(at)
        at = nodes[at].get("parentUuid") or nodes[at].get("logicalParentUuid")
    path |= _beside(lines, path)
    return [line for line in lines if line["uuid"] in path]


def _beside(lines: list[dict[str, Any]], path: set[str]) -> set[str]:
    """What stands beside the path and belongs to it: parallel calls of its messages, and their results."""
    on_path = [line for line in lines if line["uuid"] in path]
    messages = {_message_id(line) for line in on_path} - {None}
    found = {
        line["uuid"]
        for line in lines
        if _message_id(line) in messages and not line.get("isSidechain")
    }
    calls = {call for line in lines if line["uuid"] in path | found for call in _ids(line, "id")}
    return found | {
        line["uuid"]
        for line in lines
        if not line.get("isSidechain") and calls.intersection(_ids(line, "tool_use_id"))
    }


def _message_id(line: dict[str, Any]) -> Any:
    return _dict(line.get("message")).get("id") if line.get("type") == "assistant" else None


def _ids(line: dict[str, Any], key: str) -> Iterator[str]:
    content = _dict(line.get("message")).get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get(key), str):
            yield block[key]


def _merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with the pieces of one assistant message, a line for each block, put together."""
    merged: list[dict[str, Any]] = []
    by_id: dict[str, int] = {}
    for line in lines:
        message_id = _message_id(line)
        first = by_id.get(message_id) if message_id is not None else None
        if first is None:
            if message_id is not None:
                by_id[message_id] = len(merged)
            merged.append(line)
        else:
            known = merged[first]
            content = [*_blocks(known), *_blocks(line)]
            merged[first] = {**known, "message": {**known["message"], "content": content}}
    return merged


def _blocks(line: dict[str, Any]) -> list[Any]:
    content = _dict(line.get("message")).get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _entries(line: dict[str, Any], number: int, names: dict[str, str]) -> list[ReadEntry]:
    """The entries of a line's message, the first with what the line has besides."""
    message = _dict(line.get("message"))
    plain = {"role": line.get("type"), "content": message.get("content") or ""}
    try:
        drafts = AnthropicFormat().parse([plain])
    except FormatError as error:
        raise FormatError(f"the line with uuid {line['uuid']}: {error}") from None
    rest = others(line, _OF_LINE) | {key: message[key] for key in _KEPT if key in message}
    found = []
    for place, draft in enumerate(drafts):
        own = _named(draft, number, names)
        own = own if place else beside_entry(own, _NAME, rest)
        at = line.get("timestamp")
        found.append(ReadEntry(own, at if isinstance(at, str) else None))
    return found


def _named(draft: Draft, number: int, names: dict[str, str]) -> Draft:
    """The draft with a label of its line's, and a result with the name of its call."""
    if draft.type == "tool_call" and draft.call_id:
        names[draft.call_id] = draft.name or ""
    name = draft.name
    if draft.type == "tool_result" and name is None:
        name = names.get(draft.call_id or "")
    label = None if draft.message_id is None else str(number)
    return msgspec.structs.replace(draft, message_id=label, name=name)
