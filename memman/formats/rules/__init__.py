"""The requests that providers reject, as rules to check a rendered request against.

The rules are written from the providers' own error messages and pages (`Rule.source`), and independently
of the rest of this package: a renderer and its rules cannot share a misreading. `check` reads plain dicts
and lists, as they are sent over the wire.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec

from memman.display import safe_repr
from memman.entries import JSON, JSONObject
from memman.formats.rules import bedrock, checks, gemini, langchain, mistral, responses
from memman.formats.rules.rulebook import Checker, Here, Rule, There, matches, rules_of
from memman.formats.rules.values import (
    chat_ids,
    dicts,
    filled,
    get,
    ids_in,
    repeated,
    says,
    show,
    strings,
    typed,
)
from memman.formats.wire.keys import class_of, roots_of

__all__ = ["RULES", "Rule", "Violation", "check"]


class Violation(msgspec.Struct, frozen=True):
    """One broken rule: the message (-1: the whole request), and the remedy."""

    rule: str
    index: int
    message: str


_EVERYWHERE = """
request.empty | A request has at least one message. | CopilotKit#529, dify#6179
text.surrogate | No string holds a lone surrogate. | claude-code#1709, opencode#13985, RFC 3629
"""
_KEYS = """
shape.unknown-key | A message and its parts have only keys that the provider takes. | \
autogen#1174, openai-node#1161; the SDKs' request types
"""
_OPENAI = """
system.shape | System text is a message, not a parameter. | openai 3.51 CompletionCreateParams
shape.message | A message is an object with a known role. | openai 3.51 ChatCompletionMessageParam
shape.content | Content is a string or typed parts; null only with calls, a refusal or audio. | \
docker-agent#63, llama_index#17921, langgraphjs#370; openai 3.51 message types
shape.tool-calls | tool_calls is a non-empty list of objects with a type and a body. | \
openai-python#2061, openai-node#1341; openai 3.51 message types
content.empty | An assistant message has content or calls. | \
llama_index#17921, vercel/ai#13744; house: OpenAI takes "", strict gateways do not (vellum-assistant#40690)
pair.missing-result | Each call is answered by a tool message with its id. | litellm#10696
pair.orphan-result | A tool message answers a call that waits for it. | CopilotKit#7277, prism#175
pair.not-adjacent | Results directly follow the message of their calls. | litellm#10696
pair.duplicate-result | A call is answered once. | agno#5116, search2ai#30
id.missing | A call has an id and a tool message a tool_call_id. | langchain#22600, ell#325
id.duplicate | The calls of one message have different ids. | openclaw#40996 (compatible servers)
args.not-string | Arguments are a string of JSON, not an object. | goose-mobile#20
name.pattern | A function name matches ^[a-zA-Z0-9_-]{1,64}$. | \
mcp-use#90, continue#11645; openai 3.51 FunctionDefinition (the length)
"""
_ANTHROPIC = """
system.shape | A system prompt is text or text blocks, none of them blank. | dbx#1298, req_llm#711
shape.message | A message is an object with the role user or assistant. | \
claude-code#61412, simplemind#37 (models before Opus 4.8 refuse the system role, so it is not sent)
shape.block | Content is a string or typed blocks, and text is text. | anthropic 2.10 MessageParam
shape.block-role | Only an assistant uses tools, only a user gives results. | Anthropic.SDK#128
order.first-not-user | The first message is the user's. | TextWordExplain#2, dify#12340
order.alternate | User and assistant turns alternate. | \
house: the API merges consecutive turns of one role (SDK docstring), we send them merged
order.last-assistant | The last message is not the assistant's, a prefill newer models refuse. | \
agentic-ai-engineering#43, langchain#36611
pair.missing-result | Each tool_use is answered in the user message that comes next. | \
claude-code#1237, claude-code#2697, inspect_ai#3108
pair.orphan-result | A tool_result answers a tool_use of the message just before. | \
claude-code#18947, Anthropic.SDK#184
pair.result-first | Results come before everything else in their message. | \
anthropic-sdk-typescript#653, tester-mcp-client#12; docs "Handle tool calls"
pair.duplicate-result | A tool_use has a single tool_result. | qwen-code#8163, picoclaw#1793
pair.server-tool | A provider's own tool has use and result, in order; the last message may wait. | \
vellum-assistant#15911, omi#10616; docs "Server tools" (pause_turn)
block.half | A thought is signed, and a compaction has a content. | \
claude-code#63943, openclaw#84430, vercel/ai#13335
marks.too-many | A request has at most four cache marks. | Bike4Mind#2127; docs "Prompt caching"
id.pattern | The id of a tool_use matches ^[a-zA-Z0-9_-]+$. | opencode#1279
id.duplicate | The tool_use ids of a request differ. | claude-code#20700, opencode#1279
args.not-object | The input of a tool_use is an object. | claude-code#6696, prism#659
name.pattern | A tool name matches ^[a-zA-Z0-9_-]{1,128}$. | copilot-cli#454, claude-code#96152
content.empty | No text block is empty, and no message but an assistant's at the end. | \
claude-code#59812, claude-code#6774, anthropic-sdk-python#461
content.whitespace | No text is only whitespace. | opencode#31259, claude-code#23369
content.trailing-ws | Assistant text at the end does not end in whitespace. | forgecode#1872
result.empty-error | A tool_result with is_error says something. | trae-agent#230, inspect_ai#169
"""


def check(messages: Sequence[JSON], target: str, *, system: JSON = None) -> list[Violation]:
    """Return every rule of `target` that the request breaks, in the order of its messages.

    Malformed input of any kind is a violation, never an error. `system` is the separate system parameter
    of the targets that have one.

    Raises:
        ValueError: a target without rules.
    """
    if target not in RULES:
        raise ValueError(
            f"no rules for {safe_repr(target)}; the known targets are {', '.join(RULES)}"
        )
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
        text = f"the messages are {show(messages)}; send a list of objects"
        return [Violation("shape.message", -1, text)]
    checker = _CHECKERS[target]
    found = [(-1, rule, text) for rule, text in checker.of_system(system)]
    if not messages:
        found += [(-1, "request.empty", "the request has no message; send at least one")]
    found += [(-1, rule, text) for rule, text in _surrogates(system)]
    messages = [checker.read(message) for message in messages]
    for index, message in enumerate(messages):
        found += [(index, rule, text) for rule, text in _surrogates(message)]
        broken = list(_message(message, checker))
        # The keys of anything but a message say nothing.
        if all(rule != "shape.message" for rule, _ in broken):
            broken += _foreign_keys(target, message)
        found += [(index, rule, text) for rule, text in broken]
    found += checker.of_request(messages)
    in_order = sorted(found, key=lambda finding: finding[0])
    return [Violation(rule, index, text) for index, rule, text in in_order]


def _message(message: JSON, checker: Checker) -> Here:
    if not checker.roles or get(message, "role") in checker.roles:
        yield from checker.of_message(message)
    else:
        wrong = f"a message is {show(message)} with the role {show(get(message, 'role'))}"
        yield "shape.message", f"{wrong}; send an object with one of {', '.join(checker.roles)}"


def _surrogates(part: JSON) -> Here:
    if any(not text.isascii() and re.search(r"[\ud800-\udfff]", text) for text in strings(part)):
        yield "text.surrogate", "a string holds a lone surrogate; put U+FFFD in its place"


def _foreign_keys(target: str, message: JSON) -> Here:
    """Yield a broken rule for each key that the provider does not take, at any depth."""
    todo, seen = [(roots_of(target), message)], set[int]()  # a caller's message may contain itself
    while todo:
        names, value = todo.pop()
        if isinstance(value, list) and id(value) not in seen:
            todo += [(names, item) for item in value]
        known = class_of(target, names, value) if id(value) not in seen else None
        seen.add(id(value))
        if known is None:
            continue
        for key, item in value.items():
            todo.append((known.keys.get(key, ()), item))
            if not known.has(str(key)):
                what = show(get(value, "type") or get(value, "role"))
                yield "shape.unknown-key", f"{what} has the key {show(key)}; drop it"


# OpenAI chat completions


def _openai_message(message: JSONObject) -> Here:
    role, content = message["role"], message.get("content")
    if content in (None, "") and role == "assistant":
        if not any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")):
            yield "content.empty", "an assistant message has no content and no calls; drop it"
    elif not (isinstance(content, str) or (content and typed(content))):
        yield "shape.content", f"{role} content is {show(content)}; send a string or typed parts"
    if role == "tool" and not filled(message.get("tool_call_id")):
        yield "id.missing", "a tool message has no tool_call_id; name the call it answers"
    if role == "assistant":
        yield from _openai_calls(message)


def _openai_calls(message: JSONObject) -> Here:
    calls, legacy = message.get("tool_calls"), message.get("function_call")
    if calls is not None and not (calls and typed(calls)):
        yield "shape.tool-calls", "tool_calls is not a list of typed calls; omit it if empty"
    for call in dicts(calls):
        if not filled(call.get("id")):
            yield "id.missing", f"a call has the id {show(call.get('id'))}; give it a string"
        custom = call.get("type") == "custom"
        body = call.get("custom") if custom else call.get("function")
        yield from _openai_body(body, "input" if custom else "arguments")
    if legacy is not None:
        yield from _openai_body(legacy, "arguments")
    for call_id in repeated(chat_ids(message)):
        yield "id.duplicate", f"several calls have the id {show(call_id)}; give each its own"


def _openai_body(body: JSON, key: str) -> Here:
    if not isinstance(body, dict):
        yield "shape.tool-calls", f"a call's body is {show(body)}; send its name and {key}"
        return
    name, arguments = body.get("name"), body.get(key)
    yield from checks.tool_name(name, "function")
    if not isinstance(arguments, str):
        text = f"{key} of {show(name)} is {show(arguments)}; dump it to a JSON string"
        yield "args.not-string", text


def _openai_pairs(messages: Sequence[JSON]) -> There:
    # The calls without a result so far, with the index of their message.
    waiting: list[tuple[int, str]] = []
    caller = -1  # the last message that was not a result
    for index, message in enumerate(messages):
        call_id = get(message, "tool_call_id")
        if get(message, "role") != "tool":
            caller = index
            waiting += [(index, asked) for asked in dict.fromkeys(chat_ids(message))]
        elif filled(call_id):  # otherwise it breaks id.missing
            home = next((call for call in reversed(waiting) if call[1] == call_id), None)
            waiting = [call for call in waiting if call is not home]
            again = home is None and caller >= 0 and call_id in chat_ids(messages[caller])
            if home is None or home[0] != caller:
                yield index, *_openai_stray(call_id, home, again)
    for index, call_id in waiting:
        text = f"no tool message answers the call {show(call_id)}; add one, or drop the call"
        yield index, "pair.missing-result", text


def _openai_stray(call_id: str, home: tuple[int, str] | None, again: bool) -> tuple[str, str]:
    name = f"the result of {show(call_id)}"
    if home is not None:
        return "pair.not-adjacent", f"{name} comes too late; move it behind message {home[0]}"
    if again:
        return "pair.duplicate-result", f"{name} is there already; keep one"
    return "pair.orphan-result", f"{name} follows no such call; drop it, or send it as text"


# Anthropic messages


_HOLDER = {"tool_use": "assistant", "tool_result": "user"}


def _anthropic_message(message: JSONObject) -> Here:
    content = message.get("content")
    if isinstance(content, str):
        # The order decides if "" is valid.
        yield from _anthropic_text({"text": content}) if content else ()
    elif not typed(content):
        yield "shape.block", f"content is {show(content)}; send a string or typed blocks"
    for block in dicts(content):
        kind = block["type"] if filled(block.get("type")) else ""
        if _HOLDER.get(kind, message["role"]) != message["role"]:
            yield "shape.block-role", f"{kind} is in a message of the {message['role']}; move it"
        # All other types pass: thinking, images, and future ones.
        yield from _BLOCKS[kind](block) if kind in _BLOCKS else ()


def _anthropic_text(block: JSONObject) -> Here:
    text = block.get("text")
    if not isinstance(text, str):
        yield "shape.block", f"the text of a block is {show(text)}; send a string"
    elif not text:
        yield "content.empty", "a text block is empty; drop it"
    elif not text.strip():
        yield "content.whitespace", "a text is only whitespace; drop it"


def _anthropic_use(block: JSONObject) -> Here:
    call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
    if not matches(r"[a-zA-Z0-9_-]+", call_id):
        yield "id.pattern", f"a tool_use id is {show(call_id)}; map it to letters, digits, _ and -"
    yield from checks.tool_name(name, most=128)
    if not isinstance(arguments, dict):
        yield "args.not-object", f"input of {show(name)} is {show(arguments)}; send an object"


def _anthropic_result(block: JSONObject) -> Here:
    content, name = block.get("content"), f"the result of {show(block.get('tool_use_id'))}"
    if not (content is None or isinstance(content, str) or typed(content)):
        yield "shape.block", f"{name} is {show(content)}; send a string or typed blocks"
    elif block.get("is_error") and not (filled(content) or any(map(_speaks, dicts(content)))):
        yield "result.empty-error", f"{name} is an error without a word; say that the tool failed"


def _speaks(block: JSONObject) -> bool:
    return block.get("type") != "text" or filled(block.get("text"))


def _anthropic_half(block: JSONObject) -> Here:
    kind = block["type"]
    key = {"thinking": "signature", "redacted_thinking": "data"}.get(kind, "content")
    if not filled(block.get(key)):
        yield "block.half", f"a {kind} has no {key}, as of an interrupted stream; drop it"


_BLOCKS = {
    "text": _anthropic_text,
    "tool_use": _anthropic_use,
    "tool_result": _anthropic_result,
    **dict.fromkeys(("thinking", "redacted_thinking", "compaction"), _anthropic_half),
}


def _anthropic_request(messages: Sequence[JSON]) -> There:
    yield from _anthropic_order(messages)
    yield from checks.served_pairs(messages, _served, may_wait=True)
    blocks = [block for message in messages for block in dicts(get(message, "content"))]
    inside = [part for block in blocks for part in dicts(block.get("content"))]
    marks = sum("cache_control" in block for block in (*blocks, *inside))
    if marks > 4:
        yield -1, "marks.too-many", f"the request has {marks} cache marks; keep the newest four"
    for index, message in enumerate(messages):
        role, final = get(message, "role"), index == len(messages) - 1
        if get(message, "content") in ("", []) and not (final and role == "assistant"):
            yield index, "content.empty", "a message is empty; drop it"
    text = "the tool_use id {} was used before; give each its own"
    yield from checks.reused_ids(messages, _called, text)
    if messages and get(messages[-1], "role") == "assistant":
        yield from _anthropic_end(len(messages) - 1, messages[-1])
    yield from checks.answers_next(messages, _called, _answered, "tool_use", "tool_result")


def _served(message: JSON) -> Iterator[tuple[str, JSON]]:
    """Yield ("use" or "result", id) of the blocks of the provider's own tools in a message."""
    for block in dicts(get(message, "content")) if get(message, "role") == "assistant" else ():
        kind = block.get("type")
        if isinstance(kind, str) and kind.endswith("_tool_use"):
            yield "use", block.get("id")
        elif isinstance(kind, str) and kind.endswith("_tool_result"):
            yield "result", block.get("tool_use_id")


