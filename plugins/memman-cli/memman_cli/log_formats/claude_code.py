"""Claude Code's session files (`~/.claude/projects/**/*.jsonl`): a graph of lines with one live path.

A line names its parent. The newest line of the main chain is the end of the conversation, and the path to
it is what the model saw. Abandoned branches are read as such; side chains (sub-agents' conversations) are
left out, unless the file has nothing else. A `compact_boundary` and the summary behind it are a
compaction of everything before. A `microcompact_boundary`, which cleared old tool results, is reported:
the results are read as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memman.entries import JSON, JSONObject, NewEntry, text_of
from memman.errors import FormatError
from memman.formats.anthropic import AnthropicFormat
from memman.formats.parts import other_keys
from memman_cli.log_formats.common import with_log_keys
from memman_cli.log_formats.protocol import Compaction, LeftOut, ReadEntry, ReadItem

_NAME = "claude-code"
_SPOKEN = ("user", "assistant")
_MARKS = frozenset(("uuid", "parentUuid", "sessionId"))
_KEPT = ("model", "usage", "stop_reason", "id")
# The keys of the graph and of the entry itself; the other keys of a line are kept.
_OF_LINE = frozenset(("message", "parentUuid", "type", "timestamp", "isSidechain", "sessionId", "cwd",
                      "version", "gitBranch", "userType", "toolUseResult"))  # fmt: skip

Line = JSONObject


class ClaudeCodeLog:
    """`{"type": "user" | "assistant" | ..., "uuid": ..., "parentUuid": ..., "message": ...}` a line."""

    name = _NAME

    def detect(self, items: Sequence[JSON]) -> int:
        """Return the highest certainty for lines with an id, a parent and a session."""
        return 9 if any(isinstance(item, dict) and item.keys() >= _MARKS for item in items) else 0

    def conversations(self, items: Iterable[JSON]) -> Iterable[tuple[str, Iterable[JSON]]]:
        """Return the file as one session."""
        return [("", items)]

    def parse(self, items: Iterable[JSON]) -> Iterator[ReadItem]:
        """Yield the lines in file order; those of abandoned branches are marked."""
        graph = _Graph(items)
        live = graph.live()
        names: dict[str, str] = {}
        reason, cleared = "", 0
        for index, line in _merged(graph.of_chain(items), graph.ends):
            if line["uuid"] not in live:
                left = _entries(line, index, names)
                yield from (msgspec.structs.replace(entry, abandoned=True) for entry in left)
            elif line.get("subtype") == "compact_boundary":
                trigger = _dict(line.get("compactMetadata")).get("trigger")
                reason = f"compacted by Claude Code ({trigger or 'unknown'})"
            elif line.get("subtype") == "microcompact_boundary":
                cleared += 1
            elif line.get("isCompactSummary") is True:
                said = [text_of(each.new_entry.content) for each in _entries(line, index, names)]
                text = "\n".join(said)
                yield Compaction(text, reason or "compacted by Claude Code", _time(line))
            elif line.get("type") in _SPOKEN:
                yield from _entries(line, index, names)
        if cleared:
            yield LeftOut(
                f"{cleared} micro-compaction{'s' * (cleared != 1)}: the tool results that Claude Code "
                "cleared from the model's sight are here as they were"
            )
        if graph.side_messages:
            chains, spoken = graph.side_chains, graph.side_messages
            yield LeftOut(
                f"{chains} side chain{'s' * (chains != 1)} of sub-agents "
                f"({spoken} message{'s' * (spoken != 1)})"
            )


class _Node(msgspec.Struct, frozen=True, gc=False):
    """The keys of a line that the graph needs, without content."""

    index: int
    parent: str | None
    message_id: str | None
    calls: tuple[str, ...]
    results: tuple[str, ...]


class _Graph:
    """The lines of the chain that is read, by uuid in file order.

    `ends` is the position of the last piece of each assistant message in several lines.
    """

    def __init__(self, items: Iterable[JSON]) -> None:
        nodes: dict[bool, dict[str, _Node]] = {False: {}, True: {}}
        spoken: dict[bool, list[str]] = {False: [], True: []}
        ends: dict[str, int] = {}
        for index, line in enumerate(items):
            if not _is_node(line):
                continue
            side = bool(line.get("isSidechain"))
            if line["uuid"] in nodes[side]:
                continue  # written twice, as in a resumed session
            newest = spoken[side][-1] if spoken[side] and not side else None
            node = _node(index, line, nodes[side], newest)
            nodes[side][line["uuid"]] = node
            if line.get("type") in _SPOKEN:
                spoken[side].append(line["uuid"])
            if node.message_id is not None:
                ends[node.message_id] = index
        if not spoken[False] and not spoken[True]:
            raise FormatError("this session of Claude Code has no message")
        self._side = not spoken[False]  # the file of a sub-agent has no other chain
        self._nodes = nodes[self._side]
        self._newest = spoken[self._side][-1]
        self.ends = ends
        self.side_messages = 0 if self._side else len(spoken[True])
        self.side_chains = sum(node.parent not in nodes[True] for node in nodes[True].values())

    def of_chain(self, items: Iterable[JSON]) -> Iterator[tuple[int, Line]]:
        """Yield the lines of the chain, each with its position."""
        for index, line in enumerate(items):
            node = self._nodes.get(line["uuid"]) if _is_node(line) else None
            if node is not None and node.index == index:
                yield index, line

    def live(self) -> set[str]:
        """Return the lines that lead to the newest message, with parallel calls and their results."""
        path: set[str] = set()
        at: str | None = self._newest
        while at is not None and at in self._nodes and at not in path:
            path.add(at)
            at = self._nodes[at].parent
        return path | self._beside(path)

    def _beside(self, path: set[str]) -> set[str]:
        """Return parallel calls of the path's messages, and their results."""
        messages = {self._nodes[uuid].message_id for uuid in path} - {None}
        found = {uuid for uuid, node in self._nodes.items() if node.message_id in messages}
        calls = {call for uuid in path | found for call in self._nodes[uuid].calls}
        return found | {
            uuid for uuid, node in self._nodes.items() if calls.intersection(node.results)
        }


