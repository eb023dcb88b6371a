"""The documented behaviour of each method, in both managers."""

import asyncio
import inspect
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import memman
from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    Entry,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    ModelRef,
    Refused,
    SessionNotFound,
    TextPart,
    hookimpl,
)
from memman.formats.rules import check
from memman.plugins import shared_plugins
from memman.stores import MemoryStore

VERBS = [
    name
    for name, member in inspect.getmembers(AsyncMemoryManager, inspect.iscoroutinefunction)
    if not name.startswith("_")
]


def manager(**given: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", **given)


def settings(**given: Any) -> dict[str, MemoryConfig]:
    return {"config": MemoryConfig(**given)}


# ---------------------------------------------------------------- the two managers


@pytest.mark.parametrize("manager", [MemoryManager, AsyncMemoryManager])
def test_every_method_is_listed_here(manager: type) -> None:
    assert {*VERBS, "follow", "observe", "on", "recall_tool", "aio"} == {
        name for name in dir(manager) if not name.startswith("_")
    }


@pytest.mark.parametrize("verb", ["__init__", *VERBS, "follow", "observe", "on", "recall_tool"])
@pytest.mark.parametrize("manager", [MemoryManager, AsyncMemoryManager])
def test_types_of_a_method_are_known_at_run_time(manager: type, verb: str) -> None:
    hints = typing.get_type_hints(getattr(manager, verb))
    assert hints.keys() - {"return"} == inspect.signature(
        getattr(manager, verb)
    ).parameters.keys() - {"self"}


def test_a_manager_is_shown_by_its_store_and_model() -> None:
    assert repr(MemoryManager(model="gpt-5")) == "<MemoryManager of MemoryStore, model 'gpt-5'>"
    assert repr(AsyncMemoryManager()) == "<AsyncMemoryManager of MemoryStore, model None>"
    memory = MemoryManager()
    memory.close()
    assert repr(memory) == "<MemoryManager of MemoryStore, model None>"


def script(memory: Any) -> list[Any]:
    """Return calls and their comparable results, which are equal in both managers."""
    words = "abc " * 60
    return [
        memory.add_system_message("s", "be brief"),
        *(memory.add_user_message("s", f"{n} {words}") for n in range(12)),
        memory.add_tool_call("s", "find", {"x": 1}, call_id="c"),
        memory.add_tool_result("s", "find", words * 3, call_id="c"),
        memory.add_messages(
            "s", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]
        ),
        memory.plan_compression("s", target_tokens=600),
        memory.compress("s", target_tokens=600),
        memory.get_active_entries("s"),
        memory.get_summaries("s"),
        memory.get_context_for_llm("s"),
        memory.undo_compression("s"),
        memory.record_usage("s", 12),
        memory.update_config("s", recent_window=2),
        memory.get_stats("s"),
        memory.get_spend(),
        memory.count_tokens("hello"),
        memory.clear_session("s"),
        memory.export_session("s"),
        memory.list_sessions(),
        memory.delete_session("s"),
    ]


def alike() -> dict[str, Any]:
    """Return a manager with a clock and ids in a fixed order."""
    looks, ids = iter(range(10**6)), iter(range(10**6))
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "counter": "chars4",
        "clock": lambda: begin + timedelta(seconds=next(looks)),
        "new_id": lambda: f"id-{next(ids)}",
    }


def test_both_apis_give_the_same_results_and_log() -> None:
    async def run() -> list[Any]:
        return [await step for step in script(AsyncMemoryManager(**alike()))]

    def plain(answer: Any) -> Any:
        return [plain(one) for one in answer] if isinstance(answer, list) else untimed(answer)

    def untimed(answer: Any) -> Any:
        """Return a comparable form of an answer, without the seconds of counts."""
        if isinstance(answer, Entry):
            return (answer.id, answer.seq, answer.type, answer.text, answer.token_count.tokens)
        if isinstance(answer, memman.TokenCount):
            return answer.tokens
        if isinstance(answer, memman.SessionState):
            return [type(record).__name__ for record in answer.log]
        if isinstance(answer, memman.CompressionResult):
            return (
                answer.compression_id,
                answer.tokens_before,
                answer.tokens_after,
                answer.replaced_ids,
            )
        return answer

    sync = script(MemoryManager(**alike()))
    assert plain(asyncio.run(run())) == plain(sync)


def test_a_manager_closes_its_store_when_it_is_left() -> None:
    closed: list[str] = []

    class Closing(MemoryStore):
        def close(self) -> None:
            closed.append("closed")

    with MemoryManager(Closing()) as memory:
        memory.add_user_message("s", "x")

    async def run() -> None:
        async with AsyncMemoryManager(Closing()) as memory:
            await memory.add_user_message("s", "x")

    asyncio.run(run())
    assert closed == ["closed", "closed"]


