"""Stored content is data: it names no file, runs no code, changes no statement and reaches no log."""

from __future__ import annotations

import ast
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import memman
from memman import (
    InvalidInput,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    StoreError,
)
from memman.stores import SQLiteStore
from memman.testing.stores import added, erase_entries
from tests.kinds import IN_FILES, InFile

CANARY = "canary-0f5e"
SQL = [
    "'; DROP TABLE session; --", "x' OR '1'='1", '"; DELETE FROM record; --', "%s %(id)s {0} ? :id $1",
    "\\'; COMMIT; --", "a' UNION SELECT payload FROM record --", "x'; ATTACH 'evil.db' AS e; --",
]  # fmt: skip
HOSTILE = [
    *SQL, "../../x", "..", "/etc/passwd", "C:\\windows", "%2e%2e%2fx", "~", "-rf", "a b", "\u540d\u524d",
    "\U0001f600" * 60, "<script>alert(1)</script>", "${HOME}", "sqlite:///other.db",
]  # fmt: skip
REFUSED = [
    "", "a\0b", "a\nb", "\x1b[31m", "\u202eexe.txt", "\u200f", "x" * 256, "\u00e9" * 128, "\ud800", "\x7f",
    "\u2028",
]  # fmt: skip
SMALL = MemoryConfig(max_tokens=300, max_entries=None, min_entries_to_compress=2, recent_window=2)


@pytest.fixture(params=IN_FILES)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.remove()


def every_verb(memory: MemoryManager, session: str, text: str) -> dict[str, Any]:
    """Pass a session through every method that takes foreign data, and return the result."""
    # An id has at most 255 bytes.
    one = memory.add_user_message(session, text, id=text, message_id=text, metadata={text: [text]})
    memory.add_system_message(session, text)
    memory.add_assistant_message(session, text, message_id=text)
    memory.add_tool_call(session, text, {text: text}, call_id=text)
    memory.add_tool_result(session, text, text, call_id=text)
    memory.add_context(session, text, text)
    memory.add_messages(session, [{"role": "user", "content": text}], "openai-chat")
    memory.record_usage(session, {"input_tokens": 9}, model=text)
    memory.pin(session, text)
    memory.unpin(session, text)
    for number in range(12):
        memory.add_user_message(session, f"{number} {text} " + "word " * 30, compress=False)
    result = memory.compress(session, focus=text)
    if result.compression_id is not None:
        memory.undo_compression(session, result.compression_id)
    memory.compress(session)
    memory.plan_compression(session)
    state = memory.export_session(session)
    memory.import_session(state, on_conflict="new_session")
    for ask in (
        lambda: memory.get_entry(session, f"no {text}"),
        lambda: memory.undo_compression(session, f"no {text}"),
        lambda: memory.delete_entries(session, [f"no {text}"]),
        lambda: memory.get_entries(f"no {text}"),
        lambda: memory.import_session(state),
        lambda: memory.add_user_message(session, "other", id=text),
    ):
        with pytest.raises(MemmanError):
            ask()
    return {
        "first": one, "entry": memory.get_entry(session, text), "entries": memory.get_entries(session),
        "stats": memory.get_stats(session), "context": memory.build_context(session, budget=2_000),
    }  # fmt: skip


# ---------------------------------------------------------------- names and statements


def test_hostile_ids_and_texts_are_only_data(kind: Any) -> None:
    with MemoryManager(kind.url, counter="chars4", config=SMALL) as memory:
        memory.add_user_message("bystander", "untouched")
        for text in HOSTILE:
            came = every_verb(memory, text, text)
            assert (came["entry"].id, came["entry"].text) == (text, text)
            assert came["entry"].metadata == {text: [text]}
            assert {entry.name for entry in came["entries"] if entry.type == "tool_call"} == {text}
        listed = {info.session_id for info in memory.list_sessions()}
        assert set(HOSTILE) < listed
        # Each session has its own records and no others.
        assert len({len(memory.get_entries(text)) for text in HOSTILE}) == 1
        memory.clear_session(HOSTILE[0])
        memory.delete_session(HOSTILE[1])
        memory.delete_entries(HOSTILE[2], [HOSTILE[2]])
        assert {info.session_id for info in memory.list_sessions()} == listed - {HOSTILE[1]}
        assert [entry.text for entry in memory.get_entries("bystander")] == ["untouched"]
    if isinstance(kind, InFile):
        assert [found.name for found in Path(kind.url).parent.iterdir()] == ["chat.db"]


