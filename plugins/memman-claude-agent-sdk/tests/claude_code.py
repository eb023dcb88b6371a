"""The bundled Claude Code, with a scripted server in the place of Anthropic's API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from memman.testing import Answer, LoopbackServer

MODEL = "claude-sonnet-5-5"
_NO_USAGE = {"input_tokens": 100, "output_tokens": 1}


def streamed(name: str, *blocks: dict[str, Any]) -> Answer:
    """Return an answer of the API with these blocks, as a stream of events."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    message = {"id": name, "type": "message", "role": "assistant", "model": MODEL, "content": []}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": _NO_USAGE}}
    ]
    for index, block in enumerate(blocks):
        empty, deltas = _in_pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return Answer(body=body.encode(), headers={"content-type": "text/event-stream"})


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
    given = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]


def options_of(folder: Path, server: LoopbackServer, **more: Any) -> ClaudeAgentOptions:
    """Return options that keep Claude Code's own files in a folder."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    env = {
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_BASE_URL": server.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "HOME": str(folder),
    }
    return ClaudeAgentOptions(env=env, cwd=project, model=MODEL, allowed_tools=["Read"], **more)


async def run(prompt: str, options: ClaudeAgentOptions) -> str:
    """Run a prompt and return the id of its session."""
    found = [each async for each in query(prompt=prompt, options=options)]
    [result] = [each for each in found if isinstance(each, ResultMessage)]
    assert not result.is_error, result
    return result.session_id
