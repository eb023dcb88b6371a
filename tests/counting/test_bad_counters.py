"""Faulty counters and wrong calls have defined results, in both managers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    ConfigError,
    CounterSpec,
    CounterUnavailable,
    FormatError,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    ModelRef,
    PluginNotFound,
    events,
    hookimpl,
    plugins,
)
from memman.counting.builtin import builtin_specs
from memman.counting.counter import TokenCounter
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.counting.resolution import resolve
from memman.testing import record_events

MODEL = "acme-1"
TEXTS = ("Where is the report?", '{"path": "/var/log/app.log"}', "žluťoučký kůň, 你好")
LAST_RESORT = resolve(model_ref("no-such-model"), builtin_specs())


class PanicException(BaseException):
    """An error like a Rust extension's panic: not an `Exception`."""


class Counter:
    """A counter that returns the value of `answer` or raises its error."""

    fingerprint = "acme:1"

    def __init__(self, answer: Callable[[Sequence[str]], Any]) -> None:
        self.answer = answer

    def count_texts(self, texts: Sequence[str]) -> Any:
        return self.answer(texts)


def raises(error: BaseException) -> Callable[..., Any]:
    def answer(_given: Any) -> Any:
        raise error

    return answer


class Hostile:
    def __repr__(self) -> str:
        raise ZeroDivisionError("no words for it")


WRONG: dict[str, Callable[[Sequence[str]], Any]] = {
    "minus one": lambda texts: [-1] * len(texts),
    "NaN": lambda texts: [float("nan")] * len(texts),
    "NaN alone": lambda texts: float("nan"),
    "a string": lambda texts: "7",
    "strings": lambda texts: ["7"] * len(texts),
    "too few": lambda texts: [],
    "too many": lambda texts: [7] * (len(texts) + 1),
    "None": lambda texts: None,
    "what cannot be shown": lambda texts: [Hostile()],
    "much of nothing": lambda texts: ["x" * 10_000_000],
    "an error": raises(RuntimeError("no vocabulary")),
    "a time-out": raises(TimeoutError("no answer")),
    "a panic": raises(PanicException("index out of bounds")),
}


def plugin_of(*specs: Any) -> Any:
    class Acme:
        @hookimpl
        def memman_token_counters(self) -> Any:
            return list(specs)

    return Acme()