@pytest.mark.parametrize("session", REFUSED)
def test_deceptive_id_is_refused(session: str, tmp_path: Path) -> None:
    with MemoryManager(tmp_path / "chat.db") as memory:
        for verb in (
            lambda: memory.add_user_message(session, "x"),
            lambda: memory.add_user_message("s", "x", id=session),
            lambda: memory.get_entries(session),
            lambda: memory.delete_session(session),
        ):
            with pytest.raises(InvalidInput):
                verb()
        if 0 < len(session.encode(errors="replace")) < 256:  # a call's id may be longer
            with pytest.raises(InvalidInput):
                memory.add_tool_call("s", "t", {}, call_id=session)
        assert memory.list_sessions() == []


def test_every_code_point_survives_every_store(kind: Any) -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7), 0x10FFFF]))
    with MemoryManager(
        kind.url, counter="chars4", config=MemoryConfig(auto_compress=False)
    ) as memory:
        memory.add_user_message("s", text, metadata={"key \0 \x7f \U0001f600": "value \0"})
        for verb in (
            lambda: memory.add_user_message("s", "a \ud800"),
            lambda: memory.add_user_message("s", "x", metadata={"k": "\udfff"}),
            lambda: memory.add_tool_result("s", "\ud800", "x"),
        ):
            with pytest.raises(InvalidInput, match="surrogate"):
                verb()
    with MemoryManager(kind.url, counter="chars4") as memory:
        [entry] = memory.get_entries("s")
        assert entry.text == text
        assert entry.metadata == {"key \0 \x7f \U0001f600": "value \0"}


# ---------------------------------------------------------------- contents of a file


def with_payload(kind: Any, payload: bytes) -> None:
    """Create a session whose only record was overwritten."""
    with closing(kind.open()) as store:
        store.append("s", (added("a"),))
    if isinstance(kind, InFile):
        with closing(sqlite3.connect(kind.url)) as other:
            other.execute("UPDATE record SET payload = ?", (payload,))
            other.commit()
    else:
        with psycopg.connect(kind.url, autocommit=True) as connection:
            connection.execute("UPDATE memman_record SET payload = %s", (payload,))


BOMBS = {
    "deep": b'{"kind":"added","entry":' + b"[" * 200_000,
    "deep metadata": b'{"kind":"added","entry":{"metadata_json":'
    + b"[" * 200_000
    + b"]" * 200_000
    + b"}}",
    "a number out of range": b'{"kind":"added","entry":{"seq":' + b"9" * 5_000 + b"}}",
    "infinite": b'{"kind":"added","entry":{"token_count":{"tokens":1e999}}}',
    "of no kind": b'{"kind":"canary_module.Thing"}',
    "a list": b"[]",
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_deeply_nested_payload_is_a_typed_error(kind: Any, bomb: str) -> None:
    with_payload(kind, BOMBS[bomb])
    with MemoryManager(kind.open()) as memory:
        for verb in (
            memory.get_entries,
            memory.get_active_entries,
            memory.export_session,
            memory.compress,
        ):
            with pytest.raises(StoreError, match=r"is damaged|cannot be read at"):
                verb("s")
        memory.add_user_message("t", "the others go on")


@pytest.fixture
def canary_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "canary_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    assert "canary_module" not in sys.modules


CODE: list[dict[str, Any]] = [
    {"py/object": "canary_module.Thing"}, {"__class__": "Thing", "__module__": "canary_module"},
    {"lc": 2, "type": "constructor", "id": ["canary_module", "Thing"], "kwargs": {}},
    {"$type": "canary_module.Thing"}, {"__reduce__": ["canary_module.run", []]},
    {"!!python/object/apply:canary_module.run": []}, {"import": "canary_module"},
]  # fmt: skip


def test_loaded_data_is_never_executed(tmp_path: Path, canary_module: Path) -> None:
    with MemoryManager(tmp_path / "chat.db", counter="chars4") as memory:
        for number, data in enumerate(CODE):
            memory.add_user_message("s", str(data), metadata=data, id=f"e{number}")
            memory.add_tool_call("s", "canary_module.run", data)
        memory.add_messages("s", [{"role": "user", "content": "x", **data} for data in CODE[:1]])
        state = memory.export_session("s")
    with MemoryManager(tmp_path / "chat.db", counter="chars4") as memory:
        assert [memory.get_entry("s", f"e{n}").metadata for n in range(len(CODE))] == CODE
        memory.build_context("s", budget=5_000)
        memory.import_session(state.to_json(), on_conflict="new_session")
        for data in CODE:
            with pytest.raises(InvalidInput):
                memory.import_session(data)


def test_no_module_makes_code_of_data() -> None:
    package = Path(memman.__file__).parent
    forbidden = {
        "pickle",
        "cPickle",
        "marshal",
        "shelve",
        "dill",
        "cloudpickle",
        "yaml",
        "jsonpickle",
    }
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert forbidden.isdisjoint(name.partition(".")[0] for name in names), path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "__import__"), path