def _anthropic_order(messages: Sequence[JSON]) -> There:
    yield from checks.alternating(messages)
    last = messages[-1] if messages else None
    halves = [call_id for _, call_id in _served(last)]
    paused = any(halves.count(call_id) == 1 for call_id in halves)
    if get(last, "role") == "assistant" and not paused:
        text = "the assistant speaks last, a prefill that newer models refuse; drop it"
        yield len(messages) - 1, "order.last-assistant", text


def _anthropic_end(index: int, message: JSON) -> There:
    content = get(message, "content")
    blocks = [{"text": content}] if isinstance(content, str) else dicts(content)
    text: JSON = blocks[-1].get("text") if blocks else None
    if says(text) and text != text.rstrip():
        yield index, "content.trailing-ws", "the final text ends in whitespace; strip it"


def _blocks(message: JSON, kind: str) -> list[JSONObject]:
    blocks = dicts(get(message, "content")) if get(message, "role") == _HOLDER[kind] else []
    return [block for block in blocks if block.get("type") == kind]


def _called(message: JSON) -> list[str]:
    return ids_in(_blocks(message, "tool_use"))


def _answered(message: JSON) -> list[JSON]:
    return [block.get("tool_use_id") for block in _blocks(message, "tool_result")]


_CHECKERS = {
    "openai-chat": Checker(
        ("system", "developer", "user", "assistant", "tool", "function"),
        checks.no_system("message of role system"),
        _openai_message,
        _openai_pairs,
    ),
    "anthropic": Checker(
        ("user", "assistant"),
        partial(checks.system_texts, kind="text"),
        _anthropic_message,
        _anthropic_request,
    ),
    "openai-responses": responses.CHECKER,
    "gemini": gemini.CHECKER,
    "bedrock": bedrock.CHECKER,
    "mistral": mistral.CHECKER,
    "langchain": langchain.CHECKER,
}
_SHARED = rules_of(_EVERYWHERE, *_CHECKERS)
_KEYED = rules_of(_KEYS, "openai-chat", "anthropic", "openai-responses", "mistral")

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "openai-chat": _SHARED + _KEYED + rules_of(_OPENAI, "openai-chat"),
        "anthropic": _SHARED + _KEYED + rules_of(_ANTHROPIC, "anthropic"),
        "openai-responses": _SHARED + _KEYED + responses.RULES,
        "gemini": _SHARED + gemini.RULES,
        "bedrock": _SHARED + bedrock.RULES,
        "mistral": _SHARED + _KEYED + mistral.RULES,
        "langchain": _SHARED + langchain.RULES,
    }
)
"""The rules of each target, by the target's name."""
