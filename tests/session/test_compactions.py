"""Compactions that a provider made: they stand for what is before them."""

import asyncio
import json

import msgspec
import pytest
from anthropic.types.beta import BetaMessage
from openai.types.responses.compacted_response import CompactedResponse

import memman
from memman import AsyncMemoryManager, MemoryConfig, MemoryManager
from memman.formats import rules
from memman.records import Compressed

TEXT = "The user moves invoices to the new ledger. Steps 1 to 14 of quokka-7 are done."
BLOCK = {"type": "compaction", "content": TEXT, "encrypted_content": "c1", "signature": "sig=="}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" + "x" * 3000}
RULE = "NEVER write to /etc."


def reply(*content, stop="end_turn"):
    fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    usage = {"input_tokens": 10, "output_tokens": 5}
    given = {**fields, "content": list(content), "stop_reason": stop, "usage": usage}
    return BetaMessage.model_validate(given)


def said(text="Going on."):
    return {"type": "text", "text": text}


def begun(form="anthropic", turns=5, pinned=False, **settings):
    models = {"anthropic": "claude-sonnet-4-6", "openai-responses": "gpt-5"}
    config = MemoryConfig(**{"max_tokens": 20_000, **settings})
    memory = MemoryManager(model=models[form], format=form, config=config)
    memory.add_user_message("s", RULE, pinned=pinned)
    for turn in range(turns):
        memory.add_assistant_message("s", f"Answer {turn}: " + "words about the file. " * 20)
        memory.add_user_message("s", f"Question {turn} about file_{turn}.py", id=f"q{turn}")
    return memory


def built(memory, form=None, **options):
    context = memory.build_context("s", **({} if form is None else {"format": form}), **options)
    assert rules.check(context.messages, context.format) == []
    return context


def sent(memory, form=None, **options):
    return json.dumps(built(memory, form, **options).messages)


def first_block(memory, form="anthropic"):
    first = built(memory, form).messages[0]
    return first["content"][0] if form == "anthropic" else first


# ------------------------------------------------------------ the swap


def test_compaction_of_a_reply_replaces_what_is_before_it():
    memory = begun()
    entries = memory.add_messages("s", reply(BLOCK, said()))
    assert [entry.type for entry in entries] == ["summary", "message"]
    messages = built(memory).messages
    assert messages[0] == {"role": "assistant", "content": [BLOCK]}
    assert "Answer 4" not in json.dumps(messages)
    log = memory.export_session("s").log
    reasons = [each.reason for each in log if isinstance(each, Compressed)]
    assert reasons == ["compacted by the provider"]


def test_context_counts_what_the_provider_reads():
    memory = begun(turns=40)
    before = int(built(memory).tokens)
    memory.add_messages("s", reply(BLOCK, said()))
    assert int(built(memory).tokens) < before / 4


def test_pinned_entries_and_state_stand_behind_the_compaction():
    memory = begun(pinned=True)
    memory.add_messages("s", reply(BLOCK, said()))
    [first, second, *_] = built(memory).messages
    assert first["content"] == [BLOCK]
    assert RULE in json.dumps(second)
    assert "[memman outline" in json.dumps(second)
    assert "conversation begins" not in sent(memory)


def test_compaction_within_a_history_replaces_what_is_before_it():
    memory = MemoryManager(model="claude-sonnet-4-6", format="anthropic")
    history = [{"role": "user", "content": f"old {n}"} for n in range(3)]
    messages = [
        *history,
        {"role": "assistant", "content": [BLOCK, said()]},
        {"role": "user", "content": "newer"},
    ]
    memory.add_messages("s", messages, ids=["a", "b", "c", "d", "e"])
    assert "old 0" not in json.dumps(built(memory).messages[0])
    assert first_block(memory) == BLOCK
    assert [*memory.get_messages("s", format="anthropic")][3:] == messages[3:]
    memory.undo_compression("s")
    memory.add_messages("s", messages, ids=["a", "b", "c", "d", "e"])  # all known: no second swap
    assert "old 0" in sent(memory)


