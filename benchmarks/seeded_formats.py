"""Bad requests for the rules of the formats besides OpenAI chat and Anthropic, each with a good one."""

from __future__ import annotations

from typing import Any, NamedTuple

Message = dict[str, Any]
_LONE = "\ud83d"


class Seed(NamedTuple):
    """The smallest request that breaks `rule` in the message `place`, and one that keeps it.

    `also` are the rules that no such request can keep.
    """

    rule: str
    place: int
    bad: Any
    good: Any
    bad_system: Any = None
    good_system: Any = None
    also: frozenset[str] = frozenset()


# ---------------------------------------------------------------- Gemini


def _user(*parts: Any) -> Message:
    return {"role": "user", "parts": list(parts)}


def _model(*parts: Any) -> Message:
    return {"role": "model", "parts": list(parts)}


def _function_call(name: Any = "find", args: Any = None, **more: Any) -> Message:
    return {"functionCall": {"name": name, "args": {} if args is None else args, **more}}


def _response(name: Any = "find", response: Any = None, **more: Any) -> Message:
    given = {"output": "found"} if response is None else response
    return {"functionResponse": {"name": name, "response": given, **more}}


_HI, _HELLO = _user({"text": "hi"}), _model({"text": "hello"})
_CALLED = [_HI, _model(_function_call()), _user(_response())]
_LAST = frozenset({"order.last-assistant"})

GEMINI = [
    Seed("request.empty", -1, [], [_HI]),
    Seed("text.surrogate", 0, [_user({"text": _LONE})], [_HI]),
    Seed("system.shape", -1, [_HI], [_HI], bad_system=" ", good_system="be brief"),
    Seed("shape.message", 0, [{"role": "assistant", "parts": [{"text": "hi"}]}], [_HI]),
    Seed("shape.message", 0, [_user()], [_HI]),
    Seed("shape.unknown-key", 0, [{**_HI, "ts": 1}], [_HI]),
    Seed("shape.part", 0, [_user({})], [_HI]),
    Seed("shape.part", 0, [_user({"thought": True})], [_HI]),
    Seed("shape.part", 0, [_user({"text": 3})], [_HI]),
    Seed("shape.part-role", 0, [_user(_function_call())], _CALLED),
    Seed("content.empty", 0, [_user({"text": "hi"}, {"text": ""})], [_HI]),
    Seed("order.first-not-user", 0, [_HELLO, _HI], [_HI, _HELLO, _HI]),
    Seed("order.alternate", 1, [_HI, _HI], [*_CALLED, _HI]),
    Seed("order.last-assistant", 1, [_HI, _HELLO], [_HI, _HELLO, _HI]),
    Seed(
        "pair.missing-result",
        1,
        [_HI, _model(_function_call(), _function_call()), _user(_response())],
        [_HI, _model(_function_call(), _function_call()), _user(_response(), _response())],
    ),
    Seed("pair.missing-result", 1, [_HI, _model(_function_call()), _HI], _CALLED),
    Seed("pair.orphan-result", 2, [_HI, _HELLO, _user(_response())], _CALLED),
    Seed("pair.orphan-result", 3, [*_CALLED, _user(_response())], _CALLED),
    Seed("pair.mismatch", 2, [_HI, _model(_function_call()), _user(_response("look"))], _CALLED),
    Seed(
        "pair.mismatch",
        2,
        [_HI, _model(_function_call(id="a")), _user(_response(id="b"))],
        [_HI, _model(_function_call(id="a")), _user(_response(id="a"))],
    ),
    Seed(
        "pair.server-tool",
        1,
        [_HI, _model({"executableCode": {"id": "a", "code": "1"}}), _HI],
        [_HI, _model({"executableCode": {"code": "1"}}), _HI],
    ),
    Seed(
        "pair.server-tool",
        1,
        [_HI, _model({"toolResponse": {"id": "a"}}), _HI],
        [_HI, _model({"toolCall": {"id": "a"}}, {"toolResponse": {"id": "a"}}), _HI],
    ),
    Seed(
        "pair.response-alone",
        2,
        [_HI, _model(_function_call()), _user(_response(), {"text": "and?"})],
        [*_CALLED, _user({"text": "and?"})],
    ),
    Seed(
        "args.not-object", 1, [_HI, _model(_function_call(args="{}")), _user(_response())], _CALLED
    ),
    Seed(
        "result.not-object",
        2,
        [_HI, _model(_function_call()), _user(_response(response="found"))],
        _CALLED,
    ),
    Seed(
        "name.pattern",
        1,
        [_HI, _model(_function_call("a b"), _function_call()), _user(_response(), _response())],
        _CALLED,
        also=frozenset({"pair.mismatch"}),
    ),
]

