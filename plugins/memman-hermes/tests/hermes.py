"""Hermes agents with memman's engine, and a model behind a server on the loopback interface."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_HOME = tempfile.mkdtemp(prefix="memman-hermes-")
Path(_HOME, "config.yaml").write_text(
    "context: {engine: memman}\nmodel: {context_length: 64000}\n", encoding="utf-8"
)
os.environ.update(
    {"HERMES_HOME": _HOME, "HOME": _HOME, "HERMES_SKIP_SSL_GUARD": "1"}
)  # before Hermes is imported
sys.modules.pop("plugins", None)  # pytest's name for a folder of memman, and a package of Hermes

from hermes_cli import plugins  # noqa: E402
from memman_hermes import MemmanEngine  # noqa: E402
from memman_hermes.plugin import register_engine  # noqa: E402
from run_agent import AIAgent  # noqa: E402
from tools.registry import registry  # noqa: E402

from memman import MemoryManager  # noqa: E402
from memman.testing import FakeModel, FakeModelError, FakeOverflow, ModelReply  # noqa: E402

PROMPT = "You review code."
_READ = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}
_models: dict[str, FakeModel] = {}  # by the path that they read


def _read(args: dict[str, str], **_: Any) -> str:
    model = _models[args["path"]]
    # Hermes strips white space around what it sends, and keeps it in its messages.
    model.results.append(model.read_sync(args["path"]).strip())
    del model.results[-2]
    return model.results[-1]


registry.register(name="read", toolset="review", schema=_READ, handler=_read)


def use(memory: MemoryManager, **options: Any) -> None:
    """Let new agents have an engine with this memory."""
    manager = plugins.get_plugin_manager()
    manager.discover_and_load()
    if getattr(manager._context_engine, "memory", None) is memory:
        return
    manager._context_engine = None
    manager._hooks.clear()
    engine = MemmanEngine(memory, **options)
    context = plugins.PluginContext(plugins.PluginManifest(name="memman"), manager)
    register_engine(context, engine)


class ModelServer(ThreadingHTTPServer):
    """Answers by a `FakeModel`; `said` has the conversation as the model took part in it."""

    daemon_threads = True

    def __init__(self, model: FakeModel) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.said: list[dict[str, Any]] = []
        self.errors: list[FakeModelError] = []
        threading.Thread(target=self.serve_forever, daemon=True, args=(0.01,)).start()

    def reply(self, body: dict[str, Any]) -> ModelReply:
        messages = body["messages"]
        self._hear(messages)
        reply = self.model.reply(messages, tools=body.get("tools"))
        for call in reply.calls:
            _models[call.arguments.get("path", "")] = self.model
        self.said.append({"role": "assistant", "content": reply.text, **_calls(reply)})
        return reply

    def _hear(self, messages: list[dict[str, Any]]) -> None:
        """Take the results that are new in a request."""
        answered = {message.get("tool_call_id") for message in self.said}
        first = max(n for n, message in enumerate(messages) if message["role"] != "tool") + 1
        self.said += [each for each in messages[first:] if each["tool_call_id"] not in answered]


def _calls(reply: ModelReply) -> dict[str, Any]:
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in reply.calls
    ]
    return {"tool_calls": calls} if calls else {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, which are sent at once
    disable_nagle_algorithm = True
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(404, b"{}", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.endswith("/chat/completions"):
            return self._send(404, b"{}", "application/json")
        try:
            reply = self.server.reply(body)
        except FakeModelError as error:
            self.server.errors.append(error)
            code = "context_length_exceeded" if isinstance(error, FakeOverflow) else "invalid"
            fault = {"message": str(error), "type": "invalid_request_error", "code": code}
            return self._send(400, json.dumps({"error": fault}).encode(), "application/json")
        shared = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": body["model"],
        }
        calls = [
            {"index": number, **call}
            for number, call in enumerate(_calls(reply).get("tool_calls", []))
        ]
        delta = {"role": "assistant", "content": reply.text or None, "tool_calls": calls or None}
        usage = {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
        end = "tool_calls" if calls else "stop"
        pieces = [
            {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**shared, "choices": [], "usage": usage},
        ]
        text = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
        return self._send(200, text.encode(), "text/event-stream")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def agent_of(server: ModelServer, session_id: str, **options: Any) -> AIAgent:
    """Return an agent that reads files, with the engine in use."""
    agent = AIAgent(
        base_url=f"http://127.0.0.1:{server.server_port}/v1",
        api_key="unused",
        provider="custom",
        model=FakeModel.name,
        session_id=session_id,
        enabled_toolsets=["review", "context_engine"],
        quiet_mode=True,
        skip_context_files=True,
        skip_memory=True,
        tool_delay=0,
        **options,
    )
    agent._api_max_retries = 1
    return agent
