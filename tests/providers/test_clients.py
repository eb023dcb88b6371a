"""The names and endpoints of remote counters."""

import asyncio
import threading
import time

import pytest

from memman import ModelRef
from memman.errors import CounterUnavailable
from memman.providers import host_of, require, sent_name
from memman.runtime.threads import in_thread
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("given", "name", "provider", "sent"),
    [
        ("gpt-4o", "gpt-4o", None, "gpt-4o"),
        ("openai/GPT-4o-2024-08-06", "gpt-4o-2024-08-06", "openai", "gpt-4o-2024-08-06"),
        ("openai:gpt-4o", "gpt-4o", "openai", "gpt-4o"),
        ("litellm/openai/gpt-4o", "gpt-4o", "openai", "gpt-4o"),
        ("ft:gpt-4.1-mini:Org::Id", "gpt-4.1-mini", "openai", "ft:gpt-4.1-mini:Org::Id"),
        ("openai/ft:gpt-4.1:Org::Id", "ft:gpt-4.1:org::id", "openai", "ft:gpt-4.1:Org::Id"),
        ("vertex_ai/claude-a@20250929", "claude-a", "vertex_ai", "claude-a@20250929"),
        ("vertex_ai/claude-a@20250929", "claude-a-20250929", "vertex_ai", "claude-a@20250929"),
        ("vertex_ai/claude-a@20250929", "claude-a@20250929", "vertex_ai", "claude-a@20250929"),
        ("azure/My-Deployment", "gpt-4o", "azure", "My-Deployment"),
        ("azure/my-gpt-4o", "gpt-4o", "azure", "my-gpt-4o"),
        ("smart", "gpt-5", "openai", "gpt-5"),
        ("our-gpt-5", "gpt-5", "openai", "gpt-5"),
    ],
)
def test_a_model_is_sent_as_its_provider_knows_it(
    given: str, name: str, provider: str | None, sent: str
) -> None:
    assert sent_name(given, ModelRef(name, provider=provider, given=given)) == sent


def test_without_a_model_only_the_prefix_goes() -> None:
    assert sent_name("anthropic/Claude-4", None) == "Claude-4"


def test_endpoint_is_named_without_secrets() -> None:
    assert host_of("https://user:secret@host.test:8443/v1/?key=secret#x") == "host.test:8443/v1"
    assert host_of("http://localhost") == "localhost"
    assert host_of("") == ""


def test_a_missing_module_is_named_with_what_to_install() -> None:
    require("json", "nothing")
    for module in ("no_such_module", "no_such_package.module"):
        with pytest.raises(CounterUnavailable, match="pip install memman-x"):
            require(module, "memman-x")


def test_a_call_apart_is_awaited_with_its_answer_or_its_error() -> None:
    def fail() -> int:
        raise LookupError("not here")

    async def both() -> int:
        with pytest.raises(LookupError, match="not here"):
            await in_thread(fail)
        return await in_thread(lambda: 7)

    assert asyncio.run(both()) == 7


def test_a_call_that_hangs_apart_keeps_no_loop_from_ending() -> None:
    over = threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(over.wait), 0.05)

    began = time.monotonic()
    asyncio.run(give_up())
    took = time.monotonic() - began
    over.set()
    assert took < PATIENCE
