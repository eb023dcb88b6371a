"""`count_policy="confirm"`: the provider is called only if its count can change a decision."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    CounterSpec,
    MemoryConfig,
    MemoryManager,
    events,
    hookimpl,
    plugins,
)
from memman.counting import remote as remote_module
from memman.stores import MemoryStore
from tests.patience import PATIENCE

MODEL = "acme-1"


class Remote:
    """A provider that counts `price(request)` and records the requests."""

    fingerprint = "acme-remote"

    def __init__(self, price: Callable[[Mapping[str, Any]], Any]) -> None:
        self.price = price
        self.asked: list[Mapping[str, Any]] = []

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:
        self.asked.append(rendered)
        return self.price(rendered)

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:  # noqa: ASYNC109 - the port hands the deadline on
        return self.count_request(rendered, timeout=timeout)


class Plugin:
    def __init__(self, remote: Remote) -> None:
        self.remote = remote

    @hookimpl
    def memman_token_counters(self) -> list[CounterSpec]:
        return [
            CounterSpec(
                name="acme-remote",
                match=lambda model: 9 if model.name == MODEL else 0,
                factory=lambda model: self.remote,
                remote=True,
                format="anthropic",
            )
        ]


Make = Callable[..., Remote]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Install a provider that counts a request by `price`."""

    def make(price: Callable[[Mapping[str, Any]], Any]) -> Remote:
        remote = Remote(price)
        found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
        found.register(Plugin(remote), "acme")
        monkeypatch.setattr(plugins, "_shared", found)
        return remote

    return make


def config(**settings: Any) -> MemoryConfig:
    return MemoryConfig(
        model=MODEL,
        max_entries=None,
        **{"count_policy": "confirm", "max_tokens": 1_000, **settings},
    )


