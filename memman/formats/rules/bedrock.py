"""The rules of Bedrock for the messages of a Converse request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from memman.entries import JSON, JSONObject
from memman.formats.rules import checks
from memman.formats.rules.rulebook import Checker, Here, There, matches, rules_of
from memman.formats.rules.values import dicts, filled, get, ids_in, show

RULES = rules_of(
    """
system.shape | A system prompt is text or blocks of text, none of them blank. | \
botocore 1.44 SystemContentBlock; OpenHands#5339 (blank text)
shape.message | A message is an object with the role user or assistant and at least one block. | \
earendil-works/pi#3443; botocore 1.44 Message; house: its system role is not rendered
shape.unknown-key | A message has only the keys role and content. | botocore 1.44 Message
shape.block | A block is an object with something in it; text is text. | botocore 1.44 ContentBlock
shape.block-role | Only an assistant uses tools; results, images and documents are the user's. | \
docs API_runtime_Message
content.whitespace | No text is blank. | OpenHands#5339, continue#9767, hermes-agent#60628
order.first-not-user | The first message is the user's. | dify#12340
order.alternate | User and assistant turns alternate. | langchainjs#6724, langchain-aws#130
order.last-assistant | The last message is not the assistant's. | \
langchain#36611 (newer Claude models)
pair.missing-result | Each toolUse is answered in the user message that comes next. | \
pydantic-ai#2327, claude-code#2697
pair.orphan-result | A toolResult answers a toolUse of the message just before. | strands#1435
pair.duplicate-result | A toolUse has a single toolResult. | strands#1435, pydantic-ai#2327
pair.server-tool | A server tool has use and result, in order, in the assistant's messages. | \
docs "Using built-in tools" (Amazon Nova); botocore 1.44 ToolUseBlock, ToolResultBlock
pair.result-first | Results come before everything else in their message. | \
anthropic-sdk-typescript#653 (Claude behind Converse)
id.pattern | A toolUseId matches ^[a-zA-Z0-9_.:-]{1,64}$. | botocore 1.44 ToolUseBlock
id.duplicate | The toolUseIds of a request differ. | opencode#1279 (Claude behind Converse)
name.pattern | A tool name matches ^[a-zA-Z0-9_-]{1,64}$. | botocore 1.44 ToolUseBlock
args.not-object | The input of a toolUse is an object. | Portkey-AI/gateway#769
result.not-object | The json of a toolResult is an object. | sigoden/aichat#1550, maximhq/bifrost#1330
result.empty-error | A toolResult with the status error says something. | aws-samples#15
document.without-text | A message with a document has a text too. | trpc-agent-go#1748
document.name | A document's name has 1 to 200 letters, digits, single spaces, - ( ) [ ]. | \
simonw/llm-bedrock#8, opencode#19964
document.duplicate | The names of the documents of a request differ. | maximhq/bifrost#7003, ag-ui#2425
""",
    "bedrock",
)
_HOLDER = {"toolUse": "assistant", "toolResult": "user", "image": "user", "document": "user"}
# An underscore is accepted, although the page does not list it (generative-ai-use-cases#1671).
_TITLE = r"(?! *\Z)(?!.*  )[a-zA-Z0-9_ ()\[\]-]{1,200}"


def _message(message: JSONObject) -> Here:
    content = message.get("content")
    if not isinstance(content, list) or not content:
        yield "shape.message", f"content is {show(content)}, or empty; send a list of blocks"
        return
    for block in content:
        if not isinstance(block, dict) or not block:
            yield "shape.block", f"a block is {show(block)}, or empty; drop it"
            continue
        for kind in _HOLDER.keys() & block.keys():
            served = kind == "toolResult" and _is_served(block[kind])
            if message["role"] != ("assistant" if served else _HOLDER[kind]):
                text = f"{kind} is in a message of the {message['role']}; move it"
                yield "shape.block-role", text
        yield from _block(block)
    kinds = {kind for block in dicts(content) for kind in block}
    if "document" in kinds and "text" not in kinds:
        yield "document.without-text", "a document is alone; add a text to the message"


def _block(block: JSONObject) -> Here:
    if "text" in block and not isinstance(block["text"], str):
        yield "shape.block", f"the text of a block is {show(block['text'])}; send a string"
    elif "text" in block and not block["text"].strip():
        yield "content.whitespace", "a text is blank; drop it"
    if "document" in block and not matches(_TITLE, get(block["document"], "name")):
        name = show(get(block["document"], "name"))
        yield "document.name", f"a document's name is {name}; use letters, digits and -"
    for kind, check in (("toolUse", _use), ("toolResult", _result)):
        if kind in block:
            body = block[kind]
            if not isinstance(body, dict):
                yield "shape.block", f"a {kind} is {show(body)}; send an object"
                continue
            if not matches(r"[a-zA-Z0-9_.:-]{1,64}", body.get("toolUseId")):
                given = show(body.get("toolUseId"))
                yield "id.pattern", f"a toolUseId is {given}; map it to 64 letters, digits, _.:-"
            yield from check(body)


def _use(body: JSONObject) -> Here:
    name = body.get("name")
    yield from checks.tool_name(name)
    if not isinstance(body.get("input"), dict):
        yield "args.not-object", f"input of {show(name)} is not an object; send one"


def _result(body: JSONObject) -> Here:
    content, name = body.get("content"), f"the result of {show(body.get('toolUseId'))}"
    if not isinstance(content, list) or not all(isinstance(b, dict) and b for b in content):
        yield "shape.block", f"{name} is {show(content)}; send a list of blocks"
        return
    if body.get("status") == "error" and not content:
        yield "result.empty-error", f"{name} is an error without a word; say that the tool failed"
    for block in content:
        if "json" in block and not isinstance(block["json"], dict):
            yield "result.not-object", f"the json of {name} is {show(block['json'])}; send text"
        yield from _block(block)


def _is_served(body: JSON) -> bool:
    """Return True for a call or result of the provider's own tool: only these have a type."""
    return filled(get(body, "type"))


