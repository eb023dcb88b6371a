"""Scripted providers that judge each request by code of their own: pairs, keys and the prefix.

Nothing here reads memman's table or its rules. A judge answers a request that it accepts with the next step
of a seeded script, and one that it does not accept with an error 400.
"""

from __future__ import annotations

import base64
import hashlib
import json
from random import Random
from typing import Any

from memman.testing import Answer
from memman.testing.loopback import LoopbackServer, Received

Body = dict[str, Any]


class Refusal(Exception):
    """Why a request is not accepted."""


def need(condition: object, reason: str) -> None:
    """Refuse the request unless the condition holds."""
    if not condition:
        raise Refusal(reason)


def only(block: Body, *keys: str) -> None:
    """Refuse a block with other keys."""
    extra = block.keys() - set(keys)
    need(not extra, f"unknown keys {sorted(extra)} in {json.dumps(block)[:120]}")


def sealed(*about: object) -> str:
    """Return a signature of some data, as base64 in the alphabet of Google's SDK."""
    return base64.urlsafe_b64encode(hashlib.sha256(json.dumps(about).encode()).digest()).decode()


class Judge(LoopbackServer):
    """A provider: `refused` has the reasons of refusals, `accepted` the number of accepted requests.

    A request must begin with the one before it, unless `forget` was called since.
    """

    messages = "messages"  # the key of the body with the messages

    def __init__(self, seed: int) -> None:
        super().__init__("", [])
        self.random = Random(seed)
        self.refused: list[str] = []
        self.accepted = 0
        self.kept_prefix = 0
        self._last: list[Any] = []
        self._made = 0  # answers

    def forget(self) -> None:
        """Let the next request begin in another way: the window was compressed."""
        self._last = []

    def answer_to(self, request: Received) -> Answer:
        """Return the next step of the script, or the refusal of a request."""
        messages = request.body[self.messages]
        try:
            self.judge(messages)
            start = self.joined_at(self._last, messages)
            need(
                messages[: len(start)] == start,
                f"the prefix changed: {_difference(start, messages)}",
            )
        except Refusal as reason:
            self.refused.append(f"request {self.accepted}: {reason}")
            return Answer(400, {"error": {"message": str(reason), "type": "invalid_request_error"}})
        self.kept_prefix += bool(self._last)
        self._last = messages
        self.accepted += 1
        return Answer(200, self.reply(messages))

    def joined_at(self, last: list[Any], messages: list[Any]) -> list[Any]:
        """Return the last request as the beginning of this one."""
        return last

    def judge(self, messages: list[Body]) -> None:
        """Raise `Refusal` for a request that the provider would not accept."""
        raise NotImplementedError

    def reply(self, messages: list[Body]) -> Body:
        """Return the answer to an accepted request."""
        raise NotImplementedError


def _difference(expected: list[Any], messages: list[Any]) -> str:
    for number, (one, other) in enumerate(zip(expected, messages, strict=False)):
        if one != other:
            return f"{number}: {json.dumps(one)[:300]} became {json.dumps(other)[:300]}"
    return f"{len(expected)} messages became {len(messages)}"


# ---------------------------------------------------------------- OpenAI Responses


_ITEMS = {
    "message": ("id", "type", "role", "content", "status", "phase"),
    "reasoning": ("id", "type", "summary", "encrypted_content", "content", "status"),
    "function_call": ("id", "type", "call_id", "name", "arguments", "status"),
    "function_call_output": ("id", "type", "call_id", "output", "status"),
    "shell_call": ("id", "type", "call_id", "action", "status", "environment"),
    "shell_call_output": ("id", "type", "call_id", "output", "status", "max_output_length"),
    "apply_patch_call": ("id", "type", "call_id", "operation", "status"),
    "apply_patch_call_output": ("id", "type", "call_id", "output", "status"),
    "computer_call": ("id", "type", "call_id", "action", "actions", "pending_safety_checks", "status"),
    "computer_call_output": ("id", "type", "call_id", "output", "acknowledged_safety_checks", "status"),
    "mcp_approval_request": ("id", "type", "name", "server_label", "arguments"),
    "mcp_approval_response": ("id", "type", "approval_request_id", "approve", "reason"),
    "mcp_call": (
        "id", "type", "name", "server_label", "arguments", "output", "error", "status",
        "approval_request_id",
    ),
}  # fmt: skip
_ANSWERED_BY = {
    "function_call": "function_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "mcp_approval_request": "mcp_approval_response",
}