# ---------------------------------------------------------------- Bedrock Converse


def _asked(*blocks: Any) -> Message:
    return {"role": "user", "content": list(blocks)}


def _said(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def _use(call_id: Any = "t1", name: Any = "find", arguments: Any = None) -> Message:
    given = {} if arguments is None else arguments
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}


def _result(call_id: Any = "t1", content: Any = None, **more: Any) -> Message:
    given = [{"text": "found"}] if content is None else content
    return {"toolResult": {"toolUseId": call_id, "content": given, **more}}


def _document(name: str) -> Message:
    return {"document": {"format": "txt", "name": name, "source": {"bytes": "aGk="}}}


_ASKED, _SAID = _asked({"text": "hi"}), _said({"text": "hello"})
_USED = [_ASKED, _said(_use()), _asked(_result())]
_SERVED = {"toolUse": {**_use("s1")["toolUse"], "type": "server_tool_use"}}
_FOUND = _result("s1", type="nova_grounding_result")

BEDROCK = [
    Seed("request.empty", -1, [], [_ASKED]),
    Seed("text.surrogate", 0, [_asked({"text": f"hi {_LONE}"})], [_ASKED]),
    Seed("system.shape", -1, [_ASKED], [_ASKED], bad_system=[], good_system=[{"text": "be brief"}]),
    Seed("shape.message", 0, [{"role": "user", "content": "hi"}], [_ASKED]),
    Seed("shape.message", 0, [_asked()], [_ASKED]),
    Seed("shape.unknown-key", 0, [{**_ASKED, "ts": 1}], [_ASKED]),
    Seed("shape.block", 0, [_asked({})], [_ASKED]),
    Seed("shape.block", 0, [_asked({"text": None})], [_ASKED]),
    Seed("shape.block-role", 0, [_asked(_use())], _USED),
    Seed("content.whitespace", 0, [_asked({"text": "hi"}, {"text": " \n"})], [_ASKED]),
    Seed("order.first-not-user", 0, [_SAID, _ASKED], [_ASKED, _SAID, _ASKED]),
    Seed("order.alternate", 1, [_ASKED, _ASKED], [_ASKED, _SAID, _ASKED]),
    Seed("order.last-assistant", 1, [_ASKED, _SAID], [_ASKED, _SAID, _ASKED]),
    Seed(
        "pair.missing-result",
        1,
        [_ASKED, _said(_use("t1"), _use("t2")), _asked(_result("t1"))],
        [_ASKED, _said(_use("t1"), _use("t2")), _asked(_result("t2"), _result("t1"))],
    ),
    Seed("pair.orphan-result", 2, [_ASKED, _SAID, _asked(_result())], _USED),
    Seed(
        "pair.duplicate-result", 2, [_ASKED, _said(_use()), _asked(_result(), _result())], _USED
    ),
    Seed(
        "pair.server-tool",
        1,
        [_ASKED, _said(_SERVED), _ASKED],
        [_ASKED, _said(_SERVED, _FOUND), _ASKED],
    ),
    Seed(
        "pair.server-tool",
        1,
        [_ASKED, _said(_FOUND), _ASKED],
        [_ASKED, _said(_SERVED, _FOUND), _ASKED],
    ),
    Seed("shape.block-role", 0, [_asked(_FOUND)], [_ASKED], also=frozenset({"pair.server-tool"})),
    Seed(
        "pair.result-first",
        2,
        [_ASKED, _said(_use()), _asked({"text": "and?"}, _result())],
        [_ASKED, _said(_use()), _asked(_result(), {"text": "and?"})],
    ),
    Seed("id.pattern", 1, [_ASKED, _said(_use("a/b")), _asked()], _USED,
         also=frozenset({"pair.missing-result", "shape.message"})),
    Seed(
        "id.duplicate",
        3,
        [*_USED, _said(_use()), _asked(_result())],
        [*_USED, _said(_use("t2")), _asked(_result("t2"))],
    ),
    Seed("name.pattern", 1, [_ASKED, _said(_use(name="a" * 65)), _asked(_result())], _USED),
    Seed("args.not-object", 1, [_ASKED, _said(_use(arguments=[])), _asked(_result())], _USED),
    Seed(
        "result.not-object",
        2,
        [_ASKED, _said(_use()), _asked(_result(content=[{"json": [1]}]))],
        [_ASKED, _said(_use()), _asked(_result(content=[{"json": {"a": 1}}]))],
    ),
    Seed(
        "result.empty-error",
        2,
        [_ASKED, _said(_use()), _asked(_result(content=[], status="error"))],
        [_ASKED, _said(_use()), _asked(_result(content=[], status="success"))],
    ),
    Seed(
        "document.duplicate",
        0,
        [_asked(_document("a"), _document("a"), {"text": "see"})],
        [_asked(_document("a"), _document("b"), {"text": "see"})],
    ),
    Seed(
        "document.without-text",
        0,
        [_asked(_document("a"))],
        [_asked(_document("a"), {"text": "see"})],
    ),
    *(
        Seed(
            "document.name",
            0,
            [_asked(_document(name), {"text": "see"})],
            [_asked(_document("report 1 (b) [c]-d_e"), {"text": "see"})],
        )
        for name in ("report.pdf", "two  spaces", " ", "", "a" * 201)
    ),
]  # fmt: skip

