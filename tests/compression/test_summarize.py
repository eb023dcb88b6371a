"""Summaries: requests, rejected replies, and failures that lose nothing."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    CompressionFailed,
    MemoryConfig,
    MemoryManager,
    SummaryReply,
    SummaryRequest,
    events,
)
from memman.stores import MemoryStore
from tests.patience import PATIENCE

WORDS = "abc " * 50


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    return MemoryManager(
        counter="chars4",
        summarizer=summarizer,
        config=MemoryConfig(**{"auto_compress": False} | settings),
    )


def filled(memory: MemoryManager, entries: int = 20) -> MemoryManager:
    for number in range(entries):
        memory.add_user_message("s", f"{number} {WORDS}")
    return memory


def compress(memory: MemoryManager) -> tuple[events.CompressionResult, list[Any]]:
    """Compress and return the result with the notices of failures."""
    notices: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        notices.append(event)

    with events.compression_failed.connected_to(receive, sender=memory):
        return memory.compress("s", target_tokens=600), notices


def method(result: events.CompressionResult) -> str:
    [found] = {item.method for item in result.replacements}
    return found


class Scripted:
    """A summarizer that returns these replies in turn and keeps the prompts."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        return reply


# ---------------------------------------------------------------- replies


def test_good_reply_takes_one_call() -> None:
    ask = Scripted("All is well.")
    result, notices = compress(filled(manager(ask)))
    assert (method(result), len(ask.prompts), notices) == ("summary", 1, [])
    assert result.cost.calls == 1


def test_blanks_around_an_answer_are_taken_off() -> None:
    memory = filled(manager(Scripted("\n  All is well. \n")))
    compress(memory)
    assert memory.get_summaries("s")[0].content == "All is well."


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("", "was empty"),
        (" \n", "was empty"),
        ("abcd" * 500, "had 500 tokens, and 120 is the most"),
    ],
)
def test_rejected_reply_is_requested_once_more(bad: str, problem: str) -> None:
    ask = Scripted(bad, "All is well.")
    memory = filled(manager(ask))
    result, notices = compress(memory)
    assert (method(result), notices, result.cost.calls) == ("summary", [], 2)
    assert memory.get_summaries("s")[0].content == "All is well."
    first, second = ask.prompts
    assert second.endswith(first)
    assert problem in second.removesuffix(first)


def test_an_answer_that_the_provider_cut_off_is_refused() -> None:
    class Cut:
        def summarize(self, request: SummaryRequest) -> SummaryReply:
            return SummaryReply(text="All is", truncated=True)

    result, [notice] = compress(filled(manager(Cut())))
    assert method(result) == "outline"
    assert "cut off" in notice.reason


@pytest.mark.parametrize("bad", ["", "abcd" * 2_000])
def test_two_rejected_replies_lead_to_the_outline(bad: str) -> None:
    ask = Scripted(bad)
    result, [notice] = compress(filled(manager(ask)))
    assert (method(result), len(ask.prompts)) == ("outline", 2)
    assert notice.fallback == "outline"


def test_twice_too_long_reply_is_clipped_and_reported() -> None:
    ask = Scripted("The first words. " + "More words. " * 150)
    memory = filled(manager(ask))
    result, [notice] = compress(memory)
    assert (method(result), len(ask.prompts)) == ("summary", 2)
    assert "and 120 is the most" in notice.reason
    assert notice.fallback == "it was clipped"
    summary, _ = memory.get_summaries("s")  # the other one is the outline
    assert summary.content.startswith("The first words. More words.")
    assert summary.content.endswith(" [...]")
    assert 100 < summary.token_count <= 120


def test_wordy_summarizer_is_clipped_at_once() -> None:
    ask = Scripted("word " * 150)
    memory = filled(manager(ask))
    compress(memory)
    assert len(ask.prompts) == 2
    compress(filled(memory))
    assert len(ask.prompts) == 3
    memory.set_summarize_callback(again := Scripted("word " * 150))
    compress(filled(memory))
    assert len(again.prompts) == 2, "a stricter request comes first"


def test_too_long_reply_is_clipped_if_the_second_is_invalid() -> None:
    ask = Scripted("word " * 300, "")
    memory = filled(manager(ask))
    compress(memory)
    assert memory.get_summaries("s")[0].content.startswith("word word")


def test_raising_summarizer_is_not_called_again() -> None:
    ask = Scripted(ConnectionError("no route"))
    result, [notice] = compress(filled(manager(ask)))
    assert (method(result), len(ask.prompts)) == ("outline", 1)
    assert notice.reason == "ConnectionError: no route"


@pytest.mark.parametrize("answer", [None, 7, b"bytes", ["text"], SummaryReply(text="x")])
def test_non_text_reply_of_a_callable_falls_back(answer: Any) -> None:
    result, [notice] = compress(filled(manager(Scripted(answer))))
    assert method(result) == "outline"
    assert "must return text" in notice.reason


