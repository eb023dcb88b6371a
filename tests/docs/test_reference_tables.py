"""The reference pages match the code."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from memman import AsyncMemoryManager, MemoryManager, SessionState, errors, events
from memman.archive.lines import Header, RecordLine, Trailer
from memman.events import CompressionResult, Event
from memman.explain.history import EntryState
from memman.records import Record
from tests.docs.pages import DOCS, code, table

EVENTS = table("reference/events.md", "signal")
LOG_EVENTS = 10  # one for each kind of record


def test_events_page_has_every_signal_in_order() -> None:
    shown = [
        (code(row["signal"])[0], code(row["name"])[0], code(row["payload"])[0]) for row in EVENTS
    ]
    names = {id(value): name for name, value in vars(events).items()}
    actual = [
        (names[id(signal)], signal.name, payload.__name__)
        for payload, signal in events.SIGNALS.items()
    ]
    assert shown == actual


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: code(row["payload"])[0])
def test_events_page_names_the_fields_of_each_payload(row: dict[str, str]) -> None:
    payload: type[Event] = getattr(events, code(row["payload"])[0])
    assert set(code(row["fields"])) == set(payload.__struct_fields__) - set(Event.__struct_fields__)


def test_events_page_has_one_log_event_per_record_kind() -> None:
    assert len(get_args(Record)) == LOG_EVENTS
    kinds = [row["kind"] for row in EVENTS]
    assert kinds == ["log event"] * LOG_EVENTS + ["notice"] * (len(EVENTS) - LOG_EVENTS)


def test_events_page_names_derived_values() -> None:
    derived = {
        name for name, value in vars(CompressionResult).items() if isinstance(value, property)
    }
    assert derived == {"tokens_saved", "replaced_ids", "summary_id", "values", "values_kept"}
    text = (DOCS / "reference/events.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in derived)


def test_errors_page_has_the_tree_of_the_code() -> None:
    shown = {
        code(row["error"])[0]: tuple(code(row["is a"]))
        for row in table("reference/errors.md", "error")
    }
    actual = {
        name: tuple(base.__name__ for base in value.__bases__)
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.MemmanError)
    }
    assert shown == actual


@pytest.mark.parametrize("manager", [MemoryManager, AsyncMemoryManager])
def test_methods_page_lists_every_public_method(manager: type) -> None:
    shown = [code(row["method"])[0] for row in table("reference/methods.md", "method")]
    methods = {
        name for name, _ in inspect.getmembers(manager, callable) if not name.startswith("_")
    }
    assert sorted(shown) == sorted(methods)


def test_methods_page_lists_every_entry_state() -> None:
    shown = [code(row["state"])[0] for row in table("reference/methods.md", "state")]
    assert shown == list(get_args(EntryState))


def test_document_page_has_every_field() -> None:
    shown = {code(row["field"])[0] for row in table("reference/session-document.md", "field")}
    assert shown == set(SessionState.__struct_fields__)


def test_document_page_names_every_record_kind() -> None:
    text = (DOCS / "reference/session-document.md").read_text(encoding="utf-8")
    kinds = [kind.__struct_config__.tag for kind in get_args(Record)]
    listed = text.partition("Records name their `kind`:")[2].partition(".")[0]
    assert sorted(code(listed)) == sorted(str(kind) for kind in kinds)


@pytest.mark.parametrize(
    ("line", "kind"), [("first", Header), ("each of the next", RecordLine), ("last", Trailer)]
)
def test_archive_page_names_the_fields_of_each_line(line: str, kind: type) -> None:
    rows = {row["line"]: row["fields after `crc`"] for row in table("reference/archive.md", "line")}
    assert set(kind.__struct_fields__) <= set(code(rows[line]))
