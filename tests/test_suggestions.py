"""Names of formats, counters and sessions: aliases are accepted, misspelt names get a suggestion."""

from __future__ import annotations

import logging

import pytest

from memman import (
    ConfigError,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    PluginNotFound,
    SessionNotFound,
    hookimpl,
)
from memman.display import warn_once
from memman.errors import CounterUnavailable
from memman.plugins import shared_plugins
from memman.protocols import CounterSpec, ModelRef

ALIASES = {
    "openai": "openai-chat",
    "responses": "openai-responses",
    "claude": "anthropic",
    "google": "gemini",
}


def manager(**given: object) -> MemoryManager:
    memory = MemoryManager(**given)  # type: ignore[arg-type]
    memory.add_user_message("chat", "hello")
    return memory


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_format_aliases_are_accepted(alias: str, name: str) -> None:
    memory = manager()
    context = memory.build_context("chat", format=alias)
    assert context.format == name
    assert context is memory.build_context("chat", format=name)
    memory.add_messages("copy", context.messages, format=alias)
    assert memory.get_entries("copy")[0].text == "hello"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("antropic", "anthropic"), ("Gemini", "gemini"), ("openia", "openai"), ("claud", "claude")],
)
def test_misspelt_format_gets_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(PluginNotFound, match=f"did you mean '{meant}'"):
        manager().build_context("chat", format=typed)


def test_misspelt_counter_gets_a_suggestion() -> None:
    with pytest.raises(PluginNotFound, match="did you mean 'chars4'"):
        MemoryManager(counter="char4")


def test_misspelt_session_gets_a_suggestion() -> None:
    with pytest.raises(SessionNotFound, match="no session 'chta', did you mean 'chat'"):
        manager().get_stats("chta")


def test_misspelt_preset_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'summary_buffer'"):
        MemoryConfig(strategy="summary_bufer")


def test_managers_format_is_that_of_its_contexts() -> None:
    memory = manager(format="claude")
    assert memory.build_context("chat").format == "anthropic"
    assert memory.build_context("chat", format="openai").format == "openai-chat"
    assert memory.get_context_for_llm("chat").endswith("hello")


def test_unknown_format_of_a_manager_is_refused() -> None:
    with pytest.raises(PluginNotFound, match="did you mean 'gemini'"):
        MemoryManager(format="gemni")


def test_model_info_replaces_the_table() -> None:
    memory = manager(model="gpt-4o", model_info=ModelInfo(200_000, 180_000, 50_000))
    assert memory.get_stats("chat").max_tokens == int(0.8 * 150_000)


@pytest.mark.parametrize("info", [ModelInfo(0, 1, 1), (1, 1, 1)])
def test_model_info_of_no_use_is_refused(info: object) -> None:
    with pytest.raises(ConfigError, match="model_info must be"):
        MemoryManager(model="gpt-4o", model_info=info)  # type: ignore[arg-type]


def test_model_info_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="give model= too"):
        MemoryManager(model_info=ModelInfo(10, 10, 10))


def test_misspelt_model_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    for _ in range(3):
        manager(model="gtp-5").build_context("chat")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        "no limits are known for model 'gtp-5', did you mean 'gpt-5'? 50,000 tokens are assumed;"
    )


def test_misspelt_model_of_a_context_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    memory = manager()
    for _ in range(3):
        memory.build_context("chat", model="gtp-5")
    [record] = caplog.records
    assert "did you mean 'gpt-5'?" in record.getMessage()


def test_misspelt_alias_of_a_format_is_suggested() -> None:
    with pytest.raises(PluginNotFound, match="did you mean 'openai'"):
        manager(format="opnai")


def test_deployment_with_max_tokens_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    manager(model="azure/our-own-deployment", config=MemoryConfig(max_tokens=9_000))
    assert not caplog.records


def test_counter_that_cannot_work_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(model: ModelRef) -> None:
        raise CounterUnavailable("its vocabulary is missing: pip install acme-words")

    class Lists:
        @hookimpl
        def memman_token_counters(self) -> list[CounterSpec]:
            match = {"acme-1": 50}
            return [
                CounterSpec(
                    name="acme",
                    match=lambda model: match.get(model.name, 0),
                    factory=refuse,
                    accuracy="high",
                )
            ]

    warn_once.cache_clear()
    shared_plugins().register(Lists(), "acme")
    try:
        for _ in range(3):
            manager(model="acme-1", config=MemoryConfig(max_tokens=9_000))
    finally:
        shared_plugins()._manager.unregister(name="acme")
    [record] = caplog.records
    assert record.getMessage() == (
        "counter acme is for 'acme-1' and cannot work here: its vocabulary is missing: "
        "pip install acme-words. estimate counts instead"
    )