class ResponsesJudge(Judge):
    """The Responses API with shell, apply_patch, computer and an MCP server that asks for approval."""

    messages = "input"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._ciphers: set[str] = set()

    def judge(self, messages: list[Body]) -> None:
        """Check keys, pairs, the order of pairs, and that reasoning is followed by its item."""
        open_calls: dict[str, str] = {}
        checks: dict[str, Any] = {}
        ids: set[str] = set()
        for number, item in enumerate(messages):
            kind = item.get("type", "message")
            need(kind in _ITEMS, f"unknown item {kind}")
            only(item, *_ITEMS[kind])
            name = item.get("id")
            need(name is None or name not in ids, f"the id {name} is there twice")
            ids.add(name or "")
            if kind == "computer_call":
                checks[item["call_id"]] = item["pending_safety_checks"]
            elif kind == "computer_call_output":
                known = item.get("acknowledged_safety_checks") or []
                need(known == checks.get(item["call_id"]), f"checks {known} of {item['call_id']}")
            if kind in _ANSWERED_BY:
                open_calls[item["id" if kind == "mcp_approval_request" else "call_id"]] = (
                    _ANSWERED_BY[kind]
                )
            elif kind in _ANSWERED_BY.values():
                key = "approval_request_id" if kind == "mcp_approval_response" else "call_id"
                expected = open_calls.pop(item[key], None)
                need(expected == kind, f"{kind} {item[key]} answers {expected}")
            elif kind == "reasoning":
                need(item.get("encrypted_content") in self._ciphers, "the reasoning was altered")
                following = messages[number + 1] if number + 1 < len(messages) else {}
                need(
                    following.get("role") == "assistant"
                    or following.get("type", "") in _ANSWERED_BY,
                    "reasoning without the item that follows it",
                )
        need(not open_calls, f"calls without an output: {open_calls}")
        need(messages[-1].get("role") != "assistant", "nothing to answer")

    def reply(self, messages: list[Body]) -> Body:
        """Return reasoning and calls, or a text."""
        self._made += 1
        answered = messages[-1]
        output: list[Body] = []
        if answered.get("type") == "mcp_approval_response":
            output.append({
                "type": "mcp_call", "id": f"mcp_{self._made}", "name": "pay", "server_label": "bank",
                "arguments": "{}", "output": "paid", "error": None, "status": "completed",
                "approval_request_id": answered["approval_request_id"],
            })  # fmt: skip
        steps = sum(item.get("type") in _ANSWERED_BY for item in messages[-6:])
        if self.random.random() < 0.6 and steps < 3:
            cipher = sealed("reasoning", self._made)
            self._ciphers.add(cipher)
            output.append(
                {
                    "type": "reasoning",
                    "id": f"rs_{self._made}",
                    "summary": [],
                    "encrypted_content": cipher,
                }
            )
            calls = self.random.choice((1, 1, 2))
            output += [
                self._call(self.random.choice(list(_ANSWERED_BY)), nth) for nth in range(calls)
            ]
        else:
            text = f"Answer {self._made}: " + "the river runs north " * self.random.randint(1, 40)
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            output.append({
                "type": "message", "id": f"msg_{self._made}", "role": "assistant", "status": "completed",
                "content": [part],
            })  # fmt: skip
        return {
            "id": f"resp_{self._made}", "object": "response", "created_at": 1, "model": "gpt-5",
            "status": "completed", "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "output": output,
        }  # fmt: skip

    def _call(self, kind: str, nth: int) -> Body:
        name = f"{self._made}_{nth}"
        item: Body = {
            "type": kind,
            "id": f"it_{name}",
            "call_id": f"call_{name}",
            "status": "completed",
        }
        match kind:
            case "function_call":
                return {**item, "name": "find", "arguments": '{"query": "north"}'}
            case "shell_call":
                action = {"commands": ["ls -l"], "timeout_ms": None, "max_output_length": None}
                return {**item, "action": action, "environment": None}
            case "apply_patch_call":
                return {**item, "operation": {"type": "delete_file", "path": f"{name}.py"}}
            case "computer_call":
                check = {
                    "id": f"cu_{name}",
                    "code": "malicious_instructions",
                    "message": "Is it safe?",
                }
                checks = [check] if self._made % 2 else []
                return {**item, "action": {"type": "screenshot"}, "pending_safety_checks": checks}
        return {
            "type": kind, "id": f"mcpr_{name}", "name": "pay", "server_label": "bank", "arguments": "{}",
        }  # fmt: skip


