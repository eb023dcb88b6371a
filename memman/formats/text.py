"""A conversation as plain text, for prompts that are one string, and back.

    === Previous Conversation Summaries ===
    [2026-11-20 - 2026-11-21]
    ...

    === Recent Conversation ===
    User: ...
    Assistant: ...
    Tool call NAME(JSON)
    Tool NAME: ...
    Context SOURCE: ...

A line of an entry that looks like the beginning of another gets a backslash before it, after any line end
and in any spelling (` System:`, `SYSTEM:`, `Human:`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memman.display import CONTROLS, INVISIBLE, LINE_ENDS
from memman.entries import JSON, Entry, JSONObject, NewEntry, transcript_line
from memman.errors import FormatError
from memman.formats.parts import has_unsaid
from memman.formats.plain import parse_each
from memman.formats.separate import SeparateMessages
from memman.formats.turns import NO_RESULT, NOT_SAID, STATE_HEADS, state_head
from memman.protocols import Rendered, Turn

SUMMARIES = "=== Previous Conversation Summaries ==="
RECENT = "=== Recent Conversation ==="
_HEAD = re.compile(
    r"(?P<role>User|Assistant|System): ?(?P<said>.*)"
    r"|Tool call (?P<call>[^\s(]+)\((?P<arguments>.*)"
    r"|Tool (?P<tool>\S+?): ?(?P<result>.*)"
    rf"|Context (?P<source>[^{LINE_ENDS}]+?): ?(?P<context>.*)"
    r"|Summary: ?(?P<summary>.*)",
)
_SECTION = re.compile(rf"{re.escape(SUMMARIES)}|{re.escape(RECENT)}")
_DATES = re.compile(r"\[\d{4}-\d{2}-\d{2} - \d{4}-\d{2}-\d{2}\]")
_ROLES = "user|human|assistant|ai|system|developer"
_BLANKS = rf"[ \t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000{CONTROLS}{INVISIBLE}*_#>]*"
# The beginning of an entry or of a section to a reader, escaped or not.
_HEADING = (
    rf"\\*{_BLANKS}(?:(?i:{_ROLES}){_BLANKS}[:\uff1a]|Tool call [^\s(]+\(|Tool \S+?:"
    rf"|Context [^{LINE_ENDS}]+?:|Summary:|{_SECTION.pattern}|{_DATES.pattern}"
    rf"|{STATE_HEADS.pattern})"
)
_WITHIN, _FIRST = rf"(?<=[{LINE_ENDS}])", rf"(?:(?<=[{LINE_ENDS}])|\A)"
_ESCAPES = (re.compile(rf"{_WITHIN}(?={_HEADING})"), re.compile(rf"{_FIRST}(?={_HEADING})"))
_ESCAPED = (re.compile(rf"{_WITHIN}\\(?={_HEADING})"), re.compile(rf"{_FIRST}\\(?={_HEADING})"))
_LINE_FRAMING = 4


class TextFormat(SeparateMessages):
    """The plain-text form: one message whose content is the whole text."""

    name = "text"
    request_framing = 0
    message_framing = _LINE_FRAMING
    edges: tuple[str, ...] = (f"{SUMMARIES}\n\n", f"{RECENT}\n")

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return a low certainty for text, a higher one for our section headings."""
        if len(messages) != 1 or not isinstance(messages[0], str):
            return 0
        return 4 if _SECTION.search(messages[0]) or _HEAD.match(messages[0]) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return the entries of a text; lines before the first known beginning are an error."""
        return parse_each(messages, lambda text, _: _parse_text(text))

    def render(self, turn: Turn) -> Rendered:
        """Return the lines of a turn."""
        if turn.kind == "summary":
            entry, covers = turn.entries[0], turn.entries[0].metadata
            start = str(covers.get("start", entry.timestamp.isoformat()))[:10]
            end = str(covers.get("end", entry.timestamp.isoformat()))[:10]
            return _render_section(entry, f"[{start} - {end}]", "[9999-99-99 - 9999-99-99]")
        if turn.kind == "state":  # the last of the summaries
            head = state_head(turn.entries[0])
            return _render_section(turn.entries[0], head, head)
        lines: list[str] = []
        extras: list[str] = []
        for entry in turn.entries:
            _write(entry, transcript_line(entry, ""), lines, extras)
        for call in turn.calls:
            _write(call.entry, "Tool call ()", lines, extras)
        for call in turn.answers:
            if call.result is not None:
                _write(call.result, transcript_line(call.result, ""), lines, extras)
            else:
                lines.append(_escaped(f"Tool {call.entry.name}: {NO_RESULT}"))
                extras.append(lines[-1])
        message = {"role": "recent", "content": "\n".join(lines)}
        return Rendered((message,), _LINE_FRAMING * len(lines), tuple(extras))

    def restore(self, turn: Turn) -> Sequence[JSONObject] | None:
        """Return the lines of results without those of their calls; None for other turns."""
        if turn.kind != "result":
            return None
        return self.render(Turn("assistant", (), (), turn.answers)).messages

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Return one message: the summaries, then the conversation."""
        sections = []
        for head, role in ((SUMMARIES, "summary"), (RECENT, "recent")):
            texts = [message["content"] for message in messages if message["role"] == role]
            if texts:
                sections.append("\n".join([head, *texts]))
        if not sections:
            return []
        text = "\n\n".join(sections)
        # A text's last newline is that of its file; an entry's own needs another one.
        return [{"role": "user", "content": f"{text}\n" if text.endswith("\n") else text}]