def test_on_demand_compaction_comes_first():
    memory = begun()
    memory.add_messages("s", reply(BLOCK, stop="compaction"))
    memory.add_user_message("s", "next")
    [first, second] = built(memory).messages
    assert first == {"role": "assistant", "content": [BLOCK]}
    assert second["role"] == "user"


def test_second_compaction_replaces_the_first():
    memory = begun()
    memory.add_messages("s", reply(BLOCK, said()))
    memory.add_user_message("s", "more")
    newer = {**BLOCK, "content": "All 20 steps are done."}
    memory.add_messages("s", reply(newer, said("End.")))
    memory.add_user_message("s", "next")
    assert first_block(memory) == newer
    assert TEXT not in sent(memory)
    memory.undo_compression("s")
    assert first_block(memory) == BLOCK


def test_empty_compaction_is_never_sent():
    memory = begun()
    memory.add_messages("s", reply({**BLOCK, "content": None}, said()))
    assert "compaction" not in sent(memory)
    assert "Answer 4" in sent(memory)


def test_requests_are_append_only_behind_a_compaction():
    memory = begun(pinned=True)
    memory.add_messages("s", reply(BLOCK, said()))
    before = None
    for turn in range(6):
        memory.add_user_message("s", f"more {turn}")
        messages = json.dumps(built(memory).messages)[:-1]
        assert before is None or messages.startswith(before)
        before = messages
        memory.add_assistant_message("s", f"done {turn}")


def test_tool_pairs_around_a_compaction_stay_whole():
    memory = begun()
    use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    memory.add_messages("s", reply(BLOCK, said(), use, stop="tool_use"))
    built(memory)
    memory.add_tool_result("s", "ls", "a.py", call_id="t1")
    messages = built(memory).messages
    assert messages[0]["content"] == [BLOCK]
    assert "a.py" in json.dumps(messages[-1])


# ------------------------------------------------------------ read everywhere


def test_text_is_searched():
    memory = begun()
    memory.add_messages("s", reply(BLOCK, said()))
    assert memory.search("s", "quokka-7 ledger")[0].entry.text == TEXT


@pytest.mark.parametrize(
    "form", ["openai-chat", "openai-responses", "gemini", "bedrock", "mistral"]
)
def test_text_is_a_summary_to_other_providers(form):
    memory = begun()
    memory.add_messages("s", reply(BLOCK, said()))
    memory.add_user_message("s", "next")
    text = sent(memory, form)
    assert "[memman summary of entries" in text
    assert TEXT in text
    assert "sig==" not in text


def test_text_is_summarized_and_in_the_outline():
    asked = []
    memory = begun()
    memory.add_messages("s", reply(BLOCK, said()))
    for turn in range(20):
        memory.add_user_message("s", f"more {turn}")
        memory.add_assistant_message("s", f"done {turn}")
    memory.compress("s")
    assert "quokka-7" in sent(memory)
    memory.undo_compression("s")
    assert first_block(memory) == BLOCK
    memory.set_summarize_callback(lambda request: asked.append(request) or "All is done.")
    memory.compress("s", summarize=True)
    assert "quokka-7" in str(asked[0])


# ------------------------------------------------------------ undo, deletion, copies


def test_undo_brings_back_what_it_replaced():
    memory = begun()
    before = built(memory).messages
    memory.add_messages("s", reply(BLOCK, said()))
    memory.undo_compression("s")
    messages = built(memory).messages
    assert messages[: len(before)] == before
    assert "compaction" not in json.dumps(messages)


@pytest.mark.parametrize("gone", ["q1", "compaction"])
def test_deletion_reaches_the_compaction(gone):
    memory = begun()
    source, _ = memory.add_messages("s", reply(BLOCK, said()))
    memory.add_user_message("s", "next")
    memory.delete_entries("s", [source.id if gone == "compaction" else gone])
    assert "quokka-7" not in sent(memory)
    assert "quokka-7" not in str(msgspec.json.encode(memory.export_session("s")))
    assert "Answer 4" in sent(memory)