def filled(tokens: int, **settings: Any) -> MemoryManager:
    """Create a session of about so many tokens, by four characters each."""
    memory = MemoryManager(counter="chars4", config=config(**{"auto_compress": False, **settings}))
    for number in range(tokens // 50):
        memory.add_user_message("s", f"{number:>3} ".ljust(4 * 46, "x"))
    return memory


def test_no_request_is_sent_far_from_the_limit(provider: Make) -> None:
    remote = provider(lambda request: 1)
    filled(400).build_context("s")
    assert remote.asked == []


def test_near_the_limit_the_providers_count_is_the_price(provider: Make) -> None:
    remote = provider(lambda request: 930)
    context = filled(900).build_context("s")
    assert (context.tokens.tokens, context.tokens.method) == (930, "api")
    assert context.tokens.counter == "acme-remote"
    assert sum(context.breakdown.values()) == 930
    [request] = remote.asked
    assert request["model"] == MODEL
    assert request["messages"][0]["role"] == "user"


def test_context_stays_whole_if_the_provider_counts_less(
    provider: Make,
) -> None:
    provider(lambda request: 900)
    memory = filled(1_150)
    context = memory.build_context("s")
    assert not context.trimmed
    assert context.tokens.tokens == 900


def test_context_is_trimmed_if_the_provider_counts_more(
    provider: Make,
) -> None:
    provider(lambda request: 1_100)
    context = filled(950).build_context("s")
    assert context.trimmed
    assert context.tokens.tokens <= 1_000


def test_counted_request_does_not_count_as_sent(provider: Make) -> None:
    provider(lambda request: 950)
    memory = filled(930)
    before = memory.build_context("s", format="anthropic").messages
    memory.add_user_message("s", "joins the message before it")
    context = memory.build_context("s", format="anthropic")
    assert context.messages[0] != before[0]
    assert context.unchanged_prefix == 0


def test_one_request_a_turn(provider: Make) -> None:
    remote = provider(lambda request: 950)
    memory = filled(950)
    for _ in range(3):
        memory.build_context("s")
    memory.build_context("s", format="anthropic")
    assert len(remote.asked) == 1
    memory.add_user_message("s", "more")
    memory.build_context("s")
    assert len(remote.asked) == 2


def test_add_never_calls_the_provider(provider: Make) -> None:
    remote = provider(lambda request: 950)
    filled(1_500, auto_compress=True)
    assert remote.asked == []


def test_what_the_provider_counted_moves_the_trigger(provider: Make) -> None:
    provider(lambda request: 1_090)
    memory = filled(950, max_tokens=1_000)
    memory.build_context("s", budget=2_000)
    assert memory.get_stats("s").overhead_tokens >= 100


def test_the_system_prompt_and_the_tools_are_counted_with_it(provider: Make) -> None:
    remote = provider(lambda request: 990)
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    filled(950).build_context("s", format="anthropic", system="be brief", tools=tools)
    [request] = remote.asked
    assert request["system"] == "be brief"
    assert request["tools"] == tools


@pytest.mark.parametrize("answer", [-1, 3.5, "many", None])
def test_failure_is_reported_and_the_estimate_is_used(provider: Make, answer: Any) -> None:
    provider(lambda request: answer)
    memory = filled(950)
    heard: list[events.CountFellBack] = []

    def hear(sender: Any, event: events.CountFellBack) -> None:
        heard.append(event)

    with events.count_fell_back.connected_to(hear, sender=memory):
        context = memory.build_context("s")
    assert context.tokens.counter == "chars4"
    [event] = heard
    assert event.counter == "acme-remote"
    assert "not a count" in event.reason


def test_cached_failure_is_reported_once_per_session(provider: Make) -> None:
    def fail(request: Mapping[str, Any]) -> int:
        raise ConnectionError("no route")

    provider(fail)
    memory = filled(950)
    for entry in memory.get_entries("s"):
        memory.add_user_message("other", entry.text)
    heard: list[str] = []

    def hear(sender: Any, event: events.CountFellBack) -> None:
        heard.append(event.session_id)

    with events.count_fell_back.connected_to(hear, sender=memory):
        for budget in (951, 952, 953):
            memory.build_context("s", budget=budget)
        memory.build_context("other", budget=951)
        memory.build_context("other", budget=952)
    assert heard == ["s", "other"]


def test_raising_provider_is_reported_and_the_estimate_is_used(provider: Make) -> None:
    def fail(request: Mapping[str, Any]) -> int:
        raise ConnectionError("no route")

    provider(fail)
    assert filled(950).build_context("s").tokens.counter == "chars4"


def test_pinned_content_over_the_providers_count_is_refused(
    provider: Make,
) -> None:
    provider(lambda request: 1_300)
    memory = MemoryManager(counter="chars4", config=config(auto_compress=False))
    memory.add_user_message("s", "x" * 3_900, pinned=True)
    with pytest.raises(BudgetExceeded):
        memory.build_context("s")


def test_reports_are_better_than_a_count_and_make_it_needless(provider: Make) -> None:
    remote = provider(lambda request: 950)
    memory = filled(500)
    memory.build_context("s")
    memory.record_usage("s", 600)
    for number in range(8):
        memory.add_user_message("s", f"{number} ".ljust(200, "y"))
    memory.build_context("s")
    assert remote.asked == []


@pytest.mark.parametrize("policy", ["local", "estimate"])
def test_another_policy_sends_no_request(provider: Make, policy: str) -> None:
    remote = provider(lambda request: 950)
    filled(950, count_policy=policy).build_context("s")
    assert remote.asked == []


def test_a_context_for_another_model_is_not_confirmed(provider: Make) -> None:
    remote = provider(lambda request: 950)
    filled(950).build_context("s", model="other")
    assert remote.asked == []


def test_confirmed_count_is_not_used_for_another_model(provider: Make) -> None:
    provider(lambda request: 900)
    memory = filled(940)
    assert memory.build_context("s").tokens.method == "api"
    assert memory.build_context("s", model="other").tokens.method != "api"
    assert memory.build_context("s", model=MODEL, format="anthropic").tokens.method == "api"


@pytest.mark.parametrize("extra", [{"system": "Be brief."}, {"tools": [{"name": "read"}]}])
def test_confirmed_count_is_not_used_for_other_extras(
    provider: Make, extra: dict[str, Any]
) -> None:
    remote = provider(lambda request: 900)
    memory = filled(950)
    assert memory.build_context("s").tokens.method == "api"
    assert memory.build_context("s", **extra).tokens.method != "api"
    assert len(remote.asked) == 1


def test_the_async_manager_awaits_the_provider(provider: Make) -> None:
    remote = provider(lambda request: 930)

    async def run() -> None:
        memory = AsyncMemoryManager(counter="chars4", config=config(auto_compress=False))
        for number in range(18):
            await memory.add_user_message("s", f"{number:>3} ".ljust(4 * 46, "x"))
        contexts = await asyncio.gather(*(memory.build_context("s") for _ in range(20)))
        assert {context.tokens.tokens for context in contexts} == {930}

    asyncio.run(run())
    assert len(remote.asked) == 1


def test_a_provider_that_hangs_costs_its_deadline_once(
    provider: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = functools.partial(remote_module.RemoteTokenCounter, timeout=0.3)
    monkeypatch.setattr(remote_module, "RemoteTokenCounter", hasty)
    over = threading.Event()

    def hang(request: Mapping[str, Any]) -> int:
        over.wait(2 * PATIENCE)
        return 1

    remote = provider(hang)
    memory = filled(950)
    began = time.monotonic()
    memory.build_context("s")
    memory.build_context("s")
    assert time.monotonic() - began < PATIENCE
    assert len(remote.asked) == 1
    over.set()


def test_remote_counter_without_its_format_is_not_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Remote(lambda request: 930)
    spec = CounterSpec(
        name="odd", match=lambda model: 9, factory=lambda model: remote, remote=True, format="odd"
    )
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    plugin = Plugin(remote)
    monkeypatch.setattr(plugin, "memman_token_counters", hookimpl(lambda: [spec]), raising=False)
    found.register(plugin, "odd")
    monkeypatch.setattr(plugins, "_shared", found)
    assert filled(950).build_context("s").tokens.counter == "chars4"
    assert remote.asked == []
    assert "no message format is called 'odd'" in caplog.text


# ---------------------------------------------------------------- redact


def other_manager(store: MemoryStore, redact: Any) -> MemoryManager:
    """A manager with `redact` on a store that has entries written without it."""
    writer = MemoryManager(store, counter="chars4", config=config(auto_compress=False))
    for number in range(18):
        writer.add_user_message("s", f"{number:>3} my secret ".ljust(4 * 46, "x"))
    return MemoryManager(store, counter="chars4", config=config(), redact=redact)


def test_foreign_entries_are_redacted_before_the_provider_counts(
    provider: Make,
) -> None:
    def redact(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.text.replace("secret", "[hidden]"))

    remote = provider(lambda request: 930)
    memory = other_manager(MemoryStore(), redact)
    for _ in range(2):
        assert "secret" in str(memory.build_context("s", format="anthropic").messages)
    [request] = remote.asked
    assert "secret" not in str(request)
    assert "my [hidden]" in str(request["messages"])


def test_failing_redact_skips_the_provider_and_builds_anyway(
    provider: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(entry: Any) -> Any:
        raise RuntimeError("no rules")

    remote = provider(lambda request: 930)
    memory = other_manager(MemoryStore(), broken)
    assert len(memory.build_context("s")) == 18
    assert remote.asked == []
    assert "redact raised RuntimeError" in caplog.text


def test_failing_endpoint_leaves_other_breakers_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Down(Remote):
        fingerprint = "acme-remote:down"

    def fails(rendered: Mapping[str, Any]) -> int:
        raise ConnectionError("down")

    down, up = Down(fails), Remote(lambda rendered: 930)
    spec = CounterSpec(
        name="acme-remote",
        match=lambda model: 9,
        factory=lambda model: down if model.name == "acme-1" else up,
        remote=True,
        format="anthropic",
    )

    class Both:
        @hookimpl
        def memman_token_counters(self) -> list[CounterSpec]:
            return [spec]

    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    found.register(Both(), "acme")
    monkeypatch.setattr(plugins, "_shared", found)
    memory = filled(900)
    for turn in range(5):
        memory.add_user_message("s", f"turn {turn}")
        memory.build_context("s")
    assert len(down.asked) == 3  # then calls to its endpoint pause
    memory.update_config("s", model="acme-2")
    memory.build_context("s")
    assert len(up.asked) == 1


@pytest.mark.parametrize(
    "content",
    ["why is it red?", [{"role": "user", "content": "why is it red?"}]],
    ids=["text", "messages"],
)
def test_an_exact_count_is_the_providers(content: Any) -> None:
    remote = Remote(lambda request: 1_234)
    shared = plugins.shared_plugins()
    shared.register(Plugin(remote), "acme-exact")
    try:
        memory = MemoryManager(model=MODEL, counter="chars4")
        assert memory.count_tokens(content).tokens < 100
        assert not remote.asked
        tools = [{"name": "look", "input_schema": {"type": "object"}}]
        count = memory.count_tokens(content, exact=True, system="Be brief.", tools=tools)
    finally:
        shared._manager.unregister(name="acme-exact")
    assert (count.tokens, count.method) == (1_234, "api")
    [asked] = remote.asked
    assert asked["system"] == "Be brief."
    assert asked["tools"] == tools
    assert "why is it red?" in str(asked["messages"])


def test_an_exact_count_without_a_provider_is_the_local_one() -> None:
    memory = MemoryManager(model="nobody-knows", counter="chars4")
    count = memory.count_tokens("abcdefgh", exact=True)
    assert (count.tokens, count.counter) == (2, "chars4")


def test_an_exact_count_that_fails_is_the_local_one(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(request: Mapping[str, Any]) -> int:
        raise ConnectionError("no route")

    shared = plugins.shared_plugins()
    shared.register(Plugin(Remote(refuse)), "acme-exact")
    try:
        memory = MemoryManager(model=MODEL, counter="chars4")
        assert memory.count_tokens("abcdefgh", exact=True).counter == "chars4"
    finally:
        shared._manager.unregister(name="acme-exact")
    assert "was not counted exactly" in caplog.text
