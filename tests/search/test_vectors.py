"""Search by meaning: the nearest vectors, and how they are made, kept and deleted."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import AsyncMemoryManager, AsyncPortRefused, InvalidInput, MemoryConfig, MemoryManager
from memman.search.vectors import nearest, packed
from memman.stores import MemoryStore

S = "chat"
# Each word stands for its line's subject.
SUBJECTS = (
    ("queue", "broker", "rabbit"),
    ("schema", "tables", "columns"),
    ("bookings", "seats", "reservations"),
    ("weather", "rain", "clouds"),
)
SAID = (
    "We settled on rabbit, the others are out.",
    "Keep off the schema of finance.",
    "Two reservations collide at night.",
    "All clouds are gone.",
)
NUMBER = st.floats(-1, 1, allow_nan=False)
SIZE = 24
STORED = ("memory", "sqlite", "third party")


class Embed:
    """Vectors with a number for each subject; counts its texts and notes their threads."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        self.threads.add(threading.current_thread().name)
        return [vector_of(text) for text in texts]


def vector_of(text: str) -> list[float]:
    words = text.lower().replace(",", " ").replace(".", " ").split()
    return [1.0 if set(words) & set(subject) else -0.1 for subject in SUBJECTS] + [0.01] * 4


def other(texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0, 0.0] for text in texts]


class Plain:
    """A third-party store with the required methods alone, and erase."""

    def __init__(self) -> None:
        inner = MemoryStore()
        for name in ("append", "commit", "load", "read", "delete", "close", "erase"):
            setattr(self, name, getattr(inner, name))


@pytest.fixture(params=STORED)
def store(request: Any, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return str(tmp_path / "chat.db")
    return Plain() if request.param == "third party" else None


def told(store: Any, embed: Any = None, texts: Sequence[str] = SAID, **given: Any) -> MemoryManager:
    """Return a manager of a session with these messages."""
    memory = MemoryManager(store, embed=Embed() if embed is None else embed, **given)
    for number, text in enumerate(texts):
        memory.add_user_message(S, text, id=f"m{number}")
    return memory


def ready(memory: MemoryManager, session_id: str = S) -> MemoryManager:
    """Let the vectors of a session be made."""
    memory.search(session_id, "anything else")
    assert memory.wait_for_background(10)
    return memory


def ids(memory: MemoryManager, query: str, session_id: str = S, **given: Any) -> list[str]:
    return [hit.entry.id for hit in memory.search(session_id, query, **given)]


def cosine(one: Sequence[float], two: Sequence[float]) -> float:
    lengths = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in two))
    return sum(x * y for x, y in zip(one, two, strict=True)) / (lengths or 1)


# ---------------------------------------------------------------- the nearest


@given(
    st.lists(NUMBER, min_size=SIZE, max_size=SIZE),
    st.lists(st.lists(NUMBER, min_size=SIZE, max_size=SIZE), max_size=40),
)
def test_nearest_are_those_of_brute_force(query, vectors):
    rows = [(seq, packed(vector)) for seq, vector in enumerate(vectors)]
    found = nearest(packed(query), rows)
    signed = [[x - 256 if x > 127 else x for x in value] for _, value in rows]
    wanted = [x - 256 if x > 127 else x for x in packed(query)]
    expected = {seq: cosine(wanted, each) for seq, each in enumerate(signed)}
    assert {seq for seq, _ in found} == set(expected)
    assert [similarity for _, similarity in found] == sorted(dict(found).values(), reverse=True)
    for seq, similarity in found:
        assert similarity == pytest.approx(expected[seq])


@given(st.lists(NUMBER, min_size=1, max_size=50))
def test_packed_vector_keeps_its_direction(vector):
    signed = [x - 256 if x > 127 else x for x in packed(vector)]
    largest = max(map(abs, vector))
    if largest > 1e-300:
        assert all(abs(x / largest - y / 127) < 0.005 for x, y in zip(vector, signed, strict=True))


