"""The rules of the OpenAI Responses API for the items of a request's input."""

from __future__ import annotations

from collections.abc import Sequence

from memman.entries import JSON, JSONObject
from memman.formats.rules.checks import no_system, tool_name
from memman.formats.rules.rulebook import Checker, Here, There, rules_of
from memman.formats.rules.values import dicts, filled, get, show, typed
from memman.formats.wire.keys import item_types

RULES = rules_of(
    """
system.shape | System text is an item, not a parameter. | \
house: instructions hold for a single request (openai 3.54 ResponseCreateParams)
shape.message | An item is an object with a type, or a message with a known role. | \
openai 3.54 ResponseInputItemParam
shape.item-type | An item has a type that the API has, or that of a call or its output. | \
openai 3.57 ResponseInputItemParam
shape.content | A message's content and an output is a string or typed parts. | \
openai 3.54 EasyInputMessageParam, FunctionCallOutput
shape.part-role | An assistant's parts are output_text or refusal, all others go in. | \
rust-genai#119, litellm#17507
pair.missing-result | Each call has an output of its kind with its call_id. | openai-agents#2317
pair.orphan-result | An output comes after the call with its call_id. | OpenMinis#222
pair.duplicate-result | A call has a single output. | house: a second one says nothing about which holds
id.pattern | A call_id has 1 to 64 characters. | 9router#393, fastllm#45, codex#14355
id.duplicate | The call_ids of a request's calls differ. | house: an output names its call by it
args.not-string | Arguments are a string of JSON, not an object. | \
openai 3.54 ResponseFunctionToolCallParam
name.pattern | A function name matches ^[a-zA-Z0-9_-]{1,64}$. | openai 3.54 FunctionToolParam
reasoning.alone | Reasoning is followed by what it led to. | \
continue#8933, openai-node#1567, vercel/ai#7099
""",
    "openai-responses",
)
_ROLES = ("system", "developer", "user", "assistant")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
# Calls that the provider answers in the same item.
_HOSTED = (
    "code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call",
)  # fmt: skip
_PAIRED = ("_call", "_use", "_request", "_output", "_result", "_response")  # types may be newer
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_SPOKEN = ("output_text", "refusal")


def _item(item: JSON) -> Here:
    kind = _kind(item)
    if kind == "":
        yield "shape.message", f"an item is {show(item)} without a type or a role; send one of them"
    elif kind == "message":
        spoken = item["role"] == "assistant"
        yield from _content(item.get("content"), f"{item['role']} content", spoken)
    elif kind in _CALLS or kind in _OUTPUTS:
        if not (filled(item.get("call_id")) and len(item["call_id"]) <= 64):
            given = show(item.get("call_id"))
            yield "id.pattern", f"the call_id of a {kind} is {given}; use 1 to 64 characters"
        if kind in _OUTPUTS:
            yield from _content(item.get("output"), "an output", spoken=False)
        else:
            yield from _call(item, _CALLS[kind])
    elif kind not in item_types("openai-responses") and not kind.endswith(_PAIRED):
        yield "shape.item-type", f"the API has no item of the type {show(kind)}; drop it"


def _kind(item: JSON) -> str:
    """Return the type of an item; "" if it has none."""
    if get(item, "type") in (None, "message"):
        return "message" if get(item, "role") in _ROLES else ""
    kind = get(item, "type")
    return kind if isinstance(kind, str) else ""


def _content(content: JSON, what: str, spoken: bool) -> Here:
    if isinstance(content, str):
        return
    if not content or not typed(content):
        yield "shape.content", f"{what} is {show(content)}; send a string or typed parts"
    for part in dicts(content):
        if (part.get("type") in _SPOKEN) != spoken:
            kind = show(part.get("type"))
            yield "shape.part-role", f"{what} has a part of the type {kind}; use its own types"


def _call(item: JSONObject, key: str) -> Here:
    name = item.get("name")
    yield from tool_name(name, "function")
    if not isinstance(item.get(key), str):
        given = show(item.get(key))
        yield "args.not-string", f"{key} of {show(name)} is {given}; dump it to a JSON string"


def _half(item: JSON) -> tuple[str, str, JSON]:
    """Return whether an item is a "call" or an "output", its tool and its id; by its name alone."""
    kind = _kind(item)
    if kind in _HOSTED or (get(item, "execution") == "server" and not get(item, "call_id")):
        return "", "", None
    for end in ("_output", "_response"):
        if kind.endswith(end):
            keys = ("call_id", "approval_request_id", "id")
            key = next((key for key in keys if filled(get(item, key))), "")
            return "output", kind.removesuffix(end).removesuffix("_call"), get(item, key)
    if kind.endswith(("_call", "_request")) or kind == "program":
        tool = kind.removesuffix("_call").removesuffix("_request")
        return "call", tool, get(item, "call_id") or get(item, "id")
    return "", "", None


def _request(items: Sequence[JSON]) -> There:
    called: dict[tuple[str, str], int] = {}
    answered: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        kind = _kind(item)
        half, tool, call_id = _half(item)
        pair = (tool, call_id)
        if half == "call" and filled(call_id):
            if any(call_id == used for _, used in called):
                yield index, "id.duplicate", f"{show(call_id)} was used before; give each its own"
            called.setdefault(pair, index)
        elif half == "output" and filled(call_id):
            if pair not in called:
                text = f"no {tool} {show(call_id)} before; drop the output, or send it as text"
                yield index, "pair.orphan-result", text
            elif pair in answered:
                yield index, "pair.duplicate-result", f"{show(call_id)} has an output; keep one"
            answered.add(pair)
        elif kind == "reasoning" and not _goes_on(items[index + 1 :]):
            yield index, "reasoning.alone", "nothing follows that the reasoning led to; drop it"
    for pair, index in called.items():
        if pair not in answered:
            yield index, "pair.missing-result", f"no output for {show(pair[1])}; add one"


def _goes_on(items: Sequence[JSON]) -> bool:
    """Return True if an item of the model's comes next, possibly after more reasoning."""
    following = next((item for item in items if _kind(item) != "reasoning"), None)
    kind = _kind(following)
    if kind == "message":
        return bool(get(following, "role") == "assistant")
    return kind != "" and _half(following)[0] != "output"


CHECKER = Checker((), no_system("item of role system"), _item, _request)
