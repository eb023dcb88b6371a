"""Archives and documents of earlier versions stay readable.

The files have the session of `sessions.lived`, as `export_session` and `export_archive` wrote it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memman import MemoryManager
from memman.archive.document import SessionState
from memman.archive.importer import verify

GOLDEN = Path(__file__).with_name("golden")
SHA_256 = "01b2ef96dee6a562536f96f5b7e48086946b7594a902569ac54fd9ec143e03bf"


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_archive_of_version_1_is_imported_unchanged(tmp_path: Path, packed: str) -> None:
    path = shutil.copy(GOLDEN / f"version-1.jsonl{packed}", tmp_path)
    info = verify(path)
    assert (info.session_id, info.records, info.entries, info.sha256) == ("s", 44, 35, SHA_256)
    golden = SessionState.from_json((GOLDEN / "version-1.json").read_bytes())
    with MemoryManager(tmp_path / "chat.db", counter="chars4") as memory:
        memory.import_archive(path)
        assert tuple(memory.get_entries("s")) == golden.entries
        assert memory.export_session("s").log == golden.log
        assert memory.export_session("s").summaries == golden.summaries
        memory.import_archive(path)  # a second import changes nothing
        memory.add_user_message("s", "and on")
        assert len(memory.get_entries("s")) == len(golden.entries) + 1


def test_document_of_version_1_is_imported_unchanged() -> None:
    text = (GOLDEN / "version-1.json").read_text()
    with MemoryManager(counter="chars4") as memory:
        memory.import_session(text)
        state = memory.export_session("s")
        golden = SessionState.from_json(text)
        assert (state.log, state.entries, state.summaries) == (
            golden.log, golden.entries, golden.summaries,
        )  # fmt: skip
        assert (state.totals, state.settings) == (golden.totals, golden.settings)
