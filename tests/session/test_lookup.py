"""Hidden entries are found by id, as in the whole log, without reading it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memman import (
    EntryNotFound,
    InvalidInput,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    SessionNotFound,
)
from memman.entries import Entry
from memman.log import History
from memman.records import Added, Compressed
from memman.stores import MemoryStore
from tests.kinds import IN_FILES, InFile, InMemory, InPostgres

CONFIG = MemoryConfig(
    max_tokens=300, min_entries_to_compress=2, recent_window=2, auto_compress=False
)


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def kind(request: pytest.FixtureRequest) -> Iterator[InMemory | InFile | InPostgres]:
    made = request.param()
    yield made
    made.remove()


@pytest.fixture
def memory(kind: Any) -> Iterator[MemoryManager]:
    with MemoryManager(kind.open(), counter="chars4", config=CONFIG) as opened:
        yield opened


def fill(memory: MemoryManager, first: int, number: int) -> list[str]:
    """Return entries of all kinds, among them old tool results, which become stubs."""
    made: list[Entry] = []
    for at in range(first, first + number):
        made.append(
            memory.add_user_message("s", f"question {at}: what of the stop at {at} o'clock?")
        )
        made.append(memory.add_tool_call("s", "look", {"at": at}, call_id=f"c{at}"))
        made.append(memory.add_tool_result("s", "look", f"line {at} " * 20, call_id=f"c{at}"))
    return [entry.id for entry in made]


def log_of(memory: MemoryManager) -> Any:
    return memory._core.shared.store.port.read("s", 0, 100_000)


def by_whole_log(memory: MemoryManager, entry_id: str) -> Entry | None:
    """Return the entry by a read of the whole log."""
    era: list[Any] = []
    for seq, record in log_of(memory):
        if type(record).__name__ == "Cleared":
            era.clear()
        era.append((seq, record))
    history = History.of(era)
    everything = {entry.id: entry for entry in (*history.replaced_entries(), *history.entries())}
    return everything.get(entry_id)


def ids_of(memory: MemoryManager) -> list[str]:
    found = []
    for _, record in log_of(memory):
        if isinstance(record, Added):
            found.append(record.id)
        elif isinstance(record, Compressed):
            found += [item.entry.id for item in record.replacements if item.entry]
    return found


def answer(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except EntryNotFound:
        return None


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_found_entry_equals_that_of_the_whole_log(memory: MemoryManager, seed: int) -> None:
    rng = random.Random(seed)
    fill(memory, 0, 6)
    for step in range(1, 14):
        act = rng.choice(["add", "add", "compress", "compress", "undo", "undo", "delete", "clear"])
        if act == "add":
            fill(memory, 10 * step, 4)
        elif act == "compress":
            memory.compress("s", target_tokens=rng.choice((40, 150, 250)))
        elif act == "undo":
            answer(memory.undo_compression, "s")
        elif act == "delete":
            deleted = [entry.id for entry in memory.get_entries("s")]
            memory.delete_entries("s", rng.sample(deleted, min(1, len(deleted))))
        elif rng.random() < 0.3:
            memory.clear_session("s")
            fill(memory, 10 * step, 2)
        active = {entry.id for entry in memory.get_active_entries("s")}
        for name in ids_of(memory):
            expected = by_whole_log(memory, name)
            if name in active or expected is None:  # the latter is of an earlier era, or deleted
                continue
            assert memory.get_entry("s", name) == expected
        assert [shown.entry.id for shown in History.of(_era(memory)).items] == [
            entry.id for entry in memory.get_active_entries("s")
        ]


def _era(memory: MemoryManager) -> list[Any]:
    log = log_of(memory)
    cleared = [seq for seq, record in log if type(record).__name__ == "Cleared"]
    return [pair for pair in log if pair[0] > max(cleared, default=0)]


def nothing_is_read(memory: MemoryManager, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_given: Any) -> Any:
        raise AssertionError("the log was read")

    monkeypatch.setattr(memory._core.shared.store.port, "read", read)


def test_a_hidden_entry_is_found_without_reading_the_log(
    memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(memory, 0, 10)
    for target in (250, 150, 60):
        memory.compress("s", target_tokens=target)
        ids += fill(memory, target, 2)
    active = {entry.id for entry in memory.get_active_entries("s")}
    hidden = [name for name in ids if name not in active]
    assert len(hidden) > 20
    expected = [by_whole_log(memory, name) for name in hidden]
    nothing_is_read(memory, monkeypatch)
    assert [memory.get_entry("s", name) for name in hidden] == expected


def test_compressions_are_undone_by_this_manager_and_the_next(memory: MemoryManager) -> None:
    fill(memory, 0, 10)
    made: list[str] = []
    for number in range(1, 4):
        fill(memory, 10 * number, 3)
        memory.compress("s", target_tokens=200 - 40 * number)
        made.append(
            [record.id for _, record in log_of(memory) if isinstance(record, Compressed)][-1]
        )
    assert len(set(made)) == 3
    assert memory.undo_compression("s") == made[-1]
    memory.undo_compression("s", made[-2])
    for _ in range(2):
        assert [(shown.entry.id, shown.position) for shown in History.of(log_of(memory)).items] == [
            (shown.entry.id, shown.position)
            for shown in memory._core.sessions.get("s").log.window.items
        ]
        memory = MemoryManager(memory._core.shared.store.port, counter="chars4", config=CONFIG)
        memory.get_active_entries("s")
    assert memory.undo_compression("s") == made[0]
    with pytest.raises(MemmanError, match="was undone already"):
        memory.undo_compression("s", made[0])


def test_every_entry_of_a_window_is_found_by_its_own_address() -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
    for number in range(12):
        memory.add_user_message("s", f"question {number}")
        memory.add_tool_call("s", "read", "{}", call_id=f"c{number}")
        memory.add_tool_result("s", "read", "line of a file " * 80, call_id=f"c{number}")
    memory.compress("s", target_tokens=2_000)
    window = memory.get_active_entries("s")
    stubs = [entry for entry in window if entry.replacement]
    assert len(stubs) > 2
    assert stubs[1].address == f"#{stubs[1].seq}.2"
    everything = [*window, *memory.get_entries("s")]
    assert len({entry.address for entry in everything}) == len({entry.id for entry in everything})
    for entry in everything:
        assert memory.get_entry("s", entry.address) == memory.get_entry("s", entry.id)
        assert memory.get_entry("s", entry.address).address == entry.address
    memory.compress("s", target_tokens=100)
    assert stubs[1].id not in {entry.id for entry in memory.get_active_entries("s")}
    assert memory.get_entry("s", stubs[1].address).id == stubs[1].id  # hidden by now
    with pytest.raises(EntryNotFound, match=rf"#{stubs[1].seq}\.1 to #{stubs[1].seq}\."):
        memory.get_entry("s", f"#{stubs[1].seq}")


def test_an_id_that_looks_like_an_address_is_an_id() -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "one")
    two = memory.add_user_message("s", "two", id="#1")
    assert memory.get_entry("s", "#1") == two


@pytest.mark.parametrize("address", ["#99", "#1.1", "#0", "#1.0", "#-1", "#"])
def test_address_without_an_entry_raises(address: str) -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "one")
    with pytest.raises(EntryNotFound, match="no entry"):
        memory.get_entry("s", address)


# ---------------------------------------------------------------- the newest entries


@pytest.mark.parametrize("seed", range(6))
def test_newest_entries_are_the_end_of_all(memory: MemoryManager, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        ids = fill(memory, len(log_of(memory)), 2)
        match rng.choice(("retract", "undo", "delete", "compress", "add again", "clear")):
            case "retract":
                memory.retract("s", rng.sample(ids, 2))
            case "undo":
                memory.undo_compression("s", memory.retract("s", rng.sample(ids, 3)))
            case "delete":
                memory.delete_entries("s", rng.sample(ids, 2))
            case "compress":
                memory.compress("s", target_tokens=200)
            case "add again":
                memory.retract("s", ids[:1])
                memory.add_user_message("s", "again", id=ids[0])
            case _ if rng.random() < 0.2:
                memory.clear_session("s")
        whole = memory.get_entries("s")
        for last in (0, 1, 2, 5, len(whole), len(whole) + 1):
            assert memory.get_entries("s", last=last) == whole[len(whole) - min(last, len(whole)) :]


def test_newest_entries_are_found_without_reading_the_log() -> None:
    reads: list[int] = []

    class Watched(MemoryStore):
        def read(self, session_id: str, after: int = 0, limit: int = 1_000) -> Any:
            reads.append(after)
            return super().read(session_id, after, limit)

    memory = MemoryManager(Watched(), counter="chars4", config=CONFIG)
    fill(memory, 0, 200)
    memory.retract("s", [memory.get_entries("s", last=1)[0].id])
    reads.clear()
    assert len(memory.get_entries("s", last=5)) == 5
    assert min(reads) > 590


@pytest.mark.parametrize("last", [-1, 1.5, "2", True])
def test_number_of_newest_entries_is_checked(memory: MemoryManager, last: Any) -> None:
    fill(memory, 0, 1)
    with pytest.raises(InvalidInput, match="last must be a number"):
        memory.get_entries("s", last=last)


def test_ids_are_found_with_what_hides_their_entries(memory: MemoryManager) -> None:
    for name in "abcdef":
        memory.add_user_message("s", name, id=name)
    memory.retract("s", ["b"], reason="wrong")
    memory.retract("s", ["c"])
    memory.undo_compression("s", memory.retract("s", ["d"]))
    memory.delete_entries("s", ["e"])
    found = {"a": None, "b": "wrong", "c": "retracted", "d": None, "e": "deleted"}
    assert memory.find_ids("s", ["unknown", *"edcba"]) == found
    assert list(memory.find_ids("s", [*"edcba"])) == list("abcde")
    memory.add_user_message("s", "b again", id="b")
    memory.clear_session("s")
    found |= {"a": "cleared", "b": "cleared", "d": "cleared"}
    assert memory.find_ids("s", list("abcde")) == found
    with pytest.raises(SessionNotFound):
        memory.find_ids("other", ["a"])


def test_compressed_entry_is_found_as_not_hidden(memory: MemoryManager) -> None:
    names = fill(memory, 0, 20)
    memory.compress("s")
    assert len(memory.get_active_entries("s")) < len(names)
    assert memory.find_ids("s", names) == dict.fromkeys(names)


def test_entries_since_one_are_the_end_of_all(memory: MemoryManager) -> None:
    names = fill(memory, 0, 20)
    memory.compress("s")
    memory.retract("s", names[7:9])
    every = memory.get_entries("s")
    for at in (0, 5, len(every) - 1):
        since = [every[-1].id, every[at].id, names[7], "unknown"]
        assert memory.get_entries("s", since=since) == every[at:]
    assert memory.get_entries("s", since=["unknown", names[7]]) == []
    memory.clear_session("s")
    assert memory.get_entries("s", since=[names[0]]) == []
