"""Messages as plain dicts, from dicts, the objects of SDKs and whole responses.

Messages of other frameworks and messages without content are recognised, named and rejected.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from memman.display import format_error, safe_repr
from memman.entries import MOST_TOKENS, NewEntry, check_new_entry, plain_json
from memman.errors import FormatError, InvalidInput
from memman.extents import check_extent

_ONLY_IN_RESPONSES = frozenset(("parsed", "parsed_output"))
_OF_RESPONSES = ("choices", "candidates", "output")  # the messages in a response
_RESPONSES = ("response", "response.compaction")  # OpenAI's, the second to a request to compact
_LONGEST_ID = 200  # characters
_CONVERSED = frozenset(("message", "stopReason"))  # a key of Bedrock's response or of its output
_NO_REPLY: Final = {"role": "assistant", "content": None}
_ABOUT_REPLIES = frozenset((
    "role", "id", "type", "model", "usage", "status", "stop_reason", "stop_sequence", "stop_details",
))  # fmt: skip
_ROLES: Final = ("system", "user", "assistant", "tool")
_ALL_ROLES: Final = (*_ROLES, "developer", "function", "model")
# An assistant message may consist of these alone.
_SAID: Final = (
    "content", "tool_calls", "function_call", "refusal", "audio", "images", "reasoning",
    "reasoning_content", "reasoning_details", "thinking", "thinking_blocks",
)  # fmt: skip
_BY_HAND: Final = (
    "add it with add_user_message, add_assistant_message, add_tool_call, add_tool_result"
)
_LLAMA_INDEX: Final = ("LlamaIndex", "install memman-llama-index")
_AGENT_FRAMEWORK: Final = (
    "Agent Framework",
    "install memman-agent-framework, and pass message.to_dict()",
)
_PYDANTIC_AI: Final = (
    "pydantic-ai",
    "install memman-pydantic-ai, and pass what ModelMessagesTypeAdapter dumps as JSON",
)
_AUTOGEN: Final = ("AutoGen", _BY_HAND)
# The logs and exports that memman-cli reads, by their names there: the keys of an item without a role.
LOGS: Final = {
    "claude-code": ("Claude Code", ({"uuid", "parentUuid", "sessionId"}, {"leafUuid"})),
    "codex": ("Codex", ({"timestamp", "type", "payload"},)),
    "chatgpt-export": ("ChatGPT", ({"mapping", "current_node"},)),
    "sharegpt": ("ShareGPT", ({"conversations"}, {"from", "value"})),
    "otel": ("OpenTelemetry", ({"name", "attributes"},)),
}
# Those that nothing here reads.
_OTHER_LOGS: Final = {
    "`claude -p --output-format stream-json`": {"type", "subtype", "session_id"},
    "`codex exec --json`": {"type", "thread_id"},
    "Copilot": {"type", "data", "parentId"},
    "Kimi": {"type", "protocol_version"},
    "opencode": {"info", "parts"},
    "Cline": {"ts", "type", "say"},
}
_OF_PARTS: Final = {"part_kind": _PYDANTIC_AI, "toolCallId": ("the Vercel AI SDK", _BY_HAND)}
_BY_PACKAGE: Final = {
    "agent_framework": _AGENT_FRAMEWORK,
    "autogen_agentchat": _AUTOGEN,
    "autogen_core": _AUTOGEN,
    "llama_index": _LLAMA_INDEX,
    "pydantic_ai": _PYDANTIC_AI,
}


def plain_messages(given: Any) -> list[Any]:
    """Return a list of dicts (or the text itself) from messages, one message, or a response object.

    The objects of the OpenAI, Anthropic and Google SDKs, LangChain's messages and boto3's responses are
    recognised by their attributes, so no SDK is imported; bytes of Converse messages become base64.

    Raises:
        FormatError: anything else.
    """
    if isinstance(given, str):
        return [given]
    return [
        plain_message(index, message, message is not item)
        for index, item in enumerate(_listed(given))
        for message in _messages_of(index, item)
    ]


def _listed(given: Any) -> Sequence[Any]:
    """Return a list of messages as it is, anything else as the only item of one."""
    alone = isinstance(given, str | Mapping | bytes | bytearray)
    return [given] if alone or not isinstance(given, Sequence) else given


def messages_in(given: Any) -> list[tuple[Any, bool]]:
    """Return the messages as they are, each with whether it is from a response.

    A response without a message is a message itself.
    """
    found: list[tuple[Any, bool]] = []
    for index, item in enumerate(_listed(given)):
        try:
            found += [(message, message is not item) for message in _messages_of(index, item)]
        except FormatError:
            found.append((item, False))
    return found


def plain_items(item: Any) -> list[Any]:
    """Return the messages of one item that was just decoded from JSON, without validating it again."""
    if type(item) is dict and not any(key in item for key in _OF_RESPONSES):
        return [item]
    return plain_messages([item])


def parse_each(
    messages: Iterable[Any], parse_one: Callable[[Any, str], list[NewEntry]]
) -> list[NewEntry]:
    """Return the entries of all messages. A `FormatError` names the faulty message.

    `parse_one(message, label)` may raise any `InvalidInput`; the label is unique to the message.
    """
    new_entries: list[NewEntry] = []
    for index, message in enumerate(messages):
        try:
            found = [check_new_entry(new_entry) for new_entry in parse_one(message, str(index))]
        except InvalidInput as error:
            raise FormatError(f"message {index}: {error}", index) from None
        except RecursionError:
            raise FormatError(f"message {index}: it is nested too deeply", index) from None
        if index:
            found = [msgspec.structs.replace(new_entry, message_index=index) for new_entry in found]
        new_entries += found
    return new_entries


def is_empty_reply(given: Any, messages: Sequence[Any]) -> bool:
    """Return True if a response or a single reply has nothing to store, as after a filter's stop.

    `messages` are those of `given` as plain data.
    """
    return (not messages or not isinstance(given, list | tuple)) and all(
        isinstance(message, dict)
        and message.get("role") in ("assistant", "model")
        and not any(message[key] for key in message.keys() - _ABOUT_REPLIES)
        for message in messages
    )


def reported_usage(given: Any) -> Any:
    """Return the usage in a response object, or None."""
    if isinstance(given, Mapping):
        if _has(given, "candidates", "promptFeedback"):
            return given.get("usageMetadata")
        marks = ("choices", "stop_reason", "stopReason")
        is_response = given.get("object") in _RESPONSES or any(mark in given for mark in marks)
        return given.get("usage") if is_response else None
    if not hasattr(given, "model_dump"):
        return None
    return getattr(given, "usage", None) or getattr(given, "usage_metadata", None)


def response_id(given: Any) -> str:
    """Return the id that a response, or a single message, has from its provider; "" without one."""
    names = [field_of(given, key) for key in ("id", "response_id", "responseId")]
    names.append(field_of(field_of(given, "ResponseMetadata"), "RequestId"))
    found = next((name for name in names if isinstance(name, str)), "")
    return found[:_LONGEST_ID].encode(errors="replace").decode()


def is_compacted(response: Any) -> bool:
    """Return True for the response to a request that only compacts a conversation."""
    return bool(field_of(response, "object") == _RESPONSES[1])


def cleared_tokens(response: Any) -> int:
    """Return the tokens that a provider's context editing left out of a request, by its response."""
    found = 0
    for edit in field_of(field_of(response, "context_management"), "applied_edits") or ():
        tokens = field_of(edit, "cleared_input_tokens")
        found += tokens if isinstance(tokens, int) and 0 <= tokens <= MOST_TOKENS else 0
    return min(found, MOST_TOKENS)


