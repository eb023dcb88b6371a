"""A summarizer is a callable, an object or a name; other values are refused with advice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    AsyncPortRefused,
    ConfigError,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    PluginNotFound,
    StateError,
    SummarizerUnavailable,
    SummaryReply,
    SummaryRequest,
    SummaryUsage,
    events,
    hookimpl,
    plugins,
)
from memman.plugins import PluginInfo, Plugins
from memman.runtime import SyncRuntime
from memman.runtime.async_runtime import AsyncRuntime
from memman.stores import MemoryStore
from memman.summarizers import Asker, Summarizers
from memman.testing import ScriptedSummarizer, record_events

CONFIG = MemoryConfig(auto_compress=False, max_tokens=2_000, max_entries=None)
Fill = Callable[[MemoryManager], MemoryManager]


class Named:
    """A plugin with one summarizer, `acme:MODEL`, whose replies a test sets."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.answer = answer

    @hookimpl
    def memman_summarizer(self, name: str) -> Any:
        return self.answer(name) if name.startswith("acme:") else None


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    loaded = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    monkeypatch.setattr(plugins, "_shared", loaded)
    return loaded


def summary_of(memory: MemoryManager) -> str:
    memory.compress("s")
    return memory.get_summaries("s")[0].content


def reasons(memory: MemoryManager) -> list[str]:
    with record_events(kinds=(events.CompressionFailedNotice,)) as emitted:
        memory.compress("s")
    return [event.reason for event in emitted if isinstance(event, events.CompressionFailedNotice)]


# ---------------------------------------------------------------- forms


async def _async(prompt: str) -> str:
    await asyncio.sleep(0)
    return "Said later."


class _AsyncObject:
    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        await asyncio.sleep(0)
        return SummaryReply(text="Said later.")


@pytest.mark.parametrize(
    "summarizer",
    [lambda prompt: "Said now.", partial(lambda said, prompt: said, "Said now."),
     ScriptedSummarizer("Said now.")],
)  # fmt: skip
def test_callable_or_object_summarizes_in_both_managers(summarizer: Any, filled: Fill) -> None:
    assert "Said now." in summary_of(filled(MemoryManager(config=CONFIG, summarizer=summarizer)))
    assert "Said now." in _async_summary(summarizer)


@pytest.mark.parametrize("summarizer", [_async, partial(_async), _AsyncObject()])
def test_async_summarizer_is_refused_by_the_sync_manager_only(
    summarizer: Any,
) -> None:
    assert "Said later." in _async_summary(summarizer)
    with pytest.raises(AsyncPortRefused, match="AsyncMemoryManager"):
        MemoryManager(summarizer=summarizer)


def _async_summary(summarizer: Any) -> str:
    async def run() -> str:
        memory = AsyncMemoryManager(config=CONFIG, summarizer=summarizer)
        for number in range(60):
            await memory.add_user_message("s", f"Question {number}: " + "why is it red? " * 6)
        await memory.compress("s")
        return (await memory.get_summaries("s"))[0].content

    return asyncio.run(run())


@pytest.mark.parametrize("given", [7, b"anthropic:x", ["x"], object()])
def test_object_without_summarize_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="a summarizer is a callable, a name or has summarize"):
        MemoryManager(summarizer=given)


def test_a_class_instead_of_its_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"pass ScriptedSummarizer\(...\)"):
        MemoryManager(summarizer=ScriptedSummarizer)


def test_one_that_is_refused_leaves_the_one_before() -> None:
    memory = MemoryManager(config=CONFIG, summarizer=lambda prompt: "The first.")
    for wrong in (7, "no:such", "cmd:"):
        with pytest.raises((InvalidInput, PluginNotFound)):
            memory.set_summarize_callback(wrong)
    for number in range(60):
        memory.add_user_message("s", f"Question {number}: " + "why is it red? " * 6)
    assert "The first." in summary_of(memory)


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("text", "summarize() returned str, not a SummaryReply"),
        (None, "summarize() returned NoneType"),
        (SummaryReply(text=b"text"), "text cannot be a bytes"),  # type: ignore[arg-type]
        (SummaryReply(text=None), "text cannot be a NoneType"),  # type: ignore[arg-type]
        (SummaryReply(text="x", model=7), "model cannot be a int"),  # type: ignore[arg-type]
        (SummaryReply(text="x", usage={"input_tokens": 1}), "usage cannot be a dict"),  # type: ignore[arg-type]
        (SummaryReply(text="x", usage=SummaryUsage(-1, 0)), "usage is in whole tokens"),
        (SummaryReply(text="x", usage=SummaryUsage(1, None)), "usage is in whole tokens"),  # type: ignore[arg-type]
        (SummaryReply(text="x", truncated="no"), "truncated cannot be a str"),  # type: ignore[arg-type]
        (SummaryReply(text="x", refused=None), "refused cannot be a NoneType"),  # type: ignore[arg-type]
    ],
)
def test_invalid_reply_is_reported_with_its_fault(answer: Any, reason: str, filled: Fill) -> None:
    class Wrong:
        def summarize(self, request: SummaryRequest) -> Any:
            return answer

    memory = filled(MemoryManager(config=CONFIG, summarizer=Wrong()))
    [reason_given] = reasons(memory)
    assert reason in reason_given
    assert memory.get_summaries("s"), "the outline took its place"


