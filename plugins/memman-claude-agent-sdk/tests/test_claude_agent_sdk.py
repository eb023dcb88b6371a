"""What `MemmanSessionStore` keeps of transcripts, beyond the SDK's contracts."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claude_agent_sdk import list_sessions_from_store
from hypothesis import given
from hypothesis import strategies as st
from memman_claude_agent_sdk import MemmanSessionStore
from memman_claude_agent_sdk.store import session_id_of

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import loopback

from .claude_code import options_of, run, streamed

KEY: Any = {"project_key": "-src-app", "session_id": "s"}
ID = "-src-app/s"
PIECE = {"type": "text", "text": "It is sound."}
USAGE = {"input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 5}


def store_of(path: Path | None = None) -> MemmanSessionStore:
    return MemmanSessionStore(MemoryManager(path))


def append(store: MemmanSessionStore, *lines: Any, key: Any = KEY) -> None:
    asyncio.run(store.append(key, list(lines)))


def load(store: MemmanSessionStore, key: Any = KEY) -> Any:
    return asyncio.run(store.load(key))


def line(uuid: str, role: str, content: Any, **message: Any) -> dict[str, Any]:
    shared = {"parentUuid": None, "sessionId": "s", "cwd": "/src/app"}
    return {
        "type": role, "uuid": uuid, **shared, "message": {"role": role, "content": content, **message},
    }  # fmt: skip


def call(number: int) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"t{number}",
        "name": "Read",
        "input": {"path": f"{number}.py"},
    }


def result(number: int) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"rate = {number}"}


def a_turn() -> list[dict[str, Any]]:
    """Return a turn with two calls, each piece of an answer in a line, as Claude Code writes it."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "signed="}
    answer = {"id": "m1", "type": "message", "model": "claude-sonnet-5-5", "usage": USAGE}
    last = {**answer, "id": "m2", "usage": {**USAGE, "input_tokens": 190}}
    return [
        {"type": "queue-operation", "operation": "enqueue", "content": "Is it sound?"},
        line("u1", "user", "Is it sound?"),
        line("a1", "assistant", [thinking], **answer),
        line("a2", "assistant", [call(1)], **answer),
        {"type": "attachment", "uuid": "x1", "attachment": {"type": "date", "date": "2026-11-26"}},
        line("a3", "assistant", [call(2)], **answer),
        {**line("u2", "user", [result(1)]), "toolUseResult": {"numLines": 1}},
        line("u3", "user", [result(2)]),
        line("a4", "assistant", [PIECE], **last),
        {"type": "last-prompt", "lastPrompt": "Is it sound?", "leafUuid": "a4"},
    ]


# ---------------------------------------------------------------- lines


def test_lines_come_back_equal_and_in_order(tmp_path: Path) -> None:
    append(store_of(tmp_path / "chat.db"), *a_turn())
    assert load(store_of(tmp_path / "chat.db")) == a_turn()


@pytest.mark.parametrize(
    "content",
    [
        "", " \n", None, [], [{"type": "text", "text": ""}], [{"no": "type"}], "caf\u00e9 \U0001f600", 7,
        [PIECE, call(1)], [call(1), PIECE], [result(1), PIECE], [PIECE, result(1)], [PIECE, PIECE],
        [{**call(1), "id": "odd id!"}], [{**call(1), "name": "a.b/c"}], [{**call(1), "input": "text"}],
        [{**result(1), "content": None}], [{**result(1), "content": "", "is_error": True}],
        [{**result(1), "content": [PIECE, {"type": "image", "source": {"type": "base64", "data": "aa"}}]}],
        [{"type": "redacted_thinking", "data": "x="}], [{**PIECE, "citations": [{"a": 1}]}],
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_any_content_comes_back_equal(role: str, content: Any) -> None:
    store = store_of()
    odd = line("u", role, content, id="m", stop_reason=None)
    append(store, odd, line("v", "user", "and then?"))
    assert load(store) == [odd, line("v", "user", "and then?")]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "uuid", "message", "n"]), VALUES), max_size=4)
)
def test_any_json_object_comes_back_equal(lines: list[dict[str, Any]]) -> None:
    given_lines = [
        {"type": "user", **each, "uuid": f"{number}"} for number, each in enumerate(lines)
    ]
    store = store_of()
    append(store, *given_lines)
    assert load(store) == (given_lines or None)