# ---------------------------------------------------------------- OpenAI Responses


def _call(call_id: Any = "c1", name: Any = "find", arguments: Any = "{}") -> Message:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _output(call_id: Any = "c1", output: Any = "found") -> Message:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _message(role: str, content: Any) -> Message:
    return {"role": role, "content": content}


_SPOKEN = _message("user", "hi")
_PAIR = [_call(), _output()]
_REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}

RESPONSES = [
    Seed("request.empty", -1, [], [_SPOKEN]),
    Seed("text.surrogate", 0, [_message("user", _LONE)], [_SPOKEN]),
    Seed("system.shape", -1, [_SPOKEN], [_message("system", "be brief")], bad_system="be brief"),
    Seed("shape.message", 0, [{"content": "hi"}], [_SPOKEN]),
    Seed("shape.unknown-key", 0, [{**_SPOKEN, "created_by": "u"}], [_SPOKEN]),
    Seed("shape.item-type", 1, [_SPOKEN, {"type": "ghost_snapshot", "id": "g"}],
         [_SPOKEN, {"type": "item_reference", "id": "g"}]),
    Seed("shape.message", 0, [_message("tool", "hi")], [_SPOKEN]),
    Seed("shape.content", 0, [_message("user", None)], [_SPOKEN]),
    Seed("shape.content", 1, [_call(), _output(output={"a": 1})], _PAIR),
    *(
        Seed(
            "shape.part-role",
            0,
            [_message(role, [{"type": wrong, "text": "hi"}])],
            [_message(role, [{"type": right, "text": "hi"}])],
        )
        for role, wrong, right in (
            ("assistant", "input_text", "output_text"),
            ("user", "output_text", "input_text"),
        )
    ),
    Seed("pair.missing-result", 0, [_call(), _SPOKEN], [_call(), _SPOKEN, _output()]),
    Seed("pair.orphan-result", 0, [_output(), _SPOKEN], _PAIR),
    Seed("pair.orphan-result", 0, [_output(), _call(), _output("c1")], _PAIR,
         also=frozenset({"pair.duplicate-result"})),
    Seed("pair.duplicate-result", 2, [*_PAIR, _output()], _PAIR),
    Seed("id.pattern", 0, [_call("")], _PAIR),
    Seed("id.pattern", 0, [_call("a" * 65), _output()], _PAIR,
         also=frozenset({"pair.missing-result", "pair.orphan-result"})),
    Seed("id.duplicate", 2, [*_PAIR, _call()], [*_PAIR, _call("c2"), _output("c2")]),
    Seed("args.not-string", 0, [_call(arguments={}), _output()], _PAIR),
    Seed("name.pattern", 0, [_call(name="a.b"), _output()], _PAIR),
    Seed("reasoning.alone", 0, [_REASONING, _SPOKEN], [_REASONING, *_PAIR]),
    Seed("reasoning.alone", 2, [*_PAIR, _REASONING], [_REASONING, _message("assistant", "hi")]),
]  # fmt: skip