def plain_message(index: int, message: Any, inside: bool) -> Any:
    """Return a message as plain JSON data; `inside` marks one from a response. Raises `FormatError`."""
    if isinstance(message, str):
        return message
    dump = getattr(message, "model_dump", None)
    if callable(dump):
        plain = dumped(index, message, dump)
    elif inside and isinstance(message, Mapping) and not _is_sendable(message):
        plain = _sendable(message)
    else:
        plain = message
    if not isinstance(plain, Mapping):
        if framework := _BY_PACKAGE.get(type(message).__module__.partition(".")[0]):
            raise FormatError(f"message {index}: it is {_advice(*framework)}", index)
        raise FormatError(
            f"message {index} must be a dict or an SDK's message object, "
            f"not {type(message).__name__}"
        )
    found = _with_plain_artifact(dict(plain))
    # A reply without parts has no other key; messages of frameworks have their content in other ones.
    if found == {"role": "model"}:
        found["parts"] = []
    if inside and "parts" in found:
        found = {"role": "model"} | found
    try:
        return plain_json(found, f"message {index}")
    except InvalidInput:
        return _with_plain_blocks(index, found)


def _is_sendable(message: Mapping[str, Any]) -> bool:
    """Return True if a response's message can be sent back as it is: all but those of chat completions."""
    return "type" in message or "parts" in message or _is_converse(message)