def test_retried_batch_adds_nothing_but_lines_without_uuid() -> None:
    store = store_of()
    append(store, *a_turn())
    entries = len(store.memory.get_entries(ID))
    append(store, *(each for each in a_turn() if "uuid" in each))
    assert len(store.memory.get_entries(ID)) == entries
    append(store, *a_turn())
    assert load(store) == [*a_turn(), a_turn()[0], a_turn()[-1]]


def test_known_uuid_with_other_content_is_ignored() -> None:
    store = store_of()
    append(store, line("u", "user", "first"))
    append(store, line("v", "user", "next"), line("u", "user", "other"))
    assert load(store) == [line("u", "user", "first"), line("v", "user", "next")]


def test_deleted_entry_leaves_the_transcript() -> None:
    store = store_of()
    append(store, *a_turn())
    [secret] = [entry.id for entry in store.memory.get_entries(ID) if entry.content == "rate = 1"]
    store.memory.delete_entries(ID, [secret])
    append(store, line("u4", "user", "Again?"))
    assert [each.get("uuid") for each in load(store)].count("u2") == 0
    assert "rate = 1" not in store.memory.export_session(ID).to_json()


# ---------------------------------------------------------------- entries


def test_messages_are_entries_once() -> None:
    store = store_of()
    append(store, *a_turn())
    entries = [entry for entry in store.memory.get_entries(ID) if entry.content]
    kinds = [
        "message",
        "message",
        "tool_call",
        "tool_call",
        "tool_result",
        "tool_result",
        "message",
    ]
    assert [entry.type for entry in entries] == kinds
    assert store.memory.export_session(ID).to_json().count("It is sound.") == 1


def test_search_finds_what_a_tool_returned() -> None:
    store = store_of()
    append(store, *a_turn())
    [hit, *_] = store.memory.search(ID, "rate = 2")
    assert hit.entry.name == "Read"


