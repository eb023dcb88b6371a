"""The proxy of LiteLLM with the callback, between HTTP clients and a server like OpenAI's."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import litellm
import pytest
from memman_litellm import MemmanLogger

from memman import MemoryManager
from memman.records import UsageReported
from memman.testing import FakeModel, FakeOverflow

from .chats import TOOL, call_of

proxy = pytest.importorskip(
    "litellm.proxy.proxy_server", reason="needs litellm[proxy]", exc_type=ImportError
)
CALLBACK = """
from memman_litellm import MemmanLogger
from memman import MemoryConfig, MemoryManager

memory = MemoryManager(config=MemoryConfig(max_tokens=2_500, max_entries=None))
callback = MemmanLogger(memory)
"""
CONFIG = """
model_list:
  - model_name: house
    litellm_params: {{model: openai/gpt-4o, api_base: "{url}", api_key: none}}
general_settings:
  master_key: sk-tests
litellm_settings:
  callbacks: memory_of_tests.callback
router_settings:
  retry_policy: {{BadRequestErrorRetries: 3}}
"""


class Handler(BaseHTTPRequestHandler):
    """Answers as OpenAI's API does, by the server's `FakeModel`."""

    def do_POST(self) -> None:
        """Answer a chat request."""
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        try:
            reply = server.fake.reply(given["messages"], tools=given.get("tools"))
        except FakeOverflow as error:
            refusal = {"message": str(error), "code": "context_length_exceeded", "type": "x"}
            self._send(400, "application/json", json.dumps({"error": refusal}))
            return
        calls = [{**call_of(call), "index": n} for n, call in enumerate(reply.calls)]
        message = {"role": "assistant", "content": reply.text or None, "tool_calls": calls or None}
        usage = {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
        reason = "tool_calls" if calls else "stop"
        common = {"id": f"chat-{len(server.fake.requests)}", "created": 1, "model": "gpt-4o"}
        choice = {"index": 0, "finish_reason": reason}
        if not given.get("stream"):
            whole = {**common, "object": "chat.completion", "usage": usage}
            whole["choices"] = [{**choice, "message": message}]
            self._send(200, "application/json", json.dumps(whole))
            return
        piece = {**common, "object": "chat.completion.chunk"}
        chunks = [
            {**piece, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**piece, "choices": [{**choice, "delta": {}}]},
            {**piece, "choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self._send(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))

    def _send(self, status: int, kind: str, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Be silent."""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server whose model is `fake`."""
    with closing(MemoryManager(model="gpt-4o")) as pricing:
        found: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        found.fake = FakeModel(pricing)
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()
        found.server_close()


@asynccontextmanager
async def client_of(folder: Path, server: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Start the proxy with a `config.yaml` and yield a client of it."""
    folder.joinpath("memory_of_tests.py").write_text(CALLBACK)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(url=f"http://127.0.0.1:{server.server_port}/v1"))
    litellm.logging_callback_manager._reset_all_callbacks()
    await proxy.initialize(config=str(config))
    transport = httpx.ASGITransport(proxy.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
        yield client
    litellm.logging_callback_manager._reset_all_callbacks()


def logger_of_proxy() -> MemmanLogger:
    """Return the callback that the proxy made of its configuration."""
    [found] = [each for each in litellm.callbacks if isinstance(each, MemmanLogger)]
    return found


async def settled() -> None:
    """Wait until the streams that have ended are logged."""
    calls = logger_of_proxy()._calls
    for _ in range(1_000):
        if not calls:
            return
        await asyncio.sleep(0.01)


async def turn(
    client: httpx.AsyncClient, messages: list[Any], fake: FakeModel, **body: Any
) -> None:
    """Run a turn of a client that sends its whole list."""
    stream = body.get("stream", False)
    while True:
        response = await client.post(
            "/v1/chat/completions",
            json={"model": "house", "messages": messages, "tools": [TOOL], **body},
            headers={"x-litellm-session-id": "chat-of-anna", "Authorization": "Bearer sk-tests"},
        )
        assert response.status_code == 200, response.text
        reply = streamed(response.text) if stream else response.json()["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return
        for call in reply["tool_calls"]:
            result = await fake.read(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def streamed(text: str) -> dict[str, Any]:
    """Return the message of a stream of events."""
    lines = [
        line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")
    ]
    message: dict[str, Any] = (
        litellm.stream_chunk_builder(
            [litellm.ModelResponseStream(**json.loads(line)) for line in lines]
        )
        .choices[0]
        .message.model_dump(exclude_none=True)
    )
    return message


def test_clients_of_the_proxy_have_a_memory(tmp_path: Path, server: Any):
    messages: list[Any] = [{"role": "system", "content": "You review code."}]

    async def play() -> tuple[list[Any], list[Any], list[UsageReported]]:
        async with client_of(tmp_path, server) as client:
            for number in range(8):
                messages.append({"role": "user", "content": f"Is part {number} sound?"})
                await turn(client, messages, server.fake, stream=number % 2 == 1)
            await settled()
            memory = logger_of_proxy()._memory
            [session] = await memory.list_sessions()
            name = session.session_id
            entries, log = await memory.get_entries(name), (await memory.export_session(name)).log
            return [name], entries, [each for each in log if isinstance(each, UsageReported)]

    [name], entries, usage = asyncio.run(play())
    assert name.startswith("chat-of-anna ")  # the digest of the key follows
    requests = server.fake.requests
    assert len(requests) == 16
    assert not [request.violations for request in requests if request.violations]
    assert max(request.tokens for request in requests) <= 2_500
    assert len(requests[-1].messages) < len(messages) - 1, "the whole list is longer"
    assert [each.text for each in entries if each.type == "tool_result"] == server.fake.results
    assert [each.text for each in entries if each.role == "user"] == [
        f"Is part {number} sound?" for number in range(8)
    ]
    assert entries[-1].text == messages[-1]["content"]
    assert [each.input_tokens for each in usage] == [request.billed for request in requests]
    assert {each.model for each in usage} == {"openai/gpt-4o"}


def test_proxy_sends_a_refused_request_again_shorter(tmp_path: Path, server: Any):
    server.fake = FakeModel(server.fake.memory, steps=3, limit=1_000)
    messages: list[Any] = [{"role": "user", "content": "Is it sound?"}]

    async def play() -> None:
        async with client_of(tmp_path, server) as client:
            for _ in range(3):
                await turn(client, messages, server.fake)
                messages.append({"role": "user", "content": "And now?"})

    asyncio.run(play())
    assert server.fake.overflows == 1
    assert len(messages) == 34