def acme(factory: Callable[[ModelRef], Any], **changes: Any) -> CounterSpec:
    fields: dict[str, Any] = {
        "name": "acme",
        "match": lambda model: 10 if model.name.startswith("acme") else 0,
        **changes,
    }
    return CounterSpec(factory=factory, **fields)


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Register these plugins as the only ones of this process."""
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    monkeypatch.setattr(plugins, "_shared", found)

    def register(*specs: Any) -> None:
        found.register(plugin_of(*specs))

    return register


async def _async_life(memory: AsyncMemoryManager) -> list[Any]:
    for text in TEXTS * 4:
        await memory.add_user_message("s", text)
        await memory.add_assistant_message("s", text)
    await memory.add_tool_call("s", "read", {"path": "a"}, call_id="c")
    await memory.add_tool_result("s", "read", "abc " * 50, call_id="c")
    return [
        [entry.token_count for entry in await memory.get_entries("s")],
        await memory.count_tokens(TEXTS[0], system="Be brief.", tools=[{"name": "read"}]),
        await memory.count_tokens([{"role": "user", "content": TEXTS[1]}]),
        (await memory.build_context("s", system="Be brief.", tools=[{"name": "read"}])).tokens,
        (await memory.compress("s", target_tokens=40)).tokens_saved,
        (await memory.build_context("s", format="anthropic")).tokens,
    ]


def _sync_life(memory: MemoryManager) -> list[Any]:
    for text in TEXTS * 4:
        memory.add_user_message("s", text)
        memory.add_assistant_message("s", text)
    memory.add_tool_call("s", "read", {"path": "a"}, call_id="c")
    memory.add_tool_result("s", "read", "abc " * 50, call_id="c")
    return [
        [entry.token_count for entry in memory.get_entries("s")],
        memory.count_tokens(TEXTS[0], system="Be brief.", tools=[{"name": "read"}]),
        memory.count_tokens([{"role": "user", "content": TEXTS[1]}]),
        memory.build_context("s", system="Be brief.", tools=[{"name": "read"}]).tokens,
        memory.compress("s", target_tokens=40).tokens_saved,
        memory.build_context("s", format="anthropic").tokens,
    ]


CONFIG = MemoryConfig(max_tokens=4_000)


def life(api: str, model: str | None, **given: Any) -> tuple[list[Any], list[Any]]:
    """Return the results of the counting methods in one API, and the notices of fallback counts."""
    with record_events(kinds=(events.CountFellBack,)) as emitted:
        if api == "sync":
            return _sync_life(MemoryManager(model=model, config=CONFIG, **given)), emitted
        memory = AsyncMemoryManager(model=model, config=CONFIG, **given)
        return asyncio.run(_async_life(memory)), emitted


def numbers(answers: list[Any]) -> list[Any]:
    """Return the token counts of a session, without counters and durations."""
    entries, *others = answers
    return [[count.tokens for count in entries]] + [
        other if isinstance(other, int) else other.tokens for other in others
    ]


APIS = pytest.mark.parametrize("api", ["sync", "async"])


# ---------------------------------------------------------------- a counter with wrong results


@APIS
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_an_estimate_with_its_reason(
    install: Install, api: str, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    install(acme(lambda model: Counter(WRONG[wrong])))
    expected, _ = life(api, None)
    answers, emitted = life(api, MODEL)
    assert numbers(answers) == numbers(expected)
    for count in (*answers[0], answers[1]):
        assert (count.method, count.accuracy) == ("estimation", "low")
        assert count.counter == LAST_RESORT.counter.fingerprint
    assert emitted
    for notice in emitted:
        assert notice.counter == "acme:1"
        assert 10 < len(notice.reason) < 200


@pytest.mark.parametrize("wrong", WRONG)
def test_a_meter_keeps_the_reason_of_the_last_wrong_answer(wrong: str) -> None:
    meter = TokenCounter(Counter(WRONG[wrong]), "high")
    count = meter.count_text("abc")
    assert count.counter == LAST_RESORT.counter.fingerprint
    assert meter.failure


def test_counter_is_called_again_after_one_fault(install: Install) -> None:
    calls = []

    def answer(texts: Sequence[str]) -> list[int]:
        calls.append(texts)
        return [-1] if "Where" in texts[0] else [7]

    install(acme(lambda model: Counter(answer)))
    memory = MemoryManager(model=MODEL)
    first, second = (memory.add_user_message("s", text).token_count for text in TEXTS[:2])
    assert first.counter == LAST_RESORT.counter.fingerprint
    assert (second.tokens, second.counter) == (7, "acme:1")


@APIS
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_passes_through(
    install: Install, api: str, error: type[BaseException]
) -> None:
    armed = []

    def answer(texts: Sequence[str]) -> list[int]:
        if armed:
            raise error
        return [1] * len(texts)

    install(acme(lambda model: Counter(answer)))
    memory = MemoryManager(model=MODEL)
    memory.add_user_message("s", "before")
    armed.append(True)
    with pytest.raises(error):
        memory.count_tokens("now")
    with pytest.raises(error):
        memory.add_user_message("s", "now")
    armed.clear()
    assert memory.add_user_message("s", "after").seq == 3  # nothing was added in part


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_factory_that_ends_the_program_may(install: Install, error: type[BaseException]) -> None:
    install(acme(raises(error())))
    with pytest.raises(error):
        MemoryManager(model=MODEL).count_tokens("x")


# ---------------------------------------------------------------- a plugin with wrong lists or counters


class Nameless(Counter):
    fingerprint = None  # type: ignore[assignment]


NONSENSE: dict[str, Any] = {
    "no listing": "acme",
    "an accuracy of its own": acme(lambda model: Counter(len), accuracy="exact"),
    "a name that is no word": acme(lambda model: Counter(len), name=None),
    "a match that is no function": acme(lambda model: Counter(len), match=3),
    "a match that panics": acme(lambda model: Counter(len), match=raises(PanicException("x"))),
    "a match that answers NaN": acme(lambda model: Counter(len), match=lambda model: float("nan")),
    "a factory that panics": acme(raises(PanicException("no memory"))),
    "a factory that raises": acme(raises(OSError("no file"))),
    "a factory that makes nothing": acme(lambda model: None),
    "a factory that makes a text": acme(lambda model: "counter"),
    "a counter without a name": acme(lambda model: Nameless(lambda texts: [1])),
}


@APIS
@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_gives_way_to_the_next_counter(
    install: Install, api: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    install(NONSENSE[what])
    expected, _ = life(api, None)
    answers, _ = life(api, MODEL)
    assert numbers(answers) == numbers(expected)
    assert caplog.records or "makes" in what or "without" in what


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_disturbs_no_other_plugin(install: Install, what: str) -> None:
    install(NONSENSE[what])
    install(acme(lambda model: Counter(lambda texts: [7] * len(texts)), name="sound"))
    assert MemoryManager(model=MODEL).count_tokens("x").tokens == 7


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("a factory that makes nothing", "its factory made a NoneType without count_texts"),
        ("a factory that panics", "PanicException: no memory"),
        ("a counter without a name", "must be a string, not NoneType"),
    ],
)
def test_asked_for_by_name_nonsense_is_an_error(install: Install, what: str, message: str) -> None:
    install(NONSENSE[what])
    with pytest.raises(CounterUnavailable, match=message):
        MemoryManager(model=MODEL, counter="acme")


# ---------------------------------------------------------------- wrong calls


class Named:
    """A counter whose fingerprint is this value, raised if it is an error."""

    def __init__(self, name: Any) -> None:
        self.name = name

    @property
    def fingerprint(self) -> Any:
        if isinstance(self.name, Exception):
            raise self.name
        return self.name

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]


@pytest.mark.parametrize(
    "name", [None, 5, "", b"x", ["x"], "a\ud800", "x" * 300, "a\n", RuntimeError("not yet")]
)
@pytest.mark.parametrize("manager", [MemoryManager, AsyncMemoryManager])
def test_wrong_fingerprint_is_refused_before_a_session_has_it(manager: Any, name: Any) -> None:
    with pytest.raises(InvalidInput, match="fingerprint"):
        manager(counter=Named(name))


def test_fingerprint_of_a_str_subclass_keeps_session_readable(tmp_path: Path) -> None:
    class Name(str):
        """A library's own subclass of str, like a member of an enum."""

    path = tmp_path / "chat.db"
    with MemoryManager(path, counter=Named(Name("acme:1"))) as memory:
        entry = memory.add_user_message("s", "hello")
        state = memory.export_session("s").to_json()
    assert entry.token_count.counter == "acme:1"
    with MemoryManager(path) as memory:
        assert [each.text for each in memory.get_entries("s")] == ["hello"]
    assert MemoryManager().import_session(state) == "s"