def test_summarizer_object_returning_text_falls_back() -> None:
    class Wrong:
        def summarize(self, request: SummaryRequest) -> Any:
            return "just text"

    result, [notice] = compress(filled(manager(Wrong())))
    assert method(result) == "outline"
    assert "returned str" in notice.reason


def test_an_answer_with_a_lone_surrogate_falls_back() -> None:
    memory = filled(manager(Scripted("bad \ud800 text")))
    result, _ = compress(memory)
    assert method(result) == "outline"
    memory.export_session("s").to_json()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("seconds", [None, 5.0])
def test_an_interruption_of_the_summarizer_reaches_the_caller(
    stop: type[BaseException], seconds: float | None
) -> None:
    memory = filled(manager(Scripted(stop()), summarize_timeout=seconds))
    before = memory.export_session("s")
    with pytest.raises(stop):
        memory.compress("s", target_tokens=600)
    assert memory.export_session("s") == before
    memory.set_summarize_callback(None)
    assert method(memory.compress("s", target_tokens=600)) == "outline"


# ---------------------------------------------------------------- on_failure


def test_keep_changes_nothing_and_has_a_reason() -> None:
    memory = filled(manager(Scripted(ConnectionError("no route")), on_failure="keep"))
    before = memory.export_session("s")
    result, [notice] = compress(memory)
    assert result.compression_id is None
    assert "no route" in result.reason
    assert notice.fallback == "nothing was changed"
    assert memory.export_session("s") == before


def test_raise_raises_from_compress_and_changes_nothing() -> None:
    memory = filled(manager(Scripted(""), on_failure="raise"))
    before = memory.export_session("s")
    with pytest.raises(CompressionFailed, match="the summary was empty"):
        memory.compress("s", target_tokens=600)
    assert memory.export_session("s") == before


def test_raise_never_raises_from_add() -> None:
    memory = manager(Scripted(""), on_failure="raise", auto_compress=True, max_tokens=1_000)
    entries = filled(memory, 40).get_entries("s")
    assert len(entries) == 40
    assert memory.get_summaries("s") == []


# ---------------------------------------------------------------- deadlines


def test_a_slow_summarizer_is_left_behind_at_the_deadline() -> None:
    over = threading.Event()
    memory = filled(manager(lambda prompt: str(over.wait(2 * PATIENCE)), summarize_timeout=0.05))
    began = time.monotonic()
    result, [notice] = compress(memory)
    assert time.monotonic() - began < PATIENCE
    over.set()
    assert method(result) == "outline"
    assert "took longer than 0.05 s" in notice.reason


def test_after_two_that_hang_a_third_is_not_started() -> None:
    calls: list[str] = []
    over = threading.Event()

    def hang(prompt: str) -> str:
        calls.append(prompt)
        over.wait(2 * PATIENCE)
        return "late"

    memory = manager(hang, summarize_timeout=0.03)
    for session in ("a", "b", "c"):
        for number in range(20):
            memory.add_user_message(session, f"{number} {WORDS}")
        result = memory.compress(session, target_tokens=600)
        assert method(result) == "outline"
    assert len(calls) == 2
    over.set()


def test_summarizer_without_timeout_runs_in_the_callers_thread() -> None:
    threads: list[Any] = []
    ask: Callable[[str], str] = lambda prompt: threads.append(threading.current_thread()) or "x"  # noqa: E731 - a lambda is under test
    compress(filled(manager(ask, summarize_timeout=None)))
    compress(filled(manager(ask, summarize_timeout=5.0)))
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


def test_summarizer_thread_has_the_callers_contextvars() -> None:
    from contextvars import ContextVar

    request: ContextVar[str] = ContextVar("request", default="none")
    seen: list[str] = []
    memory = filled(manager(lambda prompt: seen.append(request.get()) or "x"))
    request.set("r-17")
    compress(memory)
    assert seen == ["r-17"]


@pytest.mark.parametrize("is_async", [True, False])
def test_async_manager_abandons_a_slow_summarizer(
    is_async: bool,
) -> None:
    gone_on = threading.Event()

    async def slowly(prompt: str) -> str:
        await asyncio.sleep(2 * PATIENCE)
        return "late"

    def blocking(prompt: str) -> str:
        # In the event loop, such a call could not be cancelled.
        assert gone_on.wait(PATIENCE)
        return "late"

    async def run() -> Any:
        memory = AsyncMemoryManager(
            counter="chars4",
            summarizer=slowly if is_async else blocking,
            config=MemoryConfig(summarize_timeout=0.05, auto_compress=False),
        )
        for number in range(20):
            await memory.add_user_message("s", f"{number} {WORDS}")
        result = await asyncio.wait_for(memory.compress("s", target_tokens=600), PATIENCE)
        gone_on.set()
        return result

    assert method(asyncio.run(run())) == "outline"


