"""Export and import of archives, on every store and with both managers."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import (
    ArchiveLimits,
    AsyncMemoryManager,
    InvalidInput,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    SessionExists,
    SessionNotFound,
    StateError,
    StoreConflict,
    events,
)
from memman.archive.importer import verify
from memman.entries import TokenCount
from memman.stores import MemoryStore, SQLiteStore
from tests.archive.sessions import archive_of, edited, lived, manager, plain, replaced
from tests.examples import examples
from tests.kinds import IN_FILES, InMemory

READS = ("get_active_entries", "get_entries", "get_summaries", "get_stats", "get_context_for_llm")


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def other(request: pytest.FixtureRequest) -> Iterator[MemoryManager]:
    """Another manager with the same counter, on each kind of store."""
    kind = request.param()
    ids = count(1)
    with manager(store=kind.open(), new_id=lambda: f"other-{next(ids)}") as opened:
        yield opened
    kind.remove()


def archived(memory: MemoryManager, **given: Any) -> io.BytesIO:
    out = io.BytesIO()
    memory.export_archive("s", out, **given)
    out.seek(0)
    return out


@pytest.mark.parametrize("packing", ["none", "gzip", "zstd"])
def test_imported_session_is_equal_and_continues(other: MemoryManager, packing: str) -> None:
    memory = lived()
    assert other.import_archive(archived(memory, packing=packing)) == "s"
    assert other.export_session("s") == memory.export_session("s")
    for read in READS:
        assert getattr(other, read)("s") == getattr(memory, read)("s"), read
    assert archived(other).getvalue() == archived(memory).getvalue()
    assert other.undo_compression("s") == memory.undo_compression("s")
    assert other.get_active_entries("s") == memory.get_active_entries("s")
    other.add_user_message("s", "more", id="new")
    assert other.compress("s", target_tokens=100).compression_id is not None


def test_uncompressed_session_of_several_pages_is_equal(other: MemoryManager) -> None:
    memory = plain(2_500)
    other.import_archive(archived(memory))
    assert other.get_active_entries("s") == memory.get_active_entries("s")
    assert other.get_stats("s") == memory.get_stats("s")


def test_earlier_era_and_pins_are_imported(other: MemoryManager) -> None:
    memory = lived()
    memory.clear_session("s")
    kept = memory.add_user_message("s", "new era", id="kept").id
    memory.add_user_message("s", "later", id="later")
    memory.pin("s", kept)
    memory.add_user_message("s", "last", id="last")
    other.import_archive(archived(memory))
    assert other.export_session("s") == memory.export_session("s")
    assert [entry.pinned for entry in other.get_active_entries("s")] == [True, False, False]


def test_async_manager_exports_and_imports_archives(tmp_path: Path) -> None:
    data = archived(lived())

    async def through() -> tuple[str, bytes]:
        async with AsyncMemoryManager(tmp_path / "a.db", counter="chars4") as memory:
            name = await memory.import_archive(data)
            out = io.BytesIO()
            await memory.export_archive(name, out)
            return name, out.getvalue()

    assert asyncio.run(through()) == ("s", data.getvalue())


def test_cancelled_export_leaves_no_file(tmp_path: Path) -> None:
    async def cancelled() -> None:
        async with AsyncMemoryManager(tmp_path / "a.db", counter="chars4") as memory:
            log = [{"role": "user", "content": f"m{number}"} for number in range(3_000)]
            await memory.add_messages("s", log)
            task = asyncio.create_task(memory.export_archive("s", tmp_path / "s.jsonl"))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    assert [path.name for path in tmp_path.iterdir() if "jsonl" in path.name] == []


# ---------------------------------------------------------------- files


def test_file_is_packed_by_suffix_and_private(tmp_path: Path) -> None:
    memory = lived()
    for name, packing in (("s.jsonl", "none"), ("s.jsonl.gz", "gzip"), ("s.jsonl.zst", "zstd")):
        info = memory.export_archive("s", tmp_path / name)
        assert info == verify(tmp_path / name)
        assert info.packing == packing
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert manager().import_archive(str(tmp_path / name)) == "s"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "s.jsonl",
        "s.jsonl.gz",
        "s.jsonl.zst",
    ]
    assert memory.export_archive("s", tmp_path / "plain.gz", packing="none").packing == "none"


def test_same_session_gives_same_bytes(tmp_path: Path) -> None:
    memory = lived()
    for packing in ("none", "gzip", "zstd"):
        one, two = (archived(memory, packing=packing).getvalue() for _ in range(2))
        assert one == two


def test_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "s.jsonl").symlink_to(tmp_path / "precious")
    lived().export_archive("s", tmp_path / "s.jsonl")
    assert (tmp_path / "precious").read_text() == "precious"
    assert verify(tmp_path / "s.jsonl").session_id == "s"


def test_existing_file_keeps_permissions_and_is_replaced_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("old")
    path.chmod(0o640)
    memory = lived()
    memory.export_archive("s", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = path.read_bytes()
    with pytest.raises(SessionNotFound):
        memory.export_archive("nobody", path)
    assert path.read_bytes() == before


def test_remains_of_a_killed_export_do_not_matter(tmp_path: Path) -> None:
    to = tmp_path / "s.memman"
    (tmp_path / f".{to.name}.{os.getpid()}.part").touch()  # process ids repeat in containers
    memory = lived()
    memory.export_archive("s", to)
    assert verify(to).session_id == "s"


def test_interrupted_export_keeps_the_existing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int, mode: int) -> None:
        raise KeyboardInterrupt

    to = tmp_path / "s.memman"
    to.write_bytes(b"what was there")
    memory = lived()
    monkeypatch.setattr(os, "fchmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.export_archive("s", to)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        to.name: b"what was there"
    }


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    memory = lived()
    with pytest.raises(OSError, match="No space"):
        memory.export_archive("s", Full())
    with pytest.raises(OSError, match="nowhere"):
        memory.export_archive("s", tmp_path / "nowhere" / "s.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("to", "packing"), [(7, None), (None, None), ("x", "zip"), ("x", 3)])
def test_invalid_target_is_refused(to: Any, packing: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        lived().export_archive("s", tmp_path / to if to == "x" else to, packing=packing)
    assert list(tmp_path.iterdir()) == []


def test_missing_zstandard_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = archived(lived(), packing="zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for use in (lambda: verify(data), lambda: archived(lived(), packing="zstd")):
        with pytest.raises(InvalidInput, match=r"memman-core\[zstd\]"):
            use()


# ---------------------------------------------------------------- all or nothing


def listening() -> tuple[list[Any], Any]:
    emitted: list[Any] = []

    def note(sender: object, event: Any) -> None:
        emitted.append(event)

    events.session_imported.connect(note)
    return emitted, note


def test_import_emits_one_event(other: MemoryManager) -> None:
    emitted, _kept = listening()
    data = archived(lived())
    other.import_archive(data)
    data.seek(0)
    other.import_archive(data)
    assert [(event.session_id, event.records) for event in emitted] == [
        ("s", verify_of(data).records)
    ]


def verify_of(data: io.BytesIO) -> Any:
    data.seek(0)
    return verify(data)


def test_corrupt_archive_changes_nothing(other: MemoryManager) -> None:
    other.add_user_message("t", "x", id="mine")
    data = bytearray(archived(lived()).getvalue())
    data[len(data) // 2] ^= 1
    line = bytes(data[: len(data) // 2]).count(b"\n") + 1
    for broken in (bytes(data), bytes(data[:-1]), gzip.compress(bytes(data))[:-20]):
        with pytest.raises(StateError) as caught:
            other.import_archive(io.BytesIO(broken))
        assert caught.value.problems[0].startswith("line ")
    with pytest.raises(StateError, match=f"line {line}: "):
        other.import_archive(io.BytesIO(bytes(data)))
    assert [info.session_id for info in other.list_sessions()] == ["t"]


def test_second_import_is_a_no_op_even_after_new_entries(other: MemoryManager) -> None:
    memory = lived()
    data = archived(memory)
    for _ in range(2):
        data.seek(0)
        assert other.import_archive(data) == "s"
    other.add_user_message("s", "more", id="more")
    before = other.export_session("s")
    data.seek(0)
    assert other.import_archive(data) == "s"
    assert other.export_session("s") == before


def test_second_import_does_not_restore_deleted_entries(other: MemoryManager) -> None:
    data = archived(plain(20))
    other.import_archive(data)
    doomed = other.get_entries("s")[3].id
    other.delete_entries("s", [doomed])
    data.seek(0)
    other.import_archive(data)
    assert len(other.get_entries("s")) == 19


def test_other_session_with_the_id_is_a_conflict(other: MemoryManager) -> None:
    other.add_user_message("s", "another", id="z")
    before = other.export_session("s")
    data = archived(lived())
    with pytest.raises(SessionExists, match="on_conflict='skip'"):
        other.import_archive(data)
    data.seek(0)
    assert other.import_archive(data, on_conflict="skip") == "s"
    assert other.export_session("s") == before
    data.seek(0)
    name = other.import_archive(data, "new_session")
    assert name.startswith("s-")
    data.seek(0)
    assert len(other.export_session(name).log) == verify(data).records
    with pytest.raises(InvalidInput, match="on_conflict"):
        other.import_archive(data, "overwrite")  # type: ignore[arg-type]


def test_longer_archive_of_the_session_is_a_conflict(other: MemoryManager) -> None:
    memory = plain(10)
    other.import_archive(archived(memory))
    memory.add_user_message("s", "more", id="more")
    with pytest.raises(SessionExists):
        other.import_archive(archived(memory))


def test_wrong_counts_are_corrected(other: MemoryManager) -> None:
    memory = plain(5, text="some words ")
    lied = replaced(archived(memory).getvalue(), 4, b'"tokens":3', b'"tokens":3000000')
    assert verify(io.BytesIO(lied)).entries == 5
    other.import_archive(io.BytesIO(lied))
    assert other.get_stats("s").total_tokens == memory.get_stats("s").total_tokens


def test_losses_of_a_deletion_are_recomputed(other: MemoryManager) -> None:
    memory = lived()

    def lie(documents: list[dict[str, Any]]) -> None:
        deleted = next(
            d["record"] for d in documents if d.get("record", {}).get("kind") == "deleted"
        )
        deleted["tokens"] = deleted["entries"] = 0

    other.import_archive(io.BytesIO(edited(archived(memory).getvalue(), lie)))
    assert other.get_stats("s") == memory.get_stats("s")


def test_entry_without_content_but_with_tokens_is_refused() -> None:
    memory = plain(3)
    data = replaced(archived(memory).getvalue(), 4, b'"content":"m1"', b'"content":""')
    with pytest.raises(
        StateError, match=r"line 4: entry 'id-3' has no content and was not deleted"
    ):
        manager().import_archive(io.BytesIO(data))


def test_deleted_text_is_neither_exported_nor_imported(tmp_path: Path) -> None:
    class Forgets(SQLiteStore):
        """A store that never erases."""

        def erase(self, *given: Any) -> Any:
            return super().erase(*given[:-1], frozenset())

    memory = manager(store=Forgets(tmp_path / "a.db"))
    secret = memory.add_user_message("s", "swordfish", id="secret").id
    memory.add_user_message("s", "x", id="x")
    unspoilt = archived(memory).getvalue()
    memory.delete_entries("s", [secret])
    out = archived(memory).getvalue()
    assert b"swordfish" not in out
    # An archive that still contains the deleted text.
    text = next(line for line in unspoilt.splitlines() if b"swordfish" in line)
    blank = next(
        line for line in out.splitlines() if b'"id":"secret"' in line and b'"added"' in line
    )
    left = replaced(out, 3, blank[18:], text[18:])
    other = manager()
    other.import_archive(io.BytesIO(left))
    assert "swordfish" not in other.export_session("s").to_json()
    assert b"swordfish" not in archived(other).getvalue()
    memory.close()


def test_deletion_during_an_export_aborts_it(tmp_path: Path) -> None:
    memory = plain(2_500)

    class Meanwhile(io.BytesIO):
        deleted = False

        def write(self, data: Any) -> int:
            if not self.deleted and self.tell():
                self.deleted = True
                memory.delete_entries("s", ["id-2400"])
            return super().write(data)

    with pytest.raises(StoreConflict, match="try again"):
        memory.export_archive("s", Meanwhile())
    assert memory.export_archive("s", tmp_path / "s.jsonl").records == 2_502


def test_entries_added_during_an_export_are_left_out() -> None:
    memory = plain(1_500)

    class Meanwhile(io.BytesIO):
        def write(self, data: Any) -> int:
            memory.add_user_message("s", "meanwhile")
            return super().write(data)

    out = Meanwhile()
    assert memory.export_archive("s", out).entries == 1_500
    out.seek(0)
    assert verify(out).entries == 1_500


def test_imported_entries_are_redacted() -> None:
    def hide(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.text.replace("m1", "[x]"))

    other = manager(redact=hide)
    other.import_archive(archived(plain(3)))
    assert [entry.text for entry in other.get_entries("s")] == ["m0", "[x]", "m2"]


def test_invalid_settings_are_refused() -> None:
    memory = plain(2)
    memory.update_config("s", model="gpt-4o", summarize_timeout=5)
    other = manager(config=MemoryConfig(auto_compress=False))
    assert other.import_archive(archived(memory)) == "s"
    assert other.export_session("s").settings == memory.export_session("s").settings


def test_import_applies_its_limits() -> None:
    with pytest.raises(StateError, match=r"line 5: .*limits.entries is 2"):
        manager().import_archive(archived(plain(3)), limits=ArchiveLimits(entries=2))
    with pytest.raises(InvalidInput, match="ArchiveLimits"):
        manager().import_archive(archived(plain(3)), limits={"entries": 2})  # type: ignore[arg-type]


def test_compression_bomb_is_refused_with_little_memory() -> None:
    """Unpacks 1 GiB from some kilobytes, in a process whose memory is measured."""
    program = """
