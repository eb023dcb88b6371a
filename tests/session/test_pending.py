"""Contexts with messages that are stored nowhere, and contexts that are not completed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import BudgetExceeded, Context, FormatError, InvalidInput, MemoryConfig, MemoryManager
from memman.formats import builtin_formats, candidates, format_named
from memman.formats.rules import check
from memman.formats.turns import BEGINS, GOES_ON, NO_RESULT
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS
from tests.formats.test_originals import ODD

NOTHING_TO_SEND = "request.empty"
USER: dict[str, Any] = {"role": "user", "content": "Look."}
CALL: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
]}  # fmt: skip
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "found"}


def manager(**settings: Any) -> MemoryManager:
    settings = {"max_tokens": 100_000, "auto_compress": False, **settings}
    return MemoryManager(counter="chars4", config=MemoryConfig(**settings))


def built(memory: MemoryManager, **given_: Any) -> Context | None:
    """Return a context, None if it cannot fit."""
    try:
        return memory.build_context("s", missing_ok=True, **given_)
    except BudgetExceeded:
        return None


def is_of(form: str) -> Any:
    """Return whether messages are certainly, or as certainly as of any, of the format."""
    return lambda messages: format_named(form) in candidates(messages, builtin_formats())[1]


def messages_of(context: Context | None) -> Any:
    return None if context is None else context.messages


def named_in(context: Context) -> list[str]:
    return [name for source in context.sources for name in source.entries]


def check_context(context: Context | None) -> None:
    """Check that a context is within its budget and valid."""
    if context is not None:
        assert context.tokens.tokens <= context.budget
        broken = check(context.messages, context.format, system=context.system)
        assert {fault.rule for fault in broken} <= {NOTHING_TO_SEND}


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_pending_messages_are_priced_as_if_added(form: str, data: Any) -> None:
    drawn = st.sampled_from(CONVERSATIONS[form] + ODD[form])
    stored = data.draw(st.lists(drawn, min_size=1, max_size=20))
    pending = data.draw(st.lists(drawn, min_size=1, max_size=6).filter(is_of(form)))
    memory = manager(max_tokens=data.draw(st.sampled_from((300, 100_000))))
    memory.add_messages("s", copy.deepcopy(stored), format=form)
    before = memory.list_sessions()
    plain = built(memory, format=form)
    context = built(memory, format=form, pending=copy.deepcopy(pending), system="Be brief.")
    check_context(context)
    assert memory.list_sessions() == before
    again = built(memory, format=form)
    assert messages_of(plain) == messages_of(again)
    memory.add_messages("s", copy.deepcopy(pending), format=form)
    if context is not None and not context.trimmed:
        added = built(memory, format=form, system="Be brief.")
        assert added is not None
        assert context.messages == added.messages
        assert context.tokens.tokens == added.tokens.tokens


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_fitted_messages_are_valid_and_within_budget(form: str, data: Any) -> None:
    drawn = st.sampled_from(CONVERSATIONS[form] + ODD[form])
    messages = data.draw(st.lists(drawn, max_size=20))
    budget = data.draw(st.sampled_from((100, 300, 100_000)))
    memory = manager()
    try:
        context = memory.fit_messages(copy.deepcopy(messages), format=form, budget=budget)
    except BudgetExceeded:
        return
    check_context(context)
    assert memory.list_sessions() == []
    for source, message in zip(context.sources, context.messages, strict=True):
        originals = {name.split(":")[0] for name in source.entries}
        if source.unaltered and len(originals) == 1:
            assert message == messages[int(originals.pop())]


def test_pending_results_answer_stored_calls() -> None:
    memory = manager()
    asked, called = memory.add_messages("s", [USER, CALL])
    context = memory.build_context("s", pending=[RESULT, USER])
    assert context.messages == [USER, CALL, RESULT, USER]
    assert [source.entries for source in context.sources] == [
        (asked.id,), (called.id,), ("pending:0",), ("pending:1",),
    ]  # fmt: skip
    assert all(source.unaltered for source in context.sources)
    assert "no result" in memory.build_context("s").messages[-1]["content"]


def test_pending_messages_are_trimmed_last() -> None:
    memory = manager()
    memory.add_messages("s", [{"role": "user", "content": f"stored {n} " * 20} for n in range(20)])
    pending = [{"role": "user", "content": f"pending {n} " * 10} for n in range(5)]
    context = memory.build_context("s", pending=pending, budget=400)
    assert context.messages[-5:] == pending
    assert context.trimmed


def test_a_pending_result_that_is_too_large_is_clipped() -> None:
    memory = manager()
    memory.add_messages("s", [USER, CALL])
    context = memory.build_context("s", pending=[{**RESULT, "content": "x " * 9_000}], budget=500)
    check_context(context)
    assert context.tokens.tokens > 250
    assert not context.sources[-1].unaltered


def test_pending_may_be_the_first_messages() -> None:
    memory = manager()
    context = memory.build_context("s", pending="User: Look.", missing_ok=True)
    assert context.messages == [USER]
    assert memory.list_sessions() == []


def test_unknown_pending_messages_are_notes() -> None:
    memory = manager()
    memory.add_messages("s", [USER])
    future = {"role": "oracle", "content": "\ud83d?"}
    for context in (
        memory.build_context("s", pending=[future, USER]),
        memory.fit_messages([USER, future, USER]),
    ):
        check_context(context)
        assert context.messages[0] == context.messages[-1] == USER
        assert len(context.messages) == 3


def test_redaction_applies_to_pending_messages() -> None:
    def redact(entry: Any) -> Any:
        return type(entry)(**{
            **{name: getattr(entry, name) for name in entry.__struct_fields__},
            "content": entry.text.replace("secret", "***"),
        })  # fmt: skip

    memory = MemoryManager(counter="chars4", redact=redact)
    secret = [{"role": "user", "content": "a secret"}]
    context = memory.build_context("s", pending=secret, missing_ok=True)
    assert context.messages == memory.fit_messages(secret).messages
    assert context.messages == [{"role": "user", "content": "a ***"}]


def test_usage_of_a_request_with_pending_messages_calibrates() -> None:
    memory = manager(model="gpt-5")
    memory.add_messages("s", [USER, CALL])
    context = memory.build_context("s", pending=[{**RESULT, "content": "word " * 500}])
    memory.record_usage("s", input_tokens=context.tokens.tokens)
    assert memory.get_stats("s").drift == 0.0


def test_fixed_overhead_with_pending_messages_counts() -> None:
    memory = manager()
    memory.add_messages("s", [USER])
    memory.build_context("s", system="Be brief. " * 50)
    counted = memory.get_stats("s").overhead_tokens
    other = manager()
    other.add_messages("s", [USER])
    other.build_context("s", system="Be brief. " * 50, pending=[USER] * 20)
    assert other.get_stats("s").overhead_tokens == counted


def test_fitted_messages_keep_system_messages_and_the_newest() -> None:
    memory = manager()
    system = {"role": "system", "content": "Be brief."}
    messages = [system, *[{"role": "user", "content": f"question {n} " * 20} for n in range(30)]]
    context = memory.fit_messages(messages, budget=400)
    assert context.messages[0] == system
    assert context.messages[-1] == messages[-1]
    assert context.trimmed
    assert [source.entries for source in context.sources][-1] == ("30",)
    assert memory.fit_messages(messages).messages == messages


def test_fitted_messages_of_several_entries_are_numbered() -> None:
    context = manager().fit_messages([USER, {**CALL, "content": "I look."}, RESULT])
    assert [source.entries for source in context.sources] == [("0",), ("1", "1:1"), ("2",)]
    assert [entry.type for entry in context.entries][1:] == ["message", "tool_call", "tool_result"]


def test_no_messages_fit_into_an_empty_context() -> None:
    assert manager().fit_messages([]).messages == []


def test_too_small_a_budget_for_a_system_message_is_refused() -> None:
    with pytest.raises(BudgetExceeded) as raised:
        manager().fit_messages([{"role": "system", "content": "x" * 4_000}, USER], budget=100)
    assert "pinned entry 0 system message" in str(raised.value)
    assert "unpin" not in str(raised.value)


@pytest.mark.parametrize("given", ["hello", b"hello", 5])
def test_text_instead_of_messages_is_refused(given: Any) -> None:
    memory = manager()
    with pytest.raises(FormatError, match="must be a list of them"):
        memory.fit_messages(given)
    with pytest.raises(FormatError, match="must be a list of them"):
        memory.build_context("s", pending=given)


def test_wrong_arguments_are_refused() -> None:
    memory = manager()
    with pytest.raises(InvalidInput, match="budget"):
        memory.fit_messages([USER], budget=True)
    with pytest.raises(InvalidInput, match="system_inline"):
        memory.fit_messages([USER], system_inline=1)  # type: ignore[arg-type]


# ---------------------------------------------------------------- contexts that are not completed


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_incomplete_contexts_have_no_added_texts(form: str, data: Any) -> None:
    drawn = st.sampled_from(CONVERSATIONS[form] + ODD[form])
    memory = manager()
    memory.add_messages("s", data.draw(st.lists(drawn, min_size=1, max_size=20)), format=form)
    context = memory.build_context("s", format=form, complete=False)
    assert len(context.sources) == len(context)
    without = [
        message
        for message, source in zip(context.messages, context.sources, strict=True)
        if not source.entries
    ]
    shown_again = format_named(form).parse(without) if without else []
    assert {entry.type for entry in shown_again} <= {"tool_call"}
    shown = json.dumps(context.messages)
    for text in (NO_RESULT, BEGINS, GOES_ON, "(no reply)"):
        assert json.dumps(text)[1:-1] not in shown
    complete = memory.build_context("s", format=form)
    assert context.tokens.tokens <= complete.tokens.tokens
    assert named_in(context) == named_in(complete)


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "langchain", "mistral"])
def test_incomplete_contexts_have_calls_without_results(form: str) -> None:
    memory = manager()
    memory.add_messages("s", [{**CALL, "content": "I look."}, USER])
    memory.add_messages("s", [CALL, RESULT])
    context = memory.build_context("s", format=form, complete=False)
    calls, results = context.entries[1], context.entries[4]
    ids = named_in(context)
    assert {calls.id, results.id} <= set(ids)
    assert len(ids) == len(context.entries)


def test_an_incomplete_context_ends_with_the_assistant() -> None:
    memory = manager()
    memory.add_assistant_message("s", "Hello.")
    memory.add_assistant_message("s", "Hello again.")
    assert [message["role"] for message in memory.build_context("s", format="bedrock").messages] == [
        "user", "assistant", "user",
    ]  # fmt: skip
    context = memory.build_context("s", format="bedrock", complete=False)
    assert [message["role"] for message in context.messages] == ["assistant"]
