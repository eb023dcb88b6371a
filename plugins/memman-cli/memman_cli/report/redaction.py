"""Reports to share: with redacted entries, or without any content."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from memman.archive.redaction import Redactor
from memman.entries import Entry
from memman.errors import InvalidInput
from memman.explain.shares import Share
from memman.records import Described, Record
from memman_cli.report.data import Report, ShownBlock, ShownEntry, ShownPart, ShownStep

Redact = Callable[[Entry], Entry]
_NAMES = ("model",)  # text settings that may be shown


def redacted(records: Iterable[Record], redact: Redact) -> list[Record]:
    """Return the records with redacted entries, the same counts, and no metadata of the session.

    Raises `InvalidInput`.
    """

    def clean(entry: Entry) -> Entry:
        try:
            found = redact(entry)
        except Exception as error:
            raise InvalidInput(
                f"redact raised {type(error).__name__} for a {entry.type}; no report was made"
            ) from error
        if not isinstance(found, Entry) or (found.id, found.type) != (entry.id, entry.type):
            raise InvalidInput("redact must return the entry with its id and type kept")
        return found

    redactor = Redactor(clean)
    return [
        msgspec.structs.replace(record, metadata={}) if isinstance(record, Described) else record
        for record in map(redactor.record, records)
    ]


def without_content(report: Report) -> Report:
    """Return the report with nothing but numbers, times, types, the names of tools, and ids.

    The numbers of exact values and of kept ones stay.
    """
    return msgspec.structs.replace(
        report,
        content="none",
        entries=[_entry(entry) for entry in report.entries],
        steps=[_step(step) for step in report.steps],
        blocks=[ShownBlock(block.seq, block.tokens, "") for block in report.blocks],
        values=[],
        recalled=(),
        shares=msgspec.structs.replace(
            report.shares,
            sources=[
                Share("left out", each.entries, each.tokens) for each in report.shares.sources
            ],
            advice="",
        ),
        undo=None if report.undo is None else "",
    )


def _entry(entry: ShownEntry) -> ShownEntry:
    return msgspec.structs.replace(
        entry,
        text="",
        name=entry.name if entry.type in ("tool_call", "tool_result") else None,
        call=None,
        message=None,
        parts=[ShownPart(part.kind, size=part.size) for part in entry.parts],
        values=[],
    )


def _step(step: ShownStep) -> ShownStep:
    return msgspec.structs.replace(
        step,
        reason="",
        replacements=[msgspec.structs.replace(item, kept={}) for item in step.replacements],
        changes={
            key: value
            if key in _NAMES or isinstance(value, bool | int | float | None)
            else "left out"
            for key, value in step.changes.items()
            if step.kind != "described"  # the names are the caller's, too
        },
    )
