"""Gemini contents: parts named by their key, results in user turns, a separate system prompt.

No framing is published for Gemini; on recorded calls a content costs about one token around its texts.
The numbers here are our own and a little higher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from memman.display import shape_of
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
    encode_json,
)
from memman.errors import FormatError
from memman.formats.parts import (
    Kept,
    arguments_of,
    data_of,
    interleaved,
    keeping,
    kept_of,
    opaque_dict,
    other_keys,
    parts_framing,
    present,
    read_keyed,
    wire_parts,
    with_kept,
)
from memman.formats.plain import parse_each
from memman.formats.turns import BEGINS, GOES_ON, NO_RESULT, NOTHING, delimited, framed, system_note
from memman.protocols import Call, Rendered, Turn

_NAME = "gemini"
_MESSAGE_FRAMING = 3
_CALL_FRAMING = 8
_ODD_ARGUMENTS = "memman_arguments"
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_.-]")
# Google documents this value for calls of other models: Gemini 3 rejects a turn whose first call has no
# signature. Calls from Gemini are returned with their own.
_NO_SIGNATURE = "skip_thought_signature_validator"
_CALL = frozenset(("functionCall",))
_CALL_AND_STAND_IN = _CALL | {"thoughtSignature"}

_ROLES = ("user", "model", "function", "system")
_OF_MESSAGE = frozenset(("role", "parts"))
_OF_CALL = frozenset(("id", "name", "args"))
_OF_RESPONSE = frozenset(("id", "name", "response", "parts"))
_OUTPUTS = ("output", "result", "error")
# The SDK's own spelling of the keys that are read here; its other keys stay as they are.
_SNAKE = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "video_metadata": "videoMetadata",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "display_name": "displayName",
}
# A part's description of its data, which is rejected alone.
_ABOUT = {
    "thought", "videoMetadata", "mediaResolution", "media_resolution", "partMetadata", "part_metadata",
}  # fmt: skip
_KNOWN = frozenset(
    ("text", "toolCall", "tool_call", "toolResponse", "tool_response",
     "audioTranscription", "audio_transcription", *_ABOUT, *_SNAKE,
     *_SNAKE.values())
)  # fmt: skip
_NESTED = ("functionCall", "functionResponse", "inlineData", "fileData")
_URL_SAFE = "-_"
_STANDARD_BASE64 = str.maketrans(_URL_SAFE, "+/")
_URL_SAFE_BASE64 = str.maketrans("+/", _URL_SAFE)
_Spelling = dict[str, str | None]


class GeminiFormat:
    """`{"role": "user" | "model", "parts": [...]}` with a separate system prompt, and back."""

    name = _NAME
    request_framing = 4
    message_framing = _MESSAGE_FRAMING
    joins = True
    edges: tuple[str, ...] = (BEGINS, GOES_ON)
    inline_system = False

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for contents with parts, which no other format has."""
        if not messages or not all(map(_is_content, messages)):
            return 0
        parts = [part for message in messages for part in message["parts"]]
        return 4 if all(not part or _KNOWN & part.keys() for part in parts) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a content's text and other parts, one for each call and response."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: _parse_content(message, label, names))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the contents of a turn without empty texts, which the provider rejects."""
        if turn.kind == "assistant":
            return _render_model(turn)
        entry = turn.entries[0]
        if turn.kind == "user":
            return _render_user(entry)
        if turn.kind == "system":
            return system_note(entry, _MESSAGE_FRAMING, _of_user)
        text, extras = delimited(turn)
        return Rendered((_of_user(text),), _MESSAGE_FRAMING, extras)

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Join adjacent contents of one role; responses to calls stay separate."""
        if _role(left) != _role(right) or _has_response(left) or _has_response(right):
            return None
        return self.rejoin(left, right)

    def rejoin(self, left: JSONObject, right: JSONObject) -> JSONObject:
        """Join two parts of one content as it was added."""
        return {**with_kept(left, right), "parts": [*left["parts"], *right["parts"]]}

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin and end the conversation with the user."""
        return framed(messages, "model", _of_user)


