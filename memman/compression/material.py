"""What a summarizer is shown of a conversation: quoted, attributed text between our delimiters.

Each entry begins a line with its number and who said it, and its further lines are indented: nothing in a
text can begin an entry or end the material. What is not text is shown by a placeholder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.compression.ledger import above_ledger
from memman.entries import (
    Entry,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    neutralised,
    text_of,
    transcript_line,
)
from memman.unseen import ODD_LINE_END

CONVERSATION: Final = "[memman conversation]"
SHOWN_CHARS: Final = 2_000  # of a tool result or context: its beginning and end tell most
_URL_CHARS: Final = 120
_INDENTED: Final = "\n  "


def material(entries: Sequence[Entry]) -> str:
    """Earlier summaries and the other entries, each kind between its delimiters."""
    blocks = [_summary(entry) for entry in entries if entry.type == "summary"]
    lines = [_line(entry) for entry in entries if entry.type != "summary"]
    if not lines:
        return "\n\n".join(blocks)
    above = "\n\n".join([*blocks, CONVERSATION])
    return f"{above}\n{neutralised(_indented(lines))}\n[end of memman conversation]"


def previous(entries: Sequence[Entry]) -> str | None:
    """What earlier summaries said, all of them: a new one carries them on."""
    told = [above_ledger(e.text).strip() for e in entries if e.type == "summary"]
    return "\n\n".join(told) or None


def _summary(entry: Entry) -> str:
    """An earlier summary; its ledger is carried on without anybody's help."""
    covers = entry.metadata
    span = f" of entries {covers['first']}-{covers['last']}" if "first" in covers else ""
    told = neutralised(above_ledger(entry.text).strip())
    return f"[memman summary so far{span}, to be carried on]\n{told}\n[end of memman summary]"


def _line(entry: Entry) -> str:
    text = shown(entry)
    line = transcript_line(entry, f"[error] {text}" if entry.is_error else text)
    return f"#{entry.seq} {line}"


def _indented(entries: Sequence[str]) -> str:
    """The entries one below the other, with the further lines of each indented."""
    return "\n".join(
        [
            _INDENTED.join(entry.splitlines())
            if ODD_LINE_END.search(entry)
            else entry.replace("\n", _INDENTED)
            for entry in entries
        ]
    )


def shown(entry: Entry) -> str:
    """What of an entry goes to a summarizer: of a long result its beginning and end."""
    content = entry.content
    text = content if isinstance(content, str) else _with_placeholders(content)
    if len(text) <= SHOWN_CHARS or entry.type not in ("tool_result", "context"):
        return text
    half = SHOWN_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _with_placeholders(content: tuple[Part, ...]) -> str:
    told = [placeholder(part) for part in content if isinstance(part, ImagePart | FilePart)]
    text = text_of(content)
    if not (text or told):
        told = [placeholder(part) for part in content]
    return "\n".join([text, *told] if text else told)


def placeholder(part: Part) -> str:
    """What stands for a part that is no text: its type, its size and its alternative text."""
    if isinstance(part, OpaquePart):
        return f"[{_kind_of(part)} of {part.format}, {len(bytes(part.block)):,} bytes]"
    if not isinstance(part, ImagePart | FilePart):
        return part.text
    kind = "image" if isinstance(part, ImagePart) else "file"
    name = part.name if isinstance(part, FilePart) else None
    media_type, where = _source(part)
    what = " ".join([word for word in (kind, name, media_type) if word])
    about = f": {part.alt}" if part.alt else ""
    return f"[{what}, {where}{about}]"


def _source(part: ImagePart | FilePart) -> tuple[str | None, str]:
    """The media type, and how large it is or where it is."""
    data, media_type = part.data, part.media_type
    given = next((text for text in (part.url, data) if text and text.startswith("data:")), None)
    if given is not None:
        head, _, data = given.partition(",")
        media_type = media_type or head.removeprefix("data:").partition(";")[0]
    if data:
        return media_type, f"{len(data.rstrip('=')) * 3 // 4:,} bytes"
    file_id = part.file_id if isinstance(part, FilePart) else None
    where = part.url or file_id
    return media_type, f"at {where[:_URL_CHARS]}" if where else "of unknown size"


def _kind_of(part: OpaquePart) -> str:
    try:
        block = msgspec.json.decode(part.block)
    except (msgspec.DecodeError, RecursionError):
        return "block"
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) and kind else "block"