def test_new_process_forks_and_imports_have_the_compaction(tmp_path):
    path = tmp_path / "chat.db"
    options = {"model": "claude-sonnet-4-6", "format": "anthropic"}
    with MemoryManager(path, **options) as memory:
        memory.add_user_message("s", RULE)
        memory.add_messages("s", reply(BLOCK, said()), metadata={"first": "mine"})
        memory.add_user_message("s", "next")
        expected = built(memory).messages
    with MemoryManager(path, **options) as memory:
        assert built(memory).messages == expected
        memory.fork_session("s", "copy")
        assert memory.build_context("copy").messages == expected
        state = memory.export_session("s")
    with MemoryManager(**options) as other:
        other.import_session(state)
        assert built(other).messages == expected
        other.undo_compression("s")
        assert RULE in sent(other)


# ------------------------------------------------------------ at the start of a session


@pytest.mark.parametrize(("form", "block"), [("anthropic", BLOCK), ("openai-responses", ITEM)])
def test_session_begins_with_a_compaction(form, block):
    memory = begun(form, turns=0, max_tokens=3_000)
    memory.clear_session("s")
    first = {"role": "assistant", "content": [block]} if form == "anthropic" else block
    memory.add_messages("s", [first, {"role": "user", "content": "go on"}], format=form)
    assert first_block(memory, form) == block
    for turn in range(50):
        memory.add_assistant_message("s", f"answer {turn} " + "word " * 40)
        memory.add_user_message("s", f"question {turn} " + "word " * 40)
        text = sent(memory)
        assert ("quokka-7" if form == "anthropic" else "gAAAxxx") in text
    assert memory.export_session("s").totals is not None
    if form == "openai-responses":
        assert first_block(memory, form) == block


@pytest.mark.parametrize(("form", "block"), [("anthropic", BLOCK), ("openai-responses", ITEM)])
def test_fit_messages_begins_with_the_last_compaction(form, block):
    first = {"role": "assistant", "content": [block]} if form == "anthropic" else block
    messages = [{"role": "user", "content": "old"}, first, {"role": "user", "content": "new"}]
    memory = MemoryManager(model="claude-sonnet-4-6")
    found = memory.fit_messages(messages, format=form).messages
    assert found[0] == first
    assert "old" not in json.dumps(found)


# ------------------------------------------------------------ sealed


def sealed():
    memory = begun("openai-responses", turns=30, max_tokens=9_000)
    memory.add_messages("s", [ITEM, {"role": "assistant", "content": "Going on."}])
    return memory


def test_sealed_compaction_outlasts_compressions():
    memory = sealed()
    for turn in range(60):
        memory.add_user_message("s", f"more {turn}")
        memory.add_assistant_message("s", f"done {turn} " + "word " * 60)
    memory.compress("s")
    assert first_block(memory, "openai-responses") == ITEM
    assert "Answer 3" not in sent(memory)


def test_other_provider_gets_originals_of_a_sealed_item():
    memory, seen = sealed(), []
    memory.on("compaction_unreadable", seen.append)
    memory.add_user_message("s", "next")
    for _ in range(2):
        context = built(memory, "anthropic", budget=2_500)
        assert "Answer 29" in json.dumps(context.messages)
        assert int(context.tokens) <= 2_500
    assert "gAAA" not in json.dumps(context.messages)
    assert [event.format for event in seen] == ["anthropic"]
    assert first_block(memory, "openai-responses") == ITEM


def test_originals_that_nobody_has_are_a_note():
    memory = MemoryManager(model="gpt-5", format="openai-responses")
    memory.add_messages("s", [ITEM, {"role": "user", "content": "next"}])
    assert "content that this format cannot carry" in sent(memory, "openai-chat")