def _is_content(message: JSON) -> bool:
    if not isinstance(message, dict) or message.get("role", "user") not in (*_ROLES, None):
        return False
    parts = message.get("parts")
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _role(message: JSONObject) -> str:
    return message.get("role") or "user"


def _has_response(message: JSONObject) -> bool:
    responses = ("functionResponse", "function_response")
    return any(key in part for part in message["parts"] for key in responses)


def _content(role: str, parts: list[JSONObject]) -> JSONObject:
    return {"role": role, "parts": parts}


def _as_users(parts: list[JSONObject], *kept: Kept) -> JSONObject:
    """Return a user's content with its kept keys; one without a role is the user's too."""
    message = _content("user", parts)
    for each in kept:
        message = with_kept(message, each.message)
        role = each.spelled.get("message", {}).get("role", "user")
        if role is None:
            message["role"] = None
        elif role == "":
            message.pop("role", None)
    return message


def _of_user(text: str) -> JSONObject:
    return _content("user", [{"text": text}])


# ---------------------------------------------------------------- rendering


def _render_user(entry: Entry) -> Rendered:
    kept = kept_of(entry, _NAME)
    extras: list[str] = []
    parts = present(_wire(entry.content, kept, extras))
    if not parts:
        return NOTHING
    message = _as_users(parts, kept)
    return Rendered((message,), _MESSAGE_FRAMING + parts_framing(entry.content), tuple(extras))


def _render_model(turn: Turn) -> Rendered:
    extras: list[str] = []
    calls = [_wire_call(call, extras) for call in turn.calls]
    if calls and kept_of(turn.calls[0].entry, _NAME).style != "unsigned":
        calls[0].setdefault("thoughtSignature", _NO_SIGNATURE)
    calls = [
        _as_spelled(wire, kept_of(call.entry, _NAME).spelled.get(""))
        for wire, call in zip(calls, turn.calls, strict=True)
    ]
    kept = kept_of(turn.entries[0] if turn.entries else turn.calls[0].entry, _NAME)
    spoken = [
        part
        for entry in turn.entries
        for part in _wire(entry.content, kept_of(entry, _NAME), extras)
    ]
    parts = interleaved(kept.order, spoken, calls)
    if not parts:
        return NOTHING
    message = with_kept(_content("model", parts), kept.message)
    framing = _MESSAGE_FRAMING + sum(1 + parts_framing(entry.content) for entry in turn.entries)
    if not calls:
        return Rendered((message,), framing, tuple(extras))
    framing += _MESSAGE_FRAMING + 2 * _CALL_FRAMING * len(calls)
    results = _responses(turn.answers, extras)
    spoken_of = (*turn.entries, *(call.entry for call in turn.calls))
    answers = tuple(call.result for call in turn.answers if call.result is not None)
    sources = (spoken_of, *[answers] * len(results))
    return Rendered((message, *results), framing, tuple(extras), sources)


def _wire(content: Content, kept: Kept, extras: list[str]) -> list[JSONObject | None]:
    """Return the parts of a content, None for those that are left out."""
    if isinstance(content, str):
        sent: list[JSONObject | None] = [{"text": content} if content else None]
    else:
        sent = wire_parts(content, kept, _wire_part, extras)
    if not kept.spelled:
        return sent
    return [
        part and _as_spelled(part, kept.spelled.get(str(index))) for index, part in enumerate(sent)
    ]


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case TextPart(text):
            return {"text": text} if text else None
        case ImagePart() | FilePart():
            default = "image/png" if isinstance(part, ImagePart) else "application/pdf"
            inline = data_of(part, default)
            if inline is not None:
                return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
            # The address of a web page would need an unknown media type.
            if part.url and part.media_type and not part.url.startswith("data:"):
                return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
        case OpaquePart(form) if form == _NAME:
            block = opaque_dict(part)
            ours = "functionCall" in block or "functionResponse" in block
            blank = block.get("text") == "" and "thoughtSignature" not in block
            return None if ours or blank or not block.keys() - _ABOUT else block
    return None


