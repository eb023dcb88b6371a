"""A manager confirms counts with a provider's real SDK: no fault of the provider raises,
and a failed count is reported with its reason.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest

from memman import AsyncMemoryManager, Context, MemoryConfig, MemoryManager, events, plugins
from memman.formats import builtin_formats
from memman.testing import Answer, LoopbackServer, loopback
from tests.patience import PATIENCE

KEY = "key-of-the-test"
COUNTED = {"input_tokens": 930}
HANG = Answer(never=True)
FAILURES = {
    "limited": (Answer(429, {"error": {"message": "slow down"}}, {"retry-after": "60"}), "429"),
    "failing": (Answer(500, {"error": {"message": "oops"}}), "500"),
    "overloaded": (Answer(529, {"error": {"message": "busy"}}), "529"),
    "denied": (Answer(401, {"error": {"message": "who are you"}}), "401"),
    "unsupported": (Answer(404, {"error": {"message": "no such model"}}), "404"),
    "no JSON": (Answer(200, b"<html>"), ""),
    "no count": (Answer(200, {}), ""),
}


class Provider:
    """A model, the plugin that counts for it, and the endpoint of its counts."""

    def __init__(self, name: str, model: str, path: str, base: str, format_name: str) -> None:
        self.plugin = pytest.importorskip(f"memman_{name}")
        if format_name not in {form.name for form in builtin_formats()}:
            pytest.skip(f"the format {format_name} is not here")
        self.name, self.model, self.path, self.base = name, model, path, base

    def environment(self, patch: pytest.MonkeyPatch, url: str) -> None:
        patch.setenv(f"{self.name.upper()}_BASE_URL", url + self.base)
        patch.setenv(f"{self.name.upper()}_API_KEY", KEY)
        patch.setenv("NO_PROXY", "127.0.0.1")
        found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
        found.register(self.plugin, self.name)
        patch.setattr(plugins, "_shared", found)


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest) -> Provider:
    if request.param == "anthropic":
        return Provider(
            "anthropic", "claude-sonnet-4-5", "/v1/messages/count_tokens", "", "anthropic"
        )
    return Provider("openai", "gpt-5", "/responses/input_tokens", "/v1", "openai-responses")


@pytest.fixture
def server(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    with loopback(provider.path, Answer(200, COUNTED)) as server:
        provider.environment(monkeypatch, server.url)
        yield server


@pytest.fixture(params=["sync", "async"])
def runtime(request: pytest.FixtureRequest) -> Any:
    return MemoryManager if request.param == "sync" else AsyncMemoryManager


def run(runtime: Any, model: str, tokens: int = 950, **settings: Any) -> tuple[Context, list[Any]]:
    """Fill a session nearly up to its limit, build and compress; return the contexts and the fallbacks."""
    heard: list[events.CountFellBack] = []

    def hear(sender: Any, event: events.CountFellBack) -> None:
        heard.append(event)

    async def drive() -> Context:
        config = MemoryConfig(
            model=model, count_policy="confirm", max_entries=None, max_tokens=1_000, **settings
        )
        memory = runtime(counter="chars4", config=config)

        async def awaited(answer: Any) -> Any:
            return await answer if inspect.isawaitable(answer) else answer

        with events.count_fell_back.connected_to(hear, sender=memory):
            for number in range(tokens // 50):
                text = f"{number:>3} ".ljust(4 * 46, "x")
                await awaited(memory.add_user_message("s", text))
            context = await awaited(memory.build_context("s"))
            await awaited(memory.add_user_message("s", "and on"))
            await awaited(memory.compress("s"))
            await awaited(memory.build_context("s"))
            await awaited(memory.close())
        return context

    return asyncio.run(drive()), heard


def warm(provider: Provider, server: LoopbackServer) -> None:
    """Import the SDK: the deadline covers a request, not a first import."""
    [spec] = provider.plugin.memman_token_counters()
    from memman.counting.models import model_ref

    rendered = {"model": provider.model, "messages": [], "system": None, "tools": []}
    spec.factory(model_ref(provider.model)).count_request(rendered, timeout=20)
    server.received.clear()


def test_the_providers_count_is_the_contexts(
    provider: Provider, server: LoopbackServer, runtime: Any
) -> None:
    warm(provider, server)
    context, heard = run(runtime, provider.model)
    assert heard == []
    assert (context.tokens.tokens, context.tokens.method) == (930, "api")
    assert (
        context.tokens.counter == f"{provider.name}:127.0.0.1:{server.server_port}{provider.base}"
    )
    assert server.received[0].body["model"] == provider.model
    assert server.astray == []


@pytest.mark.parametrize("failure", FAILURES)
def test_failing_provider_is_reported_and_never_raises(
    provider: Provider, server: LoopbackServer, runtime: Any, failure: str
) -> None:
    warm(provider, server)
    answer, named = FAILURES[failure]
    server.answer_with(answer)
    context, heard = run(runtime, provider.model)
    assert context.tokens.counter == "chars4"
    assert heard
    assert heard[0].session_id == "s"
    assert heard[0].counter.startswith(f"{provider.name}:")
    assert heard[0].reason
    assert named in heard[0].reason
    assert KEY not in heard[0].reason


@pytest.mark.long
def test_a_provider_that_never_answers_costs_one_deadline(
    provider: Provider, server: LoopbackServer, runtime: Any
) -> None:
    warm(provider, server)
    server.answer_with(HANG)
    began = time.monotonic()
    context, heard = run(runtime, provider.model)
    took = time.monotonic() - began
    assert context.tokens.counter == "chars4"
    assert "2 s" in heard[0].reason
    assert len(server.received) <= 2, "an SDK tried again"
    assert took < PATIENCE


def test_missing_key_error_names_the_variable(
    provider: Provider,
    server: LoopbackServer,
    runtime: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    warm(provider, server)
    monkeypatch.delenv(f"{provider.name.upper()}_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    context, heard = run(runtime, provider.model)
    if provider.name == "openai":
        # Servers other than OpenAI's may need no key, so the server decides.
        assert context.tokens.counter.startswith("openai:127.0.0.1")
        return
    assert context.tokens.counter == "chars4"
    assert f"{provider.name.upper()}_API_KEY" in heard[0].reason
    assert server.received == []