# ---------------------------------------------------------------- adding


def test_an_add_returns_the_entry_as_it_is_in_the_log() -> None:
    memory = manager()
    entry = memory.add_user_message("s", "x", metadata={"a": 1}, message_id="m", pinned=True)
    assert memory.get_entry("s", entry.id) == entry
    assert (entry.seq, entry.message_id, entry.pinned, entry.metadata) == (2, "m", True, {"a": 1})


def test_entries_have_gapless_seqs_behind_the_opening() -> None:
    memory = manager()
    seqs = [memory.add_user_message("s", str(n)).seq for n in range(5)]
    assert seqs == [2, 3, 4, 5, 6]


def test_arguments_as_text_are_kept_as_they_are() -> None:
    memory = manager()
    assert memory.add_tool_call("s", "find", '{ "a" : 1}').text == '{ "a" : 1}'
    assert memory.add_tool_call("s", "find", {"a": 1}).text == '{"a":1}'
    assert memory.add_tool_call("s", "find", {}).text == "{}"


def test_changed_arguments_do_not_change_stored_entries() -> None:
    memory = manager()
    metadata: dict[str, Any] = {"a": [1]}
    arguments: dict[str, Any] = {"x": [1]}
    memory.add_tool_call("s", "find", arguments, metadata=metadata)
    metadata["a"].append(2)
    arguments["x"].append(2)
    [entry] = memory.get_entries("s")
    assert entry.metadata == {"a": [1]}
    assert entry.text == '{"x":[1]}'


def test_returned_lists_are_the_callers_own() -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    for read in (memory.get_entries, memory.get_active_entries, memory.get_summaries):
        read("s").clear()
    memory.list_sessions().clear()
    assert len(memory.get_entries("s")) == len(memory.get_active_entries("s")) == 1
    assert [info.session_id for info in memory.list_sessions()] == ["s"]


def test_content_of_parts_is_text_and_parts() -> None:
    memory = manager()
    entry = memory.add_user_message("s", (TextPart("a"), TextPart("b")))
    assert entry.text == "a\nb"
    assert entry.content == (TextPart("a"), TextPart("b"))


def test_empty_content_is_taken() -> None:
    memory = manager()
    assert memory.add_user_message("s", "").token_count.tokens == 0
    assert memory.add_user_message("s", ()).text == ""


def test_messages_are_added_all_or_none() -> None:
    memory = manager()
    with pytest.raises(memman.FormatError):
        memory.add_messages("s", [{"role": "user", "content": "x"}, {"role": "user", "content": 7}])
    assert memory.list_sessions() == []


def test_redact_is_applied_before_counting_and_storing() -> None:
    import msgspec

    def redact(entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, content=entry.text.replace("secret", "*"))

    memory = manager(redact=redact)
    entry = memory.add_user_message("s", "secret" * 4)
    assert (entry.text, entry.token_count.tokens) == ("****", 1)
    memory.add_messages("s", [{"role": "user", "content": "my secret", "name": "bob"}])
    assert "secret" not in memory.export_session("s").to_json()


# ---------------------------------------------------------------- pins


def test_a_pinned_entry_survives_every_compression() -> None:
    memory = manager(**settings(max_tokens=1_000))
    kept = memory.add_user_message("s", "keep me", pinned=True)
    for number in range(100):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    assert kept.id in [entry.id for entry in memory.get_active_entries("s")]
    assert any(message["content"] == "keep me" for message in memory.build_context("s").messages)


def test_an_unpinned_entry_may_go_again() -> None:
    memory = manager(**settings(auto_compress=False))
    kept = memory.add_user_message("s", "x", pinned=True)
    memory.unpin("s", kept.id)
    assert not memory.get_entry("s", kept.id).pinned
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    memory.compress("s", target_tokens=400)
    assert memory.get_entry("s", kept.id).compressed


# ---------------------------------------------------------------- contexts


def long_session(**given: Any) -> MemoryManager:
    memory = manager(**settings(auto_compress=False, **given))
    memory.add_system_message("s", "be brief")
    for number in range(30):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
        memory.add_tool_call("s", "find", {"n": number}, call_id=f"c{number}")
        memory.add_tool_result("s", "find", "found " * 100, call_id=f"c{number}")
    return memory


@pytest.mark.parametrize("form", ["openai-chat", "anthropic", "text"])
@pytest.mark.parametrize("budget", [400, 700, 1_500, 4_000, 50_000])
def test_a_context_fits_its_budget_and_is_valid(form: str, budget: int) -> None:
    memory = long_session()
    before = memory.export_session("s")
    context = memory.build_context("s", format=form, budget=budget)
    assert context.tokens.tokens <= context.budget == budget
    assert bool(context.trimmed) == (budget < 10_000)
    if form != "text":
        assert check(context.messages, form, system=context.system) == []
    assert memory.export_session("s") == before


