"""Contexts with an outline: valid, within the budget, and with a stable beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from memman import BudgetExceeded
from memman.formats import FormatName
from memman.formats.rules import RULES
from memman.log import History
from memman.records import Cleared, Compressed, Deleted, Undone
from tests.kinds import InMemory
from tests.state_lives import Life, block, every, lacking, text_of, vague

FORMS = sorted(set(get_args(FormatName)) & set(RULES))


@pytest.fixture
def life() -> Iterator[Life]:
    with Life(InMemory(), max_tokens=3_000, summarizer=vague) as made:
        made.say("Никогда не трогайте migrations/0007.")
        made.work(30)
        made.say("Deploy from harvest-9.\nNever on Fridays.")
        made.work(30, parallel=2)
        made.say("Go on.")
        made.work(3)
        yield made


@pytest.mark.parametrize("form", FORMS)
def test_context_with_a_block_is_valid(life: Life, form: str) -> None:
    life.form = form
    for _ in range(12):
        life.work(3, parallel=2)
        life.check_said()


@pytest.mark.parametrize("form", ["openai-chat", "anthropic", "gemini"])
def test_block_is_a_delimited_message_behind_the_summary(life: Life, form: str) -> None:
    text = text_of(life.memory.build_context("s", format=form))
    nonce = text.split("[end of memman summary, ")[1].split("]")[0]
    state = block(life.memory)
    assert state is not None
    head, end = text.index("[memman outline, "), text.index(f"[end of memman outline, {nonce}]")
    assert (
        text.index("[end of memman summary, ") < head < text.index(state.text.splitlines()[0]) < end
    )
    assert text.count("[memman outline, ") == 1


def test_tokens_of_the_block_are_counted(life: Life) -> None:
    context, state = life.context(), block(life.memory)
    assert state is not None
    window = life.memory._core.sessions.get("s").log.window
    assert window.shares["state"] == state.token_count.tokens == -(-len(state.text) // 4)
    assert window.tokens == sum(item.tokens for item in window.items) + window.shares["state"]
    assert context.breakdown["state"] == window.shares["state"]
    assert sum(context.breakdown.values()) == context.tokens.tokens
    record = next(
        record
        for _, record in reversed(every(life.kind.open(), "s"))
        if isinstance(record, Compressed)
    )
    assert record.state == state


def test_smaller_contexts_keep_the_user_messages(life: Life) -> None:
    for budget in range(3_000, 900, -60):
        context = life.context(budget=budget)
        assert context.budget == budget
        assert not lacking(life.said, context), budget


def test_smaller_context_of_whole_window_keeps_user_messages() -> None:
    with Life(InMemory(), max_tokens=20_000) as life:
        for number in range(8):
            life.say(f"Rule {number}: never open port {9000 + number}.")
            life.work(8)
        assert block(life.memory) is None
        for budget in range(8_000, 2_400, -400):
            assert not lacking(life.said, life.context(budget=budget)), budget


def test_tiny_contexts_fit_or_are_refused(life: Life) -> None:
    for budget in range(900, 0, -50):
        try:
            life.context(budget=budget)
        except BudgetExceeded:
            assert budget < 500


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.0-flash", "gpt-4"])
def test_contexts_for_other_models_keep_the_user_messages(life: Life, model: str) -> None:
    for budget in (None, 2_000, 1_400):
        context = life.context(model=model, **({} if budget is None else {"budget": budget}))
        assert not lacking(life.said, context)


def test_contexts_between_compressions_begin_alike(life: Life) -> None:
    before, state = life.context().messages, block(life.memory)
    compressions = len(life.memory.explain("s").compressions)
    for _ in range(60):
        life.work(1)
        if len(life.memory.explain("s").compressions) == compressions:
            assert block(life.memory) == state
            messages = life.context().messages
            assert messages[: len(before)] == before
            before = messages
        else:
            compressions += 1
            before, state = life.context().messages, block(life.memory)


def test_block_changes_only_with_its_records(life: Life) -> None:
    life.memory.update_config("s", max_tokens=2_900)
    life.memory.pin("s", life.memory.get_active_entries("s")[-1].id)
    life.memory.update_session("s", metadata={"a": 1})
    life.memory.record_usage("s", input_tokens=900)
    life.memory.retract("s", [life.memory.get_entries("s")[-1].id])
    life.work(20)
    life.memory.undo_compression("s")
    life.memory.delete_entries("s", [life.memory.get_entries("s")[3].id])
    life.work(20)
    setters = (Compressed, Undone, Deleted, Cleared)
    store = life.kind.open()
    log = every(store, "s")

    history, before = History(), None
    for seq, record in log:
        history.apply(seq, record)
        state = history.state.window.state
        now = None if state is None else state.state
        assert now == before or isinstance(record, setters)
        before = now
    assert before == block(life.memory)


def test_trimmed_contexts_begin_alike_for_a_while(life: Life) -> None:
    same = 0
    before = text_of(life.context(budget=1_500))
    for number in range(30):
        life.memory.add_assistant_message("s", f"step {number}", compress=False)
        text = text_of(life.context(budget=1_500))
        same += text.startswith(before)
        before = text
    assert same >= 20
