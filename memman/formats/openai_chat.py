"""OpenAI chat messages (`chat.completions`): what most loops, logs and gateways speak.

Framing: tokens = 3 + sum over messages of (4 + text), exact for gpt-4o and gpt-4.1 on recorded calls and
one a message too many at most for the o-series and gpt-5; a tool call adds its function wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from memman.entries import FilePart, ImagePart, NewEntry, Part
from memman.formats.chat import MESSAGE_FRAMING, Dialect, parse_messages, render_turn, spoken_part
from memman.formats.foreign import has_content
from memman.protocols import Rendered, Turn

_NAME = "openai-chat"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class OpenAIChatFormat:
    """`{"role": ..., "content": ..., "tool_calls": [...]}` and back."""

    name = _NAME
    request_framing = 3
    message_framing = MESSAGE_FRAMING
    joins = False
    edges: tuple[str, ...] = ()
    inline_system = True

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[Any]) -> int:
        """Sure of tool roles and `tool_calls`; any list of role and content will do otherwise."""
        if not messages or not all(
            isinstance(item, dict) and item.get("role") in _ROLES and has_content(item)
            for item in messages
        ):
            return 0
        if any(item["role"] in ("tool", "function", "developer", "system") for item in messages):
            return 3
        return 3 if any("tool_calls" in item for item in messages) else 1

    def parse(self, messages: Sequence[Any]) -> list[NewEntry]:
        """One entry for a message's text and one for each call; nothing of a message gets lost."""
        return parse_messages(_DIALECT, messages)

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """The messages of a turn; results directly follow the message with their calls."""
        return render_turn(_DIALECT, turn)

    def join(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any] | None:
        """Never: neighbours of one role are legal here."""
        return None

    def frame(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Nothing has to stand first or last."""
        return messages


def _wire_part(part: Part) -> dict[str, Any] | None:
    """A part in this provider's words, or None for what it has none for."""
    match part:
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            image = {"url": url, **({"detail": part.detail} if part.detail else {})}
            return {"type": "image_url", "image_url": image}
        case FilePart() if part.file_id or part.data:
            return {"type": "file", "file": _wire_file(part)}
    return spoken_part(_NAME, part)


def _wire_file(part: FilePart) -> dict[str, str]:
    name, data = part.name, part.data
    if data and part.media_type:  # it came from elsewhere: here a file is a data URL with a name
        name, data = name or "file", f"data:{part.media_type};base64,{data}"
    known = {"file_id": part.file_id, "filename": name, "file_data": data}
    return {key: value for key, value in known.items() if value is not None}


def _known_part(part: dict[str, Any]) -> Part | None:
    kind = part["type"]
    if kind == "image_url" and isinstance(part.get("image_url"), dict):
        image = part["image_url"]
        return ImagePart(url=image.get("url"), detail=image.get("detail"))
    if kind == "file" and isinstance(part.get("file"), dict):
        file = part["file"]
        return FilePart(
            name=file.get("filename"), file_id=file.get("file_id"), data=file.get("file_data")
        )
    return None


_DIALECT = Dialect(
    name=_NAME,
    title="OpenAI chat",
    roles=_ROLES,
    known_part=_known_part,
    wire_part=_wire_part,
    call_id=attrgetter("wire_id"),
)