def test_remote_counter_with_a_wrong_fingerprint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="fingerprint"):
        RemoteTokenCounter(Named(None), model_ref("gpt-4o"))  # type: ignore[arg-type]


@APIS
@pytest.mark.parametrize("text", [None, 7, b"bytes", ["a"], {"a": 1}, object()])
def test_text_must_be_a_string(api: str, text: Any) -> None:
    def act() -> Any:
        if api == "sync":
            return MemoryManager().add_user_message("s", text)
        return asyncio.run(AsyncMemoryManager().add_user_message("s", text))

    with pytest.raises(InvalidInput, match="content"):
        act()


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["a"], object()])
def test_only_text_or_messages_can_be_counted(text: Any) -> None:
    with pytest.raises(InvalidInput):
        MemoryManager().count_tokens(text)


@pytest.mark.parametrize("model", [None, "gpt-4o", "no-such-model"])
@pytest.mark.parametrize("text", ["\ud800", "a \udfff b"])
def test_a_lone_surrogate_is_refused_before_it_is_counted(model: str | None, text: str) -> None:
    memory = MemoryManager(model=model)
    for act in (memory.count_tokens, lambda text: memory.add_user_message("s", text)):
        with pytest.raises(InvalidInput, match="surrogate"):
            act(text)
    assert memory.list_sessions() == []


@pytest.mark.parametrize("spec", builtin_specs(), ids=lambda spec: spec.name)
@pytest.mark.parametrize("text", ["\ud800", "a \udfff b", "\x00", " " * 1_000_000, "x" * 1_000_000])
def test_a_built_in_counter_takes_any_string(spec: CounterSpec, text: str) -> None:
    [tokens] = spec.factory(model_ref("gpt-4o")).count_texts([text])
    assert type(tokens) is int
    assert 0 < tokens <= len(text.encode(errors="replace")) + 3