# ---------------------------------------------------------------- Anthropic


_BLOCKS = {
    "text": ("type", "text", "citations", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "tool_use": ("type", "id", "name", "input", "cache_control", "caller"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
    "server_tool_use": ("type", "id", "name", "input", "cache_control", "caller"),
    "web_search_tool_result": ("type", "tool_use_id", "content", "cache_control", "caller"),
}


class JoiningJudge(Judge):
    """A judge of an API that has adjacent messages of one role joined."""

    def joined_at(self, last: list[Body], messages: list[Body]) -> list[Body]:
        """Return the last request; its last message may have grown, as adjacent ones are joined."""
        if not last or len(messages) < len(last):
            return last
        before, now = _listed(last[-1]), _listed(messages[len(last) - 1])
        if last[-1]["role"] == messages[len(last) - 1]["role"] and now[: len(before)] == before:
            return [*last[:-1], messages[len(last) - 1]]
        return last


class AnthropicJudge(JoiningJudge):
    """Messages with thinking, a tool of the client's, and a web search that may pause the turn."""

    def judge(self, messages: list[Body]) -> None:
        """Check roles, keys, results directly behind their uses, searches, and signatures."""
        need(messages and messages[0]["role"] == "user", "the first message must be the user's")
        asked: set[str] = set()
        for number, message in enumerate(messages):
            only(message, "role", "content")
            need(message["role"] == ("user", "assistant")[number % 2], f"message {number}: role")
            blocks = _listed(message)
            need(blocks, f"message {number} is empty")
            last = number + 1 == len(messages)
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            need(set(results) == asked and len(results) == len(asked), f"{results} answers {asked}")
            kinds = [block["type"] for block in blocks]
            need("tool_result" not in kinds[len(results) :], "a result behind another block")
            asked = set()
            searches: list[str] = []
            for block in blocks:
                self._judge_block(block, searches)
                if block["type"] == "tool_use":
                    asked.add(block["id"])
            waits = searches and last and message["role"] == "assistant"
            need(not searches or waits, f"searches without a result: {searches}")
            if message["role"] == "assistant" and last:
                need(waits, "a prefilled end")
        need(not asked, f"calls without a result: {asked}")
        self._judge_open_turn(messages)

    def _judge_block(self, block: Body, searches: list[str]) -> None:
        kind = block["type"]
        need(kind in _BLOCKS, f"unknown block {kind}")
        only(block, *_BLOCKS[kind])
        if kind == "text":
            need(block["text"].strip(), "a blank text")
        elif kind == "thinking":
            need(block["signature"] == sealed(block["thinking"]), "the thinking was altered")
        elif kind == "server_tool_use":
            searches.append(block["id"])
        elif kind == "web_search_tool_result":
            need(searches and searches.pop() == block["tool_use_id"], "a result without its search")

    def _judge_open_turn(self, messages: list[Body]) -> None:
        """A turn that goes on with results begins with its thinking."""
        if {block["type"] for block in _listed(messages[-1])} == {"tool_result"}:
            first = _listed(messages[-2])[0]
            need(first["type"] == "thinking", f"an open turn begins with {first['type']}")

    def reply(self, messages: list[Body]) -> Body:
        """Return thinking and a call, a search that pauses, what follows a pause, or a text."""
        self._made += 1
        name, chance = f"{self._made}", self.random.random()
        last = messages[-1]
        if last["role"] == "assistant":  # the turn was paused
            found = {
                "type": "web_search_result", "title": "River", "url": "https://e.example",
                "encrypted_content": "Eq" * 40, "page_age": None,
            }  # fmt: skip
            search = _listed(last)[-1]["id"]
            result = {"type": "web_search_tool_result", "tool_use_id": search, "content": [found]}
            return self._message("end_turn", result, self._text())
        idea = f"step {name}"
        thought = {"type": "thinking", "thinking": idea, "signature": sealed(idea)}
        steps = sum(block["type"] == "tool_result" for m in messages[-6:] for block in _listed(m))
        if chance < 0.4 and steps < 3:
            calls = [
                {
                    "type": "tool_use",
                    "id": f"toolu_{name}_{nth}",
                    "name": "find",
                    "input": {"q": None},
                }
                for nth in range(self.random.choice((1, 1, 2)))
            ]
            return self._message("tool_use", thought, *calls)
        if chance < 0.7:
            use = {
                "type": "server_tool_use", "id": f"srvtoolu_{name}", "name": "web_search",
                "input": {"query": "north"},
            }  # fmt: skip
            return self._message("pause_turn", thought, use)
        return self._message("end_turn", thought, self._text())

    def _text(self) -> Body:
        text = f"Answer {self._made}: " + "the river runs north " * self.random.randint(1, 40)
        return {"type": "text", "text": text, "citations": None}

    def _message(self, reason: str, *blocks: Body) -> Body:
        return {
            "id": f"msg_{self._made}", "type": "message", "role": "assistant", "model": "claude-opus-4-1",
            "content": list(blocks), "stop_reason": reason, "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }  # fmt: skip


def _listed(message: Body) -> list[Body]:
    content = message["parts"] if "parts" in message else message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# ---------------------------------------------------------------- Gemini


_PARTS = {
    "text": ("text", "thought", "thoughtSignature"),
    "functionCall": ("functionCall", "thoughtSignature"),
    "functionResponse": ("functionResponse",),
    "executableCode": ("executableCode", "thoughtSignature"),
    "codeExecutionResult": ("codeExecutionResult", "thoughtSignature"),
}


class GeminiJudge(JoiningJudge):
    """generateContent with code execution and a function."""

    messages = "contents"

    def judge(self, messages: list[Body]) -> None:
        """Check roles, keys, as many responses as calls, code with its result, and signatures."""
        need(messages and messages[0]["role"] == "user", "the first content must be the user's")
        asked: list[tuple[str, str]] = []
        for number, content in enumerate(messages):
            only(content, "role", "parts")
            before = messages[number - 1] if number else {"role": "model", "parts": []}
            answered = any("functionResponse" in part for part in before["parts"])
            need(content["role"] != before["role"] or answered, f"content {number}: role")
            need(content["role"] in ("user", "model"), f"content {number}: role")
            need(content["parts"], f"content {number} is empty")
            answers = [
                part["functionResponse"] for part in content["parts"] if "functionResponse" in part
            ]
            told = [(answer.get("id", ""), answer["name"]) for answer in answers]
            need(sorted(told) == sorted(asked), f"content {number}: {told} answers {asked}")
            asked, runs = [], False
            for part in content["parts"]:
                kind = next((key for key in _PARTS if key in part), "")
                need(kind, f"unknown part {sorted(part)}")
                only(part, *_PARTS[kind])
                need(not runs or kind == "codeExecutionResult", "code without its result")
                need(runs or kind != "codeExecutionResult", "a result without its code")
                runs = kind == "executableCode"
                if kind == "functionCall":
                    call = part["functionCall"]
                    signed = part.get("thoughtSignature") == sealed(call["name"], call["args"])
                    need(
                        signed or asked or number + 2 < len(messages),
                        "a call without its signature",
                    )
                    asked.append((call.get("id", ""), call["name"]))
            need(not runs, "code without its result")
        need(messages[-1]["role"] == "user", "the last content must be the user's")
        need(not asked, f"calls without a response: {asked}")

    def reply(self, messages: list[Body]) -> Body:
        """Return calls, code that ran, or a text."""
        self._made += 1
        chance = self.random.random()
        steps = sum("functionResponse" in part for c in messages[-6:] for part in c["parts"])
        thought = {"text": f"step {self._made}", "thought": True}
        if chance < 0.45 and steps < 3:
            parts: list[Body] = [thought]
            for nth in range(self.random.choice((1, 1, 2))):
                call = {"id": f"f{self._made}_{nth}", "name": "find", "args": {"q": self._made}}
                seal = {"thoughtSignature": sealed(call["name"], call["args"])} if nth == 0 else {}
                parts.append({"functionCall": call, **seal})
        elif chance < 0.75:
            code = {"language": "PYTHON", "code": f"print({self._made})"}
            ran = {"outcome": "OUTCOME_OK", "output": str(self._made)}
            parts = [{"executableCode": code}, {"codeExecutionResult": ran}, self._text()]
        else:
            parts = [self._text()]
        content = {"role": "model", "parts": parts}
        return {
            "candidates": [{"finishReason": "STOP", "index": 0, "content": content}],
            "modelVersion": "gemini-3",
            "responseId": f"r{self._made}",
        }

    def _text(self) -> Body:
        text = f"Answer {self._made}: " + "the river runs north " * self.random.randint(1, 40)
        return {"text": text, "thoughtSignature": sealed(text)}
