"""Gemini contents: parts named by their key, results in user turns, a separate system prompt.

No framing is published for Gemini; on recorded calls a content costs about one token around its texts.
The numbers here are our own and a little higher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

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
    with_kept,
)
from memman.protocols import Call

_NAME = "gemini"
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
_NESTED = (
    "functionCall", "functionResponse", "inlineData", "fileData",
    "executableCode", "codeExecutionResult", "toolCall", "toolResponse",
)  # fmt: skip
_READ = (
    *_NESTED, "thoughtSignature", "toolType", "videoMetadata", "mimeType", "fileUri", "displayName",
)  # fmt: skip
# The SDK's own spelling (file_uri) of the keys that are read here; its other keys stay as they are.
_SNAKE = {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): key for key in _READ}
# A part's description of its data, which is rejected alone.
_ABOUT = {
    "thought", "videoMetadata", "mediaResolution", "media_resolution", "partMetadata", "part_metadata",
}  # fmt: skip
_KNOWN = frozenset(
    ("text", "audioTranscription", "audio_transcription", *_ABOUT, *_SNAKE, *_SNAKE.values())
)  # fmt: skip
_URL_SAFE = "-_"
_STANDARD_BASE64 = str.maketrans(_URL_SAFE, "+/")
_URL_SAFE_BASE64 = str.maketrans("+/", _URL_SAFE)
_Spelling = dict[str, str | None]


class GeminiFormat(BlockFormat):
    """`{"role": "user" | "model", "parts": [...]}` with a separate system prompt, and back."""

    name = _NAME
    message_framing = 3
    _call_framing = 8
    _role = "model"
    _key = "parts"

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for contents with parts, which no other format has."""
        if not messages or not all(map(_is_content, messages)):
            return 0
        # A content without a role is a prompt of its own; among others it is another program's message.
        if len(messages) > 1 and not all("role" in message for message in messages):
            return 0
        parts = [part for message in messages for part in message["parts"] or ()]
        typed = any("type" in part for part in parts)
        return 4 if not typed and all(not part or _KNOWN & part.keys() for part in parts) else 0

    def _parse(self, message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
        if not _is_content(message):
            raise FormatError(
                f"this is not a Gemini content ({shape_of(message)}): it needs a 'role' of user or model "
                "and a list of 'parts'"
            )
        found = map(_normal, message["parts"] or ())
        normal = [each for each in found if each[0]]  # without those of nothing but nulls
        parts = [part for part, _ in normal]
        first = next((part for part in parts if "functionCall" in part), None)
        role = {"model": "assistant", "system": "system"}.get(_role(message), "user")
        readers: dict[str, calls.Reader] = {
            "functionCall": partial(_parse_call, first=first),
            "functionResponse": _parse_response,
        }
        tools, rest, order = calls.read_tools(_NAME, role, parts, label, names, readers)
        of_rest, of_tools = list[_Spelling](), list[_Spelling]()
        for letter, (_, spelling) in zip(order, normal, strict=True):
            (of_rest if letter == "t" else of_tools).append(spelling)
        content, more = read_keyed(rest, _NAME, _known_part, _wire_part) if rest else ((), {})
        of_role: _Spelling = {}
        if message.get("role") is None:  # it is the user's
            of_role["role"] = None if "role" in message else ""
        kept = _spelling(Kept(parts=more, spelled=_by_index(of_rest)), "message", of_role)
        tools = [
            (new_entry, _spelling(_spelling(kept, "", spelling), "message", of_role))
            for (new_entry, kept), spelling in zip(tools, of_tools, strict=True)
        ]
        envelope = other_keys(message, _OF_MESSAGE)
        return calls.message_entries(
            _NAME, role, content, kept, tools, label, order, message=envelope
        )

    # ------------------------------------------------------------ out

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Join adjacent contents of one role; responses to calls stay separate."""
        if _role(left) != _role(right) or _has_response(left) or _has_response(right):
            return None
        return self.rejoin(left, right)

    def rejoin(self, left: JSONObject, right: JSONObject) -> JSONObject:
        """Join two parts of one content as it was added."""
        return {**with_kept(left, right), "parts": [*left["parts"], *right["parts"]]}

    # ------------------------------------------------------------ parts

    def _users(self, content: JSON, *kept: Kept) -> JSONObject:
        """Return a user's content with its kept keys; one without a role is the user's too."""
        message = super()._users(content, *kept)
        for each in kept:
            role = each.spelled.get("message", {}).get("role", "user")
            if role is None:
                message["role"] = None
            elif role == "":
                message.pop("role", None)
        return message

    def _blocks(
        self, content: Content, kept: Kept, extras: list[str], spoken: bool = False
    ) -> list[JSONObject | None]:
        """Return the parts of a content in their original spelling, None for those that are left out."""
        sent = super()._blocks(content, kept, extras, spoken)
        if not kept.spelled:
            return sent
        return [
            part and _as_spelled(part, kept.spelled.get(str(index)))
            for index, part in enumerate(sent)
        ]

    def _wire_part(self, part: Part) -> JSONObject | None:
        return _wire_part(part)

    def _wire_calls(self, calls: Sequence[Call], extras: list[str]) -> list[tuple[str, JSONObject]]:
        """Return the parts of calls, each with its entry's id; the first of a function is signed."""
        found: list[tuple[str, JSONObject]] = []
        signed = False
        for call in calls:
            kept = kept_of(call.entry, _NAME)
            wire = self._wire_own(call.entry, call) if call.beside else None
            if wire is None:
                wire = self._wire_call(call, extras)
                if not signed and kept.style != "unsigned":
                    wire.setdefault("thoughtSignature", _NO_SIGNATURE)
                wire, signed = _as_spelled(wire, kept.spelled.get("")), True
            found.append((call.entry.id, wire))
        return found

    def _wire_own(self, half: Entry | None, call: Call) -> JSONObject | None:
        """Return a call or its result in the form of the provider's own tools; None if it has none."""
        own = super()._wire_own(half, call)
        return own and _as_spelled(own, kept_of(half, _NAME).spelled.get(""))

    def _wire_call(self, call: Call, extras: list[str]) -> JSONObject:
        entry = call.entry
        kept = kept_of(entry, _NAME)
        arguments = calls.arguments_object(entry, extras)
        body: JSONObject = {"name": _wire_name(entry.name), "args": arguments}
        if kept.blank == "absent" and not arguments:
            del body["args"]
        if entry.call_id is not None:
            body["id"] = call.wire_id
        return with_kept({"functionCall": with_kept(body, kept.body)}, kept.block)

    def _results(self, calls: Sequence[Call], extras: list[str]) -> list[JSONObject]:
        """Return one response for each call, then their parts other than text.

        Models before Gemini 3 accept only the response inside it.
        """
        contents = super()._results(calls, extras)
        beyond: list[JSONObject] = []
        for result in present(call.result for call in calls):
            if kept_of(result, _NAME).order != "nested":
                beyond += self._beyond_text(result, extras)
        return [*contents, self._users(beyond)] if beyond else contents

    def _wire_result(self, call: Call, result: Entry, extras: list[str]) -> JSONObject:
        body: JSONObject = {"name": _wire_name(call.entry.name)}
        extras.append(body["name"])  # sent again next to the call's own, and in no entry's count
        if call.entry.call_id is not None:
            body["id"] = call.wire_id
        kept = kept_of(result, _NAME)
        body["response"] = _response_of(result, kept)
        if kept.order == "nested" and not isinstance(result.content, str):
            body["parts"] = self._beyond_text(result, extras)
        found = with_kept({"functionResponse": with_kept(body, kept.body)}, kept.block)
        return _as_spelled(found, kept.spelled.get(""))

    def _beyond_text(self, result: Entry, extras: list[str]) -> list[JSONObject]:
        """Return the parts of a result that are not text."""
        kept, content = kept_of(result, _NAME), result.content
        if isinstance(content, str):
            return []
        rest = tuple(part for part in content if not isinstance(part, TextPart))
        return present(self._blocks(rest, Kept(parts=kept.parts, spelled=kept.spelled), extras))


def _is_content(message: JSON) -> bool:
    if not isinstance(message, dict) or message.get("role", "user") not in (*_ROLES, None):
        return False
    parts = message.get("parts", "")
    if parts is None:  # a reply that a filter stopped
        return True
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _role(message: JSONObject) -> str:
    return message.get("role") or "user"


def _has_response(message: JSONObject) -> bool:
    responses = ("functionResponse", "function_response")
    return any(key in part for part in message["parts"] for key in responses)


# ---------------------------------------------------------------- rendering


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


def _response_of(result: Entry, kept: Kept) -> JSONObject:
    """Return the response's object: its text under the documented key."""
    if kept.style == "object":
        found = arguments_of(result)
        if isinstance(found, dict):
            return found
    key = "error" if result.is_error else kept.style if kept.style == "result" else "output"
    return {key: result.text}


# ---------------------------------------------------------------- parsing


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


def _by_index(spellings: Sequence[_Spelling]) -> dict[str, _Spelling]:
    return {str(index): spelling for index, spelling in enumerate(spellings) if spelling}


def _spelling(kept: Kept, where: str, spelling: _Spelling) -> Kept:
    if not spelling:
        return kept
    return msgspec.structs.replace(kept, spelled={**kept.spelled, where: spelling})


def _parse_call(
    part: JSONObject, label: str, names: dict[str, str], first: JSONObject | None
) -> calls.Tool:
    body = part["functionCall"]
    call_id, name = _named(body, "functionCall")
    if name is None:
        raise FormatError(f"a functionCall needs a name: {shape_of(part)}")
    if call_id is not None:
        names[call_id] = name
    arguments = body.get("args")
    text = "" if arguments is None else calls.encoded(arguments, "the args of a functionCall")
    unsigned = part is first and "thoughtSignature" not in part
    # Rendering puts a stand-in there.
    stand_in = part is first and part.get("thoughtSignature") == _NO_SIGNATURE
    return calls.call_entry(text, call_id, name, label), Kept(
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


def _parse_response(part: JSONObject, label: str, names: dict[str, str]) -> calls.Tool:
    body = part["functionResponse"]
    call_id, name = _named(body, "functionResponse")
    text, style, is_error = _said(body.get("response", {}))
    parts: Content = ()
    more: dict[str, JSONObject] = {}
    spelled: dict[str, _Spelling] = {}
    nested = body.get("parts")
    if nested is not None:
        if not isinstance(nested, list) or not all(isinstance(one, dict) for one in nested):
            raise FormatError(f"the parts of a functionResponse must be a list: {shape_of(nested)}")
        normal = [_normal(one) for one in nested]
        parts, more = read_keyed([part for part, _ in normal], _NAME, _known_part, _wire_part)
        spelled = _by_index([spelling for _, spelling in normal])
    content: Content = (TextPart(text), *parts) if isinstance(parts, tuple) and parts else text
    name = name or names.get(call_id or "")
    return calls.result_entry(content, call_id, name, label, is_error=is_error), Kept(
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
    return calls.encoded(response, "the response of a functionResponse"), "object", False


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
