"""The JSON documents that commands write with `--json`.

`docs/reference/schemas` has the types as JSON Schemas. A command with several documents has a type for
each. Fields may be added; `version` grows when one is removed or changes its meaning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from memman.archive.document import SessionState
from memman.archive.info import ArchiveInfo
from memman.counting.resolution import Candidate
from memman.entries import Accuracy, Entry, Method, TokenCount
from memman.events import CompressionPlan, CompressionResult
from memman.explain.shares import Shares
from memman.explain.state_block import StateBlock
from memman.formats.rules import Violation
from memman.plugins import PluginInfo
from memman.protocols import FeedItem, ModelInfo, ModelRef, Prices, SessionInfo
from memman.records import Replacement
from memman.results import Hit, Recalled, SessionStats
from memman.spend import Spend
from memman_cli.explain import Comparison, Trace
from memman_cli.output import write_json
from memman_cli.report.usage import Usage
from memman_cli.settings import Effective

DOCUMENT_VERSION: Literal[1] = 1


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="memman"):
    """The common fields: the command's name under `memman`, and the version of its document."""

    version: Literal[1] = DOCUMENT_VERSION


def write_answer(document: Answer) -> None:
    """Write the JSON document of a command to stdout."""
    write_json(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def write_answer_line(document: Answer) -> None:
    """Write one of many documents to stdout, on a line of its own."""
    write_json(msgspec.json.encode(document) + b"\n")


# ---------------------------------------------------------------- sessions


class StatsAnswer(Answer, frozen=True, kw_only=True, tag="stats"):
    """`memman stats`: a session's totals, and its tokens by tool, source and entry."""

    settings: Effective
    stats: SessionStats
    usage: Usage
    shares: Shares
    state: StateBlock | None


class ShowAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """`memman show`: the selected entries."""

    session_id: str
    entries: tuple[Entry, ...]


class BlockAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """`memman show --outline`: the outline, null without one."""

    session_id: str
    state: StateBlock | None


class EntryAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """`memman show --entry`: one entry."""

    session_id: str
    entry: Entry


class SearchAnswer(Answer, frozen=True, kw_only=True, tag="search"):
    """`memman search`: the entries that were found, best first."""

    query: str
    hits: tuple[Hit, ...]


class PlanAnswer(Answer, frozen=True, kw_only=True, tag="plan"):
    """`memman plan`: the plan of a compression, entry by entry. Nothing was changed."""

    settings: Effective
    plan: CompressionPlan


class CompressAnswer(Answer, frozen=True, kw_only=True, tag="compress"):
    """`memman compress`: the result of the compression; `session_file` holds the session."""

    session_file: str
    result: CompressionResult


class DiffAnswer(Answer, frozen=True, kw_only=True, tag="diff"):
    """`memman diff`: the originals of a compression and their replacements."""

    session_id: str
    comparison: Comparison


class WhyAnswer(Answer, frozen=True, kw_only=True, tag="why"):
    """`memman why`: the entries with a text, their replacements, and its places in the window.

    `recalled` are the texts of the next context that quote one of these entries.
    """

    session_id: str
    settings: Effective
    trace: Trace
    recalled: tuple[Recalled, ...] = ()


class UndoAnswer(Answer, frozen=True, kw_only=True, tag="undo"):
    """`memman undo`: the compressions that were undone, in this order, and the new totals."""

    session_file: str
    undone: tuple[str, ...]
    stats: SessionStats


class ExportAnswer(Answer, frozen=True, kw_only=True, tag="export"):
    """`memman export`: a context in its provider's format, and every rule that it breaks."""

    format: str
    system: str | None
    messages: tuple[dict[str, Any], ...]
    tokens: TokenCount
    budget: int
    trimmed: tuple[Replacement, ...]
    violations: tuple[Violation, ...]


class ReportAnswer(Answer, frozen=True, kw_only=True, tag="report"):
    """`memman report`: the file of the page, its size, and the number of added entries in it."""

    session_id: str
    report_file: str
    bytes: int
    entries: int


class ArchiveAnswer(Answer, frozen=True, kw_only=True, tag="export"):
    """`memman export -t memman-jsonl`: the content of the archive."""

    format: str
    session_file: str
    archive: ArchiveInfo


# ---------------------------------------------------------------- files


class ImportAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import` to stdout: the session, the log's format, and its totals (null if it is too long)."""

    format: str
    stats: SessionStats | None
    session: SessionState


class ImportFileAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import -o`: the file with the session."""

    format: str
    stats: SessionStats | None
    session_file: str


class ImportDatabaseAnswer(Answer, frozen=True, kw_only=True, tag="import"):
    """`memman import --into`: the database with the session, and its id there."""

    format: str
    stats: SessionStats | None
    database: str
    session_id: str


class SessionsAnswer(Answer, frozen=True, kw_only=True, tag="sessions"):
    """`memman sessions`: the sessions of a database, oldest first, and what they cost; null if unknown."""

    sessions: tuple[SessionInfo, ...]
    spend: Spend | None


class FollowAnswer(Answer, frozen=True, kw_only=True, tag="follow"):
    """`memman follow`: one record, and the cursor to continue after it; one document a line."""

    item: FeedItem


class VerifyAnswer(Answer, frozen=True, kw_only=True, tag="verify"):
    """`memman verify`: the content of a file, or its faults; values that a broken file hides are null."""

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


# ---------------------------------------------------------------- the installation


class FormatRow(msgspec.Struct, frozen=True):
    """A format: whether it can be written, and its number of rules."""

    format: str
    renders: bool
    rules: int


class FormatsAnswer(Answer, frozen=True, kw_only=True, tag="formats"):
    """`memman formats`: every format of messages and logs."""

    formats: tuple[FormatRow, ...]


class CountAnswer(Answer, frozen=True, kw_only=True, tag="count"):
    """`memman count`: the tokens of a text, their counter, and its accuracy."""

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
    """The count of one counter."""

    tokens: int
    method: Method
    accuracy: Accuracy
    counter: str
    cached: bool
    latency: float
    expected_output: int | None


class CountsAnswer(Answer, frozen=True, kw_only=True, tag="count"):
    """`memman count --all-counters`: the count of each counter that works here."""

    model: str | None
    characters: int
    counts: tuple[Counted, ...]


class ListedCounter(msgspec.Struct, frozen=True):
    """A counter: `missing` is the reason why it cannot work here, "" if it can.

    `families` are those with a model that it knows, `models` counts the models in the table of limits
    that it knows.
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
    """`memman counters explain`: a model's parts, its counter with the reasons, and its limits."""

    model: ModelRef
    candidates: tuple[Candidate, ...]
    limits: ModelInfo | None


class KnownModel(msgspec.Struct, frozen=True):
    """A model's limits in tokens, with their source and date, and its prices if they are known.

    `binds` is whether it refuses a thought behind changed messages, if that is not decided by its name.
    """

    model: str
    context: int
    max_input: int
    max_output: int
    source: str
    date: str
    prices: Prices | None = None
    binds: bool | None = None


class ModelsAnswer(Answer, frozen=True, kw_only=True, tag="models"):
    """`memman models`: the limits of models."""

    models: tuple[KnownModel, ...]


class CheckedModel(msgspec.Struct, frozen=True):
    """A model's limits, None if they are unknown, and the counter that counts for it."""

    model: str
    limits: ModelInfo | None
    counter: str


class CheckedModelsAnswer(Answer, frozen=True, kw_only=True, tag="models"):
    """`memman models --check`: the limits and the counter of each model of a file."""

    checked: tuple[CheckedModel, ...]


class PluginsAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins`: the installed plugins, including broken ones."""

    plugins: tuple[PluginInfo, ...]


class Law(msgspec.Struct, frozen=True):
    """A law and its outcome, with the reason if it failed or was not run."""

    law: str
    outcome: Literal["ok", "failed", "not run"]
    reason: str = ""


class CheckedCounter(msgspec.Struct, frozen=True):
    """The laws of one counter of a plugin; `model` is the one it was made for."""

    counter: str
    remote: bool
    model: str | None
    laws: tuple[Law, ...]


class CheckedSummarizer(msgspec.Struct, frozen=True):
    """The laws of one summarizer of a plugin."""

    summarizer: str
    laws: tuple[Law, ...]


class CheckedPluginAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins --check`: the laws of each counter of a plugin, or of the named summarizer."""

    plugin: str
    counters: tuple[CheckedCounter, ...]
    summarizers: tuple[CheckedSummarizer, ...]


class ScaffoldAnswer(Answer, frozen=True, kw_only=True, tag="plugins"):
    """`memman plugins --scaffold`: the files that were written, by their names in `folder`."""

    folder: str
    files: tuple[str, ...]


# ---------------------------------------------------------------- the demo


class DemoCompression(msgspec.Struct, frozen=True, kw_only=True):
    """One compression of the demo, with the tokens and the reason of its event.

    `replaced` counts the entries that left the window by method, including earlier summaries and stubs.
    """

    number: int
    entry: int
    tokens_before: int
    tokens_after: int
    reason: str
    replaced: dict[str, int]


class DemoAnswer(Answer, frozen=True, kw_only=True, tag="demo"):
    """`memman demo`: the result of playing a log through a window; `faults` are the broken promises.

    `refused` are contexts that could not be built within the budget. `required` is the budget that the
    largest of them needs, and `enough` one that was tried and is enough (null if all were built).
    `with_rules` counts the contexts with all rules that the user of the generated log states at first.
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
    with_rules: int | None = None
    largest: int
    over_budget: int
    refused: tuple[str, ...]
    required: int | None
    enough: int | None = None
    violations: tuple[str, ...]
    entries_lost: int
    import_equals_export: bool
    usage: Usage
