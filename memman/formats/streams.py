"""Streamed replies: their pieces are joined to the response.

An SDK returns the pieces as objects or dicts, in the shapes of its provider's wire. One rule joins
deltas, whatever their keys: texts are concatenated, lists are extended, of anything else the last value
is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy

from memman.display import format_error
from memman.entries import JSON, JSONObject, json_or
from memman.errors import FormatError
from memman.formats.plain import field_of

# The keys of a call's delta that come once, and from some servers in each piece.
_SAID_ONCE = ("id", "type", "index", "role", "name")
_CONVERSE = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
)
# The errors of a piece without a key that it always has, or with a wrong value.
_NOT_AS_WRITTEN = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def whole(given: JSON, *, keep: bool = False) -> JSON:
    """Return the response that a list of a stream's pieces makes; anything else unchanged.

    A stream that broke off makes the response of the pieces so far. With `keep`, pieces that make no
    response are returned unchanged, too.

    Raises:
        FormatError: a stream that was not read, or a call that was not awaited; without `keep`, also a
            single piece, or pieces among other things.
    """
    kind = type(given).__name__
    if hasattr(given, "__await__"):
        raise FormatError(f"the {kind} has not been awaited: add what `await` makes of it")
    if hasattr(given, "__next__") or hasattr(given, "__anext__"):
        raise FormatError(
            f"the {kind} has not been read: collect its pieces in a list and add the list"
        )
    try:
        return _whole(given)
    except FormatError:
        if keep:
            return given
        raise


def _whole(given: JSON) -> JSON:
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Sequence):
        if _joiner(given) is not None:
            raise FormatError(
                "this is one piece of a streamed reply: collect the pieces in a list and add the list"
            )
        return given
    join = next(filter(None, map(_joiner, given)), None)
    if join is None:
        if not _is_gemini(given):
            return given
        join = _join_gemini
    for index, piece in enumerate(given):
        if _joiner(piece) not in (join, None) or field_of(piece, "role") is not None:
            raise FormatError(
                f"message {index} is not a piece of the same stream as the others: "
                "add a streamed reply by itself",
                index,
            )
    try:
        return join(given)
    except _NOT_AS_WRITTEN as error:
        if isinstance(error, FormatError):
            raise
        reason = format_error(error)
        raise FormatError(f"a piece of the stream is not what providers send: {reason}") from error


def _joiner(piece: JSON) -> Callable[[Sequence[JSON]], JSON] | None:
    """Return the function that joins pieces of this kind; None for anything else."""
    if field_of(piece, "object") == "chat.completion.chunk":
        return _join_chat
    if isinstance(piece, Mapping) and len(piece) == 1 and next(iter(piece)) in _CONVERSE:
        return _join_converse
    kind = field_of(piece, "type")
    if not isinstance(kind, str):
        return None
    if kind.startswith("response.") and field_of(piece, "sequence_number") is not None:
        return _join_responses
    return _join_anthropic if kind.startswith(("message_", "content_block_")) else None


def _plain(piece: JSON) -> JSONObject:
    if isinstance(piece, Mapping):
        return deepcopy(dict(piece))  # deltas are added to the first piece, which is the caller's
    dump = getattr(piece, "model_dump", None)
    if not callable(dump):
        raise FormatError(f"a stream has no pieces of type {type(piece).__name__}")
    # Google's objects have names of their own besides the wire's; the others' are the same.
    plain: JSONObject = dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _add(whole: JSONObject, delta: Mapping[str, JSON]) -> None:
    """Add a delta: join texts, extend lists (their items by `index`), replace anything else."""
    for key, value in delta.items():
        known = whole.get(key)
        text = isinstance(known, str | bytes) and type(value) is type(known)
        if known is None or value is None:
            whole[key] = known if value is None else value
        elif key in _SAID_ONCE:
            continue
        elif text:
            whole[key] = known + value
        elif isinstance(known, dict) and isinstance(value, Mapping):
            _add(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            _extend(known, value)
        else:
            whole[key] = value


def _extend(known: list[JSON], more: Iterable[JSON]) -> None:
    """Append items; one with the `index` of an earlier one is added to it."""
    for item in more:
        index = item.get("index") if isinstance(item, Mapping) else None
        same = [one for one in known if isinstance(one, dict) and one.get("index") == index]
        if index is None or not same:
            known.append(item)
        else:
            _add(same[0], item)


# ---------------------------------------------------------------- OpenAI


def _join_chat(pieces: Sequence[JSON]) -> JSONObject:
    """Join chunks to a chat completion; of several choices the first."""
    choice: JSONObject = {"index": 0, "message": {"role": "assistant", "content": None}}
    name = usage = None
    for piece in map(_plain, pieces):
        name, usage = name or piece.get("id"), piece.get("usage") or usage
        for part in piece.get("choices") or ():
            if not part.get("index"):
                _add(choice["message"], part.get("delta") or {})
                choice["finish_reason"] = part.get("finish_reason") or choice.get("finish_reason")
    for call in choice["message"].get("tool_calls") or ():
        call.pop("index", None)
    return {"id": name, "object": "chat.completion", "choices": [choice], "usage": usage}


def _join_responses(pieces: Sequence[JSON]) -> JSON:
    """Return the response in the last event, or the finished items of a stream that broke off."""
    for piece in reversed(pieces):
        if field_of(piece, "type") in _ENDS:
            return field_of(piece, "response")
    done = [piece for piece in pieces if field_of(piece, "type") == "response.output_item.done"]
    return {"object": "response", "output": [field_of(piece, "item") for piece in done]}


# ---------------------------------------------------------------- Anthropic


def _join_anthropic(pieces: Sequence[JSON]) -> JSONObject:
    """Join events to a message, without those that an SDK derives from others."""
    message: JSONObject = {"type": "message", "role": "assistant", "stop_reason": None}
    blocks: dict[int, JSONObject] = {}
    inputs: dict[int, str] = {}
    for piece in map(_plain, pieces):
        kind, index = piece.get("type"), piece.get("index", 0)
        if kind == "message_start":
            message |= piece["message"]
        elif kind == "content_block_start":
            blocks[index] = dict(piece["content_block"])
        elif kind == "content_block_delta":
            block, delta = blocks.setdefault(index, {}), piece["delta"]
            if delta["type"] == "input_json_delta":
                inputs[index] = inputs.get(index, "") + delta["partial_json"]
            elif delta["type"] == "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            else:
                _add(block, {key: value for key, value in delta.items() if key != "type"})
        elif kind == "message_delta":
            message |= piece["delta"]
            if edited := piece.get("context_management"):
                message["context_management"] = edited
            billed = {
                key: value for key, value in piece.get("usage", {}).items() if value is not None
            }
            message["usage"] = (message.get("usage") or {}) | billed
    for index, text in inputs.items():
        blocks[index]["input"] = _arguments(text)
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message


def _arguments(text: str) -> JSONObject:
    """Return a call's arguments, which came as text. Invalid JSON is wrapped as the provider advises.

    Source: Anthropic's page on fine-grained tool streaming.
    """
    found = json_or(None, text or "{}")
    return found if isinstance(found, dict) else {"INVALID_JSON": text}


# ---------------------------------------------------------------- Bedrock


def _join_converse(pieces: Sequence[JSON]) -> JSONObject:
    """Join the events of ConverseStream to a Converse response."""
    role, stop, usage = "assistant", None, None
    blocks: dict[int, JSONObject] = {}
    for piece in map(_plain, pieces):
        [(kind, event)] = piece.items()
        if kind == "messageStart":
            role = event["role"]
        elif kind == "contentBlockStart":
            _add(blocks.setdefault(event["contentBlockIndex"], {}), event["start"])
        elif kind == "contentBlockDelta":
            _add(blocks.setdefault(event["contentBlockIndex"], {}), _as_block(event["delta"]))
        elif kind == "messageStop":
            stop = event["stopReason"]
        elif kind == "metadata":
            usage = event.get("usage")
    content = [_with_input(blocks[index]) for index in sorted(blocks)]
    message = {"role": role, "content": content}
    return {"output": {"message": message}, "stopReason": stop, "usage": usage}


def _as_block(delta: JSONObject) -> JSONObject:
    """Return a delta in the shape of the block that it is added to."""
    thought = delta.get("reasoningContent")
    if thought is None or "redactedContent" in thought:
        return delta
    return {"reasoningContent": {"reasoningText": dict(thought)}}


def _with_input(block: JSONObject) -> JSONObject:
    use = block.get("toolUse")
    if use is None:
        return block
    return {"toolUse": {**use, "input": _arguments(use.get("input", ""))}}


# ---------------------------------------------------------------- Gemini


def _is_gemini(given: Sequence[JSON]) -> bool:
    """Return True for responses of one stream: they share an id, or only the last one is finished."""
    if len(given) < 2 or not all(_is_response(item) for item in given):
        return False
    ids = [field_of(item, "response_id") or field_of(item, "responseId") for item in given]
    same = all(one == ids[0] for one in ids)
    return same and (ids[0] is not None or not any(map(_has_ended, given[:-1])))


def _has_ended(response: JSON) -> bool:
    candidates = field_of(response, "candidates")
    ends = candidates if isinstance(candidates, list) else ()
    return any(field_of(one, "finish_reason") or field_of(one, "finishReason") for one in ends)


def _is_response(item: JSON) -> bool:
    if isinstance(item, Mapping):
        return "candidates" in item or "usageMetadata" in item
    return hasattr(item, "candidates") and hasattr(item, "usage_metadata")


def _join_gemini(given: Sequence[JSON]) -> JSONObject:
    """Join responses, each of which has the new parts; adjacent texts become one part."""
    parts: list[JSONObject] = []
    name = usage = reason = None
    for piece in map(_plain, given):
        name, usage = name or piece.get("responseId"), piece.get("usageMetadata") or usage
        for candidate in (piece.get("candidates") or ())[:1]:
            reason = candidate.get("finishReason") or reason
            for part in (candidate.get("content") or {}).get("parts") or ():
                if parts and _go_together(parts[-1], part):
                    parts[-1] = parts[-1] | {"text": parts[-1]["text"] + part["text"]}
                else:
                    parts.append(part)
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"index": 0, "content": content, "finishReason": reason}],
        "usageMetadata": usage,
        "responseId": name,
    }


def _go_together(before: JSONObject, after: JSONObject) -> bool:
    """Return True if two parts are pieces of one text; a signature ends a part."""
    return (
        "text" in before
        and "text" in after
        and before.get("thought") == after.get("thought")
        and before.keys() | after.keys() <= {"text", "thought"}
    )