def _served(message: JSON) -> Iterator[tuple[str, JSON]]:
    for block in dicts(get(message, "content")):
        for kind, half in (("toolUse", "use"), ("toolResult", "result")):
            if _is_served(block.get(kind)):
                yield half, block[kind].get("toolUseId")


def _ids(kind: str, message: JSON) -> list[str]:
    held = get(message, "role") == _HOLDER[kind]
    bodies = dicts([block.get(kind) for block in dicts(get(message, "content"))]) if held else []
    return ids_in([body for body in bodies if not _is_served(body)], "toolUseId")


def _request(messages: Sequence[JSON]) -> There:
    yield from checks.alternating(messages)
    if messages and get(messages[-1], "role") == "assistant":
        yield len(messages) - 1, "order.last-assistant", "the assistant speaks last; drop it"
    yield from _documents(messages)
    yield from checks.served_pairs(messages, _served)
    called, answered = partial(_ids, "toolUse"), partial(_ids, "toolResult")
    yield from checks.answers_next(messages, called, answered, "toolUse", "toolResult")
    yield from checks.reused_ids(messages, called, "the toolUseId {} was used before; map it")


def _documents(messages: Sequence[JSON]) -> There:
    """Yield documents with the name of an earlier one, in any message or result."""
    seen: set[str] = set()
    for index, message in enumerate(messages):
        blocks = dicts(get(message, "content"))
        held = [dicts(get(block.get("toolResult"), "content")) or [block] for block in blocks]
        for block in chain.from_iterable(held):
            name = get(block.get("document"), "name")
            if isinstance(name, str) and name in seen:
                text = f"a document before is named {show(name)}; name each differently"
                yield index, "document.duplicate", text
            if isinstance(name, str):
                seen.add(name)


CHECKER = Checker(("user", "assistant"), checks.system_texts, _message, _request)