def test_trimmed_context_keeps_head_and_newest_exchange() -> None:
    context = long_session().build_context("s", budget=700)
    assert context.messages[0] == {"role": "system", "content": "be brief"}
    assert context.messages[-1]["tool_call_id"] == "c29"


def test_oversized_newest_exchange_is_clipped_in_a_context() -> None:
    memory = manager()
    entry = memory.add_user_message("s", "abc " * 5_000)
    context = memory.build_context("s", budget=500)
    assert context.tokens.tokens <= 500
    assert {item.method for item in context.trimmed} == {"clip"}
    assert f"the original is entry #{entry.seq}" in context.messages[-1]["content"]


def test_the_system_prompt_precedes_the_sessions_own() -> None:
    memory = long_session()
    openai = memory.build_context("s", system="You are Ada.")
    assert [message["content"] for message in openai.messages[:2]] == ["You are Ada.", "be brief"]
    assert openai.system is None
    claude = memory.build_context("s", format="anthropic", system="You are Ada.")
    assert claude.system == "You are Ada.\n\nbe brief"


def test_tools_and_system_prompt_count_towards_the_budget() -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    tools = [{"name": "find", "description": "d" * 4_000}]
    with pytest.raises(BudgetExceeded):
        memory.build_context("s", budget=1_000, tools=tools)
    with pytest.raises(BudgetExceeded):
        memory.build_context("s", budget=1_000, system="s" * 4_000)
    assert memory.build_context("s", budget=1_100, tools=tools).breakdown["tools"] > 1_000


def test_overhead_of_a_build_counts_for_the_trigger() -> None:
    memory = manager(**settings(max_tokens=2_000))
    memory.add_user_message("s", "x")
    memory.build_context("s", system="s" * 4_000)
    assert memory.get_stats("s").overhead_tokens >= 1_000
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    assert memory.build_context("s", system="s" * 4_000).trimmed == ()


def test_another_model_is_priced_by_its_own_counter_and_limits() -> None:
    class Knows:
        @hookimpl
        def memman_model_info(self, model: ModelRef) -> ModelInfo | None:
            return ModelInfo(1_000, 1_000, 100) if model.name == "tiny" else None

    plugins = shared_plugins()
    plugins.register(Knows(), "knows-tiny")
    try:
        memory = manager()
        memory.add_user_message("s", "abc " * 5_000)
        assert memory.build_context("s").budget == 50_000
        assert memory.build_context("s", model="tiny").budget == 720
    finally:
        plugins._manager.unregister(name="knows-tiny")


def test_a_context_of_an_empty_era_is_empty() -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    memory.clear_session("s")
    assert memory.build_context("s").messages == []
    assert memory.get_context_for_llm("s") == ""


def test_context_prints_a_description() -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    context = memory.build_context("s")
    assert repr(context).startswith("Context('openai-chat', 1 messages, ")
    assert len(context) == 1


# ---------------------------------------------------------------- compressing


def test_a_compression_is_one_record_one_event_and_one_undo() -> None:
    memory = long_session()
    before = memory.get_active_entries("s")
    records = len(memory.export_session("s").log)
    heard: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        heard.append(event)

    with memman.events.compressed.connected_to(receive, sender=memory):
        result = memory.compress("s", target_tokens=1_500)
    assert len({item.method for item in result.replacements}) > 1
    assert len(memory.export_session("s").log) == records + 1
    assert heard == [result]
    memory.undo_compression("s")
    assert memory.get_active_entries("s") == before


def test_after_a_compression_the_window_is_at_low_water() -> None:
    memory = long_session()
    result = memory.compress("s", target_tokens=1_000)
    assert result.tokens_after == memory.get_stats("s").active_tokens <= 1_000


def test_a_second_compression_without_new_content_does_nothing() -> None:
    memory = long_session()
    memory.compress("s", target_tokens=1_000)
    again = memory.compress("s", target_tokens=1_000)
    assert again.compression_id is None
    assert again.reason.startswith("nothing was changed: ")


def test_an_unanswered_call_is_never_compressed() -> None:
    memory = manager(**settings(auto_compress=False))
    call = memory.add_tool_call("s", "find", {}, call_id="open")
    for number in range(30):
        memory.add_assistant_message("s", f"{number} " + "abc " * 50)
    memory.compress("s", target_tokens=300)
    assert not memory.get_entry("s", call.id).compressed
    memory.add_tool_result("s", "find", "at last", call_id="open")
    assert check(memory.build_context("s").messages, "openai-chat") == []


