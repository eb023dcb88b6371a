"""The rules of Mistral's API for the messages of a chat completion.

Its own validator is public (mistral-common), but the API is stricter than its newest version: a user
after a tool is still rejected there (litellm#17761, hermes-agent#20154), so the strictest known behaviour
applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memman.entries import JSON, JSONObject
from memman.formats.rules.checks import answers_in_place, no_system, tool_name
from memman.formats.rules.rulebook import Checker, Here, There, matches, rules_of
from memman.formats.rules.values import chat_ids, dicts, get, ids_in, repeated, show, typed

RULES = rules_of(
    """
system.shape | System text is a message, not a parameter. | mistral-common 1.13 SystemMessage
shape.message | A message is an object with the role system, user, assistant or tool. | \
mistral-common 1.13 Roles
shape.content | Content is a string or typed chunks; null only with calls. | \
mistral-common 1.13 UserMessage, ToolMessage
shape.chunk-role | An assistant's chunks are text and thoughts. | \
mistral-common 1.13 AssistantMessage
shape.tool-calls | tool_calls is a list of objects with a function. | mistral-common 1.13 ToolCall
content.empty | An assistant message has content or calls. | OpenHands#8685, solbrowse/extension#16
order.unexpected | A tool follows an assistant or a tool, a user never a tool, a system message \
nobody but system and user. | crush#279, avante.nvim#2695, litellm#17761; mistral-common 1.13 \
(system)
order.first-calls | The first message makes no calls: their results would count as too many. | \
mistral-common 1.13 validate_tool_calls_followed_by_tool_messages
order.alone | A single message is a user's or a system's. | \
mistral-common 1.13 validate_message_list_structure
order.last | The last message is a user's, a tool's, or an assistant's with a prefix. | \
smolagents#757, autogen#5044
prefix.not-last | Only the last message has a true prefix. | \
mistral-common 1.13 validate_assistant_message
pair.missing-result | Each call is answered before anybody else speaks. | \
mistralai/client-ts#106, instructor#724
pair.orphan-result | A tool message answers a call of the last assistant message. | \
mistral-common 1.13 (tokenizers 11 and newer), instructor#724
pair.duplicate-result | A call is answered once. | mistral-common 1.13 (tokenizers 11 and newer)
id.pattern | The id of a call and of its result matches ^[a-zA-Z0-9]{9}$. | \
opencode#1680, magentic#276, langchain#24668
id.duplicate | The calls of one message have different ids. | \
mistral-common 1.13 (tokenizers 11 and newer)
args.shape | Arguments are a string of JSON or an object. | mistral-common 1.13 FunctionCall
name.pattern | A tool name matches ^[a-zA-Z0-9_-]{1,64}$. | mistral-common 1.13 validate_function_call
""",
    "mistral",
)
_ID = r"[a-zA-Z0-9]{9}"
_AFTER = {
    "system": ("system", "user", "assistant"),
    "user": ("system", "user", "assistant"),
    "assistant": ("user", "assistant", "tool"),
    "tool": ("assistant", "tool"),
}
# For a message of this role in a wrong place.
_REMEDIES = {
    "user": "put an assistant's message between",
    "tool": "put it behind the message of its call",
    "system": "put it at the head, or send it as a user's note",
}
_SPOKEN = ("text", "thinking", "reference")


def _message(message: JSONObject) -> Here:
    role, content = message["role"], message.get("content")
    if role == "assistant" and not content:
        if not message.get("tool_calls"):
            yield "content.empty", "an assistant message has no content and no calls; drop it"
    elif not (isinstance(content, str) or (content and typed(content))):
        yield "shape.content", f"{role} content is {show(content)}; send a string or typed chunks"
    if role == "assistant":
        for chunk in dicts(content):
            if chunk.get("type") not in _SPOKEN:
                shown = show(chunk.get("type"))
                yield "shape.chunk-role", f"the assistant shows {shown}; leave it out"
        yield from _calls(message.get("tool_calls"))
    if role == "tool":
        yield from _id("a tool_call_id", message.get("tool_call_id"))
        if message.get("name") is not None:
            yield from tool_name(message["name"])


def _calls(calls: JSON) -> Here:
    if calls is not None and not isinstance(calls, list):
        yield "shape.tool-calls", f"tool_calls is {show(calls)}; send a list"
        return
    for call in calls or ():
        body = get(call, "function")
        if not isinstance(body, dict):
            yield "shape.tool-calls", "a call has no function; send its name and arguments"
            continue
        yield from _id("a call's id", call.get("id"))
        yield from tool_name(body.get("name"))
        if not isinstance(body.get("arguments"), str | dict):
            given = show(body.get("arguments"))
            yield "args.shape", f"arguments are {given}; send a JSON string or an object"
    for call_id in repeated(ids_in(dicts(calls))):
        yield "id.duplicate", f"several calls have the id {show(call_id)}; give each its own"


def _id(what: str, value: JSON) -> Here:
    if not matches(_ID, value):
        yield "id.pattern", f"{what} is {show(value)}; map it to nine letters and digits"


def _request(messages: Sequence[JSON]) -> There:
    roles = [_role(message) for message in messages]
    for index, (before, role) in enumerate(pairwise(roles), start=1):
        if before and role and role not in _AFTER[before]:
            text = f"a {role} message follows a {before}'s; {_REMEDIES.get(role, 'reorder them')}"
            yield index, "order.unexpected", text
    if roles and roles[0] == "tool":
        yield 0, "order.unexpected", "a tool speaks first; drop its result, or send it as text"
    if messages and chat_ids(messages[0]):
        yield 0, "order.first-calls", "the first message makes calls; put a user message before"
    if len(roles) == 1 and roles[0] in ("assistant", "tool"):
        yield 0, "order.alone", f"a {roles[0]} message is alone; put a user message before"
    for index, (message, _) in enumerate(pairwise(messages)):
        if get(message, "prefix"):
            yield index, "prefix.not-last", "a message in the middle has a prefix; drop the key"
    if roles and roles[-1] not in ("", "user", "tool") and not get(messages[-1], "prefix"):
        text = f"the last message is of role {show(roles[-1])}; end with a user's or a tool's"
        yield len(roles) - 1, "order.last", text
    yield from answers_in_place(messages, chat_ids, _answered)


def _role(message: JSON) -> str:
    """Return a message's role, "" if it has none of this API's."""
    role = get(message, "role")
    return role if isinstance(role, str) and role in _AFTER else ""


def _answered(message: JSON) -> tuple[bool, JSON]:
    return get(message, "role") == "tool", get(message, "tool_call_id")


CHECKER = Checker(tuple(_AFTER), no_system("message of role system"), _message, _request)
