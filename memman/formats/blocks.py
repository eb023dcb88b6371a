"""The content of one entry given as a provider's blocks: read as those of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.display import safe_repr
from memman.entries import JSONObject, NewEntry, OpaquePart, plain_json
from memman.errors import InvalidInput
from memman.formats.parts import opaque_dict
from memman.formats.plain import as_plain, plain_message
from memman.formats.wire.tables import KEYED
from memman.protocols import Format

_ABOUT: Final = frozenset(("thought", "thoughtSignature", "videoMetadata", "mediaResolution"))
# The types of a format's blocks that may stay in its own form.
_OWNERS: Final = {
    "anthropic": ("image", "document", "search_result", "tool_reference", "thinking", "redacted_thinking"),
    "openai-chat": ("input_audio", "refusal", "video_url"),
}  # fmt: skip


def with_blocks(new_entry: NewEntry, formats: Sequence[Format]) -> NewEntry:
    """Return the entry with the parts of its blocks and their other keys; without blocks unchanged.

    Of the formats that know every block, the one reads them that leaves the fewest in its own form.

    Args:
        new_entry: its content may be a list of blocks: dicts, or an SDK's objects.
        formats: in the order in which they are tried.

    Raises:
        InvalidInput: no format reads these blocks as a content.
    """
    given: Any = new_entry.content
    blocks = [as_plain(block) for block in given] if isinstance(given, list | tuple) else []
    if not blocks or not all(isinstance(block, Mapping) for block in blocks):
        return new_entry
    roles = ("user", "assistant") if new_entry.role == "assistant" else ("user",)
    every = [_read(form, blocks, role) for role in roles for form in formats]
    chosen = min((found for found in every if found is not None), key=_opaque, default=None)
    if chosen is None:
        plain_json(blocks, "content")  # its error names a value that is not JSON
        advice = "json.dumps makes text of a tool's own data"
        if any("type" in block for block in blocks):
            advice = (
                "add_messages takes messages with calls, results and, by unknown='keep', new types"
            )
        what = f"content has {safe_repr(given, 60)}, and no format reads all of it as blocks of a content"
        raise InvalidInput(f"{what}: {advice}")
    return msgspec.structs.replace(new_entry, content=chosen.content, raw_json=chosen.raw_json)


def _read(form: Format, blocks: list[Any], role: str) -> NewEntry | None:
    """Return the message that has these blocks; None if the format does not know one of them."""
    keyed = form.name in KEYED
    if keyed and any("type" in block or len(block.keys() - _ABOUT) != 1 for block in blocks):
        return None
    message: JSONObject = {"role": role, "content": blocks}
    if form.name == "gemini":
        message = {"role": "model" if role == "assistant" else "user", "parts": blocks}
    try:
        plain = [plain_message(0, message, inside=False)]
        found = form.parse(plain) if not keyed or form.detect(plain) else []
    except InvalidInput:
        return None
    if len(found) != 1 or found[0].type != "message":
        return None
    own = _OWNERS.get(form.name, ())
    opaque = (opaque_dict(part) for part in found[0].content if isinstance(part, OpaquePart))
    return found[0] if keyed or all(block.get("type") in own for block in opaque) else None


def _opaque(new_entry: NewEntry) -> int:
    """Return the number of blocks that stay in the provider's form."""
    return sum(isinstance(part, OpaquePart) for part in new_entry.content)
