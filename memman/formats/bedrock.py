"""Bedrock Converse messages: blocks named by their key, results in user turns, a separate system prompt.

Bytes (of images and documents) are base64 here, so that a message is plain JSON; `sdk_messages` restores
them for boto3. Framing is our own upper bound for Anthropic's models, the most common behind Converse.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from memman.display import safe_repr, shape_of
from memman.entries import (
    JSON,
    Content,
    Entry,
    FilePart,
    ImagePart,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
)
from memman.errors import FormatError
from memman.formats import calls
from memman.formats.block_format import BlockFormat
from memman.formats.parts import (
    Kept,
    arguments_of,
    data_of,
    kept_of,
    opaque_dict,
    other_keys,
    present,
    read_keyed,
    wire_name,
    with_kept,
    with_newest_marks,
)
from memman.formats.turns import NO_OUTPUT
from memman.protocols import CachePlace, CacheRequest, Call, ModelRef

_NAME = "bedrock"
_SEE_DOCUMENT = "(see the document)"
_BAD_TITLE = re.compile(r"[^a-zA-Z0-9_()\[\] -]+")
_LONGEST_STEM = 190  # of the 200 letters of a document's name, with room for a number behind it
_SPACES = re.compile(r"\s+")

# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE = frozenset(("role", "content"))
# Blocks with a type are of the provider's own tools, and kept whole.
_OF_USE = frozenset(("toolUseId", "name", "input", "type"))
_OF_RESULT = frozenset(("toolUseId", "content", "status", "type"))

_IMAGES = {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_MEDIA_TYPES = {kind: media_type for media_type, kind in (_IMAGES | _DOCUMENTS).items()}
# The members of a content block, which distinguish this format from others.
_BLOCKS = frozenset((
    "text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent",
    "cachePoint", "reasoningContent", "citationsContent", "searchResult",
))  # fmt: skip

# Claude 3.5 Haiku and 3.7 are the first with prompt caches, 4.5 the first with caches of an hour. A cache
# point after reasoning or a document is refused; Nova refuses one after anything but text, and in tools.
_WITHOUT_CACHE = re.compile(r"claude-(instant|v?[12]\b|3-(opus|sonnet|haiku)|3-5-sonnet)")
_WITH_HOUR = re.compile(r"claude-(?!instant|v?[123]\b|(opus|sonnet|haiku)-4(-[01]\b|-\d{8}|$))")
_HOUR = 3_600.0  # seconds
_MARKED_BY_CLAUDE = frozenset(("text", "image", "toolUse", "toolResult"))
_MARKED_BY_NOVA = frozenset(("text",))


class BedrockFormat(BlockFormat):
    """`{"role": "user" | "assistant", "content": [...]}` with a separate system prompt, and back."""

    name = _NAME
    message_framing = 6
    _call_framing = 12
    _good_id = re.compile(r"[a-zA-Z0-9_.:-]{1,64}\Z")
    _bad_id = re.compile(r"[^a-zA-Z0-9_.:-]")

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for blocks with a key instead of a type."""
        if not all(map(_is_message, messages)):
            return 0
        blocks = [block for message in messages for block in message["content"]]
        known = all("type" not in block and _BLOCKS & block.keys() for block in blocks)
        return 4 if blocks and known else 0

    def _parse(self, message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
        if not _is_message(message):
            raise FormatError(
                f"this is not a Converse message ({shape_of(message)}): it needs a 'role' of user or "
                "assistant and a list of blocks as 'content'"
            )
        role: JSON = message["role"]
        blocks = map(_sound_block, message["content"])
        readers = {"toolUse": _parse_use, "toolResult": _parse_result}
        tools, rest, order = calls.read_tools(_NAME, role, blocks, label, names, readers)
        content, more = read_keyed(rest, _NAME, _known_part, _wire_part) if rest else ((), {})
        kept, envelope = Kept(parts=more), other_keys(message, _OF_MESSAGE)
        return calls.message_entries(
            _NAME, role, content, kept, tools, label, order, message=envelope
        )

    # ------------------------------------------------------------ out

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin and end with the user, give documents different names, and limit stored cache points."""
        messages = with_newest_marks(_with_different_names(messages), "cachePoint")
        return super().frame(messages)

    # ------------------------------------------------------------ blocks

    def _wire_part(self, part: Part) -> JSONObject | None:
        return _wire_part(part)

    def _wire_spoken(self, part: Part) -> JSONObject | None:
        """Return a part of an assistant message: only a user sends images and documents."""
        return None if isinstance(part, ImagePart | FilePart) else _wire_part(part)

    def _content(self, entry: Entry, kept: Kept, extras: list[str]) -> JSON:
        """Return the blocks of a user's message: a document is rejected without a text next to it."""
        blocks = present(self._blocks(entry.content, kept, extras))
        if any("document" in block for block in blocks) and not any("text" in b for b in blocks):
            extras.append(_SEE_DOCUMENT)
            blocks.append({"text": _SEE_DOCUMENT})
        return blocks

    def _wire_call(self, call: Call, extras: list[str]) -> JSONObject:
        entry = call.entry
        kept = kept_of(entry, _NAME)
        arguments = calls.arguments_object(entry, extras)
        base = {"toolUseId": self._wire_id(call), "name": wire_name(entry.name), "input": arguments}
        return with_kept({"toolUse": with_kept(base, other_keys(kept.body, _OF_USE))}, kept.block)

    def _wire_result(self, call: Call, result: Entry, extras: list[str]) -> JSONObject:
        kept = kept_of(result, _NAME)
        content = self._result_content(result, kept, extras)
        base: JSONObject = {"toolUseId": self._wire_id(call), "content": content}
        if result.is_error:
            base["status"] = "error"
        elif kept.style.endswith("success"):
            base["status"] = "success"
        body = with_kept(base, other_keys(kept.body, _OF_RESULT))
        return with_kept({"toolResult": body}, kept.block)

    def _result_content(self, result: Entry, kept: Kept, extras: list[str]) -> list[JSONObject]:
        if kept.style.startswith("json"):
            found = arguments_of(result)
            if isinstance(found, dict):
                return [{"json": found}]
        blocks = present(self._blocks(result.content, kept, extras))
        if blocks or (kept.blank == "absent" and not result.is_error):
            return blocks
        extras.append(NO_OUTPUT)  # an error without a word would be rejected in every later request
        return [{"text": NO_OUTPUT}]

    # ------------------------------------------------------------ cache marks

    def mark_messages(
        self, messages: list[JSONObject], places: Sequence[CachePlace], request: CacheRequest
    ) -> None:
        """Insert cache points in place, behind the nearest block that the model accepts before one."""
        allowed = _before_marks(request.model)
        found = set()
        for place in places:
            blocks = _unmarked(messages[place.message]["content"][: place.blocks])
            while blocks and allowed.isdisjoint(blocks[-1]):
                blocks.pop()
            if blocks:  # a message cannot begin with a cache point
                found.add((place.message, len(blocks)))
        for message in messages:
            message["content"] = _unmarked(message["content"])
        for index, end in sorted(found, reverse=True):
            messages[index]["content"].insert(end, _mark(request))

    def mark_head(
        self, system: str | None, tools: list[JSONObject] | None, request: CacheRequest
    ) -> tuple[JSON, list[JSONObject] | None]:
        """Add a cache point behind the system prompt; without one, behind the tools for Claude."""
        tools = tools and _unmarked(tools)
        if system:
            point = [_mark(request)] if _before_marks(request.model) else []
            return [{"text": system}, *point], tools
        if tools and "toolUse" in _before_marks(request.model):
            tools.append(_mark(request))
        return system, tools


def _unmarked(blocks: Sequence[JSONObject]) -> list[JSONObject]:
    return [block for block in blocks if "cachePoint" not in block]


def _before_marks(model: ModelRef | None) -> frozenset[str]:
    """Return the kinds of blocks that a cache point may follow; none if the model refuses cache points.

    An unknown model is taken for a Claude.
    """
    if model is None or (
        model.family.startswith("claude") and not _WITHOUT_CACHE.match(model.name)
    ):
        return _MARKED_BY_CLAUDE
    return _MARKED_BY_NOVA if model.family == "nova" else frozenset()


def _mark(request: CacheRequest) -> JSONObject:
    point = {"type": "default"}
    if request.ttl >= _HOUR and request.model is not None and _WITH_HOUR.match(request.model.name):
        point["ttl"] = "1h"
    return {"cachePoint": point}


def _with_different_names(messages: list[JSONObject]) -> list[JSONObject]:
    """Append a number to the name of each document that an earlier one has."""
    names = [name for message in messages for name in _document_names(message["content"])]
    if len(set(names)) == len(names):
        return messages
    taken, seen = {*names}, set[str]()
    numbers: dict[str, Iterator[int]] = {}

    def renamed(block: JSONObject) -> JSONObject:
        if "toolResult" in block:
            content = [renamed(held) for held in _held(block)]
            return {**block, "toolResult": {**block["toolResult"], "content": content}}
        name = _document_name(block)
        if name is None:
            return block
        if name in seen:
            stem = name[:_LONGEST_STEM].rstrip()
            others = (f"{stem} ({n})" for n in numbers.setdefault(stem, count(2)))
            name = next(other for other in others if other not in taken)
            taken.add(name)
        seen.add(name)
        return {**block, "document": {**block["document"], "name": name}}

    return [{**message, "content": list(map(renamed, message["content"]))} for message in messages]


def _document_names(blocks: Sequence[JSONObject]) -> Iterator[str]:
    """Yield the names of documents in order, including those in tool results."""
    for block in blocks:
        if "toolResult" in block:
            yield from _document_names(_held(block))
        elif (name := _document_name(block)) is not None:
            yield name


def _held(block: JSONObject) -> list[JSONObject]:
    """Return the blocks of a result; that of the provider's own tool is as it came."""
    content = block["toolResult"].get("content")
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _document_name(block: JSONObject) -> str | None:
    document = block.get("document")
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else None


def sdk_messages(messages: Sequence[Mapping[str, JSON]]) -> list[JSONObject]:
    """Return rendered messages as boto3 accepts them: bytes in place of base64.

    The arguments of calls and the JSON of results stay unchanged. Raises `FormatError` for invalid
    base64.
    """
    return [{**message, "content": _with_bytes(message["content"])} for message in messages]


def _with_bytes(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _decoded(item)
        if key in ("bytes", "redactedContent") and isinstance(item, str)
        else item
        if key in ("input", "json")  # the caller's own data, whatever its keys
        else _with_bytes(item)
        for key, item in value.items()
    }


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(
            f"the bytes of a block are no base64 ({error}): {safe_repr(data, 40)}"
        ) from None


def _is_message(message: JSON) -> bool:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        return False
    content = message.get("content")
    return isinstance(content, list) and all(isinstance(block, dict) for block in content)


# ---------------------------------------------------------------- rendering


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case TextPart(text):
            return {"text": text} if text.strip() else None
        case ImagePart():
            inline = data_of(part, "image/png")
            kind = _IMAGES.get(inline[0]) if inline else None
            if inline and kind:
                return {"image": {"format": kind, "source": {"bytes": inline[1]}}}
        case FilePart():
            inline = data_of(part, "application/pdf")
            kind = _DOCUMENTS.get(inline[0]) if inline else None
            if inline and kind:
                document = {"format": kind, "name": _title(part.name)}
                return {"document": {**document, "source": {"bytes": inline[1]}}}
        case OpaquePart(form) if form == _NAME:
            block = opaque_dict(part)
            return None if not block or "toolUse" in block or "toolResult" in block else block
    return None


def _title(name: str | None) -> str:
    """Return a document's name in the provider's alphabet, without runs of spaces."""
    return _SPACES.sub(" ", _BAD_TITLE.sub("-", name or ""))[:200].strip() or "document"


# ---------------------------------------------------------------- parsing


def _parse_use(block: JSONObject, label: str, names: dict[str, str]) -> calls.Tool:
    body = block["toolUse"]
    call = calls.use_entry(body, "toolUseId", "toolUse", label, names)
    return call, Kept(block=other_keys(block, ("toolUse",)), body=other_keys(body, _OF_USE))


def _parse_result(block: JSONObject, label: str, names: dict[str, str]) -> calls.Tool:
    body = block["toolResult"]
    call_id = body.get("toolUseId")
    if not isinstance(call_id, str):
        raise FormatError(f"a toolResult needs a toolUseId: {shape_of(block)}")
    given = body.get("content", [])
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise FormatError(f"a toolResult's content must be a list of blocks, not {shape_of(given)}")
    style = ""
    content: Content
    more: dict[str, JSONObject] = {}
    if len(given) == 1 and list(given[0]) == ["json"]:
        content, style = calls.encoded(given[0]["json"], "the json of a toolResult"), "json"
    else:
        sound = list(map(_sound_block, given))
        content, more = read_keyed(sound, _NAME, _known_part, _wire_part) if given else ("", {})
    success = "success" if body.get("status") == "success" else ""
    is_error = body.get("status") == "error"
    name = names.get(call_id)
    return calls.result_entry(content, call_id, name, label, is_error=is_error), Kept(
        block=other_keys(block, frozenset(("toolResult",))),
        body=other_keys(body, _OF_RESULT),
        parts=more,
        blank="" if given else "absent",
        style=f"{style} {success}".strip(),
    )


def _sound_block(block: JSONObject) -> JSONObject:
    """Return the block without null members; a document with an invalid name gets a valid one."""
    block = {key: value for key, value in block.items() if value is not None or key not in _BLOCKS}
    kinds = sorted(_BLOCKS & block.keys())
    if len(kinds) > 1:
        raise FormatError(f"a block is of one kind, not of {' and '.join(kinds)} at once")
    for kind in kinds:
        if kind != "text" and not isinstance(block[kind], dict):
            raise FormatError(f"{kind} of a block must be an object, not {shape_of(block[kind])}")
    document = block.get("document")
    if document is None:
        return block
    name = document.get("name")
    if not isinstance(name, str | None):
        raise FormatError(f"the name of a document must be a string, not {safe_repr(name, 60)}")
    return {**block, "document": {**document, "name": _title(name)}}


def _known_part(block: JSONObject) -> Part | None:
    if "text" in block:
        if not isinstance(block["text"], str):
            raise FormatError(
                f"the text of a block must be a string, not {shape_of(block['text'])}"
            )
        return TextPart(block["text"])
    for key in ("image", "document"):
        given = block.get(key)
        source = given.get("source") if isinstance(given, dict) else None
        if isinstance(given, dict) and isinstance(source, dict):
            kind, data = given.get("format"), source.get("bytes")
            media_type = _MEDIA_TYPES.get(kind) if isinstance(kind, str) else None
            if key == "image":
                return ImagePart(data=data, media_type=media_type)
            return FilePart(name=given.get("name"), data=data, media_type=media_type)
    return None
