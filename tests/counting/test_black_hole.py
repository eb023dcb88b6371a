"""Behind a firewall that drops every packet, no installed counter hangs.

Every name resolves to a socket of this machine that never answers, so the real SDKs use their own
connections. If a port drops connections, `connect` waits; if it only accepts them, the read of
the first byte waits (of a TLS handshake, here).
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from memman import AsyncMemoryManager, CounterSpec, MemoryConfig, MemoryManager, events
from memman.counting.builtin import builtin_specs
from memman.counting.models import model_ref
from memman.formats import builtin_formats
from memman.plugins import shared_plugins
from tests.patience import PATIENCE

MODELS = (
    "gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large-2411", "llama-3.1-8b",
    "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0",
    "vertex_ai/gemini-2.5-pro", "vertex_ai/claude-sonnet-4-5", "azure/gpt-4o",
)  # fmt: skip
# Enough for every SDK to connect; none of it is a real credential.
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "a", "GEMINI_API_KEY": "a",
    "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a", "AWS_DEFAULT_REGION": "us-east-1",
    "AZURE_OPENAI_API_KEY": "a", "AZURE_OPENAI_ENDPOINT": "https://azure.test",
    "OPENAI_API_VERSION": "2025-04-01-preview", "CLOUD_ML_REGION": "us-east5",
    "ANTHROPIC_VERTEX_PROJECT_ID": "p", "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us",
}  # fmt: skip

_WARM: set[tuple[str, str]] = set()


def specs() -> list[CounterSpec]:
    listed = shared_plugins().listed("memman_token_counters")
    return [*(spec for _, spec in listed), *builtin_specs()]


def models_of(spec: CounterSpec) -> list[str]:
    """A model for each platform that has a counter."""
    found = {model_ref(model).provider: model for model in MODELS if spec.match(model_ref(model))}
    return list(found.values()) or ["a model nobody knows"]


LOCAL = [spec.name for spec in specs() if not spec.remote]
REMOTE = [(spec.name, model) for spec in specs() if spec.remote for model in models_of(spec)]
# The other counters keep the same deadline, and each test waits for it three times.
FIRST_ONLY = [
    pytest.param(*each, marks=pytest.mark.long if number else ())
    for number, each in enumerate(REMOTE)
]


class Hole:
    """Return a port that never answers, and the names resolved since, except by earlier calls."""

    def __init__(self, stack: ExitStack, accepts: bool) -> None:
        self.resolved: list[Any] = []
        self._left_behind = {*threading.enumerate()} - {threading.current_thread()}
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(64 if accepts else 0)
        self.address = listening.getsockname()
        for _ in range(0 if accepts else 3):  # a full queue: the kernel drops further connections
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(self.address)

    def resolve(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        if threading.current_thread() not in self._left_behind:
            self.resolved.append(host)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, self.address)]


@pytest.fixture(params=["drops", pytest.param("only accepts", marks=pytest.mark.long)])
def hole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hole]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in (
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "ALL_PROXY",
        "https_proxy",
        "http_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        hole = Hole(stack, accepts=request.param == "only accepts")
        monkeypatch.setattr(socket, "getaddrinfo", hole.resolve)
        yield hole


def warm(hole: Hole, name: str, model: str) -> None:
    """Import the SDK while every connection is refused; the deadline does not cover an import."""
    if (name, model) in _WARM:
        return
    _WARM.add((name, model))
    [counter] = [spec.factory(model_ref(model)) for spec in specs() if spec.name == name]
    request = {"model": model, "messages": [], "system": None, "tools": []}
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        there, hole.address = hole.address, nobody.getsockname()
    with suppress(Exception):
        counter.count_request(request, timeout=PATIENCE)
    with suppress(Exception):
        asyncio.run(counter.acount_request(request, timeout=PATIENCE))
    hole.address = there
    hole.resolved.clear()


def test_the_hole_swallows_connections(hole: Hole) -> None:
    with (
        pytest.raises(TimeoutError),
        socket.create_connection(("anywhere.test", 443), timeout=0.3) as connected,
    ):
        connected.recv(1)
    assert hole.resolved == ["anywhere.test"]


@pytest.mark.parametrize("name", LOCAL)
def test_local_counter_sends_no_request(hole: Hole, name: str) -> None:
    [spec] = [spec for spec in specs() if spec.name == name]
    for model in models_of(spec):
        memory = MemoryManager(config=MemoryConfig(model=model, count_policy="local"))
        assert memory.add_user_message("s", "hello there").token_count.tokens > 0
        memory.build_context("s")
        memory.count_tokens("hello there")
    assert hole.resolved == []


@pytest.mark.parametrize(
    "api", [MemoryManager, pytest.param(AsyncMemoryManager, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(("name", "model"), FIRST_ONLY)
def test_remote_counter_delays_no_add_and_meets_its_deadline(
    hole: Hole, name: str, model: str, api: Any
) -> None:
    [form] = [spec.format for spec in specs() if spec.name == name]
    if form not in {known.name for known in builtin_formats()}:
        pytest.skip(f"the format {form} is not here")
    heard: list[events.CountFellBack] = []

    def hear(sender: Any, event: events.CountFellBack) -> None:
        heard.append(event)

    async def drive() -> None:
        config = MemoryConfig(
            model=model, count_policy="confirm", max_entries=None, max_tokens=1_000,
            auto_compress=False,
        )  # fmt: skip
        memory = api(counter="chars4", config=config)
        with events.count_fell_back.connected_to(hear, sender=memory):
            for number in range(19):
                text = f"{number:>3} ".ljust(4 * 46, "x")
                await in_time(lambda text=text: memory.add_user_message("s", text))
            assert heard == []
            await in_time(lambda: memory.build_context("s"))
            await in_time(lambda: memory.count_tokens("hello there"))
            await in_time(lambda: memory.compress("s"))

    async def in_time(action: Any) -> None:
        # The deadline is 2 s; without it an SDK waits for minutes.
        began = time.monotonic()
        answer = action()
        if inspect.isawaitable(answer):
            await answer
        assert time.monotonic() - began < PATIENCE

    warm(hole, name, model)
    asyncio.run(drive())
    assert heard, f"{name} was not called for {model}"
    assert hole.resolved, f"{name} was not told to connect: {heard[0].reason}"