@pytest.mark.parametrize("answer", [None, b"text", 7])
def test_callable_without_text_is_reported(answer: Any, filled: Fill) -> None:
    memory = filled(MemoryManager(config=CONFIG, summarizer=lambda prompt: answer))
    [reason] = reasons(memory)
    assert f"must return text, not {type(answer).__name__}" in reason


class Reluctant(str):
    """A library's own subclass of str whose methods all fail."""

    def strip(self, *args: Any) -> str:
        raise RuntimeError("no strip")

    __str__ = __len__ = encode = splitlines = strip  # type: ignore[assignment]


@pytest.mark.parametrize("is_object", [True, False])
def test_reply_of_a_string_subclass_is_taken_as_its_text(is_object: bool, filled: Fill) -> None:
    class Summarizing:
        def summarize(self, request: SummaryRequest) -> SummaryReply:
            return SummaryReply(text=Reluctant("Said now."), model=Reluctant("m"))

    summarizer = Summarizing() if is_object else lambda prompt: Reluctant("Said now.")
    assert "Said now." in summary_of(filled(MemoryManager(config=CONFIG, summarizer=summarizer)))


def test_the_time_that_a_summary_may_take_is_handed_on(filled: Fill) -> None:
    script = ScriptedSummarizer("A summary.")
    for timeout in (7.5, None):
        config = CONFIG.updated({"summarize_timeout": timeout})
        summary_of(filled(MemoryManager(config=config, summarizer=script)))
        assert script.requests[-1].timeout == timeout


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("how", ["argument", "callback", "config", "environment", "update"])
def test_a_name_is_taken_from_every_place_that_has_one(
    how: str, found: Plugins, filled: Fill
) -> None:
    found.register(Named(lambda name: ScriptedSummarizer(f"By {name}.")), "acme")
    name, config = "acme:big", CONFIG
    if how == "config":
        config = CONFIG.updated({"summarizer": name})
    elif how == "environment":
        config = MemoryConfig.from_env({"MEMMAN_SUMMARIZER": name}).updated(
            {"auto_compress": False, "max_tokens": 2_000, "max_entries": None}
        )
    memory = MemoryManager(config=config, summarizer=name if how == "argument" else None)
    if how == "callback":
        memory.set_summarize_callback(name)
    elif how == "update":
        memory.update_config(summarizer=name)
    assert "By acme:big." in summary_of(filled(memory))


@pytest.mark.parametrize("empty", ["", "none", " "])
def test_empty_variable_names_no_summarizer(empty: str) -> None:
    assert MemoryConfig.from_env({"MEMMAN_SUMMARIZER": empty}).summarizer is None
    assert MemoryConfig.from_env({"MEMMAN_MODEL": empty}).model is None


def test_outline_calls_no_summarizer_of_the_settings(found: Plugins, filled: Fill) -> None:
    summarizer = ScriptedSummarizer()
    found.register(Named(lambda name: summarizer), "acme")
    named = CONFIG.updated({"summarizer": "acme:big"})
    memory = filled(MemoryManager(config=named, summarizer="outline"))
    memory.update_config("s", summarizer="acme:other")
    assert memory.compress("s").replacements
    assert summarizer.requests == []
    own = filled(MemoryManager(config=named))
    own.update_config("s", summarizer="outline")
    assert own.compress("s").replacements
    assert summarizer.requests == []


def test_none_gives_the_word_back_to_the_settings(found: Plugins, filled: Fill) -> None:
    found.register(Named(lambda name: ScriptedSummarizer("By name.")), "acme")
    config = CONFIG.updated({"summarizer": "acme:big"})
    memory = filled(MemoryManager(config=config, summarizer=lambda prompt: "By hand."))
    memory.set_summarize_callback(None)
    assert "By name." in summary_of(memory)


