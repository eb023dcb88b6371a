"""The rules of Gemini for the contents of a request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from memman.entries import JSON, JSONObject
from memman.formats.rules.checks import served_pairs
from memman.formats.rules.rulebook import Checker, Here, There, matches, rules_of
from memman.formats.rules.values import dicts, filled, get, says, show

RULES = rules_of(
    """
system.shape | A system prompt is text that is not blank. | \
house: it is sent as a content with one part, for which content.empty holds
shape.message | A content is an object with the role user or model, or none (it is the user's then), \
and at least one part. | agno#5843; google-genai 3.4 Content
shape.unknown-key | A content has only the keys role and parts. | google-genai 3.4 Content
shape.part | A part is an object that has data or a signature, and text is text. | \
CLIProxyAPI#1293, boldsoftware/sketch#68; google-genai 3.4 Part; docs "Thought signatures"
shape.part-role | Only the model calls functions, only the user answers them. | \
gemini-cli#11814; docs "Function calling"
content.empty | No text is empty. | Portkey-AI/gateway#462, CLIProxyAPI#1293
order.first-not-user | The first content is the user's. | gemini-cli#11814
order.alternate | Turns alternate; the user may speak after responses. | \
house: contents of one role in a row are merged; gemini-cli#26956, lobehub#10049 (calls in a row)
order.last-assistant | The last content is not the model's. | crewAI#6973, crewAI#7134
pair.missing-result | The content after calls has as many responses as there were calls. | \
gemini-cli#3814, gemini-cli#17208
pair.orphan-result | Responses come immediately after the content with their calls. | \
GoogleCloudPlatform/generative-ai#368, gemini-cli#26956
pair.mismatch | A response has the name of a call, and its id where that has one. | \
docs "Function calling" (parallel calls are matched by id or name)
pair.server-tool | A call of Google's own tool has its result, with its id, behind it. | \
house: their ids pair them; google-genai 3.6 ExecutableCode, CodeExecutionResult, ToolCall, ToolResponse
pair.response-alone | A content with responses has nothing else. | opencode#43479
args.not-object | The args of a call are an object, where there are any. | \
google-genai 3.4 FunctionCall
result.not-object | The response of a function is an object. | google-genai 3.4 FunctionResponse
name.pattern | A function name matches ^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$. | \
gemini-cli#2966, kaitranntt/ccs#25, cline#7339
""",
    "gemini",
)
_HOLDER = {"functionCall": "model", "functionResponse": "user"}
_SERVED = {
    "executableCode": "use",
    "codeExecutionResult": "result",
    "toolCall": "use",
    "toolResponse": "result",
}
# The keys that describe a part and are not one themselves.
_ABOUT = {"thought", "videoMetadata", "mediaResolution", "partMetadata"}
_UNDERSCORED = re.compile("_([a-z])")
_NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"


def _system(system: JSON) -> Here:
    if system is not None and not says(system):
        yield "system.shape", "system is not text, or blank; omit it"


def _content(content: JSONObject) -> Here:
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        yield "shape.message", f"parts is {show(parts)}, or empty; send a list of parts"
        return
    for part in parts:
        if not isinstance(part, dict) or not part.keys() - _ABOUT:
            yield "shape.part", f"a part is {show(part)}, or has no data; drop it"
        else:
            yield from _part(part, content["role"])


def _part(part: JSONObject, role: str) -> Here:
    if "text" in part and not isinstance(part["text"], str):
        yield "shape.part", f"the text of a part is {show(part['text'])}; send a string"
    elif part.get("text") == "" and "thoughtSignature" not in part:
        yield "content.empty", "the text of a part is empty; drop the part"
    for kind, holder in _HOLDER.items():
        if kind in part:
            if role != holder:
                yield "shape.part-role", f"{kind} is in a content of the {role}; move it"
            yield from _function(kind, part[kind])


def _function(kind: str, body: JSON) -> Here:
    if not isinstance(body, dict):
        yield "shape.part", f"a {kind} is {show(body)}; send an object"
        return
    name = body.get("name")
    if not matches(_NAME, name):
        yield "name.pattern", f"a function name is {show(name)}; use letters, digits, _ . : and -"
    if kind == "functionCall" and not isinstance(body.get("args", {}), dict):
        yield "args.not-object", f"args of {show(name)} is {show(body['args'])}; send an object"
    if kind == "functionResponse" and not isinstance(body.get("response"), dict):
        given = show(body.get("response"))
        yield "result.not-object", f"the response of {show(name)} is {given}; send an object"


def _bodies(content: JSON, kind: str) -> list[JSONObject]:
    held = get(content, "role") == _HOLDER[kind]
    return dicts([part.get(kind) for part in dicts(get(content, "parts"))]) if held else []


def _served(content: JSON) -> Iterator[tuple[str, JSON]]:
    for part in dicts(get(content, "parts")):
        for kind in part.keys() & _SERVED.keys():
            if filled(call_id := get(part[kind], "id")):
                yield _SERVED[kind], call_id


def _request(contents: Sequence[JSON]) -> There:
    roles = [get(content, "role") for content in contents]
    if roles[:1] == ["model"]:
        yield 0, "order.first-not-user", "the model speaks first; put a user content before"
    if roles[-1:] == ["model"]:
        yield len(roles) - 1, "order.last-assistant", "the model speaks last; let the user go on"
    yield from served_pairs(contents, _served)
    for index, (before, after) in enumerate(pairwise((None, *contents, None))):
        yield from _pairs(index, before, after)
        role = get(after, "role")
        answered = bool(_bodies(before, "functionResponse"))
        again = bool(_bodies(after, "functionResponse"))
        if role in ("user", "model") and role == get(before, "role") and not answered and not again:
            yield index, "order.alternate", f"two contents of the {role} in a row; merge them"


def _pairs(index: int, before: JSON, after: JSON) -> There:
    calls, responses = _bodies(before, "functionCall"), _bodies(after, "functionResponse")
    if len(responses) < len(calls):
        text = f"{len(calls)} calls have {len(responses)} responses in the next content"
        yield index - 1, "pair.missing-result", f"{text}; send one for each"
    if len(responses) > len(calls):
        text = f"{len(responses)} responses follow {len(calls)} calls; drop those without a call"
        yield index, "pair.orphan-result", text
    elif len(responses) == len(calls):
        yield from _mismatches(index, calls, responses)
    if responses and len(responses) < len(get(after, "parts")):
        text = "a content with responses has other parts; send those in a content of their own"
        yield index, "pair.response-alone", text


def _mismatches(index: int, calls: list[JSONObject], responses: list[JSONObject]) -> There:
    waiting = [(call.get("id"), call.get("name")) for call in calls]
    for response in responses:
        found = (response.get("id"), response.get("name"))
        if found in waiting:
            waiting.remove(found)
        else:
            text = f"no call before has the name {show(found[1])} and the id {show(found[0])}"
            yield index, "pair.mismatch", f"{text}; answer with those of the call"


def _read(content: JSON) -> JSON:
    """Return a content in the spelling of the rules.

    Google's JSON accepts a key in lowerCamelCase or its proto's name, null for unset fields (ProtoJSON),
    and a content without a role as the user's (google-genai 3.4 Content).
    """
    parts = get(content, "parts")
    if not isinstance(parts, list):
        return content
    role = content.get("role")
    return {**content, "role": "user" if role is None else role, "parts": [*map(_wired, parts)]}


def _wired(value: JSON, levels: int = 2) -> JSON:
    """Return a part with its keys and those one level down respelled; everything deeper is data."""
    if not levels or not isinstance(value, dict):
        return value
    return {
        _UNDERSCORED.sub(lambda found: found[1].upper(), str(key)): _wired(item, levels - 1)
        for key, item in value.items()
        if item is not None
    }


CHECKER = Checker(("user", "model"), _system, _content, _request, _read)
