"""The settings: their sources, their precedence, and an effect of each."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from memman import (
    CompressionResult,
    ConfigError,
    Entry,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    hookimpl,
)
from memman.compression.stages import clip_large, drop_oldest
from memman.config import SETTINGS, preset_named, resolve_budget
from memman.display import warn_once
from memman.plugins import shared_plugins
from memman.stores import MemoryStore
from memman.testing.stores.records import configuring


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", summarizer=summarizer, config=MemoryConfig(**settings))


def fill(memory: MemoryManager, entries: int, tokens: int) -> list[Entry]:
    return [memory.add_user_message("s", "abc " * tokens) for _ in range(entries)]


def methods(memory: MemoryManager, **given: Any) -> set[str]:
    return {item.method for item in memory.compress("s", **given).replacements}


DEFAULTS = {
    "max_tokens": None,
    "trigger_ratio": 0.8,
    "target_ratio": 0.5,
    "recent_window": 10,
    "min_entries_to_compress": 5,
    "compression_ratio": 0.3,
    "max_summary_ratio": 0.2,
    "max_entry_ratio": 0.25,
    "overhead_tokens": 0,
    "reserve_output": None,
    "auto_compress": True,
    "background": False,
    "cache_ttl": 300.0,
    "compress_when_cold": True,
    "summarize_on_prefix": True,
    "strategy": "default",
    "count_policy": "local",
    "summarize_timeout": 60.0,
    "on_failure": "fallback",
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_is_that_of_the_table(name: str) -> None:
    assert getattr(MemoryConfig(), name) == DEFAULTS[name]


# ---------------------------------------------------------------- the numbers


LIMITS = (100_000, 90_000, 20_000)  # context, max_input, max_output


def test_of_a_known_model_a_share_of_what_is_usable_triggers() -> None:
    budget = resolve_budget(MemoryConfig(), LIMITS)
    assert budget.max_tokens == 64_000  # 0.8 x (100,000 - 20,000)
    assert budget.target_tokens == 22_400
    assert budget.summary_tokens == 4_480
    assert budget.entry_tokens == 16_000


def test_unknown_model_triggers_at_the_default_limits() -> None:
    budget = resolve_budget(MemoryConfig(), None)
    assert (budget.max_tokens, budget.max_entries) == (50_000, 100)
    assert (budget.target_tokens, budget.target_entries) == (19_687, 50)


def test_entries_do_not_trigger_with_a_token_limit() -> None:
    assert resolve_budget(MemoryConfig(max_tokens=100_000), None).max_entries is None
    memory = manager(max_tokens=100_000)
    for number in range(120):
        memory.add_user_message("s", f"short note number {number}, nothing else")
    assert memory.get_stats("s").compressed_entries == 0
    assert memory.get_stats("s").max_entries is None


@pytest.mark.parametrize("strategy", ["window(4)", "summary"])
def test_presets_that_mean_entries_keep_their_number(strategy: str) -> None:
    config = MemoryConfig(strategy=strategy, max_tokens=100_000)
    assert resolve_budget(config, LIMITS).max_entries == (4 if strategy == "window(4)" else 20)


def test_misspelt_setting_is_a_config_error_with_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'max_token', did you mean 'max_tokens'"):
        MemoryConfig(max_token=5)  # type: ignore[call-arg]


def test_entry_count_triggers_for_a_known_model_only_if_set() -> None:
    assert resolve_budget(MemoryConfig(), LIMITS).max_entries is None
    assert resolve_budget(MemoryConfig(max_entries=70), LIMITS).max_entries == 70
    assert resolve_budget(MemoryConfig(max_entries=None), None).max_entries is None


def test_the_reserve_is_at_most_35_percent_of_the_context() -> None:
    assert resolve_budget(MemoryConfig(), (100_000, 100_000, 90_000)).max_tokens == 52_000


def test_the_most_input_bounds_what_is_usable() -> None:
    assert resolve_budget(MemoryConfig(), (100_000, 10_000, 1)).max_tokens == 8_000


def test_reserve_output_replaces_the_models_own() -> None:
    assert resolve_budget(MemoryConfig(reserve_output=50_000), LIMITS).max_tokens == 40_000


def test_a_reserve_that_leaves_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match="reserve_output=100000"):
        resolve_budget(MemoryConfig(reserve_output=100_000), LIMITS)


def test_max_tokens_wins_over_the_models_limits() -> None:
    assert resolve_budget(MemoryConfig(max_tokens=1_234), LIMITS).max_tokens == 1_234
    assert resolve_budget(MemoryConfig(max_tokens=79_999), LIMITS).max_tokens == 79_999


def test_max_tokens_is_at_most_the_models_limit() -> None:
    assert resolve_budget(MemoryConfig(max_tokens=90_000), LIMITS).max_tokens == 80_000
    config = MemoryConfig(max_tokens=90_000, reserve_output=5_000)
    assert resolve_budget(config, LIMITS).max_tokens == 90_000


def test_no_context_is_above_what_its_model_takes(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    config = MemoryConfig(max_tokens=300_000)
    memory = MemoryManager(model="gpt-4.1", counter="chars4", config=config)
    fill(memory, 20, 10_000)
    assert memory.build_context("s").tokens.tokens > 200_000
    assert not caplog.records
    usable = 128_000 - 16_384
    for own in ({}, {"budget": 120_000}):
        context = memory.build_context("s", model="gpt-4o", **own)  # type: ignore[arg-type]
        assert (context.budget, context.tokens.tokens <= usable) == (usable, True)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith(
        f"max_tokens=300000 is more than the {usable} input tokens that 'gpt-4o'"
    )
    assert messages[1].startswith("budget=120000 is more than")
    MemoryManager(model="gpt-4.1", counter="chars4", config=config)
    assert len(caplog.records) == 2


def test_model_info_lifts_the_cap_of_the_table(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    memory = MemoryManager(
        model="gpt-4o",
        counter="chars4",
        config=MemoryConfig(max_tokens=500_000),
        model_info=ModelInfo(1_000_000, 900_000, 50_000),
    )
    memory.add_user_message("s", "x")
    assert memory.build_context("s").budget == 500_000
    assert not caplog.records


@given(st.integers(1, 10**7), st.floats(0.01, 0.8), st.integers(1, 10_000))
def test_low_water_is_below_high_water_in_both_dimensions(
    tokens: int, ratio: float, entries: int
) -> None:
    config = MemoryConfig(max_tokens=tokens, target_ratio=ratio, max_entries=entries)
    budget = resolve_budget(config, None)
    assert budget.target_tokens <= budget.trigger_tokens <= budget.max_tokens
    assert 1 <= (budget.target_entries or 0) <= entries
    assert budget.over(tokens + 1, 0)
    assert budget.over(0, entries + 1)
    assert not budget.over(budget.trigger_tokens, entries)


# ---------------------------------------------------------------- presets


@pytest.mark.parametrize(
    ("strategy", "name", "size"),
    [("default", "default", None), ("buffer", "buffer", None), ("window", "window", 5),
     ("window(1)", "window", 1), ("window(12)", "window", 12), (" window( 7 ) ", "window", 7)],
)  # fmt: skip
def test_a_strategys_name_is_read(strategy: str, name: str, size: int | None) -> None:
    preset = preset_named(strategy)
    assert (preset.name, preset.size) == (name, size)


@pytest.mark.parametrize(
    "strategy",
    [
        "window(0)",
        "window(-1)",
        "window(x)",
        "window()",
        "window(1.5)",
        "window(1, 2)",
        "window(\uff15)",
    ],
)
def test_an_n_that_is_no_number_of_entries_is_named(strategy: str) -> None:
    with pytest.raises(ConfigError, match="the number of entries that stay, at least 1") as refused:
        MemoryConfig(strategy=strategy)
    assert repr(strategy) in str(refused.value)


@pytest.mark.parametrize("strategy", ["", "Window", "windows", "window(5", "a b", "summarise"])
def test_unknown_strategy_error_lists_the_known_ones(strategy: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"is not a preset(;|, did you mean .*\?) known are default, buffer, window\(n\), ",
    ):
        MemoryConfig(strategy=strategy)


def test_only_window_takes_a_number() -> None:
    with pytest.raises(ConfigError, match="only window takes a number"):
        MemoryConfig(strategy="buffer(3)")


def test_given_setting_overrides_the_preset() -> None:
    assert MemoryConfig(strategy="token_buffer").recent_window == 0
    assert MemoryConfig(strategy="token_buffer", recent_window=10).recent_window == 10
    assert MemoryConfig(strategy="summary_buffer", max_tokens=None).max_tokens is None
    assert MemoryConfig(strategy="summary", max_entries=None).max_entries is None


def test_strategy_change_keeps_given_settings() -> None:
    config = MemoryConfig(target_ratio=0.4).updated({"strategy": "token_buffer"})
    assert (config.max_tokens, config.target_ratio, config.recent_window) == (2_000, 0.4, 0)
    back = config.updated({"strategy": "default"})
    assert back == MemoryConfig(target_ratio=0.4)
    assert back.given == MemoryConfig(target_ratio=0.4, strategy="default").given


def test_unset_takes_a_setting_back_to_its_presets_default() -> None:
    config = MemoryConfig(strategy="summary_buffer", max_tokens=9)
    assert config.updated({"max_tokens": UNSET}).max_tokens == 2_000


def test_presets_rank_between_environment_and_model() -> None:
    memory = manager(strategy="summary_buffer", model="gpt-4o")
    memory.add_user_message("s", "x")
    memory.add_user_message("t", "x")
    assert memory.get_stats("s").max_tokens == 2_000
    memory.update_config("s", max_tokens=3_000)
    memory.update_config(max_tokens=4_000)
    assert [memory.get_stats(name).max_tokens for name in "st"] == [3_000, 4_000]
    memory.update_config("s", strategy="token_buffer")
    assert memory.get_stats("s").max_tokens == 3_000
    environ = {"MEMMAN_STRATEGY": "window(3)", "MEMMAN_MAX_TOKENS": "700"}
    config = MemoryConfig.from_env(environ)
    assert (config.max_entries, config.max_tokens) == (3, 700)


def test_a_session_keeps_its_preset_with_its_document() -> None:
    memory = manager()
    memory.update_config("s", strategy="window(3)")
    fill(memory, 7, 1)
    restored = manager()
    restored.import_session(memory.export_session("s"))
    fill(restored, 4, 1)
    assert len(restored.get_active_entries("s")) == 3
    restored.add_user_message("other", "x")
    assert restored.get_stats("other").max_entries == 100


def test_a_window_with_a_larger_trigger_goes_down_to_its_n() -> None:
    memory = manager(strategy="window(5)", max_entries=12)
    fill(memory, 12, 1)
    assert len(memory.get_active_entries("s")) == 12
    fill(memory, 1, 1)
    assert len(memory.get_active_entries("s")) == 5


def test_without_summaries_low_water_may_be_the_limit() -> None:
    assert MemoryConfig(strategy=(drop_oldest,), target_ratio=1.0).target_ratio == 1.0
    for strategy in ("default", "summary", (drop_oldest, "summarise")):
        with pytest.raises(ConfigError, match="leaves a compression no room"):
            MemoryConfig(strategy=strategy, target_ratio=1.0)
    with pytest.raises(ConfigError, match=r"target_ratio=1\.1 is out of range"):
        MemoryConfig(strategy="buffer", target_ratio=1.1)


def test_range_error_has_numbers_that_can_be_typed() -> None:
    with pytest.raises(ConfigError, match=r"must be from 1 to 9,007,199,254,740,992$"):
        MemoryConfig(max_tokens=0)
    with pytest.raises(ConfigError, match=r"must be from 0\.01 to 1$"):
        MemoryConfig(target_ratio=0.0)


# ---------------------------------------------------------------- every setting has an effect


def test_max_tokens_is_obeyed() -> None:
    memory = manager(max_tokens=1_000)
    fill(memory, 30, 50)
    assert memory.get_stats("s").active_tokens <= 1_000


def test_max_entries_is_obeyed() -> None:
    memory = manager(max_entries=12)
    fill(memory, 40, 1)
    assert len(memory.get_active_entries("s")) <= 12


def test_trigger_ratio_is_obeyed() -> None:
    for ratio, tokens in ((0.8, 64_000), (0.5, 40_000)):
        assert resolve_budget(MemoryConfig(trigger_ratio=ratio), LIMITS).max_tokens == tokens


def automatic(entries: int, **settings: Any) -> list[CompressionResult]:
    """Return the automatic compressions while so many entries of 100 tokens are added."""
    memory = manager(**settings)
    results: list[CompressionResult] = []
    memory.on("compressed", results.append)
    fill(memory, entries, 100)
    return results


def test_target_ratio_is_obeyed() -> None:
    low, high = [
        {result.tokens_after for result in automatic(300, max_tokens=10_000, target_ratio=ratio)}
        for ratio in (0.2, 0.7)
    ]
    assert max(low) <= 2_000 < min(high) <= max(high) <= 7_000


def test_compress_by_hand_goes_below_the_target_ratio() -> None:
    memory = manager(max_tokens=10_000, target_ratio=0.7, auto_compress=False)
    fill(memory, 90, 100)
    memory.compress("s")
    assert memory.get_stats("s").active_tokens < 2_000


def test_min_entries_to_compress_is_obeyed() -> None:
    for least, method in ((15, "outline"), (40, "clip")):
        first = automatic(36, max_tokens=3_500, min_entries_to_compress=least)[0]
        assert {item.method for item in first.replacements} == {method}


def test_few_old_entries_are_outlined_by_hand() -> None:
    memory = manager(lambda prompt: "short", min_entries_to_compress=40, auto_compress=False)
    fill(memory, 40, 100)
    assert methods(memory) == {"outline"}


def test_compression_ratio_caps_a_summary() -> None:
    for ratio, tokens in ((0.3, 100), (0.05, 60)):
        memory = manager(
            lambda prompt: "abcd" * 100,
            compression_ratio=ratio,
            auto_compress=False,
            state_ratio=0,
        )
        fill(memory, 20, 100)
        memory.compress("s", target_tokens=1_000)
        [summary] = memory.get_summaries("s")
        assert (
            tokens * 0.9 <= summary.token_count <= min(tokens, ratio * summary.original_token_count)
        )


def test_max_summary_ratio_caps_a_summary() -> None:
    for ratio, tokens in ((0.2, 100), (0.05, 50)):
        memory = manager(lambda prompt: "abcd" * 100, max_summary_ratio=ratio, auto_compress=False)
        fill(memory, 20, 100)
        memory.compress("s", target_tokens=1_000)
        [summary] = memory.get_summaries("s")
        assert tokens * 0.9 <= summary.token_count <= tokens


def test_max_entry_ratio_is_the_first_clipping_size() -> None:
    left = []
    for ratio in (0.05, 0.45):
        memory = manager(
            max_tokens=2_000,
            max_entry_ratio=ratio,
            strategy=(clip_large,),
            auto_compress=False,
            state_ratio=0,
        )
        for tokens in (1_000, 990, 300):
            fill(memory, 1, tokens)
        memory.compress("s")
        left.append([entry.token_count.tokens for entry in memory.get_active_entries("s")])
    # With a low share, both give their excess. With a high one, each gives down to the share.
    for [*older, newest], most in zip(left, (600, 900), strict=True):
        assert most * 0.9 <= min(older) <= max(older) <= most
        assert newest == 300


def test_overhead_without_headroom_is_refused_everywhere() -> None:
    for tokens in (1_000, 4_000):
        with pytest.raises(ConfigError, match=f"overhead_tokens={tokens} leaves no room in max_t"):
            manager(max_tokens=1_000, overhead_tokens=tokens)
    memory = manager(max_tokens=1_000, overhead_tokens=900)
    memory.add_user_message("s", "hello")
    for session in (None, "s"):
        with pytest.raises(ConfigError, match="overhead_tokens"):
            memory.update_config(session, max_tokens=900)
    assert memory.get_stats("s").max_tokens == 1_000


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"max_tokens": 1_000}, "max_tokens=1000: lower it, or raise max_tokens"),
        ({"strategy": "summary_buffer"}, "max_tokens=2000, as strategy='summary_buffer' has it: "),
        ({}, "the default of 50000 tokens (no model is set): "),
        (
            {"model": "acme/none"},
            "the default of 50000 tokens (the limits of 'acme/none' are not known): ",
        ),
        ({"model": "gpt-4o"}, "tokens that trigger_ratio=0.8 and the limits of 'gpt-4o' make: "),
    ],
)
def test_overhead_error_names_the_source_of_the_limit(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(where)) as refused:
        manager(**settings, overhead_tokens=10**6)
    assert "leaves no room in " in str(refused.value)


def test_stored_overhead_does_not_block_other_changes() -> None:
    store = MemoryStore()
    roomy = MemoryManager(store, config=MemoryConfig(max_tokens=1_000))
    roomy.add_user_message("big", "hello")
    roomy.update_config("big", overhead_tokens=900)
    exported = roomy.export_session("big")
    memory = MemoryManager(store, config=MemoryConfig(max_tokens=500))
    assert memory.get_stats("big").max_tokens == 500
    memory.update_config(recent_window=3)
    memory.update_config(max_tokens=600)
    memory.update_config("big", recent_window=4)
    with pytest.raises(ConfigError, match="overhead_tokens=800 leaves no room in max_tokens=600"):
        memory.update_config("big", overhead_tokens=800)
    with pytest.raises(ConfigError, match="overhead_tokens=900 leaves no room in max_tokens=700"):
        memory.update_config("big", max_tokens=700)
    memory.update_config("big", max_tokens=950)
    assert memory.get_stats("big").max_tokens == 950
    assert memory.import_session(exported, "new_session") != "big"


def test_settings_that_contradict_a_live_sessions_name_it() -> None:
    memory = manager(max_tokens=1_000)
    memory.update_config("small", max_summary_ratio=0.9)
    with pytest.raises(
        ConfigError, match=r"with the settings of session 'small': target_ratio=0\.6 "
    ):
        memory.update_config(target_ratio=0.6)


def test_a_change_of_settings_takes_no_other_threads_back(monkeypatch: Any) -> None:
    memory = MemoryManager()
    resolver = memory._core.resolver
    plain, others = resolver.limits, []

    def limits(model: str | None) -> Any:
        if not others:  # the pending change is being checked
            others.append(threading.Thread(target=lambda: memory.update_config(max_entries=77)))
            others[0].start()
            others[0].join(0.2)
        return plain(model)

    monkeypatch.setattr(resolver, "limits", limits)
    memory.update_config(recent_window=3)
    others[0].join()
    config = memory._core.shared.config
    assert (config.max_entries, config.recent_window) == (77, 3)


def test_settings_changed_during_loading_apply_next(
    monkeypatch: Any,
) -> None:
    memory = manager(max_entries=50)
    memory.add_user_message("s", "hello")
    shared = memory._core.shared
    plain, taken = shared.resolved, []

    def resolved(*settings: Any) -> Any:
        found = plain(*settings)
        if not taken:
            taken.append(found)
            memory.update_config(max_entries=77)  # like another thread
        return found

    memory.update_config(max_entries=60)
    monkeypatch.setattr(shared, "resolved", resolved)
    memory.get_stats("s")
    assert memory.get_stats("s").max_entries == 77


def test_settings_are_checked_with_the_stored_ones() -> None:
    store = MemoryStore()
    MemoryManager(store).update_config("s", max_tokens=500)
    with pytest.raises(ConfigError, match="overhead_tokens=900 leaves no room in max_tokens=500"):
        MemoryManager(store).update_config("s", overhead_tokens=900)


@pytest.mark.parametrize("name", ["model", "summarizer"])
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_name_that_was_stored_once_is_none(name: str, blank: str, tmp_path: Path) -> None:
    store = MemoryStore()
    stored = configuring("c1", **{name: blank, "max_tokens": 300})
    store.append("s", (stored,))
    memory = MemoryManager(store, config=MemoryConfig(max_tokens=1_000))
    memory.add_user_message("s", "hello")
    assert memory.get_stats("s").max_tokens == 300
    memory.export_archive("s", tmp_path / "s.memman")
    for exported in (memory.export_session("s"), memory.export_session("s").to_json()):
        copied = memory.import_session(exported, "new_session")
        assert memory.get_stats(copied).max_tokens == 300
    copied = memory.import_archive(tmp_path / "s.memman", "new_session")
    assert memory.get_stats(copied).max_tokens == 300
    memory.update_config(recent_window=3)
    memory.update_config("s", recent_window=4)
    with pytest.raises(ConfigError, match="is blank"):
        memory.update_config("s", **{name: blank})
    memory.update_config("s", **{name: None}, max_tokens=400)
    assert memory.get_stats("s").max_tokens == 400


def test_new_settings_may_repair_stored_ones() -> None:
    store = MemoryStore()
    store.append("s", (configuring("c1", max_tokens=300, recent_window=-1),))
    memory = MemoryManager(store, config=MemoryConfig(max_tokens=1_000))
    assert memory.get_stats("s").max_tokens == 1_000
    memory.update_config("s", recent_window=3)
    assert memory.get_stats("s").max_tokens == 300


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_name_of_blanks_is_refused_wherever_it_is_given(blank: str) -> None:
    for name in ("model", "summarizer"):
        with pytest.raises(ConfigError, match=re.escape(f"{name}={blank!r} is blank: give")):
            MemoryConfig(**{name: blank})
    memory = manager(model="gpt-4o")
    memory.add_user_message("s", "hello")
    before = memory.build_context("s")
    for call in (
        lambda: memory.build_context("s", model=blank),
        lambda: memory.count_tokens("hello", model=blank),
        lambda: memory.record_usage("s", 12, model=blank),
        lambda: memory.record_overflow("the limit is 4000 tokens", model=blank),
        lambda: memory.update_config("s", model=blank),
    ):
        with pytest.raises(InvalidInput, match=re.escape(f"model={blank!r} is blank: give")):
            call()
    with pytest.raises(InvalidInput) as refused:
        memory.count_tokens("hello", model=blank)
    assert type(refused.value) is InvalidInput, "no setting is at fault"
    assert memory.build_context("s") == before
    assert MemoryConfig.from_env({"MEMMAN_MODEL": blank}).model is None


def test_overhead_counts_for_the_trigger_and_the_context() -> None:
    memory = manager(max_tokens=1_000, overhead_tokens=900)
    fill(memory, 10, 50)
    assert memory.get_stats("s").active_tokens <= 100
    context = memory.build_context("s")
    assert context.tokens.tokens >= 900
    assert context.breakdown["reserved"] == 900


def test_auto_compress_is_obeyed_and_a_call_overrides_it() -> None:
    memory = manager(max_entries=10, auto_compress=False)
    fill(memory, 15, 20)
    assert len(memory.get_active_entries("s")) == 15
    memory.add_user_message("s", "x", compress=True)
    assert len(memory.get_active_entries("s")) < 15
    memory = manager(max_entries=10)
    for _ in range(15):
        memory.add_user_message("s", "abc " * 20, compress=False)
    assert len(memory.get_active_entries("s")) == 15


# ---------------------------------------------------------------- precedence


def test_session_setting_overrides_the_manager_and_stays() -> None:
    memory = manager(max_tokens=9_000)
    fill(memory, 1, 1)
    memory.add_user_message("other", "x")
    memory.update_config("s", max_tokens=5_000)
    memory.update_config(max_tokens=7_000)
    assert memory.get_stats("s").max_tokens == 5_000
    assert memory.get_stats("other").max_tokens == 7_000
    restored = manager(max_tokens=9_000)
    restored.import_session(memory.export_session("s"))
    assert restored.get_stats("s").max_tokens == 5_000


def test_a_call_wins_over_the_session() -> None:
    memory = manager()
    fill(memory, 1, 1)
    memory.update_config("s", max_tokens=5_000)
    assert memory.build_context("s").budget == 5_000
    assert memory.build_context("s", budget=700).budget == 700


def test_environment_is_read_at_the_call_and_never_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMMAN_MAX_TOKENS", "1234")
    assert MemoryConfig().max_tokens is None
    assert MemoryConfig.from_env().max_tokens == 1_234


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("MEMMAN_MAX_TOKENS", "8000", "max_tokens", 8_000),
        ("MEMMAN_MAX_TOKENS", "none", "max_tokens", None),
        ("MEMMAN_MAX_ENTRIES", "none", "max_entries", None),
        ("MEMMAN_TARGET_RATIO", "0.4", "target_ratio", 0.4),
        ("MEMMAN_AUTO_COMPRESS", "no", "auto_compress", False),
        ("MEMMAN_BACKGROUND", "TRUE", "background", True),
        ("MEMMAN_SUMMARIZE_TIMEOUT", "None", "summarize_timeout", None),
        ("MEMMAN_SUMMARIZE_TIMEOUT", "2.5", "summarize_timeout", 2.5),
        ("MEMMAN_ON_FAILURE", "keep", "on_failure", "keep"),
        ("MEMMAN_MODEL", "gpt-5", "model", "gpt-5"),
        ("MEMMAN_MODEL", "none", "model", None),
        ("MEMMAN_SUMMARY_PROMPT", "none", "summary_prompt", None),
        ("MEMMAN_STRATEGY", "default", "strategy", "default"),
    ],
)
def test_a_variable_is_memman_and_the_settings_name(
    variable: str, text: str, name: str, value: Any
) -> None:
    assert getattr(MemoryConfig.from_env({variable: text}), name) == value


@pytest.mark.parametrize("blank", ["", " \n"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_variable_that_is_blank_counts_as_not_set(name: str, blank: str) -> None:
    config = MemoryConfig.from_env({f"MEMMAN_{name.upper()}": blank})
    assert config == MemoryConfig()
    assert config.given == MemoryConfig().given


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MEMMAN_MAX_TOKENS", "many"),
        ("MEMMAN_MAX_TOKENS", "1.5"),
        ("MEMMAN_AUTO_COMPRESS", "perhaps"),
        ("MEMMAN_TARGET_RATIO", "half"),
    ],
)
def test_invalid_variable_is_named(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}={text!r}"):
        MemoryConfig.from_env({variable: text})


def test_other_variables_of_the_prefix_are_ignored() -> None:
    assert MemoryConfig.from_env({"MEMMAN_HOME": "/x", "MEMMAN_PLUGINS": ""}) == MemoryConfig()


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        MemoryConfig().max_tokens = 5  # type: ignore[misc]


def test_updating_nothing_gives_the_same_settings() -> None:
    config = MemoryConfig(max_tokens=5_000)
    assert config.updated({}) == config
    assert config.updated({"max_tokens": None}).max_tokens is None


def test_a_plugin_that_knows_the_model_sets_the_limits() -> None:
    class Knows:
        @hookimpl
        def memman_model_info(self, model: Any) -> ModelInfo | None:
            return ModelInfo(10_000, 10_000, 2_000) if model.name == "acme-1" else None

    plugins = shared_plugins()
    plugins.register(Knows(), "knows")
    try:
        memory = MemoryManager(model="acme/ACME-1", counter="chars4")
        memory.add_user_message("s", "x")
        stats = memory.get_stats("s")
        assert (stats.max_tokens, stats.max_entries) == (6_400, None)
    finally:
        plugins._manager.unregister(name="knows")


def test_count_policy_is_obeyed_when_it_changes() -> None:
    pytest.importorskip("memman_tiktoken")
    memory = MemoryManager(model="gpt-4o")
    assert memory.add_user_message("s", "x").token_count.counter != "estimate:o200k/1"
    memory.update_config(count_policy="estimate")
    assert memory.add_user_message("s", "x").token_count.counter == "estimate:o200k/1"
    memory.update_config(count_policy="local")
    memory.update_config("s", count_policy="estimate")
    assert memory.add_user_message("s", "x").token_count.counter == "estimate:o200k/1"
    assert memory.add_user_message("other", "x").token_count.counter != "estimate:o200k/1"


def test_a_sessions_model_sets_its_counter() -> None:
    pytest.importorskip("memman_tiktoken")
    memory = MemoryManager()
    memory.add_user_message("s", "hello world")
    memory.update_config("s", model="gpt-4o")
    assert memory.get_stats("s").counter.startswith("tiktoken:")
    assert memory.get_stats("s").active_tokens == 2