def _is_converse(message: Mapping[str, Any]) -> bool:
    """Return True if the blocks of a message have keys instead of types, as Bedrock's have."""
    content = message.get("content")
    return isinstance(content, list) and not any(
        isinstance(block, Mapping) and "type" in block for block in content
    )


def as_plain(value: Any) -> Any:
    """Return an SDK's object inside a message as the dict that its SDK sends, anything else as it is."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    return _filled(dump(mode="json", by_alias=True, exclude_unset=True))


def _with_plain_blocks(index: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as JSON data; SDK objects become dicts, and boto3's bytes base64."""
    try:
        check_extent(message, f"message {index}")
        plain = _plain_within(message, _is_converse(message))
        found: dict[str, Any] = plain_json(plain, f"message {index}")
    except InvalidInput as error:
        raise FormatError(str(error)) from None
    except RecursionError:
        raise FormatError(f"message {index}: it is nested too deeply", index) from None
    return found


def _plain_within(value: Any, binary: bool) -> Any:
    if binary and isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _plain_within(item, binary) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_within(item, binary) for item in value]
    return as_plain(value)


def dumped(index: int, message: Any, dump: Callable[..., Any]) -> Any:
    """Return an SDK's object as plain data, without the fields of responses."""
    try:
        if hasattr(message, "additional_kwargs") and hasattr(message, "type"):
            return {"type": message.type, "data": _dumped_langchain(message, dump)}
        # Google's: unset fields are left out, names are those of the wire.
        if hasattr(message, "parts"):
            return {"parts": []} | dump(mode="json", by_alias=True, exclude_none=True)
        if _is_responses_item(message):  # as OpenAI's SDK itself sends it back
            return dump(mode="json", by_alias=True, exclude_unset=True)
        dumped = dump(mode="json", by_alias=True)
    except Exception as error:  # third-party code on objects that may not be validated
        reason = format_error(error)
        raise FormatError(f"message {index} cannot be read: {reason}") from error
    return _sendable(dumped) if isinstance(dumped, Mapping) else dumped


def _dumped_langchain(message: Any, dump: Callable[..., Any]) -> Any:
    """Return a LangChain message as it serializes itself; an artifact that is not JSON is left out."""
    try:
        return dump(mode="json")
    except Exception:  # an artifact may be any object, and no model sees it
        if getattr(message, "artifact", None) is None:
            raise
        return {**dump(mode="json", exclude={"artifact"}), "artifact": None}


def _with_plain_artifact(message: dict[str, Any]) -> dict[str, Any]:
    """Return a LangChain message without an artifact that is not JSON."""
    for key in ("data", "kwargs"):
        data = message.get(key)
        if isinstance(data, Mapping) and data.get("artifact") is not None:
            try:
                plain_json(data["artifact"], "artifact")
            except InvalidInput:
                return {**message, key: {**data, "artifact": None}}
    return message


def _is_responses_item(message: Any) -> bool:
    """Return True for an item of an OpenAI response; its messages have a status."""
    kind = getattr(message, "type", None)
    return isinstance(kind, str) and (kind != "message" or hasattr(message, "status"))


