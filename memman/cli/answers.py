"""What each command answers with `--json`: one document, whose type has the fields.

`docs/reference/schemas` has the types as JSON Schemas (`memman.cli.schemas` makes them). A command that
answers in more than one way has a type for each. Fields may be added; `version` grows when one goes or
changes its meaning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from memman.archive import ArchiveInfo, SessionState
from memman.cli.effective import Effective
from memman.cli.output import write_json
from memman.compression import CompressionPlan
from memman.counting import Candidate
from memman.entries import Accuracy, Entry, Method, TokenCount
from memman.events import CompressionResult
from memman.explain import Comparison, Shares, Trace
from memman.formats.rules import Violation
from memman.plugins import PluginInfo
from memman.protocols import FeedItem, ModelInfo, ModelRef, SessionInfo
from memman.records import Replacement
from memman.report.usage import Usage
from memman.results import SessionStats

DOCUMENT_VERSION: Literal[1] = 1


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="memman"):
    """What every answer has: the command's name under `memman`, and the version of its document."""

    version: Literal[1] = DOCUMENT_VERSION


def answer(document: Answer) -> None:
    """Writes the JSON document of a command to stdout."""
    write_json(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def answer_line(document: Answer) -> None:
    """Writes one of many documents to stdout: a line each."""
    write_json(msgspec.json.encode(document) + b"\n")


# ---------------------------------------------------------------- of a session


class StatsAnswer(Answer, frozen=True, kw_only=True, tag="stats"):
    """`memman stats`: a session's totals, and what fills its window."""

    settings: Effective
    stats: SessionStats
    usage: Usage
    shares: Shares


class ShowAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """`memman show`: the entries that were asked for."""

    session_id: str
    entries: tuple[Entry, ...]


class EntryAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """`memman show --entry`: one entry."""

    session_id: str
    entry: Entry


class PlanAnswer(Answer, frozen=True, kw_only=True, tag="plan"):
    """`memman plan`: what a compression would do, entry by entry. Nothing was changed."""

    settings: Effective
    plan: CompressionPlan


class CompressAnswer(Answer, frozen=True, kw_only=True, tag="compress"):
    """`memman compress`: what the compression did; `session_file` has the result."""

    session_file: str
    result: CompressionResult


class DiffAnswer(Answer, frozen=True, kw_only=True, tag="diff"):
    """`memman diff`: what a compression replaced beside what stands for it."""

    session_id: str
    comparison: Comparison


class WhyAnswer(Answer, frozen=True, kw_only=True, tag="why"):
    """`memman why`: where a text stood, what replaced it, and where it still stands."""

    session_id: str
    settings: Effective
    trace: Trace


class UndoAnswer(Answer, frozen=True, kw_only=True, tag="undo"):
    """`memman undo`: the compressions that were taken back, in this order, and the totals since."""

    session_file: str
    undone: tuple[str, ...]
    stats: SessionStats


class ExportAnswer(Answer, frozen=True, kw_only=True, tag="export"):
    """`memman export`: a context as its provider takes it, and every rule that it breaks."""

    format: str
    system: str | None
    messages: tuple[dict[str, Any], ...]
    tokens: TokenCount
    budget: int
    trimmed: tuple[Replacement, ...]
    violations: tuple[Violation, ...]


class ReportAnswer(Answer, frozen=True, kw_only=True, tag="report"):
    """`memman report`: where the page is, its size, and how many added entries it shows."""

    session_id: str
    report_file: str
    bytes: int
    entries: int


class ArchiveAnswer(Answer, frozen=True, kw_only=True, tag="export"):
    """`memman export -t memman-jsonl`: what the archive holds."""

    format: str
    session_file: str
    archive: ArchiveInfo


# ---------------------------------------------------------------- of files


class ImportAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import` to stdout: the session, the format it came in, and its totals (null: too long)."""

    format: str
    stats: SessionStats | None
    session: SessionState


class ImportFileAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import -o`: the file that has the session."""

    format: str
    stats: SessionStats | None
    session_file: str


class ImportDatabaseAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import --into`: the database that has the session, and the id that it has there."""

    format: str
    stats: SessionStats | None
    database: str
    session_id: str


class SessionsAnswer(Answer, frozen=True, kw_only=True, tag="sessions"):
    """`memman sessions`: the sessions of a database, in the order in which they began."""

    sessions: tuple[SessionInfo, ...]


class FollowAnswer(Answer, frozen=True, kw_only=True, tag="follow"):
    """`memman follow`: one record, and the cursor to go on behind it; a line for each."""

    item: FeedItem


class VerifyAnswer(Answer, frozen=True, kw_only=True, tag="verify"):
    """`memman verify`: what a file holds, or its faults; what is not known of a broken one is null."""

    file: str
    ok: bool
    problems: tuple[str, ...] = ()
    format: str | None = None
    session_id: str | None = None
    records: int | None = None
    entries: int | None = None
    sha256: str | None = None


class CheckAnswer(Answer, frozen=True, kw_only=True, tag="check"):
    """`memman check`: the rules of `target` that a log's messages break."""

    format: str
    target: str
    violations: tuple[Violation, ...]


# ---------------------------------------------------------------- of what is here


class FormatRow(msgspec.Struct, frozen=True):
    """A format: whether it is rendered too, and how many rules there are for it."""

    format: str
    renders: bool
    rules: int


class FormatsAnswer(Answer, frozen=True, kw_only=True, tag="formats"):
    """`memman formats`: every format of messages and logs."""

    formats: tuple[FormatRow, ...]


class CountAnswer(Answer, frozen=True, kw_only=True, tag="count"):
    """`memman count`: the tokens of a text, who counted them, and how far to trust the number."""

    model: str | None
    characters: int
    tokens: int
    method: Method
    accuracy: Accuracy
    counter: str
    cached: bool
    latency: float
    expected_output: int | None


class Counted(msgspec.Struct, frozen=True):
    """What one counter says of a text."""

    tokens: int
    method: Method
    accuracy: Accuracy
    counter: str
    cached: bool
    latency: float
    expected_output: int | None


class CountsAnswer(Answer, frozen=True, kw_only=True, tag="count"):
    """`memman count --all-counters`: what each counter says that works here."""

    model: str | None
    characters: int
    counts: tuple[Counted, ...]


class ListedCounter(msgspec.Struct, frozen=True):
    """A counter as it is here: `missing` says why it cannot work, "" where it can.

    `families` are those of which it knows a model, `models` how many of the table of limits it knows.
    """

    name: str
    remote: bool
    accuracy: str
    families: tuple[str, ...]
    models: int
    missing: str


class CountersAnswer(Answer, frozen=True, kw_only=True, tag="counters"):
    """`memman counters`: every token counter."""

    counters: tuple[ListedCounter, ...]


class ExplainCounterAnswer(Answer, frozen=True, kw_only=True, tag="counters explain"):
    """`memman counters explain`: how a model is understood, who counts for it and why, and its limits."""

    model: ModelRef
    candidates: tuple[Candidate, ...]
    limits: ModelInfo | None


class KnownModel(msgspec.Struct, frozen=True):
    """A model's limits in tokens, with where and when they were learned."""

    model: str
    context: int
    max_input: int
    max_output: int
    source: str
    date: str


class ModelsAnswer(Answer, frozen=True, kw_only=True, tag="models"):
    """`memman models`: the limits of models."""

    models: tuple[KnownModel, ...]


class PluginsAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins`: what is installed, the broken ones too."""

    plugins: tuple[PluginInfo, ...]


class Law(msgspec.Struct, frozen=True):
    """A law and what became of it, with the reason where it was not kept or not run."""

    law: str
    outcome: Literal["ok", "failed", "not run"]
    reason: str = ""


class CheckedCounter(msgspec.Struct, frozen=True):
    """One counter of a plugin under the laws; `model` is the one it was made for."""

    counter: str
    remote: bool
    model: str | None
    laws: tuple[Law, ...]

    def failed(self) -> int:
        """How many laws it breaks."""
        return _failed(self.laws)


class CheckedSummarizer(msgspec.Struct, frozen=True):
    """A summarizer of a plugin, by its name, under the laws."""

    summarizer: str
    laws: tuple[Law, ...]

    def failed(self) -> int:
        """How many laws it breaks."""
        return _failed(self.laws)


def _failed(laws: tuple[Law, ...]) -> int:
    return sum(law.outcome == "failed" for law in laws)


class CheckedPluginAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins --check`: each counter of a plugin under every law, or the summarizer named."""

    plugin: str
    counters: tuple[CheckedCounter, ...]
    summarizers: tuple[CheckedSummarizer, ...]


class ScaffoldAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins --scaffold`: the files that were written, by their names in `folder`."""

    folder: str
    files: tuple[str, ...]


# ---------------------------------------------------------------- of the demo


class DemoCompression(msgspec.Struct, frozen=True, kw_only=True):
    """One compression of the demo, in the tokens and for the reason that its event tells.

    `replaced` counts what left the window by method, earlier summaries and stubs among it.
    """

    number: int
    entry: int
    tokens_before: int
    tokens_after: int
    reason: str
    replaced: dict[str, int]


class DemoAnswer(Answer, frozen=True, kw_only=True, tag="demo"):
    """`memman demo`: what playing a log through a window came to; `faults` are the promises that it broke.

    `refused` are contexts that could not be built within the budget; `required` is what the largest
    of them needs, and `enough` a budget that was tried and serves (null when it was not looked for).
    """

    session_file: str | None = None
    faults: tuple[str, ...] = ()
    log: str
    format: str
    model: str | None
    counter: str
    method: str
    accuracy: str
    budget: int
    messages: int
    entries: int
    tokens: int
    compressions: tuple[DemoCompression, ...]
    contexts: dict[str, int]
    largest: int
    over_budget: int
    refused: tuple[str, ...]
    required: int | None
    enough: int | None = None
    violations: tuple[str, ...]
    entries_lost: int
    import_equals_export: bool
    usage: Usage
