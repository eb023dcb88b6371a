"""A provider on the loopback interface, for the agent loops of the documentation.

It supports OpenAI's `chat.completions` and `responses`, Anthropic's `messages`, Gemini's `generateContent`
and Bedrock's `converse`, all but the second as a stream too, so that the real SDKs run against it.
It refuses a request that breaks the providers' rules (`memman.formats.rules`), and one
that is larger than its context window. Its model calls a tool first, if there are any, and answers
from the result.
"""

from __future__ import annotations

import json
import re
import struct
import threading
from binascii import crc32
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memman.formats.rules import check

_TOOL_PROMPT = 450
_READ = (
    "system", "messages", "tools", "instructions", "input", "systemInstruction", "contents", "toolConfig",
)  # fmt: skip
WINDOW = 3_000  # tokens of the context window, as this server counts


class Loopback(ThreadingHTTPServer):
    """The server; `requests` are the accepted bodies in order, `refused` the reasons of refusals."""

    daemon_threads = True

    def __init__(self, window: int = WINDOW) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.window = window
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answered(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response to a request."""
        path = path.partition("?")[0]
        target = next((found for end, found in _SERVED.items() if path.endswith(end)), None)
        if target is None:
            return 404, _error("not_found_error", f"nothing is served at {path}")
        tokens = _tokens(body)
        problem = self._problem(target, body, tokens)
        if problem:
            self.refused.append(problem)
            return 400, _error("invalid_request_error", problem)
        self.requests.append(body)
        return 200, _REPLIES[target](body, len(self.requests), tokens)

    def _problem(self, target: str, body: dict[str, Any], tokens: int) -> str:
        messages = _messages(body)
        broken = check(messages, target, system=_system(body))
        if broken:
            return "; ".join(f"message {found.index}: {found.message}" for found in broken)
        if tokens > self.window:
            return f"the request has {tokens} tokens and the context window {self.window}"
        known = _KNOWN_KEYS.get(target)
        extra = set().union(*messages) - known if known else ()
        return f"unknown keys in a message: {sorted(extra)}" if extra else ""


# The keys of a message; Anthropic refuses all others.
_KNOWN_KEYS = {
    "openai-chat": {
        "role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations",
        "function_call",
    },
    "anthropic": {"role", "content"},
    "gemini": {"role", "parts"},
    "bedrock": {"role", "content"},
}  # fmt: skip
_SERVED = {  # the end of a path, and the format of its messages
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "/messages": "anthropic",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
    "/converse": "bedrock",
    "/converse-stream": "bedrock",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for a delayed acknowledgement
    server: Loopback

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        request_body = json.loads(self.rfile.read(size))
        status, body = self.server.answered(self.path, request_body)
        payload, kind = json.dumps(body).encode(), "application/json"
        if status == 200 and (request_body.get("stream") or "stream" in self.path):
            payload, kind = _streamed(body)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log nothing: a failing test shows the requests."""


@contextmanager
def running(window: int = WINDOW) -> Iterator[Loopback]:
    """Run a server during the block."""
    with Loopback(window) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# ---------------------------------------------------------------- answers


def _tokens(body: dict[str, Any]) -> int:
    """Count the tokens of a request: its bytes, four to a token.

    Tools in Anthropic's shape add the prompt that Anthropic puts before them.
    """
    read = {key: body[key] for key in _READ if key in body}
    hidden = _TOOL_PROMPT if any("input_schema" in tool for tool in body.get("tools", ())) else 0
    return len(json.dumps(read, ensure_ascii=False).encode()) // 4 + hidden


def _messages(body: dict[str, Any]) -> list[Any]:
    """Return the messages of a request of any provider."""
    return body.get("messages") or body.get("contents") or body.get("input") or []


def _system(body: dict[str, Any]) -> str | None:
    """Return the system prompt of a request if it is not a message."""
    apart = body.get("systemInstruction")
    if apart is not None:
        return apart["parts"][0]["text"]
    system = body.get("system")
    return system[0]["text"] if isinstance(system, list) else system


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _question(message: dict[str, Any]) -> str | None:
    """Return the user's text, None after a tool result."""
    content = message.get("content") or message.get("parts")
    if message.get("role") != "user":
        return None
    if isinstance(content, str):
        return content
    return content[-1].get("text")  # a result, in whatever form, has none


def _wanted(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the model's tool call, None if it answers."""
    question = _question(_messages(body)[-1])
    tools = body.get("tools") or body.get("toolConfig")
    return None if question is None or not tools else {"path": question.split()[-1].rstrip("?")}


def _completion(body: dict[str, Any], turn: int, tokens: int) -> dict[str, Any]:
    wanted = _wanted(body)
    message: dict[str, Any] = {"role": "assistant", "content": "It is fine.", "refusal": None}
    if wanted is not None:
        function = {"name": "read_file", "arguments": json.dumps(wanted)}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    return {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "stop" if wanted is None else "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": 12,
            "total_tokens": tokens + 12,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _message(body: dict[str, Any], turn: int, tokens: int) -> dict[str, Any]:
    wanted = _wanted(body)
    content: list[dict[str, Any]] = [{"type": "text", "text": "It is fine."}]
    if wanted is not None:
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read_file", "input": wanted}
        content = [{"type": "text", "text": "I will read it."}, use]
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "end_turn" if wanted is None else "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens - 10,
            "cache_read_input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "output_tokens": 12,
        },
    }


def _response(body: dict[str, Any], turn: int, tokens: int) -> dict[str, Any]:
    wanted = _wanted(body)
    text = {"type": "output_text", "text": "It is fine.", "annotations": []}
    item: dict[str, Any] = {
        "type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed",
        "content": [text],
    }  # fmt: skip
    if wanted is not None:
        item = {
            "type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": "read_file",
            "arguments": json.dumps(wanted), "status": "completed",
        }  # fmt: skip
    return {
        "id": f"resp_{turn}", "object": "response", "created_at": 1_750_000_000, "status": "completed",
        "model": body["model"], "output": [item], "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 12,
        },
    }  # fmt: skip


