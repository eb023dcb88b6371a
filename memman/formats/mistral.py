"""Mistral chat messages: OpenAI's shape, with ids of nine characters and an order of roles.

After a tool's result the assistant must follow, system messages are at the head or behind a user message,
and the last message is the user's or a tool's. Framing is that of OpenAI chat: the published tokenizers
put fewer tokens around a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from memman.entries import JSON, FilePart, ImagePart, JSONObject, Part
from memman.formats.openai_chat import ChatFormat, Dialect, spoken_part
from memman.formats.parts import data_of, objects_in, wire_name
from memman.formats.turns import BEGINS, GOES_ON, NOTHING, SYSTEM_NOTE
from memman.protocols import Call, Rendered, Turn

_NAME = "mistral"
_ROLES = ("system", "user", "assistant", "tool")
_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_REPLY = "(no reply)"
# A bridge before a user message depends on its neighbours; it is priced in any case.
_BRIDGE = (_NO_REPLY, "<assistant>\n")
_CHUNKS = ("document_url", "reference")


# ---------------------------------------------------------------- parts and ids


def _call_id(call: Call) -> str:
    """Return the call's id, or one of nine characters derived from it."""
    if _ID.match(call.unique_id):
        return call.unique_id
    number = int.from_bytes(sha256(call.unique_id.encode()).digest()[:8])
    digits = ""
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[digit]
    return digits


def _known_part(chunk: JSONObject) -> Part | None:
    kind = chunk["type"]
    given = chunk.get(kind)
    if kind == "image_url":
        if isinstance(given, dict):
            # "" is a missing detail in the spelling with a field for it; a bare link has None
            return ImagePart(url=given.get("url"), detail=given.get("detail", ""))
        return ImagePart(url=given)
    return FilePart(url=given, name=chunk.get("document_name")) if kind == "document_url" else None


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            detail = {"detail": part.detail} if part.detail else {}
            image = url if part.detail is None else {"url": url, **detail}
            return {"type": "image_url", "image_url": image}
        case FilePart():
            inline = data_of(part, "application/pdf")
            link = f"data:{inline[0]};base64,{inline[1]}" if inline else part.url
            name = {"document_name": part.name} if part.name else {}
            return {"type": "document_url", "document_url": link, **name} if link else None
    return spoken_part(_NAME, part)


_DIALECT = Dialect(
    name=_NAME,
    title="Mistral chat",
    roles=_ROLES,
    known_part=_known_part,
    wire_part=_wire_part,
    call_id=_call_id,
    loose=True,
    spoken=("text", "thinking", "reference"),
)


# ---------------------------------------------------------------- the format


class MistralFormat(ChatFormat):
    """`{"role": ..., "content": ..., "tool_calls": [...]}` as Mistral's API accepts it, and back."""

    name = _NAME
    edges: tuple[str, ...] = (BEGINS, GOES_ON)
    nameless = True
    _dialect = _DIALECT

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for a `prefix`, its own chunks, and calls that all have
        nine-character ids.
        """
        if not self._are_chat(messages):
            return 0
        # Only this API has these types of chunks, and a list of thoughts.
        chunks = objects_in(messages, "content")
        own = (c.get("type") in _CHUNKS or isinstance(c.get("thinking"), list) for c in chunks)
        if any("prefix" in item for item in messages) or any(own):
            return 5
        ids = [call.get("id") for call in objects_in(messages, "tool_calls")]
        return 4 if ids and all(isinstance(each, str) and _ID.match(each) for each in ids) else 0

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn without empty ones, which are rejected."""
        rendered = super().render(turn)
        if turn.kind != "assistant":
            note = (SYSTEM_NOTE,) if turn.kind == "system" else ()
            return Rendered(rendered.messages, rendered.framing, rendered.extras + _BRIDGE + note)
        if not turn.calls and not any(message["content"] for message in rendered.messages):
            return NOTHING
        for message in rendered.messages:
            if "name" in message:
                message["name"] = wire_name(message["name"])
        return rendered

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Return the messages in a valid order, with a user's or a tool's at the end."""
        framed = list(_in_order(messages))
        last = framed[-1] if framed else {}
        if last.get("role") not in ("user", "tool") and not last.get("prefix"):
            framed.append({"role": "user", "content": GOES_ON})
        if framed[0].get("tool_calls") or (len(framed) == 1 and framed[0]["role"] == "assistant"):
            framed.insert(0, {"role": "user", "content": BEGINS})
        return framed


def _in_order(messages: list[JSONObject]) -> Iterator[JSONObject]:
    """Return the messages with bridges, and with late system messages as the user's notes."""
    before = ""
    for number, message in enumerate(messages, 1):
        if message["role"] == "system" and before in ("assistant", "tool"):
            message = {"role": "user", "content": SYSTEM_NOTE + _text(message["content"])}
        elif message.get("prefix") and number < len(messages):  # only the last message is continued
            message = {key: value for key, value in message.items() if key != "prefix"}
        if message["role"] == "user" and before == "tool":
            yield {"role": "assistant", "content": _NO_REPLY}
        yield message
        before = message["role"]


def _text(content: JSON) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(chunk["text"] for chunk in content if chunk["type"] == "text")