# ---------------------------------------------------------------- Mistral


def _spoke(content: Any, *calls: Message, **more: Any) -> Message:
    made = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "content": content, **made, **more}


def _asking(call_id: Any = "a1B2c3D4e", name: Any = "find", arguments: Any = "{}") -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _told(call_id: Any = "a1B2c3D4e", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "found", **more}


_ANSWERED = [_SPOKEN, _spoke("", _asking()), _told()]
_ENDED = [*_ANSWERED, _spoke("done"), _SPOKEN]

MISTRAL = [
    Seed("request.empty", -1, [], [_SPOKEN]),
    Seed("text.surrogate", 0, [_message("user", _LONE)], [_SPOKEN]),
    Seed("system.shape", -1, [_SPOKEN], [_message("system", "be brief"), _SPOKEN],
         bad_system="be brief"),
    Seed("shape.unknown-key", 0, [{**_SPOKEN, "ts": 1}], [_SPOKEN]),
    Seed("shape.message", 0, [_message("developer", "be brief"), _SPOKEN],
         [_message("system", "be brief"), _SPOKEN]),
    Seed("shape.content", 0, [_message("user", None)], [_SPOKEN]),
    Seed("shape.content", 2, [*_ANSWERED[:2], {**_told(), "content": {"a": 1}}], _ANSWERED),
    Seed("shape.chunk-role", 1,
         [_SPOKEN, _spoke([{"type": "image_url", "image_url": "https://x.test/a.png"}]), _SPOKEN],
         [_message("user", [{"type": "image_url", "image_url": "https://x.test/a.png"}])]),
    Seed("shape.tool-calls", 1, [_SPOKEN, _spoke("hi", tool_calls={"id": "a"}), _SPOKEN],
         [_SPOKEN, _spoke("hi", tool_calls=None), _SPOKEN]),
    Seed("shape.tool-calls", 1, [_SPOKEN, _spoke("", {"id": "a1B2c3D4e"}), _told()], _ANSWERED),
    Seed("content.empty", 1, [_SPOKEN, _spoke(""), _SPOKEN], [_SPOKEN, _spoke("hi"), _SPOKEN]),
    Seed("order.unexpected", 3, [*_ANSWERED, _SPOKEN], _ENDED),
    Seed("order.unexpected", 1, [_SPOKEN, _told()], _ANSWERED,
         also=frozenset({"pair.orphan-result"})),
    Seed("order.unexpected", 2, [_SPOKEN, _spoke("hi"), _message("system", "be brief"), _SPOKEN],
         [_SPOKEN, _message("system", "be brief"), _SPOKEN]),
    Seed("order.first-calls", 0, _ANSWERED[1:], _ANSWERED),
    Seed("order.alone", 0, [_spoke("hi", prefix=True)], [_SPOKEN, _spoke("hi", prefix=True)]),
    Seed("order.last", 1, [_SPOKEN, _spoke("hi")], [_SPOKEN, _spoke("hi", prefix=True)]),
    Seed("prefix.not-last", 1, [_SPOKEN, _spoke("hi", prefix=True), _SPOKEN],
         [_SPOKEN, _spoke("hi", prefix=False), _SPOKEN]),
    Seed("pair.missing-result", 1,
         [_SPOKEN, _spoke("", _asking(), _asking("f5G6h7I8j")), _told(), _spoke("so"), _SPOKEN],
         [_SPOKEN, _spoke("", _asking(), _asking("f5G6h7I8j")), _told("f5G6h7I8j"), _told()]),
    Seed("pair.missing-result", 1, [_SPOKEN, _spoke("", _asking()), _SPOKEN], _ENDED),
    Seed("pair.orphan-result", 3, [*_ANSWERED, _told("f5G6h7I8j")], _ANSWERED),
    Seed("pair.duplicate-result", 3, [*_ANSWERED, _told()], _ANSWERED),
    Seed("id.pattern", 1, [_SPOKEN, _spoke("", _asking("call_0fypS1hVX")), _told()], _ANSWERED,
         also=frozenset({"pair.missing-result", "pair.orphan-result"})),
    Seed("id.pattern", 2, [*_ANSWERED[:2], _told(None)], _ANSWERED,
         also=frozenset({"pair.missing-result"})),
    Seed("id.duplicate", 1, [_SPOKEN, _spoke("", _asking(), _asking()), _told()], _ANSWERED),
    Seed("args.shape", 1, [_SPOKEN, _spoke("", _asking(arguments=None)), _told()],
         [_SPOKEN, _spoke("", _asking(arguments={"a": 1})), _told()]),
    Seed("name.pattern", 1, [_SPOKEN, _spoke("", _asking(name="a.b")), _told()], _ANSWERED),
    Seed("name.pattern", 2, [*_ANSWERED[:2], _told(name="a b")],
         [*_ANSWERED[:2], _told(name="find")]),
]  # fmt: skip