def test_a_summarizer_is_made_once_for_a_name(found: Plugins) -> None:
    made: list[str] = []
    found.register(Named(lambda name: made.append(name) or ScriptedSummarizer()), "acme")  # type: ignore[func-returns-value]
    memory = MemoryManager(config=MemoryConfig(summarizer="acme:a"), summarizer="acme:a")
    memory.update_config(summarizer="acme:a")
    assert made == ["acme:a"]


@pytest.mark.parametrize(
    ("name", "distribution"),
    [("anthropic:m", "memman-anthropic"), ("openai:m", "memman-openai"),
     ("google:m", "memman-google"), ("bedrock:m", "memman-bedrock")],
)  # fmt: skip
def test_known_name_without_plugin_names_the_package(
    name: str, distribution: str, found: Plugins
) -> None:
    with pytest.raises(PluginNotFound, match=f"pip install './plugins/{distribution}'"):
        MemoryManager(summarizer=name)


def test_missing_or_broken_plugin_error_has_the_reason(
    found: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMMAN_PLUGINS", "")
    with pytest.raises(PluginNotFound, match="MEMMAN_PLUGINS"):
        MemoryManager(summarizer="anthropic:m")
    broken = PluginInfo(
        name="anthropic", distribution="memman-anthropic", version="1", error="ImportError: no x"
    )
    found.found = (broken,)
    with pytest.raises(PluginNotFound, match="ImportError: no x"):
        MemoryManager(summarizer="anthropic:m")


@pytest.mark.parametrize("name", ["nope", "", ":", "gpt-4o", "acme"])
def test_unknown_name_error_lists_the_known_ones(name: str, found: Plugins) -> None:
    with pytest.raises(PluginNotFound, match=r"cmd:PROGRAM ARGS, anthropic:MODEL.*outline"):
        MemoryManager(summarizer=name)


def test_provider_without_a_model_error_has_the_syntax(found: Plugins) -> None:
    with pytest.raises(PluginNotFound, match="write openai:MODEL"):
        MemoryManager(summarizer="openai")


def test_plugin_message_about_a_name_reaches_the_caller(found: Plugins) -> None:
    def lacking(name: str) -> Any:
        raise SummarizerUnavailable("pip install acme")

    found.register(Named(lacking), "acme")
    with pytest.raises(SummarizerUnavailable, match="pip install acme"):
        MemoryManager(summarizer="acme:m")


def test_a_plugin_that_fails_at_a_name_does_not_answer_for_it(found: Plugins) -> None:
    def failing(name: str) -> Any:
        raise ZeroDivisionError

    found.register(Named(failing), "acme")
    with pytest.raises(PluginNotFound, match="acme:m"):
        MemoryManager(summarizer="acme:m")


def test_plugin_with_a_wrong_result_is_reported(found: Plugins) -> None:
    found.register(Named(lambda name: lambda prompt: "x"), "acme")
    with pytest.raises(InvalidInput, match=r"a function, which has no summarize\(\)"):
        MemoryManager(summarizer="acme:m")


# ---------------------------------------------------------------- commands in foreign settings

TRUSTED = "cmd:cat"


def test_a_session_may_not_name_a_command(filled: Fill) -> None:
    memory = filled(MemoryManager(config=CONFIG))
    with pytest.raises(InvalidInput, match="may not name a command"):
        memory.update_config("s", summarizer=TRUSTED)
    memory.update_config(summarizer=TRUSTED)
    memory.update_config("s", summarizer=TRUSTED)  # the manager itself is set to it


def test_a_trusted_document_may_not_name_a_command(filled: Fill) -> None:
    memory = filled(MemoryManager(config=CONFIG.updated({"summarizer": TRUSTED})))
    memory.update_config("s", summarizer=TRUSTED)
    document = memory.export_session("s")
    with pytest.raises(StateError, match="may not name a command"):
        MemoryManager().import_session(document, trust_settings=True)
    own = MemoryManager(config=MemoryConfig(summarizer=TRUSTED))
    own.import_session(document, trust_settings=True)


def test_a_command_in_an_imported_document_does_not_run(filled: Fill, tmp_path: Any) -> None:
    name = f"cmd:touch {tmp_path / 'ran'}"
    memory = filled(MemoryManager(config=CONFIG.updated({"summarizer": name})))
    memory.update_config("s", summarizer=name)
    document = memory.export_session("s")
    assert document.settings["summarizer"] == name
    other = MemoryManager(config=CONFIG)
    other.import_session(document)
    other.compress("s")
    assert other.get_summaries("s"), "the outline took its place"
    assert not (tmp_path / "ran").exists()
    assert other.export_session("s").settings["summarizer"] == name


def test_a_command_in_a_shared_log_does_not_run(filled: Fill, tmp_path: Any) -> None:
    name = f"cmd:touch {tmp_path / 'ran'}"
    store = MemoryStore()
    memory = filled(MemoryManager(store, config=CONFIG.updated({"summarizer": name})))
    memory.update_config("s", summarizer=name)
    other = MemoryManager(store, config=CONFIG)
    [reason] = reasons(other)
    assert "may not name a command" in reason
    assert other.get_summaries("s"), "the outline took its place"
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------- summarizers of other processes


@pytest.fixture
def elsewhere(found: Plugins, filled: Fill) -> MemoryStore:
    """Return a store whose session names a summarizer that only another process has."""
    store = MemoryStore()
    # A given summarizer replaces the lookup of the name.
    there = filled(MemoryManager(store, config=CONFIG, summarizer="outline"))
    there.update_config("s", summarizer="acme:m")
    return store


def test_unknown_stored_summarizer_name_fails_when_called(
    elsewhere: MemoryStore,
) -> None:
    memory = MemoryManager(elsewhere, config=CONFIG)
    [reason] = reasons(memory)
    assert reason.startswith(
        "SummarizerUnavailable: no installed plugin has a summarizer for 'acme"
    )
    assert memory.get_summaries("s"), "the outline took its place"


def test_missing_session_summarizer_allows_manager_settings(
    elsewhere: MemoryStore,
) -> None:
    memory = MemoryManager(elsewhere, config=CONFIG)
    memory.get_active_entries("s")
    memory.update_config(max_entries=77)
    assert memory.get_stats("s").max_entries == 77


def test_removed_summarizer_error_names_the_live_session(
    filled: Fill,
) -> None:
    memory = filled(MemoryManager(config=CONFIG.updated({"summarizer": TRUSTED})))
    memory.update_config("s", summarizer=TRUSTED)
    with pytest.raises(ConfigError, match=r"with the settings of session 's': .*name a command"):
        memory.update_config(summarizer="outline")
    assert memory.export_session("s").settings["summarizer"] == TRUSTED


# ---------------------------------------------------------------- limits


class Limited:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text="x")