def test_sdk_object_of_a_compacted_response_is_read():
    fields = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [ITEM]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    given = CompactedResponse.model_validate({**fields, "usage": {**usage, **details}})
    memory = begun("openai-responses")
    memory.add_messages("s", given.output)
    assert first_block(memory, "openai-responses") == ITEM


# ------------------------------------------------------------ record_compression


def test_record_compression_keeps_later_entries():
    memory = begun()
    memory.add_assistant_message("s", "Later answer.")
    memory.add_user_message("s", "Later question.")
    name = memory.record_compression("s", "q4", reply(BLOCK).content[0])
    messages = built(memory).messages
    assert messages[0]["content"] == [BLOCK]
    assert "Answer 4" not in json.dumps(messages)
    assert "Later answer." in json.dumps(messages)
    assert memory.search("s", "quokka-7")
    assert memory.undo_compression("s") == name
    assert "Answer 4" in sent(memory)


def test_record_compression_takes_an_address_and_an_item():
    memory = begun("openai-responses")
    memory.record_compression("s", memory.get_entry("s", "q3").address, ITEM)
    assert first_block(memory, "openai-responses") == ITEM
    assert "Answer 4" in sent(memory)


def test_record_compression_of_an_entry_that_was_compressed():
    memory = begun(turns=30)
    memory.set_summarize_callback(lambda prompt: "The first questions are answered.")
    memory.compress("s", summarize=True)
    memory.record_compression("s", "q2", BLOCK)
    assert first_block(memory) == BLOCK
    assert "Question 29" in sent(memory)


def test_record_compression_refuses_an_outlined_entry():
    memory = begun(turns=30)
    memory.compress("s")
    before = memory.export_session("s")
    with pytest.raises(memman.EntryNotFound, match="'q2'"):
        memory.record_compression("s", "q2", BLOCK)
    assert memory.export_session("s") == before


@pytest.mark.parametrize(
    ("upto", "block", "error"),
    [
        ("unknown", BLOCK, memman.EntryNotFound),
        ("q1", {"type": "text", "text": "x"}, memman.FormatError),
        ("q1", {**BLOCK, "content": None}, memman.FormatError),
        ("q1", {"type": "compaction"}, memman.FormatError),
        ("q1", "text", memman.FormatError),
        ("q1", object(), memman.FormatError),
        ("call", BLOCK, memman.InvalidInput),
        ("gone", BLOCK, memman.EntryNotFound),
        (7, BLOCK, memman.InvalidInput),
    ],
)
def test_record_compression_refuses_bad_input(upto, block, error):
    memory = begun()
    memory.add_user_message("s", "gone", id="gone")
    memory.retract("s", ["gone"])
    memory.add_tool_call("s", "ls", {}, call_id="c", id="call")
    memory.add_tool_result("s", "ls", "a.py", call_id="c")
    before = memory.export_session("s").log
    with pytest.raises(error):
        memory.record_compression("s", upto, block)
    assert memory.export_session("s").log == before


@pytest.mark.parametrize("odd", ["text", 3, None, ["x"]])
def test_block_that_is_no_dict_is_refused_beside_a_compaction(odd):
    memory = begun()
    before = memory.export_session("s").log
    with pytest.raises(memman.FormatError):
        memory.add_messages("s", [{"role": "assistant", "content": [BLOCK, odd]}])
    assert memory.export_session("s").log == before


def test_record_compression_needs_a_session():
    with pytest.raises(memman.SessionNotFound):
        MemoryManager().record_compression("s", "a", BLOCK)


def test_async_manager_swaps_too():
    async def swap():
        async with AsyncMemoryManager(model="claude-sonnet-4-6", format="anthropic") as memory:
            await memory.add_user_message("s", RULE, id="a")
            await memory.add_assistant_message("s", "Later.")
            await memory.record_compression("s", "a", BLOCK)
            return (await memory.build_context("s")).messages

    messages = asyncio.run(swap())
    assert messages[0]["content"][0] == BLOCK
    assert "Later." in json.dumps(messages)
