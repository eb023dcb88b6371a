"""A sample of each type of Anthropic's blocks, of the items of the Responses API, and of keyed parts.

A sample is the assistant's blocks and those that answer them; its `word` is in all that can be read, and
`asked` in the arguments. The types are written here a second time, so that a wrong row of the table shows.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import msgspec

Block = dict[str, Any]
_HEAD = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 80, 60) + b"\x08\x02" + bytes(40)
)
PNG = base64.b64encode(_HEAD).decode()


class Sample(msgspec.Struct, frozen=True):
    """One exchange: `said` by the assistant, then `answered` by the user, tools or a client."""

    said: list[Block]
    answered: list[Block]
    readable: bool = True
    has_arguments: bool = True


def word(number: int) -> str:
    """Return the word of a sample's result."""
    return f"ZETA{number}x"


def asked(number: int) -> str:
    """Return the word of a sample's arguments."""
    return f"ETA{number}x"


def _text(number: int) -> str:
    return f"{word(number)} " + "as the tool found out " * 12


def _served(
    kind: str, tool: str, content: Callable[[str], Any], use: str = "server_tool_use", **more: Any
) -> Callable[[int], Sample]:
    def made(number: int) -> Sample:
        name = f"srvtoolu_{number}"
        call = {"type": use, "id": name, "name": tool, "input": {"q": asked(number)}, **more}
        return Sample(
            [call, {"type": kind, "tool_use_id": name, "content": content(_text(number))}], []
        )

    return made


def _spoken(block: Callable[[int], Block], *, readable: bool) -> Callable[[int], Sample]:
    return lambda number: Sample(
        [block(number), {"type": "text", "text": f"done {number}"}], [], readable, False
    )


def _given(block: Callable[[int], Block], *, readable: bool) -> Callable[[int], Sample]:
    return lambda number: Sample(
        [], [block(number), {"type": "text", "text": "use it"}], readable, False
    )