@pytest.mark.parametrize(
    "name", ["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "mistral"]
)
def test_session_continues_with_any_provider(name: str) -> None:
    store = store_of()
    append(store, *a_turn())
    store.memory.add_user_message(ID, "And the tests?")
    context = store.memory.build_context(ID, format=name)
    assert check(context.messages, name) == []
    text = str(context.messages)
    assert "memman" not in text
    assert text.count("rate = ") == 2
    if name == "anthropic":
        answer = context.messages[1]["content"]
        assert [block["type"] for block in answer] == ["thinking", "tool_use", "tool_use"]
        assert answer[0]["signature"] == "signed="


def test_entries_of_others_are_not_in_the_transcript() -> None:
    store = store_of()
    append(store, *a_turn())
    store.memory.add_user_message(ID, "from a plain loop")
    append(store, line("u4", "user", "Again?"))
    assert load(store) == [*a_turn(), line("u4", "user", "Again?")]
    assert len(store.memory.get_messages(ID, format="anthropic", last=2)) == 2


def test_usage_of_an_answer_is_recorded_once() -> None:
    store = store_of()
    for each in a_turn():  # an append for each line, as with session_store_flush="eager"
        append(store, each)
    log = store.memory.export_session(ID).log
    reported = [record for record in log if isinstance(record, UsageReported)]
    assert [(each.input_tokens, each.cached_tokens) for each in reported] == [(100, 10), (200, 10)]
    assert {each.model for each in reported} == {"claude-sonnet-5-5"}


def test_odd_usage_ends_no_append(caplog: pytest.LogCaptureFixture) -> None:
    store = store_of()
    odd = line("a", "assistant", [PIECE], id="m", usage={"input_tokens": -1}, model="m")
    append(store, odd)
    assert load(store) == [odd]
    assert "usage" in caplog.text


# ---------------------------------------------------------------- keys and sessions


@pytest.mark.parametrize("text", ["x" * 300, "a/b", "caf\u00e9 tab\t\x00", "..", ""])
def test_odd_keys_stay_apart(text: str) -> None:
    store = store_of()
    keys: list[Any] = [
        {"project_key": text, "session_id": "s"},
        {"project_key": "p", "session_id": text},
        {"project_key": "p", "session_id": "s", "subpath": text or "x"},
        {"project_key": "p", "session_id": "s"},
    ]
    for key in keys:
        append(store, line("u", "user", f"in {key}"), key=key)
    assert [load(store, key) for key in keys] == [[line("u", "user", f"in {key}")] for key in keys]
    assert {"session_id": "s"}.items() <= asyncio.run(store.list_sessions(text))[0].items()


def test_plain_keys_make_readable_ids() -> None:
    assert session_id_of({**KEY, "subpath": "subagents/agent-1"}) == f"{ID}/subagents/agent-1"


def test_listing_reads_no_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of()
    key: Any = {"project_key": "-src-app", "session_id": "0c7b7c1e-5bb6-4d8f-9f6e-1f3c5f0a7f11"}
    append(store, *a_turn(), {"type": "custom-title", "customTitle": "The review"}, key=key)
    monkeypatch.setattr(MemoryManager, "get_messages", None)
    summaries = asyncio.run(store.list_session_summaries("-src-app"))
    assert summaries[0]["data"]["custom_title"] == "The review"
    assert summaries[0]["data"]["first_prompt"] == "Is it sound?"


def test_metadata_of_the_application_stays() -> None:
    store = store_of()
    append(store, *a_turn())
    [info] = store.memory.list_sessions()
    store.memory.update_session(ID, metadata={**info.metadata, "user": 17})
    append(store, line("u4", "user", "Again?"))
    [info] = store.memory.list_sessions()
    assert info.metadata["user"] == 17
    assert info.metadata["claude-transcript"]["session_id"] == "s"


def test_no_append_is_compressed() -> None:
    store = MemmanSessionStore(MemoryManager(config=MemoryConfig(max_tokens=200)))
    for number in range(40):
        append(store, line(f"u{number}", "user", "words " * 20))
    assert len(store.memory.get_active_entries(ID)) == 40


# ---------------------------------------------------------------- refusals


def test_async_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="trio"):
        MemmanSessionStore(AsyncMemoryManager())  # type: ignore[arg-type]


def test_line_that_redact_changes_is_refused() -> None:
    hidden = MemoryManager(redact=lambda entry: msgspec.structs.replace(entry, content="hidden"))
    with pytest.raises(InvalidInput, match="redact"):
        append(MemmanSessionStore(hidden), line("u", "user", "my password"))


def test_format_loads_without_the_sdk() -> None:
    code = (
        "import sys; from memman import MemoryManager; "
        "MemoryManager().add_messages('s', [{'type': 'x'}], 'claude-transcript'); "
        "assert 'claude_agent_sdk' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- Claude Code itself


def test_claude_code_resumes_from_the_store(tmp_path: Path) -> None:
    """Run the bundled program twice, the second time without the files of the first."""
    file = tmp_path / "part.py"
    file.write_text("rate = 8841\n")
    thinking = {"type": "thinking", "thinking": "hm", "signature": "signed="}
    uses = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {"file_path": str(file)}}
        for n in range(2)
    ]
    answers = [streamed("m1", thinking, *uses), streamed("m2", PIECE), streamed("m3", PIECE)]
    store = store_of(tmp_path / "chat.db")

    async def play() -> str:
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        options = options_of(first, server, session_store=store)
        session_id = await run("Is it sound?", options)
        project = options.cwd
        options = options_of(second, server, session_store=store, resume=session_id)
        options.cwd = project
        await run("And the rate?", options)
        [listed] = await list_sessions_from_store(store, directory=str(project))
        assert listed.first_prompt == "Is it sound?"
        return session_id

    with loopback("/v1/messages", *answers) as server:
        session_id = asyncio.run(play())
        sent = json.dumps(server.received[-1].body["messages"])
    assert sent.count("rate = 8841") >= 1
    assert "signed=" in sent
    [info] = [each for each in store.memory.list_sessions() if each.session_id.endswith(session_id)]
    assert info.first_line == "Is it sound?"
    assert store.memory.get_stats(info.session_id).reported.requests == 3
    assert store.memory.search(info.session_id, "8841")