def test_background_summary_blocks_close_but_not_add() -> None:
    go = threading.Event()

    def wait(prompt: str) -> str:
        go.wait(PATIENCE)
        return "in the background"

    store = MemoryStore()
    memory = MemoryManager(
        store,
        counter="chars4",
        summarizer=wait,
        config=MemoryConfig(background=True, max_entries=20),
    )
    filled(memory, 21)
    assert memory.get_summaries("s") == []
    memory.add_user_message("s", "meanwhile")
    go.set()
    memory.close()
    memory = MemoryManager(store)
    summary, outline = memory.get_summaries("s")
    assert summary.content == "in the background"
    assert f"#2 user: 0 {WORDS}".strip() in outline.content
    assert memory.get_entries("s")[-1].text == "meanwhile"


# ---------------------------------------------------------------- the prompt


def prompts_of(fill: Callable[[MemoryManager], None], **given: Any) -> list[str]:
    ask = Scripted("short")
    memory = manager(ask)
    fill(memory)
    memory.compress("s", target_tokens=600, **given)
    return ask.prompts


def test_the_prompt_shows_tools_and_their_results() -> None:
    def fill(memory: MemoryManager) -> None:
        memory.add_user_message("s", "go")
        memory.add_tool_call("s", "shell", {"cmd": "ls"}, call_id="a")
        memory.add_tool_result("s", "shell", "a.txt", call_id="a")
        memory.add_context("s", "print()", "main.py")
        filled(memory)

    [prompt] = prompts_of(fill)
    for line in ('Tool call shell({"cmd":"ls"})', "Tool shell: a.txt", "Context main.py: print()"):
        assert line in prompt


def test_long_result_is_shown_by_its_beginning_and_end() -> None:
    def fill(memory: MemoryManager) -> None:
        memory.add_tool_call("s", "shell", {}, call_id="a")
        memory.add_tool_result("s", "shell", "begin" + "x" * 7_000 + "end", call_id="a")
        filled(memory)

    def prompt_in(window: int) -> str:
        ask = Scripted("short")
        memory = manager(ask, strategy=("summarise",), summarizer_window=window)
        fill(memory)
        memory.compress("s", target_tokens=600)
        [prompt] = ask.prompts
        assert "Tool shell: begin" in prompt
        assert "xend\n" in prompt
        return prompt

    whole, cut = prompt_in(5_000), prompt_in(2_500)
    assert "x" * 7_000 in whole
    assert "characters left out" in cut
    assert 2_000 < cut.count("x") < 4_000


def test_focus_is_in_the_prompt() -> None:
    [prompt] = prompts_of(lambda memory: void(filled(memory)), focus="the failing test")
    assert "Pay special attention to: the failing test." in prompt


def void(_: Any) -> None:
    """Return nothing: for lambdas without a result."""


def test_braces_in_the_conversation_are_not_format_fields() -> None:
    def fill(memory: MemoryManager) -> None:
        memory.add_user_message("s", "use {content} and {0} and {words!r}")
        filled(memory)

    [prompt] = prompts_of(fill)
    assert "use {content} and {0} and {words!r}" in prompt


def test_the_previous_summary_is_carried_on() -> None:
    ask = Scripted("the first summary", "the second summary")
    memory = filled(manager(ask))
    memory.compress("s", target_tokens=600)
    filled(memory)
    memory.compress("s", target_tokens=600)
    assert "to be carried on]\nthe first summary\n[end of memman summary]" in ask.prompts[1]
    assert "Summary: the first summary" not in ask.prompts[1]
    summary, outline = memory.get_summaries("s")
    assert summary.content == "the second summary"
    assert "summary" not in outline.content


# ---------------------------------------------------------------- the outline


def test_an_outline_carries_the_earlier_one_on() -> None:
    memory = manager(compression_ratio=1, max_summary_ratio=0.5)
    memory.add_user_message("s", "The order is ORD-4711. " + "word " * 40)
    filled(memory)
    memory.compress("s", target_tokens=600)
    [first] = memory.get_summaries("s")
    assert "ORD-4711" in first.content
    filled(memory)
    memory.compress("s", target_tokens=600)
    [second] = memory.get_summaries("s")
    assert "ORD-4711" in second.content
    assert set(first.original_entry_ids) < set(second.original_entry_ids)


@pytest.mark.parametrize("target", [450, 600, 900])
def test_an_outline_shrinks_to_its_room(target: int) -> None:
    memory = filled(manager(), 30)
    plan = memory.plan_compression("s", target_tokens=target)
    result = memory.compress("s", target_tokens=target)
    [outline] = memory.get_summaries("s")
    assert (result.summary_id, result.tokens_after) == (result.compression_id, plan.tokens_after)
    assert outline.token_count <= plan.state_tokens < target / 2
    assert result.tokens_after <= target


def test_failing_prompt_is_not_a_summarizer_failure() -> None:
    def broken(_request: Any) -> str:
        raise LookupError("no template")

    ask = Scripted("All is well.")
    memory = manager(ask, summary_prompt=broken)
    for _ in range(4):
        result, [notice] = compress(filled(memory))
        assert method(result) == "outline"
        assert "LookupError: no template" in notice.reason
        assert (notice.failures, notice.retry_at) == (0, None)
    memory.update_config(summary_prompt=None)
    result, _ = compress(filled(memory))
    assert (method(result), len(ask.prompts)) == ("summary", 1)