def test_nearest_of_many_is_found_by_signs():
    random = Random(1)
    rows = [(n, packed([random.gauss(0, 1) for _ in range(64)])) for n in range(2_000)]
    for seq in (0, 999, 1_999):
        assert nearest(rows[seq][1], rows)[0][0] == seq


def test_vectors_of_another_length_are_left_out():
    assert (
        nearest(packed([1, 1]), [(1, packed([1, 1, 1])), (2, b""), (3, packed([1, 1]))])[0][0] == 3
    )


# ---------------------------------------------------------------- search


def test_entry_is_found_in_other_words(store):
    with ready(told(store)) as memory:
        assert ids(memory, "which broker do we use", limit=1) == ["m0"]
        assert ids(memory, "drop all tables now", limit=1) == ["m1"]


def test_words_win_where_they_are_good(store):
    embed = Embed()
    with ready(told(store, embed)) as memory, MemoryManager() as plain:
        for number, text in enumerate(SAID):
            plain.add_user_message(S, text, id=f"m{number}")
        before = len(embed.texts)
        for query in ("two reservations at night?", "schema of finance?", "clouds"):
            assert ids(memory, query) == ids(plain, query)
        assert len(embed.texts) == before, "a query was embedded although words are good"


def test_words_are_searched_until_there_are_vectors(store):
    with told(store, lambda texts: []) as memory:
        assert ids(memory, "finance people again") == ["m1"]


def test_search_in_many_sessions_is_by_words(tmp_path):
    embed = Embed()
    with told(str(tmp_path / "chat.db"), embed) as memory:
        assert ids(memory, "finance people again", None) == ["m1"]
        assert memory.wait_for_background(10)
        assert embed.texts == []


def test_filters_hold_for_hits_by_meaning(store):
    with told(store) as memory:
        memory.add_assistant_message(S, "The broker is up.", id="reply")
        memory.retract(S, ["m0"])
        ready(memory)
        assert ids(memory, "what rabbit eats here", limit=1) == ["reply"]
        found = memory.search(S, "what rabbit eats here", limit=1, states=["retracted"])
        assert [hit.entry.id for hit in found] == ["m0"]


# ---------------------------------------------------------------- in the background


def test_adding_embeds_nothing(store):
    embed = Embed()
    with told(store, embed, SAID * 20 + ("The end.",)) as memory:
        memory.build_context(S)
        assert memory.wait_for_background(10)
        assert embed.texts == []


def test_search_embeds_its_query_alone(store):
    embed = Embed()
    with told(store, embed) as memory:
        memory.search(S, "any broker there")
        assert memory.wait_for_background(10)
        assert embed.texts == ["any broker there", *SAID]
        assert embed.threads == {"MainThread", "memman-background"}


def test_only_new_messages_are_embedded(store):
    embed = Embed()
    with ready(told(store, embed)) as memory:
        memory.add_tool_call(S, "read", {"path": "a"}, call_id="c")
        memory.add_tool_result(S, "read", "columns", call_id="c")
        memory.add_user_message(S, "Columns are wide. " * 200, id="new")
        embed.texts.clear()
        ready(memory)
        assert embed.texts == ["anything else", ("Columns are wide. " * 200)[:1_000].strip()]


def test_vectors_survive_a_restart_in_sqlite(tmp_path):
    path, embed = tmp_path / "chat.db", Embed()
    ready(told(path)).close()
    with MemoryManager(path, embed=embed) as memory:
        assert ids(memory, "which broker do we use", limit=1) == ["m0"]
        assert memory.wait_for_background(10)
        assert set(embed.texts) <= {"which broker do we use", "memman"}


def test_embed_gets_redacted_texts(store):
    def redact(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.content.replace("rabbit", "***"))

    embed = Embed()
    with ready(told(store, embed, redact=redact)):
        assert not any("rabbit" in text for text in embed.texts)