def test_undo_of_another_record_changes_nothing() -> None:
    memory = long_session()
    memory.set_summarize_callback(lambda prompt: "They talked.")
    name = memory.compress("s", target_tokens=1_000).compression_id
    before = memory.export_session("s")
    summary, *_ = memory.get_summaries("s")
    with pytest.raises(memman.NotFound):
        memory.undo_compression("s", summary.id)
    assert memory.export_session("s") == before
    assert memory.undo_compression("s", name) == name


def test_pin_blocks_an_undo() -> None:
    memory = long_session()
    memory.set_summarize_callback(lambda prompt: "They talked.")
    memory.compress("s", target_tokens=1_000)
    memory.pin("s", memory.get_summaries("s")[0].id)
    with pytest.raises(Refused, match="unpin"):
        memory.undo_compression("s")


# ---------------------------------------------------------------- sessions


def test_sessions_are_apart() -> None:
    memory = manager()
    memory.add_user_message("a", "x", id="same")
    memory.add_user_message("b", "y", id="same")
    memory.update_config("a", max_tokens=5_000)
    assert [memory.get_entry(name, "same").text for name in "ab"] == ["x", "y"]
    assert memory.get_stats("b").max_tokens == 50_000
    memory.delete_session("a")
    assert [info.session_id for info in memory.list_sessions()] == ["b"]


def test_a_deleted_session_can_begin_again() -> None:
    memory = manager()
    memory.add_user_message("s", "old")
    memory.delete_session("s")
    assert memory.list_sessions() == []
    entry = memory.add_user_message("s", "new")
    assert entry.seq == 2
    assert [one.text for one in memory.get_entries("s")] == ["new"]


def test_two_managers_on_one_store_see_each_others_writes() -> None:
    store = MemoryStore()
    one, other = MemoryManager(store, counter="chars4"), MemoryManager(store, counter="chars4")
    one.add_user_message("s", "a")
    other.add_user_message("s", "b")
    one.add_user_message("s", "c")
    assert [entry.text for entry in other.get_active_entries("s")] == ["a", "b", "c"]
    other.clear_session("s")
    assert one.get_active_entries("s") == []
    one.delete_session("s")
    with pytest.raises(memman.SessionNotFound):
        other.get_stats("s")


def test_the_session_outlives_its_manager_in_a_shared_store() -> None:
    store = MemoryStore()
    first = MemoryManager(store, counter="chars4")
    for number in range(120):
        first.add_user_message("s", f"{number} " + "abc " * 30)
    second = MemoryManager(store, counter="chars4")
    assert second.get_active_entries("s") == first.get_active_entries("s")
    assert second.get_stats("s") == first.get_stats("s")
    assert second.export_session("s") == first.export_session("s")


# ---------------------------------------------------------------- the public classes


def test_every_public_name_is_there_and_documented() -> None:
    assert len(memman.__all__) == len(set(memman.__all__))
    for name in memman.__all__:
        assert inspect.getdoc(getattr(memman, name)), name


def test_all_errors_have_one_root_and_a_meaning() -> None:
    from memman import errors

    raised = [
        member
        for member in vars(errors).values()
        if inspect.isclass(member) and issubclass(member, Exception)
    ]
    assert len(raised) >= 15
    for error in raised:
        assert issubclass(error, memman.MemmanError)
        assert error.__doc__
        assert error.__name__ in (errors.__doc__ or "")


# ---------------------------------------------------------------- missing sessions


@pytest.mark.parametrize(
    "format", ["openai-chat", "openai-responses", "anthropic", "gemini", "text"]
)
def test_context_of_a_missing_session_is_empty_if_allowed(format: str) -> None:
    memory = manager()
    with pytest.raises(SessionNotFound):
        memory.build_context("s", format=format)
    context = memory.build_context("s", format=format, system="Be brief.", missing_ok=True)
    cleared = manager()
    cleared.add_user_message("s", "x")
    cleared.clear_session("s")
    expected = cleared.build_context("s", format=format, system="Be brief.")
    assert (context.messages, context.system) == (expected.messages, expected.system)
    assert context.tokens.tokens == expected.tokens.tokens
    assert memory.list_sessions() == []


def test_delete_of_a_missing_session_does_nothing_if_allowed() -> None:
    memory = manager()
    with pytest.raises(SessionNotFound):
        memory.delete_session("s")
    memory.delete_session("s", missing_ok=True)
    memory.add_user_message("s", "x")
    assert memory.build_context("s", missing_ok=True).messages
    memory.delete_session("s", missing_ok=True)
    assert memory.list_sessions() == []
    assert memory.build_context("s", missing_ok=True).messages == []


def test_async_manager_allows_missing_sessions_too() -> None:
    async def run() -> list[Any]:
        async with AsyncMemoryManager() as memory:
            await memory.delete_session("s", missing_ok=True)
            return (await memory.build_context("s", missing_ok=True)).messages

    assert asyncio.run(run()) == []