def _sendable(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response's message as it can be sent back: without nulls, which mean absent fields.

    Only the message's own keys and those of its blocks and calls are read: a null further down is in the
    arguments of a call and has a meaning.
    """
    kept = {}
    for key, value in message.items():
        if _is_unsent(key, value):
            continue
        kept[key] = [_filled(item) for item in value] if isinstance(value, list) else value
    if "content" in message and not has_content(kept):
        kept["content"] = None  # a reply that ended before it began
    return kept


def _filled(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    return {key: value for key, value in item.items() if not _is_unsent(key, value)}


def _is_unsent(key: str, value: Any) -> bool:
    return value is None or key in _ONLY_IN_RESPONSES or (key == "annotations" and not value)


def _messages_of(index: int, item: Any) -> Iterator[Any]:
    """Yield the messages or items inside a response; anything else is the message itself."""
    output = field_of(item, "output")
    if field_of(item, "object") in _RESPONSES and isinstance(output, Sequence | None):
        yield from output or ()
    elif (
        isinstance(item, Mapping) and isinstance(output, Mapping) and _CONVERSED & {*item, *output}
    ):
        yield output.get("message") or _NO_REPLY
    elif _has(item, "candidates", "promptFeedback"):
        content = _first(index, field_of(item, "candidates") or (), "content")
        # A reply that ended before it began has none: all its tokens were thoughts.
        yield {"parts": []} | content if isinstance(content, dict) else content
    elif _has(item, "choices"):
        yield _first(index, field_of(item, "choices"), "message")
    else:
        yield item


def _has(item: Any, *names: str) -> bool:
    """Return True if a dict or an SDK's object has one of these fields."""
    return any(name in item if isinstance(item, Mapping) else hasattr(item, name) for name in names)


def field_of(item: Any, name: str) -> Any:
    """Return a field of a dict or of an SDK's object, or None."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _first(index: int, choices: Any, name: str) -> Any:
    """Return the message of a response's first choice; one without a content if a filter stopped it."""
    listed = isinstance(choices, list | tuple)
    first = choices[0] if listed and choices else None
    message = field_of(first, name)
    if message is None and (not listed or _has(first, "text", "delta")):
        raise FormatError(f"message {index} is a completion without a message in its first choice")
    return message or _NO_REPLY


# ---------------------------------------------------------------- messages that no provider accepts


def has_content(message: Mapping[str, Any]) -> bool:
    """Return True if a message has a content, or an assistant message has calls or the like."""
    if "content" in message:
        return True
    return message.get("role") == "assistant" and any(key in message for key in _SAID)


def fault_of(messages: Sequence[Any]) -> tuple[str, int] | None:
    """Return the fault of the first message that no provider accepts, and its index."""
    for index, message in enumerate(messages):
        if isinstance(message, Mapping) and (fault := fault_in(message)):
            return f"message {index}: {fault}", index
    return None


def log_of(messages: Sequence[Any]) -> tuple[str, bool]:
    """Return the program whose log or export has these items, "" for none, and whether it is read."""
    items = [item for item in messages if isinstance(item, Mapping) and "role" not in item]
    for producer, shapes in LOGS.values():
        if any(keys <= item.keys() for item in items for keys in shapes):
            return producer, True
    others = (
        name for name, keys in _OTHER_LOGS.items() if any(keys <= item.keys() for item in items)
    )
    return next(others, ""), False


def fault_in(message: Mapping[str, Any]) -> str:
    """Return why no provider accepts a message, "" if it is valid by itself."""
    key, framework = _framework_of(message)
    if framework:
        return f"{key!r} makes it {_advice(*framework)}"
    role = message.get("role")
    if "role" not in message:
        return ""
    if role not in _ALL_ROLES:
        meant = get_close_matches(role, _ALL_ROLES, 1) if isinstance(role, str) else []
        hint = f"; did you mean {meant[0]!r}?" if meant else ""
        return f"role {safe_repr(role, 40)} is not one of {', '.join(_ROLES)}{hint}"
    if not has_content(message) and "parts" not in message:
        return f"it has the role {safe_repr(role)} and no content; it needs a 'content'"
    return ""


def _advice(framework: str, remedy: str) -> str:
    return f"a message of {framework}, which no format here reads: {remedy}"


def _framework_of(message: Mapping[str, Any]) -> tuple[str, tuple[str, str] | None]:
    """Return the key by which a message of a framework is recognised, and the framework."""
    if "role" in message and not message.get("content"):
        if isinstance(message.get("blocks"), list):
            return "blocks", _LLAMA_INDEX
        if isinstance(message.get("contents"), list):
            return "contents", _AGENT_FRAMEWORK
    for part in message["parts"] if isinstance(message.get("parts"), list) else ():
        for key, framework in _OF_PARTS.items():
            if isinstance(part, Mapping) and key in part:
                return key, framework
    if "author" in message and isinstance(message.get("content"), Mapping):
        return "author", ("Google ADK", "pass the event's content, in the format gemini")
    kind = message.get("type")
    if "source" in message and isinstance(kind, str) and kind.endswith(("Message", "Event")):
        return "source", _AUTOGEN
    return "", None
