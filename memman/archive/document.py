"""A session as one JSON document, complete with its history, undo and pins.

`log` has the session's records. Records that added an entry of the current era refer to `entries`, so that
no text is in the document twice. `summaries`, `totals`, `settings` and the derived fields of `entries`
(`compressed`, `summary_id`) serve readers that do not fold the log. They are derived at export, and
checked against the log at import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import msgspec

from memman.archive import validation
from memman.archive.limits import DEFAULT_LIMITS, MOST_FAULTS, ArchiveLimits, too_much
from memman.display import safe_repr
from memman.entries import Entry, check_id
from memman.errors import EntryNotFound, InvalidInput, Refused, StateError
from memman.extents import check_extent
from memman.log import History
from memman.protocols import StoredItem
from memman.records import Added, Record, deleted_in, tainted_by, tombstone, trusting
from memman.results import Summary, summary_of

FORMAT = "memman-session"
VERSION = 1
_LONGEST_PATH = 4_096  # bytes; nearly every document is longer


class Shown(msgspec.Struct, frozen=True, tag="shown", tag_field="kind", omit_defaults=True):
    """A record of a document's log: the entry with this id was added; `entries` has its content."""

    id: str
    pinned: bool = False
    off_record: bool = False


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of the current era."""

    entries: int
    tokens: int
    active_entries: int
    active_tokens: int


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """A session as a versioned JSON document. It has no time of export: equal sessions compare equal."""

    session_id: str
    log: tuple[Record | Shown, ...]
    entries: tuple[Entry, ...] = ()
    summaries: tuple[Summary, ...] = ()
    totals: Totals | None = None
    settings: dict[str, Any] = {}
    format: str = FORMAT
    version: int = VERSION

    def __repr__(self) -> str:
        """Return a short text; `to_json` returns the whole."""
        return f"<SessionState {self.session_id}: {len(self.log):,} records, {len(self.entries):,} entries>"

    def to_json(self, *, indent: int = 0) -> str:
        """Return the document as JSON, indented by `indent` spaces."""
        return document_bytes(self, indent).decode()

    @classmethod
    def from_json(
        cls, text: str | bytes | Mapping[str, Any], *, limits: ArchiveLimits = DEFAULT_LIMITS
    ) -> SessionState:
        """Return the document of a JSON text or of plain data. Raises `StateError` with every problem."""
        try:
            if isinstance(text, str):
                text = text.encode()
            if isinstance(text, bytes):
                _check_number(len(text), "bytes", "document_bytes", limits)
            data = msgspec.json.decode(text) if isinstance(text, bytes) else text
        except (msgspec.DecodeError, UnicodeError) as error:
            path = isinstance(text, bytes) and len(text) < _LONGEST_PATH and text[:1] not in b"{["
            hint = ": if it is a path, pass the file's text, path.read_text()" if path else ""
            raise StateError([f"it is not JSON ({error}){hint}"]) from None
        except RecursionError:
            raise StateError(["it is nested too deeply"]) from None
        if not isinstance(data, Mapping):
            hint = ": pass the file's text, path.read_text()" if isinstance(data, PathLike) else ""
            raise StateError([f"it is a {type(data).__name__}, not a session document{hint}"])
        if data.get("format") != FORMAT:
            raise StateError([f"its format is {safe_repr(data.get('format'))}, not {FORMAT!r}"])
        if data.get("version") != VERSION:
            found = safe_repr(data.get("version"))
            raise StateError([f"its version is {found}; this memman reads version {VERSION}"])
        try:
            if data is text:  # the size of a text was checked above
                most = limits.document_bytes
                check_extent(data, "the document", values=50_000_000, characters=most, depth=100)
            # Through compact bytes, so that encoded parts are equal however the text was laid out.
            state = msgspec.json.decode(msgspec.json.encode(data), type=cls)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise StateError([str(error)]) from None
        _check_number(len(state.log), "records", "records", limits)
        _check_number(len(state.entries), "entries", "entries", limits)
        return state


def _check_number(number: int, of: str, name: str, limits: ArchiveLimits) -> None:
    if number > getattr(limits, name):
        raise StateError([too_much(f"it has {number:,} {of}", name, limits)])


def document_bytes(state: SessionState, indent: int = 0) -> bytes:
    """Return the document as encoded JSON."""
    encoded = msgspec.json.encode(state)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def state_of(
    session_id: str, log: Sequence[tuple[int, Record]], settings: Mapping[str, Any]
) -> SessionState:
    """Return the document of a log."""
    log = _erased(log)
    history = History.of(log)
    return SessionState(
        session_id=session_id,
        log=tuple(_as_shown(seq, record, history) for seq, record in log),
        entries=tuple(history.entries()),
        summaries=tuple(summaries_of(history)),
        totals=totals_of(history),
        settings=dict(settings),
    )


def summaries_of(history: History) -> list[Summary]:
    """Return the active summaries in order, the outline behind them."""
    made = [
        summary_of(item, history.originals([item.entry.id]))
        for item in history.items
        if item.entry.type == "summary"
    ]
    outline = history.state.window.outline
    return made if outline is None else [*made, summary_of(outline, history.outlined())]


def totals_of(history: History) -> Totals:
    """Return the sums of the current era."""
    return Totals(
        entries=len(history.added),
        tokens=sum(entry.token_count.tokens for entry in history.added.values()),
        active_entries=len(history.state.window.shown_items),
        active_tokens=history.state.window.tokens,
    )


class Imported(msgspec.Struct, frozen=True):
    """A valid document, as a store must commit it."""

    records: tuple[Record, ...]
    window: tuple[StoredItem, ...]
    floor: int


def checked(state: SessionState, counter: validation.Recount) -> Imported:
    """Return what to commit for a document. Raises `StateError` with every problem found.

    Wrong counts of `counter` are corrected. Counts of other counters stay: loading the session counts its
    window again.
    """
    problems: list[str] = []
    records = _records(state, problems)
    try:
        check_id(state.session_id, "session_id")
    except InvalidInput as error:
        problems.append(str(error))
    if not records and not problems:
        problems.append("its log is empty")
    checker = _folded(records, problems)
    if not problems:
        _check_derived(state, checker.history, problems)
    if problems:
        raise StateError(_first(problems))
    clean = [record for _, record in _erased(list(enumerate(records, 1)))]
    return Imported(_completed(clean, counter), tuple(checker.window()), checker.floor)


def records_of(state: SessionState) -> tuple[Record, ...]:
    """Return the log of a document as records. Raises `StateError` for a missing entry."""
    problems: list[str] = []
    records = _records(state, problems)
    if problems:
        raise StateError(_first(problems))
    return records


def _first(problems: Sequence[str]) -> list[str]:
    """Return the first problems, and the number of the others."""
    more = len(problems) - MOST_FAULTS
    return [*problems[:MOST_FAULTS], *([f"and {more:,} more"] if more > 0 else [])]


def _records(state: SessionState, problems: list[str]) -> tuple[Record, ...]:
    """Return the log with the entries that it refers to."""
    entries = {entry.id: entry for entry in state.entries}
    records: list[Record] = []
    for seq, record in enumerate(state.log, 1):
        if isinstance(record, Added):
            bare = _bare(record.entry, record.entry.pinned)
            records.append(msgspec.structs.replace(record, entry=bare))
        elif not isinstance(record, Shown):
            records.append(record)
        elif record.id in entries:
            records.append(Added(_bare(entries[record.id], record.pinned), record.off_record))
        else:
            problems.append(f"record {seq}: entries has no entry {record.id!r}")
    return tuple(records)


def _bare(entry: Entry, pinned: bool) -> Entry:
    """Return an entry without its derived fields."""
    return msgspec.structs.replace(
        entry, seq=0, replacement=0, pinned=pinned, compressed=False, summary_id=None
    )


def _as_shown(seq: int, record: Record, history: History) -> Record | Shown:
    """Return a record as it is in a document."""
    if not isinstance(record, Added):
        return trusting(record)
    added = history.added.get(record.id)
    if added is not None and added.seq == seq:
        return Shown(record.id, record.entry.pinned, record.off_record)
    entry = msgspec.structs.replace(record.entry, seq=0)  # its place in the list is its seq
    return msgspec.structs.replace(record, entry=entry)


def _folded(records: Sequence[Record], problems: list[str]) -> validation.LogChecker:
    """Fold the log up to the first record that cannot follow."""
    checker = validation.LogChecker()
    for seq, record in enumerate(records, 1):
        try:
            validation.check_record(record)
            checker.take(seq, record)
        except (Refused, EntryNotFound, InvalidInput) as error:
            problems.append(f"record {seq} ({type(record).__name__}): {error}")
            break
    return checker


def _erased(log: Sequence[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """Return the log with tombstones for the deleted entries, whether or not the store erased them."""
    gone = deleted_in([record for _, record in log])
    if not gone:
        return list(log)
    tainted = tainted_by([record for _, record in log], gone)
    return [(seq, tombstone(record, tainted)) for seq, record in log]


def _completed(records: Sequence[Record], counter: validation.Recount) -> tuple[Record, ...]:
    """Return the records with correct counts and changes of the totals; deleted entries keep theirs."""
    erased = tainted_by(list(records), deleted_in(records))

    def recounted(entry: Entry) -> Entry:
        return entry if entry.id in erased else validation.verified(entry, counter)

    checker = validation.LogChecker()
    completed: list[Record] = []
    for seq, record in enumerate(records, 1):
        sound = validation.with_sound_state(validation.with_entry(record, recounted), counter)
        completed.append(checker.history.completed(sound))
        checker.take(seq, completed[-1])
    return tuple(completed)


def _check_derived(state: SessionState, history: History, problems: list[str]) -> None:
    """Compare the derived parts of the document with its log."""
    if state.entries or history.added:
        _compare("entries", state.entries, tuple(history.entries()), problems)
    if state.summaries:
        _compare("summaries", state.summaries, tuple(summaries_of(history)), problems)
    if state.totals is not None and state.totals != totals_of(history):
        problems.append(f"totals are {state.totals}, in the log {totals_of(history)}")
    if state.settings != history.totals.settings:
        problems.append("settings differ from those of the log")


def _compare(what: str, shown: Sequence[Any], derived: Sequence[Any], problems: list[str]) -> None:
    if len(shown) != len(derived):
        problems.append(f"{what}: there are {len(shown)}, the log has {len(derived)}")
    for one, other in zip(shown, derived, strict=False):
        if one != other:
            problems.append(f"{what}: {one.id!r} differs from the log")