def _wire_call(call: Call, extras: list[str]) -> JSONObject:
    entry = call.entry
    kept = kept_of(entry, _NAME)
    arguments = arguments_of(entry)
    if not isinstance(arguments, dict):
        arguments = {_ODD_ARGUMENTS: entry.text} if entry.text else {}
        extras += [_ODD_ARGUMENTS] if arguments else []
    body: JSONObject = {"name": _wire_name(entry.name), "args": arguments}
    if kept.blank == "absent" and not arguments:
        del body["args"]
    if entry.call_id is not None:
        body["id"] = call.wire_id
    return with_kept({"functionCall": with_kept(body, kept.body)}, kept.block)


def _as_spelled(given: JSONObject, spelling: Mapping[str, str | None] | None) -> JSONObject:
    """Return a part with its keys in their original spelling."""
    found = dict(given) if spelling else given
    for path, name in (spelling or {}).items():
        key, _, inner = path.partition(".")
        if inner and isinstance(found.get(key), dict):
            found[key] = _respelled(found[key], inner, name)
        elif not inner:
            found = _respelled(found, key, name)
    return found


def _respelled(given: JSONObject, key: str, name: str | None) -> JSONObject:
    if name is None:
        return {**given, key: None} if key not in given else given
    if name == _URL_SAFE and isinstance(given.get(key), str):
        return {**given, key: given[key].translate(_URL_SAFE_BASE64)}
    if _SNAKE.get(name) != key:
        return given
    return {name if other == key else other: value for other, value in given.items()}


@lru_cache(maxsize=4_096)
def _wire_name(name: str | None) -> str:
    """Return a tool's name in the provider's alphabet; it begins with a letter or an underscore."""
    found = _BAD_NAME.sub("_", name or "") or "tool"
    return (found if found[0].isalpha() or found[0] == "_" else f"_{found}")[:64]


def _responses(calls: Sequence[Call], extras: list[str]) -> list[JSONObject]:
    """Return one response for each call, then their parts other than text."""
    beyond: list[JSONObject] = []
    parts = [_wire_response(call, beyond, extras) for call in calls]
    kept = [kept_of(call.result, _NAME) for call in calls if call.result is not None]
    content = _as_users(parts, *kept)
    return [content, _content("user", beyond)] if beyond else [content]


def _wire_response(call: Call, beyond: list[JSONObject], extras: list[str]) -> JSONObject:
    result = call.result
    body: JSONObject = {"name": _wire_name(call.entry.name)}
    extras.append(body["name"])  # sent again next to the call's own, and in no entry's count
    if call.entry.call_id is not None:
        body["id"] = call.wire_id
    if result is None:
        extras.append(NO_RESULT)
        return {"functionResponse": {**body, "response": {"output": NO_RESULT}}}
    kept = kept_of(result, _NAME)
    body["response"] = _response_of(result, kept)
    if not isinstance(result.content, str):
        rest = tuple(part for part in result.content if not isinstance(part, TextPart))
        sent = present(_wire(rest, Kept(parts=kept.parts, spelled=kept.spelled), extras))
        if kept.order == "nested":
            body["parts"] = sent
        else:  # models before Gemini 3 accept only the response inside it
            beyond += sent
    found = with_kept({"functionResponse": with_kept(body, kept.body)}, kept.block)
    return _as_spelled(found, kept.spelled.get(""))


def _response_of(result: Entry, kept: Kept) -> JSONObject:
    """Return the response's object: its text under the documented key."""
    if kept.style == "object":
        found = arguments_of(result)
        if isinstance(found, dict):
            return found
    key = "error" if result.is_error else kept.style if kept.style == "result" else "output"
    return {key: result.text}


# ---------------------------------------------------------------- parsing


