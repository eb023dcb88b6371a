"""`Context.sources` names the entries behind each message, and whether it is as it was added."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import BudgetExceeded, Context, MemoryConfig, MemoryManager
from memman.formats import builtin_formats
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS
from tests.formats.test_originals import ODD

FORMATS = [form.name for form in builtin_formats()]


def manager(**settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(**settings))


def unaltered(context: Context) -> list[bool]:
    return [source.unaltered for source in context.sources]


def check_sources(context: Context, added: list[tuple[Any, list[str]]], form: str) -> None:
    """Check the laws of sources; `added` has each message in format `form` and the ids of its entries."""
    sources, messages = context.sources, context.messages
    assert len(sources) == len(messages)
    named = [name for source in sources for name in source.entries]
    entries = [entry.id for entry in context.entries]
    assert set(named) <= set(entries)
    for entry in context.entries:
        times = named.count(entry.id)
        if entry.type == "tool_result" and context.format == "gemini":
            assert 1 <= times <= 2  # its images have a message of their own
        elif entry.text.strip() and entry.role != "system":
            assert times == 1, entry
        else:
            assert times <= 1, entry
    originals = {tuple(ids): message for message, ids in added}
    for source, message in zip(sources, messages, strict=True):
        if not source.unaltered:
            continue
        if context.format == form and source.entries in originals:
            assert originals[source.entries] == message
        elif context.format != "openai-responses":  # whose messages are items
            joined = [ids for ids in originals if ids[0] in source.entries]
            assert sorted(itertools.chain(*joined)) == sorted(source.entries)


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_unaltered_messages_are_as_added(form: str, data: Any) -> None:
    drawn = st.sampled_from(CONVERSATIONS[form] + ODD[form])
    messages = data.draw(st.lists(drawn, min_size=1, max_size=30))
    limit = data.draw(st.sampled_from((200, 500, 100_000)))
    memory = manager(max_tokens=limit)
    entries = memory.add_messages("s", copy.deepcopy(messages), format=form,
                                  ids=[f"m{n}" for n in range(len(messages))])  # fmt: skip
    added = [
        (message, [entry.id for entry in entries if entry.id.split(":")[0] == f"m{n}"])
        for n, message in enumerate(messages)
    ]
    for target in (form, data.draw(st.sampled_from(FORMATS))):
        for budget in (None, data.draw(st.integers(60, 300))):
            try:
                context = memory.build_context(
                    "s", format=target, budget=budget, system="Be brief."
                )
            except BudgetExceeded:
                continue
            check_sources(context, added, form)


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_a_whole_conversation_is_unaltered(form: str) -> None:
    memory = manager()
    memory.add_messages("s", CONVERSATIONS[form], format=form)
    context = memory.build_context("s", format=form)
    assert context.messages == CONVERSATIONS[form]
    assert all(unaltered(context))
    assert len(context.entries) == sum(len(source.entries) for source in context.sources)


CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
]}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
USER = {"role": "user", "content": "Look."}


def test_a_prompt_and_placeholders_have_no_entries() -> None:
    memory = manager()
    asked, called, thanks = memory.add_messages("s", [USER, CALL, USER])
    context = memory.build_context("s", system="Be brief.")
    assert [source.entries for source in context.sources] == [
        (), (asked.id,), (called.id,), (), (thanks.id,),
    ]  # fmt: skip
    assert unaltered(context) == [False, True, True, False, True]


def test_a_repeated_call_id_is_altered() -> None:
    memory = manager()
    memory.add_messages("s", [USER, CALL, RESULT, CALL, RESULT])
    assert unaltered(memory.build_context("s", format="openai-chat")) == [True] * 5
    assert unaltered(memory.build_context("s", format="langchain"))[3:] == [False, False]


def test_joined_messages_are_altered() -> None:
    memory = manager()
    first, second = memory.add_messages("s", [USER, USER], format="anthropic")
    context = memory.build_context("s", format="anthropic")
    [source] = context.sources
    assert source == (type(source)((first.id, second.id), False))


def test_replacements_are_named_by_their_own_ids() -> None:
    memory = manager(max_tokens=1_500)
    memory.add_messages(
        "s", [{"role": "user", "content": f"question {n} " * 20} for n in range(90)]
    )
    context = memory.build_context("s")
    outline, *rest = context.sources
    summary, *active = memory.get_active_entries("s")
    assert summary.type == "summary"
    assert list(context.entries) == active
    assert outline.entries == ()  # it is of many entries
    assert not outline.unaltered
    assert all(source.unaltered for source in rest)


def test_a_trimmed_context_has_the_entries_of_its_copy() -> None:
    memory = manager()
    memory.add_messages(
        "s", [{"role": "user", "content": f"question {n} " * 20} for n in range(10)]
    )
    context = memory.build_context("s", budget=300)
    assert context.trimmed
    made = [item.entry.id for item in context.trimmed if item.entry is not None]
    named = [name for source in context.sources for name in source.entries]
    assert named == [entry.id for entry in context.entries]
    assert set(made) <= set(named)
    for source in context.sources:
        assert source.unaltered == set(made).isdisjoint(source.entries)


def test_sources_are_of_the_moment_of_the_context() -> None:
    memory = manager()
    [called] = memory.add_messages("s", [CALL])
    context = memory.build_context("s")
    memory.add_messages("s", [RESULT, USER])
    assert [source.entries for source in context.sources] == [(called.id,), ()]
    assert [entry.id for entry in context.entries] == [called.id]


def test_a_text_has_one_source() -> None:
    memory = manager()
    entries = memory.add_messages("s", [USER, CALL, RESULT])
    [source] = memory.build_context("s", format="text").sources
    assert source.entries == tuple(entry.id for entry in entries)
    assert not source.unaltered


def test_an_empty_context_has_no_sources() -> None:
    context = manager().build_context("s", missing_ok=True)
    assert (context.sources, context.entries) == ((), ())


def hide(entry: Any) -> Any:
    return msgspec.structs.replace(entry, content=entry.text.replace("secret", "***"))


def test_redacted_messages_are_altered() -> None:
    memory = MemoryManager(counter="chars4", redact=hide)
    secret = {"role": "user", "content": "a secret"}
    named = {"role": "user", "content": "no one", "name": "ada"}
    hidden = {"role": "user", "content": "no one", "name": "secret"}  # this key is not stored
    memory.add_messages("s", [secret, named, hidden, USER])
    context = memory.build_context("s")
    assert unaltered(context) == [False, True, False, True]
    assert [entry.metadata for entry in context.entries] == [
        {"memman": {"altered": "redacted"}}, {}, {"memman": {"altered": "redacted"}}, {},
    ]  # fmt: skip
    assert unaltered(memory.fit_messages([secret, USER])) == [False, True]


@pytest.mark.parametrize("how", ["delete_entries", "retract"])
def test_a_message_without_one_of_its_entries_is_altered(how: str) -> None:
    second = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    both = {**CALL, "tool_calls": [*CALL["tool_calls"], second]}
    memory = manager()
    entries = memory.add_messages("s", [USER, both, RESULT, USER])
    assert all(unaltered(memory.build_context("s", complete=False)))
    getattr(memory, how)("s", [entries[2].id])
    again = manager()
    again.import_session(memory.export_session("s"))
    for each in (memory, again):
        context = each.build_context("s")
        assert unaltered(context) == [True, False, True, True]
        assert context.sources[1].entries == (entries[1].id,)