import gzip, io, sys, zlib, zstandard
from pathlib import Path
from memman import MemoryManager, StateError
from memman.archive.importer import verify
zeros = bytes(2**20)
start = b'{"crc":"00000000",'
packer = zlib.compressobj(9, zlib.DEFLATED, 31)
gz = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
gz += (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)) * 1024
frame = zstandard.ZstdCompressor(level=1)
zst = frame.compress(start) + frame.compress(zeros * 8) * 128
bombs = [gz, zst]
nested = gzip.compress(bombs[0]), bombs[1][:1000]
def highest():  # getrusage begins with the parent's
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = highest()
for bomb in (*bombs, *nested):
    for read in (lambda f: verify(f), lambda f: MemoryManager().import_archive(f)):
        try:
            read(io.BytesIO(bomb))
        except StateError as error:
            pass
        else:
            raise SystemExit("it was taken")
print(highest() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 * 1024, f"{int(done.stdout) / 1024:.0f} MiB"


def test_memory_use_is_far_below_archive_size(tmp_path: Path) -> None:
    def most(work: Any) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    text = "word " * 600
    with manager(store=tmp_path / "a.db") as memory, manager(store=tmp_path / "b.db") as other:
        memory.add_messages("s", [{"role": "user", "content": f"{n} {text}"} for n in range(3_500)])
        path = tmp_path / "s.jsonl"
        size = memory.export_archive("s", path).bytes
        assert most(lambda: memory.export_archive("s", path)) < size / 2
        assert most(lambda: verify(path)) < size / 2
        assert most(lambda: other.import_archive(path)) < size / 2
        assert other.get_stats("s").total_entries == 3_500


def test_store_that_fails_during_an_import_has_no_session(tmp_path: Path) -> None:
    class Fails(SQLiteStore):
        def commit(self, *given: Any, **more: Any) -> Any:
            session_id, epoch, records, *rest = given
            stop = iter(range(700))

            def coming() -> Iterator[Any]:
                for record in records:
                    if next(stop, None) is None:
                        raise OSError("the disk is gone")
                    yield record

            lazy = _Lazy(records, coming)
            return super().commit(session_id, epoch, lazy, *rest, **more)

    store = Fails(tmp_path / "a.db")
    memory = manager(store=store)
    with pytest.raises(OSError, match="disk is gone"):
        memory.import_archive(archived(plain(1_000)))
    assert memory.list_sessions() == []
    memory.close()
    with manager(store=tmp_path / "a.db") as again:
        assert again.list_sessions() == []
        again.import_archive(archived(plain(1_000)))
        assert again.get_stats("s").total_entries == 1_000


class _Lazy:
    def __init__(self, records: Any, coming: Any) -> None:
        self._records, self._coming = records, coming

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, place: int) -> Any:
        return self._records[place]

    def __iter__(self) -> Iterator[Any]:
        return self._coming()