def _write(entry: Entry, label: str, lines: list[str], extras: list[str]) -> None:
    """Add the line of an entry, and its words that are not the entry's own to `extras`."""
    line = transcript_line(entry, entry.text)
    if has_unsaid(entry.content):
        line += NOT_SAID
        extras.append(NOT_SAID)
    written = _escaped(line)
    lines.append(written)
    extras += [label, *["\\"] * (len(written) - len(line))]


def _render_section(entry: Entry, head: str, price: str) -> Rendered:
    """Return the text under a head, which costs as much as `price`."""
    text = _escaped(entry.text, first=True)
    escapes = ["\\"] * (len(text) - len(entry.text))
    message = {"role": "summary", "content": f"{head}\n{text}"}
    return Rendered((message,), _LINE_FRAMING, (price, *escapes))


def _escaped(text: str, first: bool = False) -> str:
    """Escape each line that would read as the beginning of an entry with a backslash.

    `first` is True if the text's own first line begins a line.
    """
    return _ESCAPES[first].sub(r"\\", text)


def _parse_text(text: JSON) -> list[NewEntry]:
    if not isinstance(text, str):
        raise FormatError(f"the text format needs a string, not {type(text).__name__}")
    new_entries: list[NewEntry] = []
    head: re.Match[str] | None = None
    lines: list[str] = []

    def finish(section: bool) -> None:
        if head is not None and head.re is STATE_HEADS:
            return  # made of other entries, and not one itself
        if head is not None:
            # One blank line separates the sections; it belongs to neither.
            content = "\n".join(lines)
            content = content.removesuffix("\n") if section else content
            body = _ESCAPED[head.re is _DATES].sub("", content)
            new_entries.append(_draft(head, body))
        elif any(line.strip() for line in lines):
            raise FormatError(
                f"the text begins with {lines[0][:60]!r}, which is not 'User: ', 'Assistant: ', "
                "'Tool call NAME(', 'Tool NAME: ', 'Context SOURCE: ' or section heading"
            )

    for line in text.removesuffix("\n").split("\n"):
        found = _HEAD.match(line)
        made = _DATES.fullmatch(line) or STATE_HEADS.fullmatch(line)
        section = _SECTION.fullmatch(line)
        if found or made or section:
            finish(section is not None)
            head, lines = (made or found), ([found[found.lastgroup or 0]] if found else [])
        else:
            lines.append(line)
    finish(section=False)
    return new_entries


def _draft(head: re.Match[str], body: str) -> NewEntry:
    found = head.groupdict()
    if found.get("role"):
        role: JSON = found["role"].lower()
        return NewEntry(type="message", role=role, content=body)
    if found.get("call"):
        arguments = body.rstrip().removesuffix(")")
        return NewEntry(type="tool_call", role="assistant", content=arguments, name=found["call"])
    if found.get("tool"):
        return NewEntry(type="tool_result", role="tool", content=body, name=found["tool"])
    if found.get("source"):
        return NewEntry(type="context", role="system", content=body, name=found["source"])
    return NewEntry(type="summary", role="system", content=body)