ANTHROPIC: dict[str, Callable[[int], Sample]] = {
    "tool_use": lambda n: Sample(
        [{"type": "tool_use", "id": f"toolu_{n}", "name": "look", "input": {"q": asked(n)}}],
        [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": _text(n)}],
    ),
    "web_search_tool_result": _served(
        "web_search_tool_result",
        "web_search",
        lambda text: [
            {
                "type": "web_search_result",
                "title": text,
                "url": "https://e.example",
                "encrypted_content": "Eq" * 90,
                "page_age": None,
            },
        ],
    ),
    "web_fetch_tool_result": _served(
        "web_fetch_tool_result",
        "web_fetch",
        lambda text: {
            "type": "web_fetch_result",
            "url": "https://e.example",
            "retrieved_at": None,
            "content": {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": text},
            },
        },
    ),
    "code_execution_tool_result": _served(
        "code_execution_tool_result",
        "code_execution",
        lambda text: {
            "type": "code_execution_result",
            "stdout": text,
            "stderr": "",
            "return_code": 0,
            "content": [],
        },
    ),
    "bash_code_execution_tool_result": _served(
        "bash_code_execution_tool_result",
        "bash_code_execution",
        lambda text: {
            "type": "bash_code_execution_result",
            "stdout": text,
            "stderr": "",
            "return_code": 0,
            "content": [],
        },
    ),
    "text_editor_code_execution_tool_result": _served(
        "text_editor_code_execution_tool_result",
        "text_editor_code_execution",
        lambda text: {
            "type": "text_editor_code_execution_view_result",
            "content": text,
            "file_type": "text",
        },
    ),
    "tool_search_tool_result": _served(
        "tool_search_tool_result",
        "tool_search_tool_regex",
        lambda text: {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": text.split()[0]}],
        },
    ),
    "advisor_tool_result": _served(
        "advisor_tool_result", "advisor", lambda text: {"type": "advisor_result", "text": text}
    ),
    "mcp_tool_result": _served(
        "mcp_tool_result",
        "issues",
        lambda text: [{"type": "text", "text": text}],
        "mcp_tool_use",
        server_name="github",
    ),
    "quantum_tool_result": _served(
        "quantum_tool_result", "quantum", lambda text: text, "quantum_tool_use"
    ),
    "thinking": _spoken(
        lambda n: {"type": "thinking", "thinking": _text(n), "signature": "sig" + "A" * 80},
        readable=False,
    ),
    "redacted_thinking": _spoken(
        lambda n: {"type": "redacted_thinking", "data": "R" * 80}, readable=False
    ),
    "mcp_tool_listing": _spoken(
        lambda n: {
            "type": "mcp_tool_listing",
            "mcp_server_name": "g",
            "tools": [{"name": word(n), "description": _text(n), "input_schema": {}}],
        },
        readable=True,
    ),
    "fallback": _spoken(
        lambda n: {
            "type": "fallback",
            "from": {"model": "a"},
            "to": {"model": "b"},
            "trigger": {"type": "refusal"},
        },
        readable=False,
    ),
    "document": _given(
        lambda n: {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": _text(n)},
        },
        readable=True,
    ),
    "search_result": _given(
        lambda n: {
            "type": "search_result",
            "title": "T",
            "source": "s",
            "content": [{"type": "text", "text": _text(n)}],
        },
        readable=True,
    ),
    "image": _given(
        lambda n: {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
        },
        readable=False,
    ),
    "container_upload": _given(
        lambda n: {"type": "container_upload", "file_id": f"file_{n}"}, readable=False
    ),
    "tool_addition": _given(
        lambda n: {
            "type": "tool_addition",
            "tool": {"type": "tool_reference", "name": word(n)},
        },
        readable=True,
    ),
}


def _pair(
    call: str,
    result: str,
    arguments: Callable[[str], Block],
    output: Callable[[str], Block],
    *,
    keys: tuple[str, str] = ("call_id", "call_id"),
    by_model: bool = False,
    readable: bool = True,
) -> Callable[[int], Sample]:
    def made(number: int) -> Sample:
        name = f"call_{number}"
        said = {"type": call, "id": f"it_{number}", keys[0]: name, **arguments(asked(number))}
        answer = {"type": result, keys[1]: name, **output(_text(number))}
        return (
            Sample([said, answer], [], readable) if by_model else Sample([said], [answer], readable)
        )

    return made


def _hosted(kind: str, item: Callable[[int], Block], **how: Any) -> Callable[[int], Sample]:
    return lambda n: Sample(
        [{"type": kind, "id": f"{kind[:2]}_{n}", "status": "completed", **item(n)}], [], **how
    )


RESPONSES: dict[str, Callable[[int], Sample]] = {
    "function_call": _pair(
        "function_call",
        "function_call_output",
        lambda a: {"name": "look", "arguments": json.dumps({"q": a})},
        lambda t: {"output": t},
    ),
    "custom_tool_call": _pair(
        "custom_tool_call",
        "custom_tool_call_output",
        lambda a: {"name": "look", "input": a},
        lambda t: {"output": t},
    ),
    "shell_call": _pair(
        "shell_call",
        "shell_call_output",
        lambda a: {"status": "completed", "action": {"commands": [f"grep {a}"]}},
        lambda t: {
            "output": [{"stdout": t, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
        },
    ),
    "local_shell_call": _pair(
        "local_shell_call",
        "local_shell_call_output",
        lambda a: {
            "status": "completed",
            "action": {"type": "exec", "command": ["grep", a], "env": {}},
        },
        lambda t: {"output": t},
        keys=("call_id", "id"),
    ),
    "apply_patch_call": _pair(
        "apply_patch_call",
        "apply_patch_call_output",
        lambda a: {"status": "completed", "operation": {"type": "delete_file", "path": f"{a}.py"}},
        lambda t: {"status": "completed", "output": t},
    ),
    "computer_call": _pair(
        "computer_call",
        "computer_call_output",
        lambda a: {
            "status": "completed",
            "pending_safety_checks": [],
            "action": {"type": "type", "text": a},
        },
        lambda t: {
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
        },
        readable=False,
    ),
    "mcp_approval_request": _pair(
        "mcp_approval_request",
        "mcp_approval_response",
        lambda a: {"name": "pay", "server_label": "bank", "arguments": json.dumps({"to": a})},
        lambda t: {"approve": False, "reason": t},
        keys=("id", "approval_request_id"),
    ),
    "tool_search_call": _pair(
        "tool_search_call",
        "tool_search_output",
        lambda a: {"execution": "client", "status": "completed", "arguments": {"q": a}},
        lambda t: {
            "execution": "client",
            "status": "completed",
            "tools": [
                {
                    "type": "function",
                    "name": t.split()[0],
                    "description": t,
                    "parameters": {},
                    "strict": False,
                },
            ],
        },
    ),
    "program": _pair(
        "program",
        "program_output",
        lambda a: {"code": f"print('{a}')", "fingerprint": "f"},
        lambda t: {"id": "po", "result": t, "status": "completed"},
        by_model=True,
    ),
    "multi_agent_call": _pair(
        "multi_agent_call",
        "multi_agent_call_output",
        lambda a: {"action": "spawn_agent", "arguments": json.dumps({"q": a})},
        lambda t: {
            "id": "mo",
            "action": "spawn_agent",
            "output": [{"type": "output_text", "text": t, "annotations": []}],
        },
        by_model=True,
    ),
    "quantum_call": _pair(
        "quantum_call", "quantum_call_output", lambda a: {"program": a}, lambda t: {"output": t}
    ),
    "web_search_call": _hosted(
        "web_search_call",
        lambda n: {"action": {"type": "search", "query": word(n)}},
        has_arguments=False,
    ),
    "file_search_call": _hosted(
        "file_search_call",
        lambda n: {
            "queries": [asked(n)],
            "results": [{"file_id": "f", "filename": "a.txt", "text": _text(n), "score": 0.5}],
        },
    ),
    "code_interpreter_call": _hosted(
        "code_interpreter_call",
        lambda n: {
            "container_id": "c",
            "code": f"print('{asked(n)}')",
            "outputs": [{"type": "logs", "logs": _text(n)}],
        },
    ),
    "image_generation_call": _hosted(
        "image_generation_call",
        lambda n: {"result": PNG, "revised_prompt": word(n)},
        has_arguments=False,
    ),
    "mcp_call": _hosted(
        "mcp_call",
        lambda n: {
            "name": "find",
            "server_label": "bank",
            "arguments": json.dumps({"q": asked(n)}),
            "output": _text(n),
        },
    ),
    "mcp_list_tools": _hosted(
        "mcp_list_tools",
        lambda n: {
            "server_label": "bank",
            "tools": [{"name": word(n), "input_schema": {}}],
        },
        has_arguments=False,
    ),
    "agent_message": _hosted(
        "agent_message",
        lambda n: {
            "author": "a",
            "recipient": "b",
            "content": [{"type": "input_text", "text": _text(n)}],
        },
        has_arguments=False,
    ),
    "reasoning": lambda n: Sample(
        [
            {
                "type": "reasoning",
                "id": f"rs_{n}",
                "summary": [],
                "encrypted_content": "gAAA" + "k" * 300,
            },
            {"type": "message", "role": "assistant", "content": f"done {n}"},
        ],
        [],
        False,
        False,
    ),
}


def _keyed(
    call: str,
    result: str,
    arguments: Callable[[str], Block],
    output: Callable[[str], Block],
    *,
    by_model: bool = True,
    key: str = "id",
    **more: Any,
) -> Callable[[int], Sample]:
    def made(number: int) -> Sample:
        name = f"kid_{number}"
        said = {call: {key: name, **arguments(asked(number))}, **more}
        answer = {result: {key: name, **output(_text(number))}}
        return Sample([said, answer], []) if by_model else Sample([said], [answer])

    return made


GEMINI: dict[str, Callable[[int], Sample]] = {
    "functionCall": _keyed(
        "functionCall",
        "functionResponse",
        lambda a: {"name": "look", "args": {"q": a}},
        lambda t: {"name": "look", "response": {"output": t}},
        by_model=False,
        thoughtSignature="c2ln",
    ),
    "executableCode": _keyed(
        "executableCode",
        "codeExecutionResult",
        lambda a: {"language": "PYTHON", "code": f"print('{a}')"},
        lambda t: {"outcome": "OUTCOME_OK", "output": t},
        thoughtSignature="c2ln",
    ),
    "executable_code": _keyed(
        "executable_code",
        "code_execution_result",
        lambda a: {"language": "PYTHON", "code": f"print('{a}')"},
        lambda t: {"outcome": "OUTCOME_FAILED", "output": t},
        thought_signature="c2ln",
    ),
    "toolCall": _keyed(
        "toolCall",
        "toolResponse",
        lambda a: {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": [a]}},
        lambda t: {"toolType": "GOOGLE_SEARCH_WEB", "response": {"result": t}},
    ),
    "tool_call": _keyed(
        "tool_call",
        "tool_response",
        lambda a: {"tool_type": "URL_CONTEXT", "args": {"url": a}},
        lambda t: {"tool_type": "URL_CONTEXT", "response": {"result": t}},
    ),
    "without an id": lambda n: Sample(
        [
            {"executableCode": {"language": "PYTHON", "code": f"print('{asked(n)}')"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": _text(n)}},
        ],
        [],
        has_arguments=False,
    ),
}


def _nova(tool: str, content: Callable[[str], Block]) -> Callable[[int], Sample]:
    return _keyed(
        "toolUse",
        "toolResult",
        lambda a: {"name": tool, "input": {"code": a}, "type": "server_tool_use"},
        lambda t: {"content": [content(t)], "status": "success", "type": f"{tool}_result"},
        key="toolUseId",
    )


BEDROCK: dict[str, Callable[[int], Sample]] = {
    "toolUse": _keyed(
        "toolUse",
        "toolResult",
        lambda a: {"name": "look", "input": {"q": a}},
        lambda t: {"content": [{"text": t}]},
        by_model=False,
        key="toolUseId",
    ),
    "nova_code_interpreter": _nova("nova_code_interpreter", lambda t: {"text": t}),
    "nova_grounding": _nova("nova_grounding", lambda t: {"json": {"found": t}}),
}
SAMPLES = {
    "anthropic": ANTHROPIC,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
}


def message_of(form: str, role: str, blocks: list[Block]) -> Block:
    """Return a message with these blocks."""
    if form == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": blocks}
    return {"role": role, "content": blocks}


def messages_of(form: str, sample: Sample) -> list[list[Block]]:
    """Return the sample as the messages that are added one after another."""
    if form == "openai-responses":
        return [blocks for blocks in (sample.said, sample.answered) if blocks]
    spoken = (("assistant", sample.said), ("user", sample.answered))
    return [[message_of(form, role, blocks)] for role, blocks in spoken if blocks]


def saying(form: str, role: str, text: str) -> list[Block]:
    """Return a message with a text."""
    if form in KEYED:
        return [message_of(form, role, [{"text": text}])]
    typed = {"type": "message"} if form == "openai-responses" else {}
    return [{**typed, "role": role, "content": text}]


KEYED = ("gemini", "bedrock")
_ALONE = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)


def halves(form: str, messages: list[Block]) -> set[str]:
    """Return the ids of calls without a result, and of results without a call, by names alone."""
    if form in KEYED:
        return _keyed_halves(messages)
    blocks = messages
    if form == "anthropic":
        lists = (message["content"] for message in messages)
        blocks = [block for each in lists if isinstance(each, list) for block in each]
    calls, results = set[str](), set[str]()
    for block in blocks:
        kind = block.get("type", "")
        if kind.endswith(("_call", "_use", "_request")) or kind == "program":
            calls |= set() if kind in _ALONE else {block.get("call_id") or block["id"]}
        elif kind.endswith(("_output", "_result", "_response")) and kind != "search_result":
            keys = ("tool_use_id", "call_id", "approval_request_id", "id")
            results.add(next(block[key] for key in keys if key in block))
    return calls ^ results


def _keyed_halves(messages: list[Block]) -> set[str]:
    """Return the ids of parts without their other half beside them or in the next message."""
    lists = [message.get("parts") or message.get("content") or [] for message in messages]
    found = set[str]()
    for blocks, following in zip(lists, [*lists[1:], []], strict=True):
        for call, result in (
            ("executableCode", "codeExecutionResult"),
            ("executable_code", "code_execution_result"),
            ("toolCall", "toolResponse"),
            ("tool_call", "tool_response"),
        ):
            found |= _ids(blocks, call) ^ _ids(blocks, result)
        served = {key for block in blocks for key, body in block.items() if "type" in body}
        beside = [block for block in blocks if served & block.keys()]
        found |= _ids(beside, "toolUse") ^ _ids(beside, "toolResult")
        for call, result in (("functionCall", "functionResponse"), ("toolUse", "toolResult")):
            made = [block for block in blocks if block not in beside]
            answers = [block for block in following if "type" not in block.get(result, ())]
            found |= _ids(made, call) ^ _ids(answers, result)
    return found


def _ids(blocks: list[Block], key: str) -> set[str]:
    bodies = (block[key] for block in blocks if key in block)
    names = (body.get("id") or body.get("toolUseId") for body in bodies)
    return {name for name in names if name}