# ---------------------------------------------------------------- errors and logs


def faults_of(path: Path) -> Iterator[Callable[[], object]]:
    """Return calls that a store must refuse, each on a session that is full of the canary."""
    store = SQLiteStore(path, timeout=0.05)
    memory = MemoryManager(store, counter="chars4", config=SMALL)
    memory.add_user_message("s", f"{CANARY} text", id="a", metadata={"k": CANARY})

    def add() -> object:
        return memory.add_user_message("s", f"{CANARY} more")

    assert store._open is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield add
        other.execute("ROLLBACK")
    [(pages,)] = store._open.execute("PRAGMA page_count")
    store._open.execute(f"PRAGMA max_page_count = {pages}")
    yield lambda: [add() for _ in range(500)]
    store._open.execute("PRAGMA max_page_count = 1000000")
    store._open.execute("PRAGMA query_only = ON")
    yield add
    store._open.execute("PRAGMA query_only = OFF")
    yield lambda: memory.add_user_message("s", f"{CANARY} other", id="a")
    yield lambda: memory.add_user_message("s", f"{CANARY} \ud800")
    yield lambda: memory.add_user_message("s", "x", metadata={"k": {CANARY}})  # type: ignore[dict-item]
    yield lambda: memory.import_session({"format": "other", "entries": [CANARY]})
    yield lambda: memory.build_context("s", budget=1)
    state = memory.export_session("s").to_json()
    yield lambda: memory.import_session(state.replace('"tokens":', '"tokens":"x", "y":', 1))
    store._open.execute("UPDATE record SET payload = substr(payload, 1, length(payload) - 9)")
    yield lambda: memory.get_entries("s")
    store._open.execute("UPDATE record SET payload = ?", (f'{{"kind":"{CANARY}"}}'.encode(),))
    yield lambda: memory.get_entries("s")
    memory.close()
    yield add


def test_errors_contain_no_text_of_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for call in faults_of(tmp_path / "chat.db"):
        with pytest.raises(MemmanError) as caught:
            call()
        chain: BaseException | None = caught.value
        while chain is not None:
            assert CANARY not in f"{chain} {chain!r}"
            chain = chain.__cause__
    assert CANARY not in caplog.text


def test_logs_contain_no_text_of_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def summarizer(prompt: str) -> str:
        raise ValueError(f"400 bad request: {prompt}")

    def counter(text: str) -> int:
        if "uncountable" in text:
            raise ValueError(f"cannot count {text}")
        return len(text) // 4

    with MemoryManager(
        tmp_path / "chat.db", counter=counter, config=SMALL, summarizer=summarizer
    ) as memory:
        every_verb(memory, "s", CANARY)
        memory.add_user_message("s", f"{CANARY} uncountable")
        memory.add_user_message("s", f"{CANARY} " * 400)
    assert "summary of session s" in caplog.text
    assert "failed, estimating instead" in caplog.text
    assert CANARY not in caplog.text


# ---------------------------------------------------------------- erasure


def files_of(path: Path) -> bytes:
    found = [Path(f"{path}{end}") for end in ("", "-wal")]
    return b"".join(one.read_bytes() for one in found if one.exists())


def test_text_erased_during_a_read_goes_with_the_next_erasure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "chat.db"
    store = SQLiteStore(path, timeout=0.1)
    for name in "abc":
        store.append("s", (added(name, f"{CANARY}-{name} " + "x" * 3_000),))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM record").fetchall()
    erase_entries(store, "s", "a")
    assert "is reading" in caplog.text
    assert f"{CANARY}-a".encode() in files_of(path), "then there is nothing to warn of"
    reader.execute("COMMIT")
    reader.close()
    erase_entries(store, "s", "b")
    held = files_of(path)
    assert [name for name in "abc" if f"{CANARY}-{name}".encode() in held] == ["c"]
    store.close()