def _generated(body: dict[str, Any], turn: int, tokens: int) -> dict[str, Any]:
    wanted = _wanted(body)
    part: dict[str, Any] = {"text": "It is fine."}
    if wanted is not None:
        call = {"name": "read_file", "args": wanted}
        part = {"functionCall": call, "thoughtSignature": "c2lnbmF0dXJl"}
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": content}],
        "usageMetadata": {
            "promptTokenCount": tokens, "candidatesTokenCount": 12, "totalTokenCount": tokens + 12,
        },
        "modelVersion": "gemini", "responseId": f"r{turn}",
    }  # fmt: skip


def _converse(body: dict[str, Any], turn: int, tokens: int) -> dict[str, Any]:
    wanted = _wanted(body)
    content: list[dict[str, Any]] = [{"text": "It is fine."}]
    if wanted is not None:
        use = {"toolUseId": f"tooluse_{turn}", "name": "read_file", "input": wanted}
        content = [{"text": "I will read it."}, {"toolUse": use}]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "end_turn" if wanted is None else "tool_use", "metrics": {"latencyMs": 1},
        "usage": {"inputTokens": tokens, "outputTokens": 12, "totalTokens": tokens + 12},
    }  # fmt: skip


_REPLIES = {
    "openai-chat": _completion,
    "openai-responses": _response,
    "anthropic": _message,
    "gemini": _generated,
    "bedrock": _converse,
}


# ---------------------------------------------------------------- streams


def _streamed(body: dict[str, Any]) -> tuple[bytes, str]:
    """Return a response as the events of a stream, word by word, and their content type."""
    if "output" in body:
        return event_stream(_converse_events(body)), "application/vnd.amazon.eventstream"
    pieces = next(made(body) for key, made in _PIECES.items() if key in body)
    end = "data: [DONE]\n\n" if "choices" in body else ""
    return (server_sent(pieces) + end).encode(), "text/event-stream"


def server_sent(pieces: Iterable[dict[str, Any]]) -> str:
    """Return server-sent events, with their types if they have any."""
    named = [
        (f"event: {one['type']}\n" if "type" in one else "", json.dumps(one)) for one in pieces
    ]
    return "".join(f"{name}data: {data}\n\n" for name, data in named)


def event_stream(pieces: Iterable[dict[str, Any]]) -> bytes:
    """Return Amazon's event stream: lengths, checksums, headers and a JSON payload for each event."""
    body = b""
    for piece in pieces:
        [(kind, event)] = piece.items()
        named = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
        headers = b"".join(
            bytes([len(name)])
            + name.encode()
            + b"\x07"
            + struct.pack("!H", len(value))
            + value.encode()
            for name, value in named.items()
        )
        payload = json.dumps(event).encode()
        head = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
        message = head + struct.pack("!I", crc32(head)) + headers + payload
        body += message + struct.pack("!I", crc32(message))
    return body


def _chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    [choice] = body["choices"]
    message = choice["message"]
    head = {key: body[key] for key in ("id", "created", "model")} | {
        "object": "chat.completion.chunk"
    }
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
    chunks = [{"content": word} for word in _words(message["content"])]
    called = [{"tool_calls": [call]} for call in calls]
    for delta in ({"role": "assistant", "content": ""}, *chunks, *called):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**head, "choices": [], "usage": body["usage"]}


def _events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = body["usage"]
    begun = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(body["content"]):
        text = block["type"] == "text"
        empty = {**block, "text": ""} if text else {**block, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for piece in _words(block["text"]) if text else [json.dumps(block["input"])]:
            delta = {"type": "text_delta", "text": piece}
            if not text:
                delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": ended,
        "usage": {"output_tokens": usage["output_tokens"]},
    }
    yield {"type": "message_stop"}


def _responses(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {key: body[key] for key in ("modelVersion", "responseId")}
    [candidate] = body["candidates"]
    for part in candidate["content"]["parts"]:
        for piece in (
            [{"text": word} for word in _words(part["text"])] if "text" in part else [part]
        ):
            yield {
                **head,
                "candidates": [{"index": 0, "content": {"role": "model", "parts": [piece]}}],
            }
    last = {"index": 0, "content": {"role": "model", "parts": []}, "finishReason": "STOP"}
    yield {**head, "candidates": [last], "usageMetadata": body["usageMetadata"]}


def _converse_events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    for index, block in enumerate(body["output"]["message"]["content"]):
        at = {"contentBlockIndex": index}
        for word in _words(block.get("text")):
            yield {"contentBlockDelta": {**at, "delta": {"text": word}}}
        if use := block.get("toolUse"):
            started = {key: use[key] for key in ("toolUseId", "name")}
            yield {"contentBlockStart": {**at, "start": {"toolUse": started}}}
            given = {"toolUse": {"input": json.dumps(use["input"])}}
            yield {"contentBlockDelta": {**at, "delta": given}}
        yield {"contentBlockStop": at}
    yield {"messageStop": {"stopReason": body["stopReason"]}}
    yield {"metadata": {"usage": body["usage"], "metrics": body["metrics"]}}


def _words(text: str | None) -> list[str]:
    return re.findall(r"\S+\s*", text or "")


_PIECES = {"choices": _chunks, "candidates": _responses, "content": _events}