# ---------------------------------------------------------------- LangChain


def _lc(kind: str, content: Any, **more: Any) -> Message:
    return {"type": kind, "data": {"content": content, **more}}


def _lc_calls(*calls: Message) -> Message:
    return _lc("ai", "", tool_calls=list(calls))


def _lc_call(call_id: Any = "c1", args: Any = None) -> Message:
    return {
        "name": "find",
        "args": {} if args is None else args,
        "id": call_id,
        "type": "tool_call",
    }


def _lc_tool(call_id: Any = "c1") -> Message:
    return _lc("tool", "found", tool_call_id=call_id)


_HUMAN = _lc("human", "hi")
_LC_PAIR = [_HUMAN, _lc_calls(_lc_call()), _lc_tool()]

LANGCHAIN = [
    Seed("request.empty", -1, [], [_HUMAN]),
    Seed("text.surrogate", 0, [_lc("human", _LONE)], [_HUMAN]),
    Seed("system.shape", -1, [_HUMAN], [_lc("system", "be brief"), _HUMAN], bad_system="be brief"),
    Seed("shape.message", 0, [{"role": "user", "content": "hi"}], [_HUMAN]),
    Seed("shape.message", 0, [{"lc": 1, "type": "constructor", "id": ["x", "Prompt"], "kwargs": {}}],
         [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
           "kwargs": {"content": "hi"}}]),
    Seed("shape.content", 0, [_lc("human", None)], [_lc("human", ["hi", {"type": "text", "text": "x"}])]),
    Seed("shape.tool-calls", 1, [_HUMAN, _lc("ai", "", tool_calls=[{"id": "c1", "args": {}}]),
         _lc_tool()], _LC_PAIR),
    Seed("order.system", 1, [_HUMAN, _lc("system", "be brief")],
         [_lc("system", "be brief"), _lc("system", "be kind"), _HUMAN]),
    Seed("pair.missing-result", 1, [_HUMAN, _lc_calls(_lc_call()), _HUMAN], _LC_PAIR),
    Seed("pair.orphan-result", 1, [_HUMAN, _lc_tool()], _LC_PAIR),
    Seed("pair.duplicate-result", 3, [*_LC_PAIR, _lc_tool()], _LC_PAIR),
    Seed("id.missing", 1, [_HUMAN, _lc_tool(None)], _LC_PAIR),
    Seed("id.missing", 1, [_HUMAN, _lc_calls(_lc_call(None))], _LC_PAIR),
    Seed("id.duplicate", 3, [*_LC_PAIR, *_LC_PAIR[1:]],
         [*_LC_PAIR, _lc_calls(_lc_call("c2")), _lc_tool("c2")]),
    Seed("args.not-object", 1, [_HUMAN, _lc_calls(_lc_call(args="{}")), _lc_tool()], _LC_PAIR),
]  # fmt: skip

SEEDS = {
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
    "mistral": MISTRAL,
    "langchain": LANGCHAIN,
}
