"""Adding messages under the ids of a framework: known ones again, edited ones, and in other eras."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memman import Entry, IdConflict, InvalidInput, MemoryManager, SessionNotFound, events, valid_id
from memman.protocols import Appended
from memman.records import Record
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import record_events
from tests.apis import APIS, SyncUse

Message = dict[str, Any]
CHAT: list[Message] = [
    {"role": "user", "content": "Why is the build red?"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "log"}'}},
        {"id": "c2", "type": "function", "function": {"name": "read", "arguments": '{"path": "ci"}'}},
    ]},
    {"role": "tool", "tool_call_id": "c2", "content": "steps: test"},
    {"role": "tool", "tool_call_id": "c1", "content": "E501"},
    {"role": "assistant", "content": "A line is too long."},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip
LANGCHAIN: list[Message] = [
    {"type": "human", "data": {"content": "Why?", "id": "h"}},
    {"type": "ai", "data": {"content": "", "id": "a", "tool_calls": [
        {"name": "read", "args": {"path": "log"}, "id": "c1", "type": "tool_call"}]}},
    {"type": "tool", "data": {"content": "E501", "tool_call_id": "c1", "id": "t", "artifact": {"rows": 3}}},
    {"type": "ai", "data": {"content": [{"type": "thinking", "thinking": "Hm", "signature": "s"},
                                       {"type": "text", "text": "A long line."}], "id": "b"}},
    {"type": "human", "data": {"content": "Thanks.", "id": "g"}},
]  # fmt: skip
RESPONSES: list[Message] = [
    {"role": "user", "content": "Why?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "E501"},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "A long line.", "annotations": []}]},
]  # fmt: skip
FORMATS = {"openai-chat": CHAT, "langchain": LANGCHAIN, "openai-responses": RESPONSES}


@pytest.fixture(params=APIS)
def use(request: pytest.FixtureRequest) -> Any:
    api = APIS[request.param](auto_compress=False, max_tokens=100_000)
    yield api
    api.end()


@pytest.fixture(params=FORMATS)
def listed(request: pytest.FixtureRequest) -> tuple[str, list[Message]]:
    return request.param, FORMATS[request.param]


def names(messages: Sequence[Message]) -> list[str]:
    return [f"m{number}" for number in range(len(messages))]


def send(use: SyncUse, listed: tuple[str, list[Message]], **keywords: Any) -> list[Entry]:
    form, messages = listed
    return use.do("add_messages", messages, form, ids=names(messages), **keywords)  # type: ignore[no-any-return]


def logged(use: SyncUse) -> list[Entry]:
    return use.do("get_entries")  # type: ignore[no-any-return]


def test_entries_of_a_message_are_numbered(use: SyncUse) -> None:
    added = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in added] == ["m0", "m1", "m1:1", "m1:2", "m2", "m3", "m4", "m5"]
    assert logged(use) == added


def test_list_sent_twice_is_added_once(use: SyncUse, listed: Any) -> None:
    first = send(use, listed)
    assert send(use, listed) == first == logged(use)


def test_list_is_added_only_beyond_its_known_beginning(use: SyncUse, listed: Any) -> None:
    form, messages = listed
    for count in range(1, len(messages) + 1):
        answer = send(use, (form, messages[:count]))
        assert answer == logged(use)
    alone = MemoryManager(counter=len)
    whole = alone.add_messages("s", messages, form, ids=names(messages))
    assert [(e.id, e.content, e.name, e.call_id) for e in logged(use)] == [
        (e.id, e.content, e.name, e.call_id) for e in whole
    ]


def test_items_of_one_answer_share_a_message_id_across_calls(use: SyncUse) -> None:
    send(use, ("openai-responses", RESPONSES[:2]))
    send(use, ("openai-responses", RESPONSES[:3]))
    _, reasoning, call = logged(use)
    assert reasoning.message_id == call.message_id is not None


def test_known_message_in_the_middle_is_not_added(use: SyncUse) -> None:
    use.do("add_messages", CHAT[4:5], ids=["m4"])
    answer = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in answer] == ["m0", "m1", "m1:1", "m1:2", "m2", "m3", "m4", "m5"]
    assert logged(use)[0].id == "m4"


def test_compressed_message_is_known(use: SyncUse) -> None:
    first = send(use, ("openai-chat", CHAT))
    use.do("compress", target_tokens=5)
    assert any(entry.compressed for entry in logged(use))
    again = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in again] == [entry.id for entry in first]
    assert len(logged(use)) == len(first)


EDITED = {
    "text": {"role": "user", "content": "Why is it green?"},
    "role": {"role": "assistant", "content": "Why is the build red?"},
    "more": {**CHAT[1], "role": "assistant", "content": "Why is the build red?"},
}


@pytest.mark.parametrize("edit", EDITED)
def test_edited_message_is_a_conflict_and_changes_nothing(use: SyncUse, edit: str) -> None:
    first = send(use, ("openai-chat", CHAT[:3]))
    with pytest.raises(IdConflict, match="the message 'm0' was added before with other content"):
        send(use, ("openai-chat", [EDITED[edit], *CHAT[1:]]))
    assert logged(use) == first


def test_message_that_lost_its_last_call_is_a_conflict(use: SyncUse) -> None:
    send(use, ("openai-chat", CHAT))
    shorter = {**CHAT[1], "tool_calls": CHAT[1]["tool_calls"][:1]}
    with pytest.raises(IdConflict, match="'m1'"):
        use.do("add_messages", [shorter], ids=["m1"])
    other = {**CHAT[1], "tool_calls": CHAT[1]["tool_calls"][::-1]}
    with pytest.raises(IdConflict, match="'m1'"):
        use.do("add_messages", [other], ids=["m1"])


def test_ids_that_look_like_numbered_ones_are_distinct(use: SyncUse) -> None:
    send_both = CHAT[0], CHAT[4]
    first = use.do("add_messages", send_both, ids=["a", "a:1"])
    assert use.do("add_messages", send_both, ids=["a", "a:1"]) == first == logged(use)


def test_keys_besides_the_content_are_not_compared(use: SyncUse) -> None:
    first = send(use, ("langchain", LANGCHAIN))
    later = [
        {**message, "data": {**message["data"], "response_metadata": {"seen": True}}}
        for message in LANGCHAIN
    ]
    assert send(use, ("langchain", later), metadata={"run": 2}, pinned=True) == first


def test_result_sent_alone_is_the_same_as_after_its_call(use: SyncUse) -> None:
    first = send(use, ("openai-chat", CHAT))
    again = use.do("add_messages", CHAT[2:4], ids=["m2", "m3"])
    assert again == first[4:6]
    other = APIS["sync"]()
    [alone] = other.do("add_messages", CHAT[2:3], ids=["m2"])
    assert alone.name is None
    assert send(other, ("openai-chat", CHAT))[4].id == "m2"


def test_deleted_message_stays_deleted(use: SyncUse) -> None:
    first = send(use, ("openai-chat", CHAT))
    use.do("delete_entries", ["m1", "m1:1", "m1:2", "m2", "m3"])
    again = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in again] == ["m0", "m4", "m5"]
    use.do("clear_session")
    assert [entry.id for entry in send(use, ("openai-chat", CHAT))] == ["m0", "m4", "m5"]
    assert [entry.seq for entry in logged(use)] != [entry.seq for entry in first]


def test_message_with_a_deleted_or_retracted_entry_is_known(use: SyncUse) -> None:
    send(use, ("openai-chat", CHAT))
    use.do("delete_entries", ["m1"])
    use.do("retract", ["m1:2", "m2"])
    again = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in again] == ["m0", "m1:1", "m2", "m3", "m4", "m5"]
    assert [entry.id for entry in logged(use)] == ["m0", "m1:1", "m3", "m4", "m5", "m2"]
    use.do("clear_session")
    again = send(use, ("openai-chat", CHAT))
    assert [entry.id for entry in again] == ["m0", "m2", "m3", "m4", "m5"]


def test_entry_of_an_earlier_retraction_is_known_again(use: SyncUse) -> None:
    send(use, ("openai-chat", CHAT))
    use.do("retract", ["m4", "m5"])
    [again] = use.do("add_messages", CHAT[4:5], ids=["m4"])
    sent = send(use, ("openai-chat", CHAT))
    assert sent[-2] == again
    assert [entry.id for entry in logged(use)] == [entry.id for entry in sent]


def test_cleared_message_is_added_again(use: SyncUse, listed: Any) -> None:
    first = send(use, listed)
    use.do("clear_session")
    again = send(use, listed)
    assert logged(use) == again
    assert [(e.id, e.content) for e in again] == [(e.id, e.content) for e in first]
    assert again[0].seq > first[-1].seq
    assert send(use, listed) == again


def test_id_twice_in_a_list_is_one_message(use: SyncUse) -> None:
    answer = use.do("add_messages", [CHAT[0], CHAT[0]], ids=["a", "a"])
    assert answer[0] == answer[1]
    assert logged(use) == answer[:1]
    with pytest.raises(IdConflict):
        use.do("add_messages", [CHAT[0], CHAT[4]], ids=["b", "b"])
    with pytest.raises(IdConflict):
        use.do("add_messages", [CHAT[1], CHAT[4]], ids=["c", "c:1"])
    assert logged(use) == answer[:1]


def test_messages_without_an_id_are_added_each_time(use: SyncUse) -> None:
    ids = ["a", None]
    first = use.do("add_messages", CHAT[:1] + CHAT[4:5], ids=ids)
    again = use.do("add_messages", CHAT[:1] + CHAT[4:5], ids=ids)
    assert [entry.id for entry in logged(use)] == ["a", first[1].id, again[1].id]


def test_metadata_and_pin_go_to_every_new_entry(use: SyncUse) -> None:
    for entry in send(use, ("openai-chat", CHAT), metadata={"run": 1}, pinned=True):
        assert entry.metadata == {"run": 1}
        assert entry.pinned


def test_compress_overrides_the_setting() -> None:
    use = SyncUse(max_tokens=60)
    long = [{"role": "user", "content": f"message {n}: " + "word " * 30} for n in range(4)]
    use.do("add_messages", long, compress=False)
    assert all(not entry.compressed for entry in logged(use))
    use.do("add_messages", long, compress=True)
    assert any(entry.compressed for entry in logged(use))


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a"], "ids has 1 items for 2 messages"),
        ("ab", "ids must be a list with one id for each message"),
        (["a", 5], "ids must be a string, not int"),
        (["a", ""], "ids must have 1 to 255 bytes"),
        (["a", "x" * 300], "ids must have 1 to 255 bytes, not 300"),
    ],
)
def test_invalid_ids_are_refused(use: SyncUse, ids: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        use.do("add_messages", CHAT[:1] + CHAT[4:5], ids=ids)
    with pytest.raises(SessionNotFound):
        use.do("get_entries")


def test_longest_ids_leave_room_for_the_numbers(use: SyncUse) -> None:
    longest = "x" * 255
    added = use.do("add_messages", CHAT[1:2], ids=[longest])
    assert added[0].id == longest
    assert len({entry.id for entry in added}) == 3
    assert use.do("add_messages", CHAT[1:2], ids=[longest]) == added


def test_response_sent_twice_records_its_usage_once(use: SyncUse) -> None:
    response = {
        "object": "chat.completion",
        "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
    for _ in range(2):
        use.do("add_messages", response, ids=["r"])
    log = [item.record for item in use.do("feed")]
    assert [type(record).__name__ for record in log] == ["Opened", "Added", "UsageReported"]


def test_known_messages_are_not_counted_again() -> None:
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return len(text)

    memory = MemoryManager(counter=counter)
    memory.add_messages("s", CHAT, ids=names(CHAT))
    counted.clear()
    memory.add_messages("s", [*CHAT, {"role": "user", "content": "more"}], ids=[*names(CHAT), "n"])
    assert counted == ["more"]


# ---------------------------------------------------------------- other writers, lost answers


class AnswerLost(MemoryStore):
    """A store that writes, gets no answer and writes again, as after a broken connection."""

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        super().append(session_id, records, expect_head=expect_head)
        return super().append(session_id, records, expect_head=expect_head)


def test_list_of_a_lost_answer_is_added_and_emitted_once() -> None:
    memory = MemoryManager(AnswerLost())
    memory.add_user_message("s", "hello")
    with record_events(memory) as emitted:
        added = memory.add_messages("s", CHAT, ids=[None, *names(CHAT)[1:]])
    assert memory.get_entries("s")[1:] == added
    assert [event.entry for event in emitted if isinstance(event, events.EntryAdded)] == added


class Raced(MemoryStore):
    """A store in which another writer comes just before an append."""

    def __init__(self) -> None:
        super().__init__()
        self.races: list[Any] = []

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        if self.races:
            self.races.pop()()
        return super().append(session_id, records, expect_head=expect_head)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("content", ["Thanks.", "No."])
def test_other_writer_with_the_same_id_comes_first(content: str, opened: bool) -> None:
    store = Raced()
    memory, other = MemoryManager(store), MemoryManager(store)
    if opened:
        memory.add_user_message("s", "hello")
    message = {"role": "user", "content": content}
    store.races.append(lambda: other.add_messages("s", [message], ids=["m5"]))
    with record_events(memory) as emitted:
        if content == "No.":
            with pytest.raises(IdConflict):
                memory.add_messages("s", CHAT, ids=names(CHAT))
            assert [entry.text for entry in memory.get_entries("s")][-1:] == ["No."]
            return
        added = memory.add_messages("s", CHAT, ids=names(CHAT))
    assert {entry.id for entry in memory.get_entries("s") if entry.id[0] == "m"} == {
        entry.id for entry in added
    }
    heard = [event.entry.id for event in emitted if isinstance(event, events.EntryAdded)]
    assert sorted(heard) == sorted({entry.id for entry in added} - {"m5"})


def test_threads_and_processes_add_a_list_once(tmp_path: Path) -> None:
    managers = [MemoryManager(SQLiteStore(tmp_path / "log.db")) for _ in range(2)]
    failures: list[BaseException] = []

    def add(memory: MemoryManager) -> None:
        try:
            for count in range(1, len(CHAT) + 1):
                memory.add_messages("s", CHAT[:count], ids=names(CHAT[:count]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add, args=(managers[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = [entry.id for entry in managers[0].get_entries("s")]
    assert found == ["m0", "m1", "m1:1", "m1:2", "m2", "m3", "m4", "m5"]
    for memory in managers:
        memory.close()


# ---------------------------------------------------------------- ids of frameworks


@pytest.mark.parametrize("text", ["thread-1", "x" * 255, "\u4f60\u597d"])
def test_valid_id_is_unchanged(text: str) -> None:
    assert valid_id(text) == text


@pytest.mark.parametrize("text", ["", "x" * 300, "a\nb", "\u4f60" * 100, "a\udc80", "a\u00a0b"])
def test_invalid_id_becomes_a_digest_of_its_own(text: str) -> None:
    found = valid_id(text, prefix="lc:")
    assert found.startswith("lc:sha256-")
    assert found == valid_id(text, prefix="lc:") != valid_id(text + "x" * 300, prefix="lc:")
    memory = MemoryManager()
    memory.add_messages(found, CHAT[:1], ids=[found])


def test_prefix_comes_before_a_valid_id() -> None:
    assert valid_id("t1", prefix="lc:") == "lc:t1"
    assert valid_id("x" * 254, prefix="lc:").startswith("lc:sha256-")
    with pytest.raises(InvalidInput, match="prefix"):
        valid_id("t1", prefix="\n")