def _limits(model: str | None) -> tuple[int, int, int] | None:
    return {"small": (1_000, 900, 200), "tight": (1_000, 1_000, 900)}.get(model or "")


@pytest.mark.parametrize(
    ("attributes", "limit"),
    [
        ({"max_input_tokens": 123}, 123),
        ({"max_input_tokens": 123, "model": "small"}, 123),
        ({"model": "small"}, 800),
        ({"model": "tight"}, 650),
        ({"model": "unknown"}, None),
        ({"model": 7}, None),
        ({"max_input_tokens": None}, None),
        ({}, None),
    ],
)
def test_how_much_it_takes_is_its_own_word_or_its_models_limit(
    attributes: dict[str, Any], limit: int | None
) -> None:
    assert Asker(Limited(**attributes), SyncRuntime(), _limits).max_input_tokens == limit


@pytest.mark.parametrize("wrong", [0, -1, True, "many", 1.5])
def test_limit_must_be_a_number(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="max_input_tokens of Limited"):
        MemoryManager(summarizer=Limited(max_input_tokens=wrong))


def test_summarizer_limits_come_from_plugins_and_refusals(found: Plugins) -> None:
    class Known:
        @hookimpl
        def memman_model_info(self, model: Any) -> ModelInfo | None:
            return ModelInfo(10_000, 8_000, 1_000) if model.name == "acme-1" else None

    found.register(Known(), "known")
    memory = MemoryManager(summarizer=Limited(model="acme-1"))
    asker = memory._core.summarizers.chosen(None, None)
    assert asker is not None
    assert asker.max_input_tokens == 8_000
    overflow = (
        "This model's maximum context length is 4000 tokens. However, you requested 9000 tokens"
    )
    memory.record_overflow(overflow, model="acme-1")
    assert asker.max_input_tokens == 3_000


def test_a_callable_has_no_limit_that_is_known() -> None:
    summarizers = Summarizers(AsyncRuntime(), plugins.shared_plugins, _limits)
    summarizers.give(lambda prompt: "x")
    asker = summarizers.chosen(None, None)
    assert asker is not None
    assert asker.max_input_tokens is None