def _is_node(line: JSON) -> bool:
    return isinstance(line, dict) and isinstance(line.get("uuid"), str)


def _node(index: int, line: Line, known: dict[str, _Node], newest: str | None) -> _Node:
    """Return the node of a line. A parent in another file is replaced by the newest line before it."""
    parent = line.get("parentUuid") or line.get("logicalParentUuid")
    begins = parent is None and line.get("subtype") != "compact_boundary"
    if not begins and not (isinstance(parent, str) and parent in known):
        parent = newest
    calls, results = _ids(line, "id"), _ids(line, "tool_use_id")
    return _Node(index, parent, _message_id(line), tuple(calls), tuple(results))


def _dict(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _time(line: Line) -> str | None:
    at = line.get("timestamp")
    return at if isinstance(at, str) else None


def _message_id(line: Line) -> str | None:
    found = _dict(line.get("message")).get("id") if line.get("type") == "assistant" else None
    return found if isinstance(found, str) else None


def _ids(line: Line, key: str) -> Iterator[str]:
    content = _dict(line.get("message")).get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get(key), str):
            yield block[key]


def _merged(lines: Iterable[tuple[int, Line]], ends: dict[str, int]) -> Iterator[tuple[int, Line]]:
    """Yield the lines, with the pieces of each assistant message (one line per block) merged."""
    held: list[tuple[int, Line]] = []
    firsts: dict[str, int] = {}
    until = -1
    for index, line in lines:
        message_id = _message_id(line)
        first = firsts.get(message_id) if message_id is not None else None
        if first is None:
            if message_id is not None:
                firsts[message_id] = len(held)
                until = max(until, ends[message_id])
            held.append((index, line))
        else:
            place, known = held[first]
            content = [*_blocks(known), *_blocks(line)]
            held[first] = place, {**known, "message": {**known["message"], "content": content}}
        if index >= until:
            yield from held
            held, firsts = [], {}
    yield from held


def _blocks(line: Line) -> list[JSON]:
    content = _dict(line.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    # Anything but a list of blocks is rejected when the message is read.
    return content if isinstance(content, list) else [content] if content else []


def _entries(line: Line, index: int, names: dict[str, str]) -> list[ReadEntry]:
    """Yield the entries of a line's message, the first with the line's other keys."""
    if line.get("type") not in _SPOKEN:
        return []
    message = _dict(line.get("message"))
    plain = {"role": line.get("type"), "content": message.get("content") or ""}
    try:
        new_entries = AnthropicFormat().parse([plain])
    except FormatError as error:
        text = str(error).removeprefix("message 0: ")
        raise FormatError(f"the message with uuid {line['uuid']}: {text}", index) from None
    rest = other_keys(line, _OF_LINE) | {key: message[key] for key in _KEPT if key in message}
    found = []
    for place, new_entry in enumerate(new_entries):
        own = _named(new_entry, index, names)
        own = own if place else with_log_keys(own, _NAME, rest)
        found.append(ReadEntry(own, _time(line)))
    return found


def _named(new_entry: NewEntry, index: int, names: dict[str, str]) -> NewEntry:
    """Return the new entry with a label of its line, and a result with the name of its call."""
    if new_entry.type == "tool_call" and new_entry.call_id:
        names[new_entry.call_id] = new_entry.name or ""
    name = new_entry.name
    if new_entry.type == "tool_result" and name is None:
        name = names.pop(new_entry.call_id or "", None)
    label = None if new_entry.message_id is None else str(index)
    return msgspec.structs.replace(new_entry, message_id=label, name=name)
