"""A provider on the loopback interface, for the loops in `docs/how-to`.

It speaks OpenAI's `chat.completions` and Anthropic's `messages`, so that the real SDKs run against it.
It refuses what the providers refuse: a request that breaks their rules (`memman.formats.rules`), and one
that is larger than its context window. Its model asks for a tool first, where there are any, and answers
from the result.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memman.formats.rules import check

_TOOL_PROMPT = 450
WINDOW = 3_000  # tokens of the context window, as this server counts


class Loopback(ThreadingHTTPServer):
    """The server; `requests` are the bodies it accepted, in order, `refused` the reasons it gave."""

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
        """The status and the body of the response to a request."""
        chat = path.endswith("/chat/completions")
        if not chat and not path.endswith("/messages"):
            return 404, _error("not_found_error", f"nothing is served at {path}")
        tokens = _tokens(body)
        problem = self._problem("openai-chat" if chat else "anthropic", body, tokens)
        if problem:
            self.refused.append(problem)
            return 400, _error("invalid_request_error", problem)
        self.requests.append(body)
        turn = len(self.requests)
        reply = _completion if chat else _message
        return 200, reply(body, turn, tokens)

    def _problem(self, target: str, body: dict[str, Any], tokens: int) -> str:
        broken = check(body.get("messages", ()), target, system=body.get("system"))
        if broken:
            return "; ".join(f"message {found.index}: {found.message}" for found in broken)
        if tokens > self.window:
            return f"the request has {tokens} tokens and the context window {self.window}"
        extra = set().union(*body["messages"]) - _KNOWN_KEYS[target]
        return f"unknown keys in a message: {sorted(extra)}" if extra else ""


# What the providers take in a message; Anthropic refuses every other key.
_KNOWN_KEYS = {
    "openai-chat": {
        "role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations",
        "function_call",
    },
    "anthropic": {"role", "content"},
}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for a delayed acknowledgement
    server: Loopback

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        asked = json.loads(self.rfile.read(size))
        status, body = self.server.answered(self.path, asked)
        streams = status == 200 and asked.get("stream")
        payload = _streamed(body) if streams else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Says nothing: the test that fails shows the requests."""


@contextmanager
def running(window: int = WINDOW) -> Iterator[Loopback]:
    """A server that runs as long as the block does."""
    with Loopback(window) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# ---------------------------------------------------------------- what it answers


def _tokens(body: dict[str, Any]) -> int:
    """A count of its own: the bytes of everything that is read, four to a token.

    Where tools are given in Anthropic's shape, the prompt that Anthropic puts before them is added.
    """
    read = {key: body[key] for key in ("system", "messages", "tools") if key in body}
    hidden = _TOOL_PROMPT if any("input_schema" in tool for tool in body.get("tools", ())) else 0
    return len(json.dumps(read, ensure_ascii=False).encode()) // 4 + hidden


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _question(message: dict[str, Any]) -> str | None:
    """The user's own words where the message has them, None after a tool result."""
    content = message.get("content")
    if message["role"] != "user":
        return None
    if isinstance(content, str):
        return content
    return None if any(b["type"] == "tool_result" for b in content) else content[-1]["text"]


def _wanted(body: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of the tool call that the model makes now, None when it answers."""
    question = _question(body["messages"][-1])
    return None if question is None or not body.get("tools") else {"path": question.split()[-1].rstrip("?")}


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


# ---------------------------------------------------------------- what it streams


def _streamed(body: dict[str, Any]) -> bytes:
    """A response as server-sent events, a word of its text at a time."""
    pieces = _chunks(body) if "choices" in body else _events(body)
    named = [(f"event: {one['type']}\n" if "type" in one else "", json.dumps(one)) for one in pieces]
    end = "data: [DONE]\n\n" if "choices" in body else ""
    return ("".join(f"{name}data: {data}\n\n" for name, data in named) + end).encode()


def _chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    [choice] = body["choices"]
    message = choice["message"]
    head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
    said = [{"content": word} for word in _words(message["content"])]
    called = [{"tool_calls": [call]} for call in calls]
    for delta in ({"role": "assistant", "content": ""}, *said, *called):
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
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def _words(text: str | None) -> list[str]:
    return [word + " " for word in (text or "").split(" ")[:-1]] + (text or "").split(" ")[-1:]
