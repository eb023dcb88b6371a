"""Sessions out and in: a document that is the whole session, and equal to itself."""

import json
from typing import Any

import pytest

from memman import (
    FilePart,
    ImagePart,
    MemoryConfig,
    MemoryManager,
    SessionExists,
    StateError,
    TextPart,
)
from memman.archive.document import records_of
from memman.records import Added, Compressed, Opened
from tests.archive import sessions


def manager(**given: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", **{"config": MemoryConfig(auto_compress=False)} | given)


def lived(memory: MemoryManager) -> MemoryManager:
    """Return a session with records of every kind and a message of several parts."""
    sessions.lived(memory)
    memory.add_user_message("s", (TextPart("see"), ImagePart(url="http://x"), FilePart(name="f")))
    return memory


def copy_of(memory: MemoryManager) -> MemoryManager:
    other = manager()
    other.import_session(memory.export_session("s").to_json())
    return other


def test_imported_session_exports_the_same_document() -> None:
    memory = lived(manager())
    assert copy_of(memory).export_session("s") == memory.export_session("s")


@pytest.mark.parametrize(
    "read",
    [
        "get_active_entries", "get_entries", "get_summaries", "get_stats", "get_context_for_llm",
        "plan_compression",
    ],
)  # fmt: skip
def test_imported_session_reads_like_the_original(read: str) -> None:
    memory = lived(manager())
    assert getattr(copy_of(memory), read)("s") == getattr(memory, read)("s")


@pytest.mark.parametrize("form", ["openai-chat", "anthropic", "text"])
def test_imported_session_builds_the_same_context(form: str) -> None:
    memory = lived(manager())
    one, other = (each.build_context("s", format=form) for each in (memory, copy_of(memory)))
    assert (one.messages, one.system, one.tokens.tokens) == (
        other.messages,
        other.system,
        other.tokens.tokens,
    )


def test_undo_and_pins_are_imported() -> None:
    memory = lived(manager())
    other = copy_of(memory)
    assert other.undo_compression("s") == memory.undo_compression("s")
    assert other.get_active_entries("s") == memory.get_active_entries("s")
    pinned = [entry.id for entry in other.get_active_entries("s") if entry.pinned]
    assert pinned == [entry.id for entry in memory.get_active_entries("s") if entry.pinned]
    assert len(pinned) == 2


def test_imported_session_continues() -> None:
    other = copy_of(lived(manager()))
    before = other.get_entries("s")
    added = other.add_user_message("s", "more")
    assert other.get_entries("s") == [*before, added]
    assert other.compress("s", target_tokens=100).compression_id is not None


def test_adding_an_imported_id_again_is_a_no_op() -> None:
    memory = manager()
    memory.add_user_message("s", "x", id="mine")
    other = copy_of(memory)
    other.add_user_message("s", "x", id="mine")
    assert len(other.get_entries("s")) == 1


@pytest.mark.parametrize("kind", ["state", "text", "indented", "bytes", "dict"])
def test_document_is_accepted_in_any_form(kind: str) -> None:
    state = lived(manager()).export_session("s")
    form: Any = {
        "state": state,
        "text": state.to_json(),
        "indented": state.to_json(indent=2),
        "bytes": state.to_json().encode(),
        "dict": json.loads(state.to_json()),
    }[kind]
    memory = manager()
    assert memory.import_session(form) == "s"
    assert memory.export_session("s") == state


def test_document_has_the_documented_fields() -> None:
    document = json.loads(lived(manager()).export_session("s").to_json())
    assert (document["format"], document["version"]) == ("memman-session", 1)
    assert document["session_id"] == "s"
    hidden = [entry for entry in document["entries"] if entry.get("compressed")]
    assert hidden
    [summary] = document["summaries"]
    covered = [entry for entry in hidden if entry["id"] in summary["original_entry_ids"]]
    assert {entry["summary_id"] for entry in covered} == {summary["id"]}
    assert set(summary) == {
        "id", "content", "original_entry_ids", "token_count", "original_token_count", "ratio",
        "created_at", "time_range",
    }  # fmt: skip
    assert document["settings"] == {"recent_window": 4}
    assert set(document["totals"]) == {"entries", "tokens", "active_entries", "active_tokens"}


def test_document_contains_each_text_once() -> None:
    memory = manager()
    memory.add_user_message("s", "a text that is unique in this document")
    document = memory.export_session("s").to_json()
    assert document.count("a text that is unique in this document") == 1


def test_derived_fields_may_be_left_out() -> None:
    state = lived(manager()).export_session("s")
    document = json.loads(state.to_json())
    del document["summaries"], document["totals"]
    memory = manager()
    memory.import_session(document)
    assert memory.export_session("s") == state


def test_records_of_returns_the_log() -> None:
    records = records_of(lived(manager()).export_session("s"))
    opened, first = records[:2]
    assert isinstance(opened, Opened)
    assert isinstance(first, Added)
    assert first.entry.text == "be brief"
    assert sum(isinstance(record, Compressed) for record in records) == 3


def test_document_contains_earlier_eras() -> None:
    memory = lived(manager())
    memory.clear_session("s")
    memory.add_user_message("s", "new era")
    other = copy_of(memory)
    assert [entry.text for entry in other.get_entries("s")] == ["new era"]
    assert other.export_session("s") == memory.export_session("s")


def test_document_omits_deleted_text() -> None:
    memory = manager()
    secret = memory.add_user_message("s", "swordfish", metadata={"also": "swordfish"}).id
    memory.add_user_message("s", "x")
    memory.delete_entries("s", [secret])
    document = memory.export_session("s").to_json()
    assert "swordfish" not in document
    assert copy_of(memory).export_session("s") == memory.export_session("s")


# ---------------------------------------------------------------- on_conflict


def test_import_of_existing_session_fails_by_default() -> None:
    memory = lived(manager())
    state = memory.export_session("s")
    memory.add_user_message("s", "more")
    before = memory.export_session("s")
    with pytest.raises(SessionExists, match="on_conflict='skip'"):
        memory.import_session(state)
    assert memory.export_session("s") == before


def test_skip_keeps_the_existing_session() -> None:
    memory = lived(manager())
    state = memory.export_session("s")
    memory.add_user_message("s", "more")
    before = memory.export_session("s")
    assert memory.import_session(state, on_conflict="skip") == "s"
    assert memory.export_session("s") == before


def test_new_session_imports_under_a_new_id() -> None:
    memory = lived(manager())
    state = memory.export_session("s")
    name = memory.import_session(state, on_conflict="new_session")
    assert name != "s"
    assert memory.export_session(name).log == state.log
    assert sorted(info.session_id for info in memory.list_sessions()) == sorted(["s", name])


def test_new_session_of_the_longest_id_has_a_valid_id() -> None:
    memory = manager()
    for session in ("x" * 255, "é" * 127):
        memory.add_user_message(session, "x")
        name = memory.import_session(memory.export_session(session), on_conflict="new_session")
        assert memory.get_stats(name).total_entries == 1


def test_invalid_document_is_refused_before_conflicts() -> None:
    memory = lived(manager())
    document = json.loads(memory.export_session("s").to_json())
    document["totals"]["tokens"] += 1
    for policy in ("skip", "new_session"):
        with pytest.raises(StateError):
            memory.import_session(document, on_conflict=policy)  # type: ignore[arg-type]