def test_close_ends_the_work_of_a_slow_embed(store):
    begun, go = threading.Event(), threading.Event()

    def slow(texts: Sequence[str]) -> list[list[float]]:
        begun.set()
        go.wait(10)
        return [vector_of(text) for text in texts]

    memory = told(store, slow, SAID * 100)
    memory.search(S, "clouds")  # by words: only the background embeds
    assert begun.wait(10)
    assert not memory.wait_for_background(0.01)
    threading.Timer(0.1, go.set).start()
    memory.close()
    assert not [one for one in threading.enumerate() if one.name == "memman-background"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_makes_vectors_of_its_own(tmp_path):
    with ready(told(tmp_path / "chat.db")) as memory:
        child = os.fork()
        if not child:
            try:
                memory.add_user_message(S, "Seats are sold.", id="child")
                ready(memory)
                os._exit(0 if "child" in ids(memory, "how many bookings here", limit=2) else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda texts: [[1.0]] * (len(texts) + 1), "embed must return a vector for each"),
        (lambda texts: [[1.0] * (n + 1) for n in range(len(texts))] * 2, "embed must return"),
        (lambda texts: [], "embed must return"),
        (lambda texts: None, "TypeError"),
        (lambda texts: [["x"]] * len(texts), "ValueError"),
        (lambda texts: [[float("nan")]] * len(texts), "ValueError"),
        (lambda texts: [[]] * len(texts), "ValueError"),
        (lambda texts: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_errors_of_embed_are_logged_once(store, caplog, answer, message):
    with caplog.at_level(logging.WARNING), told(store, answer) as memory:
        for query in ("anything else", "finance people again", "rain of cats"):
            memory.search(S, query)
            assert memory.wait_for_background(10)
        memory.build_context(S)
    logged = [each.getMessage() for each in caplog.records if "meaning" in each.getMessage()]
    assert len(logged) == 1
    assert message in logged[0]


def test_length_may_not_change(caplog):
    sizes = iter((4, 5, 5, 5))
    with told(None, lambda texts: [[1.0] * next(sizes)] * len(texts)) as memory:
        ready(memory)
    assert "all of one length" in caplog.text


def test_embed_must_be_callable():
    with pytest.raises(InvalidInput, match="embed must be callable"):
        MemoryManager(embed="minilm")  # type: ignore[arg-type]


# ---------------------------------------------------------------- async


async def embed_async(texts: Sequence[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return [vector_of(text) for text in texts]


@pytest.mark.parametrize("embed", [embed_async, Embed()])
def test_async_manager_takes_either_embed(store, embed):
    async def main() -> list[str]:
        async with AsyncMemoryManager(store, embed=embed) as memory:
            for number, text in enumerate(SAID):
                await memory.add_user_message(S, text, id=f"m{number}")
            await memory.search(S, "anything else")
            assert await memory.wait_for_background(10)
            return [
                hit.entry.id for hit in await memory.search(S, "which broker do we use", limit=1)
            ]

    assert asyncio.run(main()) == ["m0"]


def test_async_embed_of_a_sync_manager_needs_async_ports(store):
    with pytest.raises(AsyncPortRefused, match="embed is async"):
        MemoryManager(embed=embed_async)
    with ready(told(store, embed_async, async_ports=True)) as memory:
        assert ids(memory, "which broker do we use", limit=1) == ["m0"]


# ---------------------------------------------------------------- deletion and forks


def vectors_in(path: Path) -> dict[int, bytes]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT place, value FROM vector WHERE place"))


def stored_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def noise(texts: Sequence[str]) -> list[list[float]]:
    """A vector of its own for each text."""
    return [[Random(f"{text} {n}").uniform(-1, 1) for n in range(64)] for text in texts]


@pytest.mark.parametrize("what", ["entry", "session"])
def test_deletion_leaves_no_byte_of_a_vector(tmp_path, what):
    path = tmp_path / "chat.db"
    with ready(told(path, noise)) as memory:
        gone = packed(noise([SAID[0]])[0])
        assert gone in vectors_in(path).values()
        assert gone[:16] in stored_bytes(path)
        if what == "entry":
            memory.delete_entries(S, ["m0"])
            assert len(vectors_in(path)) == len(SAID) - 1
        else:
            memory.delete_session(S)
            assert vectors_in(path) == {}
        assert gone[:16] not in stored_bytes(path)
        assert gone[16:32] not in stored_bytes(path)


def test_deleted_entry_is_not_found(store):
    with ready(told(store)) as memory:
        memory.delete_entries(S, ["m0"])
        for _ in range(2):
            assert "m0" not in ids(memory, "which broker do we use")
            assert memory.wait_for_background(10)


def test_new_session_of_an_old_id_has_no_old_vector(store):
    with ready(told(store)) as memory:
        memory.delete_session(S)
        memory.add_user_message(S, "All clouds are gone.", id="m0")
        ready(memory)
        [hit] = memory.search(S, "which broker do we use")
        assert hit.score < 0.5


def test_deletion_during_embedding_leaves_no_vector(store, tmp_path):
    memory: MemoryManager
    deleted = threading.Event()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        if SAID[0] in texts and not deleted.is_set():
            deleted.set()
            memory.delete_entries(S, ["m0"])
        return [vector_of(text) for text in texts]

    memory = told(store, embed)
    with ready(memory):
        assert deleted.is_set()
        assert "m0" not in ids(memory, "which broker do we use")
        assert ids(memory, "drop all tables now", limit=1) == ["m1"]
        if isinstance(store, str):
            assert len(vectors_in(Path(store))) == len(SAID) - 1
        else:
            held = memory._core.shared.store._in_process._held
            assert len(held[S]) == len(SAID) - 1


def test_deletion_during_embedding_costs_no_other_vector(store):
    """Where a deletion drops the vectors so far, they are made again"""
    memory: MemoryManager
    deleted = threading.Event()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        if "part 50" in texts and not deleted.is_set():
            deleted.set()
            memory.delete_entries(S, ["m60"])
        return [vector_of(text) for text in texts]

    memory = MemoryManager(store, embed=embed)
    for number in range(70):
        memory.add_user_message(S, f"part {number}", id=f"m{number}")
    memory.add_user_message(S, SAID[0], id="m70")
    with ready(memory):
        assert deleted.is_set()
        held = memory._core.shared.store._in_process._held
        found = len(vectors_in(Path(store))) if isinstance(store, str) else len(held[S])
        assert found == 70


def test_fork_and_clear_have_vectors_of_their_own(store):
    with ready(told(store)) as memory:
        memory.fork_session(S, "copy")
        memory.delete_session(S)
        assert ids(ready(memory, "copy"), "which broker do we use", "copy", limit=1) == ["m0"]
        memory.clear_session("copy")
        memory.add_user_message("copy", "A broker came.", id="new")
        ready(memory, "copy")
        assert ids(memory, "what rabbit eats here", "copy") == ["new"]


# ---------------------------------------------------------------- the table


def test_another_embed_starts_anew(tmp_path):
    path = tmp_path / "chat.db"
    ready(told(path)).close()
    with MemoryManager(path, embed=other) as memory:
        ready(memory)
        assert {len(value) for value in vectors_in(path).values()} == {3}
        assert len(vectors_in(path)) == len(SAID)


def test_file_has_no_vectors_without_embed(tmp_path):
    path = tmp_path / "chat.db"
    with MemoryManager(path) as memory:
        memory.add_user_message(S, SAID[0])
        memory.search(S, "rabbit")
    with closing(sqlite3.connect(path)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert "word" in names
    assert "vector" not in names


def test_strange_table_of_vectors_is_refused(tmp_path):
    path = tmp_path / "chat.db"
    ready(told(path)).close()
    MemoryManager(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript("DROP TABLE vector; CREATE TABLE vector (place, value, more)")
    with pytest.raises(Exception, match="table vector"):
        MemoryManager(path)


def damaged(path: Path, how: Callable[[bytearray, int, int], None]) -> None:
    with closing(sqlite3.connect(path)) as db:
        [(size,)] = db.execute("PRAGMA page_size")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'vector'")
    data = bytearray(path.read_bytes())
    how(data, (page - 1) * size, size)
    path.write_bytes(data)


def zeros(data: bytearray, start: int, size: int) -> None:
    data[start : start + size] = bytes(size)


def random_bytes(data: bytearray, start: int, size: int) -> None:
    data[start : start + size] = Random(3).randbytes(size)


def bits(data: bytearray, start: int, size: int) -> None:
    random = Random(5)
    for _ in range(60):
        data[start + random.randrange(size)] ^= 1 << random.randrange(8)


@pytest.mark.parametrize("how", [zeros, random_bytes, bits])
@pytest.mark.parametrize("verb", ["search", "add", "delete"])
def test_damage_of_vectors_makes_nothing_fail(tmp_path, how, verb):
    path = tmp_path / "chat.db"
    ready(told(path)).close()
    damaged(path, how)
    with MemoryManager(path, embed=Embed()) as memory:
        if verb == "add":
            memory.add_user_message(S, "Seats are sold.", id="new")
        if verb == "delete":
            memory.delete_entries(S, ["m1"])
        memory.search(S, "which broker do we use")
        assert memory.wait_for_background(10)
        ready(memory)
        assert memory.search(S, "two reservations at night")[0].entry.id == "m2"
        if how is not bits:
            assert ids(memory, "which broker do we use", limit=1) == ["m0"]
        assert [entry.id for entry in memory.get_entries(S)][:1] == ["m0"]


# ---------------------------------------------------------------- recall in the context


def long_chat(embed: Any, store: Any = None) -> MemoryManager:
    """Return a manager of a compressed session that begins with the statements."""
    memory = MemoryManager(store, embed=embed, config=MemoryConfig(max_tokens=16_000))
    for number, text in enumerate(SAID):
        memory.add_user_message(S, text, id=f"m{number}")
        memory.add_assistant_message(S, "All right.")
    for day in range(320):
        memory.add_user_message(S, f"Day {day}: " + "the parcels left on time. " * 8)
        memory.add_assistant_message(S, f"Report {day}: " + "vans are back home. " * 8)
    memory.build_context(S)
    assert memory.wait_for_background(10)
    return memory


def test_context_recalls_in_other_words(store):
    with long_chat(Embed(), store) as memory:
        memory.add_user_message(S, "Please install that message broker today")
        [recalled] = memory.build_context(S).recalled
        assert SAID[0] in recalled.text
        assert recalled.words == ()
        assert "by meaning" in str(recalled)
        memory.add_assistant_message(S, "Done.")
        assert list(memory.build_context(S).recalled) == [recalled]


def test_context_recalls_nothing_by_meaning_without_embed():
    with long_chat(None) as memory:
        memory.add_user_message(S, "Please install that message broker today")
        assert not memory.build_context(S).recalled


@pytest.mark.parametrize(
    "text",
    ["Continue.", "Yes.", "Go on with step 4", "Thanks, looks good", "Please run it again", "继续"],
)
def test_message_without_subject_recalls_nothing(text):
    embed = Embed()
    with long_chat(embed) as memory:
        memory.add_user_message(S, text)
        assert not memory.build_context(S).recalled
        assert memory.wait_for_background(10)
        assert embed.texts.count(text) == 1, "it was embedded as a query"


def test_recall_by_meaning_respects_its_message(store):
    with long_chat(Embed(), store) as memory:
        memory.add_user_message(S, "Please install that message broker today")
        memory.add_assistant_message(S, "The rabbit queue broker is behind the message.")
        memory.search(S, "anything else")
        assert memory.wait_for_background(10)
        [recalled] = memory.build_context(S).recalled
        assert "behind the message" not in recalled.text


def test_recall_types_hold_for_hits_by_meaning():
    with long_chat(Embed()) as memory:
        memory.update_config(recall_types=["tool_result"])
        memory.add_user_message(S, "Please install that message broker today")
        assert not memory.build_context(S).recalled


def test_failing_embed_makes_no_context_fail(caplog):
    with long_chat(lambda texts: 1 / 0) as memory:
        memory.add_user_message(S, "Please install that message broker today")
        assert memory.build_context(S).messages
    assert caplog.text.count("by meaning") == 1