STEPS = st.lists(
    st.sampled_from(
        ["user", "call", "result", "pin", "compress", "undo", "clear", "delete", "set"]
    ),
    max_size=20,
)


@settings(max_examples=examples(30))
@given(STEPS, st.text(alphabet='aé日🙂\x00\n"\\\u2028', max_size=5))
def test_any_imported_session_is_equal(steps: list[str], text: str) -> None:
    memory = manager()
    memory.add_user_message("s", text)
    for number, step in enumerate(steps):
        active = memory.get_active_entries("s")
        try:
            _do(memory, step, number, text, active)
        except MemmanError:
            continue  # refused: the session is unchanged
    for how in ("archive", "document"):
        other = manager()
        if how == "archive":
            other.import_archive(archived(memory))
        else:
            other.import_session(memory.export_session("s").to_json(indent=1))
        assert other.export_session("s") == memory.export_session("s")
        assert other.get_active_entries("s") == memory.get_active_entries("s")
        assert other.get_stats("s").total_tokens == memory.get_stats("s").total_tokens
    assert (
        archive_of(memory.export_session("s")).splitlines()[1:-1]
        == (archived(memory).getvalue().splitlines()[1:-1])
    )


def _do(memory: MemoryManager, step: str, number: int, text: str, active: list[Any]) -> None:
    match step:
        case "user":
            memory.add_user_message("s", text * number + "abc " * 30, metadata={text: number})
        case "call":
            memory.add_tool_call("s", "find", {text: text}, call_id=str(number % 3))
        case "result":
            memory.add_tool_result("s", "find", text, call_id=str(number % 3))
        case "pin" if active:
            memory.pin("s", active[number % len(active)].id)
        case "compress":
            memory.compress("s", target_tokens=90)
        case "undo":
            memory.undo_compression("s")
        case "clear":
            memory.clear_session("s")
        case "delete":
            entries = memory.get_entries("s")
            if entries:
                memory.delete_entries("s", [entries[number % len(entries)].id])
        case "set":
            memory.update_config("s", recent_window=number)


def test_imported_session_is_visible_to_other_managers() -> None:
    store = MemoryStore()
    one, two = manager(store=store), manager(store=store)
    with pytest.raises(SessionNotFound):
        two.get_stats("s")
    one.import_archive(archived(lived()))
    assert two.export_session("s") == one.export_session("s")


def test_import_with_failing_counter_emits_count_fell_back() -> None:
    def broken(text: str) -> int:
        raise OSError("no vocabulary")

    source = MemoryManager(counter=lambda text: 1)
    source.add_user_message("s", "hello")
    state = source.export_session("s")
    bare = msgspec.structs.replace(state.entries[0], token_count=TokenCount(0))
    state = msgspec.structs.replace(state, entries=(bare,), totals=None)
    memory = MemoryManager(counter=broken)
    emitted: list[str] = []

    def note(_sender: object, event: events.CountFellBack) -> None:
        emitted.append(event.reason)

    with events.count_fell_back.connected_to(note, sender=memory):
        memory.import_session(state)
    assert emitted == ["OSError: no vocabulary"]