def _parse_content(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of one content; `label` takes the place of a message id until one is made."""
    if isinstance(message, dict) and message.get("parts", ()) is None:
        message = {**message, "parts": []}
    if not _is_content(message):
        raise FormatError(
            f"this is not a Gemini content ({shape_of(message)}): it needs a 'role' of user or model "
            "and a list of 'parts'"
        )
    tools: list[tuple[NewEntry, Kept]] = []
    rest: list[JSONObject] = []
    spelled: dict[str, _Spelling] = {}
    order = ""
    for part, spelling in map(_normal, message["parts"]):
        if not part:
            continue  # nothing but nulls
        if not isinstance(part.get("text", ""), str):
            raise FormatError(f"the text of a part must be a string, not {shape_of(part['text'])}")
        if "functionCall" in part:
            new_entry, kept = _parse_call(part, label, names, first="u" not in order)
            tools.append((new_entry, _spelling(kept, "", spelling)))
            order += "u"
        elif "functionResponse" in part:
            new_entry, kept = _parse_response(part, label, names)
            tools.append((new_entry, _spelling(kept, "", spelling)))
        else:
            if spelling:
                spelled[str(len(rest))] = spelling
            rest.append(part)
            order += "t"
    role: JSON = {"model": "assistant", "system": "system"}.get(_role(message), "user")
    content, more = read_keyed(rest, _NAME, _known_part, _wire_part) if rest else ((), {})
    own = NewEntry(type="message", role=role, content=content, message_id=label if tools else None)
    texts = [(own, Kept(parts=more, spelled=spelled))] if content or not tools else []
    found = texts + tools if role == "assistant" else tools + texts
    mixed = order if role == "assistant" and content and "ut" in order else ""
    new_entry, kept = found[0]
    envelope = other_keys(message, _OF_MESSAGE)
    kept = msgspec.structs.replace(kept, message=envelope, order=mixed or kept.order)
    if message.get("role") is None:  # it is the user's
        kept = _spelling(kept, "message", {"role": None if "role" in message else ""})
    found[0] = new_entry, kept
    return [keeping(new_entry, _NAME, kept) for new_entry, kept in found]


def _normal(part: JSONObject) -> tuple[JSONObject, _Spelling]:
    """Return a part with the keys of the wire and without nulls, and the keys in another spelling.

    Google accepts either spelling of a key, and base64 in either alphabet.
    """
    spelled: _Spelling = {}  # inner parts first: they are found by the wire's key
    found = _renamed(part, "", outer := _Spelling())
    for key in _NESTED:
        inner = found.get(key)
        if isinstance(inner, dict):
            found[key] = _renamed(inner, f"{key}.", spelled)
    blob = found.get("inlineData")
    if isinstance(blob, dict) and isinstance(blob.get("data"), str):
        data = blob["data"]
        blob["data"] = data.translate(_STANDARD_BASE64)
        if blob["data"].translate(_URL_SAFE_BASE64) == data != blob["data"]:
            spelled["inlineData.data"] = _URL_SAFE
    return found, spelled | outer


def _renamed(given: JSONObject, prefix: str, spelled: _Spelling) -> JSONObject:
    found = {}
    for key, value in given.items():
        name = _SNAKE.get(key, key)
        if value is None:
            spelled[prefix + key] = None
        elif name == key or given.get(name) is not None:
            found[key] = value
        else:
            found[name] = value
            spelled[prefix + name] = key
    return found


def _spelling(kept: Kept, where: str, spelling: _Spelling) -> Kept:
    if not spelling:
        return kept
    return msgspec.structs.replace(kept, spelled={**kept.spelled, where: spelling})


def _parse_call(
    part: JSONObject, label: str, names: dict[str, str], first: bool
) -> tuple[NewEntry, Kept]:
    body = part["functionCall"]
    call_id, name = _named(body, "functionCall")
    if name is None:
        raise FormatError(f"a functionCall needs a name: {shape_of(part)}")
    if call_id is not None:
        names[call_id] = name
    arguments = body.get("args")
    new_entry = NewEntry(
        type="tool_call",
        role="assistant",
        content="" if arguments is None else _encoded(arguments, "the args of a functionCall"),
        call_id=call_id,
        name=name,
        message_id=label,
    )
    unsigned = first and "thoughtSignature" not in part
    stand_in = first and part.get("thoughtSignature") == _NO_SIGNATURE  # put there by rendering
    return new_entry, Kept(
        block=other_keys(part, _CALL_AND_STAND_IN if stand_in else _CALL),
        body=other_keys(body, _OF_CALL),
        blank="absent" if arguments is None else "",
        style="unsigned" if unsigned else "",
    )


def _named(body: JSON, kind: str) -> tuple[str | None, str | None]:
    """Return the id and the name of a call or response; either may be absent."""
    if not isinstance(body, dict):
        raise FormatError(f"a {kind} must be an object, not {shape_of(body)}")
    call_id, name = body.get("id") or None, body.get("name") or None
    for key, value in (("id", call_id), ("name", name)):
        if not isinstance(value, str | None):
            raise FormatError(f"the {key} of a {kind} must be a string, not {shape_of(value)}")
    return call_id, name


def _encoded(value: JSON, what: str) -> str:
    return bytes(encode_json(value, what)).decode() or "{}"


def _parse_response(part: JSONObject, label: str, names: dict[str, str]) -> tuple[NewEntry, Kept]:
    body = part["functionResponse"]
    call_id, name = _named(body, "functionResponse")
    response = body.get("response", {})
    text, style, is_error = _said(response)
    parts: Content = ()
    more: dict[str, JSONObject] = {}
    spelled: dict[str, _Spelling] = {}
    nested = body.get("parts")
    if nested is not None:
        if not isinstance(nested, list) or not all(isinstance(one, dict) for one in nested):
            raise FormatError(f"the parts of a functionResponse must be a list: {shape_of(nested)}")
        normal = [_normal(one) for one in nested]
        parts, more = read_keyed([part for part, _ in normal], _NAME, _known_part, _wire_part)
        spelled = {str(index): spelling for index, (_, spelling) in enumerate(normal) if spelling}
    content: Content = (TextPart(text), *parts) if isinstance(parts, tuple) and parts else text
    new_entry = NewEntry(
        type="tool_result",
        role="tool",
        content=content,
        call_id=call_id,
        name=name or names.get(call_id or ""),
        message_id=label,
        is_error=is_error,
    )
    return new_entry, Kept(
        block=other_keys(part, frozenset(("functionResponse",))),
        body=other_keys(body, _OF_RESPONSE),
        parts=more,
        style=style,
        order="nested" if nested is not None else "",
        spelled=spelled,
    )


def _said(response: JSON) -> tuple[str, str, bool]:
    """Return the text of a response, its style, and whether it is an error."""
    if not isinstance(response, Mapping):
        raise FormatError(
            f"the response of a functionResponse must be an object: {shape_of(response)}"
        )
    if len(response) == 1:
        [(key, value)] = response.items()
        if key in _OUTPUTS and isinstance(value, str):
            return value, "result" if key == "result" else "", key == "error"
    return _encoded(response, "the response of a functionResponse"), "object", False


def _known_part(part: JSONObject) -> Part | None:
    if "text" in part:
        if not isinstance(part["text"], str):
            raise FormatError(f"the text of a part must be a string, not {shape_of(part['text'])}")
        return None if part.get("thought") else TextPart(part["text"])
    for key, address in (("inlineData", "data"), ("fileData", "fileUri")):
        given = part.get(key)
        if isinstance(given, dict):
            where = {"url" if key == "fileData" else "data": given.get(address)}
            media_type = given.get("mimeType")
            image = isinstance(media_type, str) and media_type.startswith("image/")
            return (ImagePart if image else FilePart)(media_type=media_type, **where)
    return None
