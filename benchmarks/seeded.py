"""One bad request for each rule of the checker: a check that cannot fail would prove nothing."""

from __future__ import annotations

from typing import Any

from benchmarks import seeded_formats
from memman.formats import rules

Message = dict[str, Any]
_LONE = "\ud800"
_USER: Message = {"role": "user", "content": "Hello."}
_ASSISTANT: Message = {"role": "assistant", "content": "Hello."}


def _call(call_id: str = "c1", name: str = "find", arguments: Any = "{}") -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _calls(*calls: Message) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def _tool(call_id: str | None = "c1") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "found"}


def _use(call_id: str = "t1", name: str = "find", arguments: Any = None) -> Message:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}


def _result(call_id: str = "t1", content: str = "found", **more: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _asked(*blocks: Message) -> Message:
    return {"role": "user", "content": list(blocks)}


def _said(*blocks: Message) -> Message:
    return {"role": "assistant", "content": list(blocks)}


BAD: dict[str, dict[str, list[Message]]] = {
    "openai-chat": {
        "request.empty": [],
        "text.surrogate": [{"role": "user", "content": _LONE}],
        "system.shape": [_USER],
        "shape.message": [{"role": "bot", "content": "Hello."}],
        "shape.unknown-key": [{"role": "user", "content": "Hello.", "ts": 1}],
        "shape.content": [{"role": "user", "content": None}],
        "shape.tool-calls": [_calls()],
        "content.empty": [{"role": "assistant", "content": None}],
        "pair.missing-result": [_calls(_call()), _USER],
        "pair.orphan-result": [_USER, _tool()],
        "pair.not-adjacent": [_calls(_call()), _USER, _tool()],
        "pair.duplicate-result": [_calls(_call()), _tool(), _tool()],
        "id.missing": [_USER, _tool(None)],
        "id.duplicate": [_calls(_call(), _call()), _tool()],
        "args.not-string": [_calls(_call(arguments={})), _tool()],
        "name.pattern": [_calls(_call(name="a.b")), _tool()],
    },
    "anthropic": {
        "request.empty": [],
        "text.surrogate": [_asked(_text(_LONE))],
        "system.shape": [_USER],
        "shape.message": [{"role": "system", "content": "Be brief."}],
        "shape.unknown-key": [{"role": "user", "content": "Hello.", "ts": 1}],
        "shape.block": [_asked({"text": "Hello."})],
        "shape.block-role": [_asked(_use())],
        "order.first-not-user": [_ASSISTANT, _USER],
        "order.alternate": [_USER, _USER],
        "order.last-assistant": [_USER, _ASSISTANT],
        "pair.missing-result": [_USER, _said(_use("t1"), _use("t2")), _asked(_result("t1"))],
        "pair.orphan-result": [_USER, _ASSISTANT, _asked(_result())],
        "pair.result-first": [_USER, _said(_use()), _asked(_text("And?"), _result())],
        "pair.duplicate-result": [_USER, _said(_use()), _asked(_result(), _result())],
        "id.pattern": [_USER, _said(_use("a:1")), _asked(_result("a:1"))],
        "id.duplicate": [_USER, *2 * [_said(_use()), _asked(_result())]],
        "args.not-object": [_USER, _said(_use(arguments="{}")), _asked(_result())],
        "name.pattern": [_USER, _said(_use(name="a" * 129)), _asked(_result())],
        "content.empty": [_asked(_text("Hello."), _text(""))],
        "content.whitespace": [_asked(_text("Hello."), _text(" \n"))],
        "content.trailing-ws": [_USER, _said(_text("It is "))],
        "result.empty-error": [_USER, _said(_use()), _asked(_result(content="", is_error=True))],
        "pair.server-tool": [_USER, _said({"type": "server_tool_use", "id": "s"}), _USER],
        "block.half": [_USER, _said({"type": "thinking", "thinking": "Hm.", "signature": ""})],
        "marks.too-many": [_asked(*5 * [_text("Hello.") | {"cache_control": {}}])],
    },
}


def blind_spots() -> list[str]:
    """The rules that do not see their bad request, or have none."""
    return [
        f"{target}: {rule.id}"
        for target, known in rules.RULES.items()
        for rule in known
        if rule.id not in _broken(target, rule.id)
    ]


def _broken(target: str, rule: str) -> set[str]:
    # A system parameter is what OpenAI does not take, and a blank one what Anthropic does not.
    system = " " if rule == "system.shape" else None
    if target in seeded_formats.SEEDS:
        seeds = [seed for seed in seeded_formats.SEEDS[target] if seed.rule == rule]
        found = [rules.check(seed.bad, target, system=seed.bad_system) for seed in seeds]
        seen = [{violation.rule for violation in broken} for broken in found]
        return set.intersection(*seen) if seen else set()
    messages = BAD[target].get(rule, [_USER])
    return {violation.rule for violation in rules.check(messages, target, system=system)}
