"""The rules of LangChain, and of most chat models behind it, for a list of its messages."""

from __future__ import annotations

from collections.abc import Sequence

from memman.entries import JSON, JSONObject
from memman.formats.rules.checks import answers_in_place, no_system, reused_ids
from memman.formats.rules.rulebook import Checker, Here, There, rules_of
from memman.formats.rules.values import dicts, filled, get, ids_in, show

RULES = rules_of(
    """
system.shape | System text is a message, not a parameter. | langchain-core 1.x SystemMessage
shape.message | A message is an object with a type and data, or the constructor form. | \
langchain-core 1.x messages_from_dict, loads
shape.content | Content is a string, or a list of strings and objects. | \
langchain-core 1.x BaseMessage (null is refused)
shape.tool-calls | tool_calls is a list of objects with a name. | langchain-core 1.x ToolCall
order.system | System messages stand first and together. | \
langchain#20835 (ChatAnthropic), langchain#28164 (ChatGoogleGenerativeAI)
pair.missing-result | Each call is answered before anybody else speaks. | langgraph#5109
pair.orphan-result | A tool message answers a call of the last ai message. | \
CopilotKit#7277, strands#1435
pair.duplicate-result | A call is answered once. | agno#5116 (as the model's provider)
id.missing | A call has an id and a tool message a tool_call_id. | \
langchain-core 1.x ToolMessage, langchain#22600
id.duplicate | The calls of a request have different ids. | claude-code#20700 (as the model's provider)
args.not-object | The args of a call are an object; others are invalid_tool_calls. | \
langchain-core 1.x ToolCall
""",
    "langchain",
)
_CLASSES = {"HumanMessage": "human", "AIMessage": "ai", "SystemMessage": "system",
            "ToolMessage": "tool", "FunctionMessage": "function", "ChatMessage": "chat"}  # fmt: skip
_CHUNKS = {f"{name}Chunk": kind for name, kind in _CLASSES.items()}
_KINDS = {kind: kind for kind in _CLASSES.values()} | _CHUNKS


def _kind(message: JSON) -> str:
    """Return human, ai, system, tool, function or chat; "" if it is not a message."""
    kind, data = get(message, "type"), get(message, "data")
    if kind == "constructor":
        path, data = get(message, "id"), get(message, "kwargs")
        kind = path[-1] if isinstance(path, list) and path else None
        kind = _CLASSES.get(kind, kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or not isinstance(data, dict):
        return ""
    return _KINDS.get(kind, "")


def _data(message: JSON) -> JSONObject:
    found = get(message, "kwargs") if get(message, "type") == "constructor" else None
    data = get(message, "data") if found is None else found
    return data if isinstance(data, dict) else {}


def _message(message: JSON) -> Here:
    kind, data = _kind(message), _data(message)
    if not kind:
        wrong = f"a message is {show(message)} of type {show(get(message, 'type'))}"
        yield "shape.message", f"{wrong}; send an object with a type and its data"
        return
    content = data.get("content")
    blocks = isinstance(content, list) and all(isinstance(b, str | dict) for b in content)
    if not (isinstance(content, str) or blocks):
        yield "shape.content", f"{kind} content is {show(content)}; send a string or blocks"
    if kind == "tool" and not filled(data.get("tool_call_id")):
        yield "id.missing", "a tool message has no tool_call_id; name the call it answers"
    if kind == "ai":
        yield from _calls(data.get("tool_calls"))


def _calls(calls: JSON) -> Here:
    named = isinstance(calls, list) and all(filled(get(call, "name")) for call in calls)
    if calls is not None and not named:
        yield "shape.tool-calls", "tool_calls is not a list of named calls; omit it if empty"
    for call in dicts(calls):
        if not filled(call.get("id")):
            yield "id.missing", f"a call has the id {show(call.get('id'))}; give it a string"
        if not isinstance(call.get("args"), dict):
            given = show(call.get("args"))
            yield "args.not-object", f"args are {given}; send an object, or an invalid_tool_call"


def _request(messages: Sequence[JSON]) -> There:
    spoken = False
    for index, message in enumerate(messages):
        kind = _kind(message)
        if kind == "system" and spoken:
            yield index, "order.system", "a system message follows others; send it as a human's"
        spoken = spoken or kind not in ("", "system")
    yield from reused_ids(messages, _called, "the id {} was used before; map it")
    yield from answers_in_place(messages, _called, _answered)


def _called(message: JSON) -> list[str]:
    if _kind(message) != "ai":
        return []
    data = _data(message)
    return ids_in(dicts(data.get("tool_calls")) + dicts(data.get("invalid_tool_calls")))


def _answered(message: JSON) -> tuple[bool, JSON]:
    return _kind(message) == "tool", _data(message).get("tool_call_id")


CHECKER = Checker((), no_system("message of type system"), _message, _request)