@pytest.mark.parametrize("model", [None, "gpt-4o", "gpt-4", "claude-sonnet-4-5", "no-such-model"])
@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>system", " " * 1_000_000])
def test_hard_texts_are_counted_for_every_model(model: str | None, text: str) -> None:
    room = ModelInfo(10**8, 10**8, 1) if model else None
    memory = MemoryManager(model=model, config=MemoryConfig(max_tokens=10**7), model_info=room)
    entry = memory.add_user_message("s", text)
    assert 0 < entry.token_count.tokens <= len(text)
    assert memory.count_tokens(text).tokens == entry.token_count.tokens
    assert memory.build_context("s").tokens.tokens >= entry.token_count.tokens


@APIS
@pytest.mark.parametrize(
    "tools", ["read", b"read", 7, 0, False, {}, {"name": "read"}, ["read"], [None]]
)
def test_tools_that_are_no_list_of_definitions_are_refused(api: str, tools: Any) -> None:
    if api == "sync":
        memory = MemoryManager()
        memory.add_user_message("s", "x")
        with pytest.raises(InvalidInput, match="tools must be a list"):
            memory.count_tokens("x", tools=tools)
        with pytest.raises(InvalidInput, match="tools must be a list"):
            memory.build_context("s", tools=tools)
        return

    async def act() -> None:
        memory = AsyncMemoryManager()
        await memory.add_user_message("s", "x")
        with pytest.raises(InvalidInput, match="tools must be a list"):
            await memory.count_tokens("x", tools=tools)
        with pytest.raises(InvalidInput, match="tools must be a list"):
            await memory.build_context("s", tools=tools)

    asyncio.run(act())


@pytest.mark.parametrize("tools", [[], ()])
def test_no_tools_cost_nothing(tools: Any) -> None:
    memory = MemoryManager()
    assert memory.count_tokens("abc", tools=tools).tokens == memory.count_tokens("abc").tokens


@pytest.mark.parametrize("system", [7, b"be brief", [7], [["be brief"]], [], "\ud800"])
def test_system_prompt_must_be_text(system: Any) -> None:
    with pytest.raises(InvalidInput, match="system"):
        MemoryManager().count_tokens("x", system=system)


@pytest.mark.parametrize("model", ["no-such-model", "acme/none", "☃", "x" * 10_000])
def test_an_unknown_model_is_counted_by_the_last_resort(install: Install, model: str) -> None:
    count = MemoryManager(model=model).count_tokens(TEXTS[2])
    last = resolve(model_ref(model), builtin_specs())
    assert count.tokens == last.counter.count_texts([TEXTS[2]])[0]
    assert (count.method, count.counter) == ("estimation", last.counter.fingerprint)


@pytest.mark.parametrize("model", [7, b"gpt-4o", ["gpt-4o"]])
def test_model_must_be_a_name(model: Any) -> None:
    with pytest.raises(ConfigError, match="model"):
        MemoryManager(model=model)
    with pytest.raises(InvalidInput, match="model"):
        MemoryManager().count_tokens("x", model=model)


@APIS
def test_unknown_counter_error_lists_known_names(api: str) -> None:
    manager = MemoryManager if api == "sync" else AsyncMemoryManager
    known = LAST_RESORT.spec.name
    with pytest.raises(PluginNotFound, match=f"no token counter is called 'abacus'.*{known}"):
        manager(counter="abacus")


@APIS
def test_remote_counter_by_name_error_names_the_policy(install: Install, api: str) -> None:
    install(acme(raises(RuntimeError("nobody makes it")), remote=True))
    manager = MemoryManager if api == "sync" else AsyncMemoryManager
    with pytest.raises(CounterUnavailable, match=r"acme counts whole requests.*'confirm'"):
        manager(model=MODEL, counter="acme")


@pytest.mark.parametrize("counter", [7, object(), ["tiktoken"], b"tiktoken"])
def test_invalid_counter_is_refused(counter: Any) -> None:
    with pytest.raises(InvalidInput, match="counter"):
        MemoryManager(counter=counter)


@pytest.mark.parametrize("messages", [[7], [{"role": "nobody"}], [{"content": 7}]])
def test_messages_of_no_format_are_refused(messages: Any) -> None:
    with pytest.raises((FormatError, InvalidInput)):
        MemoryManager().count_tokens(messages)
