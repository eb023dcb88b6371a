"""`memman import`: a log becomes a session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from memman.archive import SessionState
from memman.cli.answers import Answer, ImportAnswer, ImportDatabaseAnswer, ImportFileAnswer, answer
from memman.cli.archives import (
    archived_records,
    archived_session,
    is_archive_name,
    read_archive,
    read_own_archive,
    spooled,
    write_archive,
)
from memman.cli.databases import database, quiet_manager
from memman.cli.display import counted, counted_by
from memman.cli.fitting import check_fit
from memman.cli.lines import STDIN, File
from memman.cli.logs import MOST_IN_DOCUMENT, records_of_log
from memman.cli.options import (
    FILE,
    budget_option,
    force_option,
    format_option,
    json_option,
    limit_option,
    model_option,
    note,
)
from memman.cli.problems import UnusableError
from memman.cli.progress import working
from memman.cli.reading import Log, log_in
from memman.cli.session_files import check_target, is_session, load, save, session_name
from memman.cli.strictness import strict_option, strictly
from memman.entries import check_id
from memman.events import CompressionResult
from memman.manager import MemoryManager
from memman.results import SessionStats
from memman.session import OnConflict
from memman.stores import without_password


@click.command("import")
@click.argument("log", metavar="LOG", type=FILE)
@click.option(
    "-o", "--output", default=STDIN, help='The session file to write; "-", the default, is stdout.'
)
@format_option("The messages' format; auto detects it.")
@click.option(
    "--conversation", metavar="NUMBER", help="Which one, where LOG has several; or its title."
)
@click.option("--session", "session_id", metavar="ID", help="The session's id; LOG's name if none.")
@budget_option("Compress to fit this many tokens; without it nothing is compressed.")
@model_option
@click.option("--into", metavar="DB", help="The database to put the session in, instead of -o.")
@click.option(
    "--on-conflict",
    type=click.Choice(["fail", "skip", "new_session"]),
    default="fail",
    show_default=True,
    help="With --into: what to do where the database has a session of this id.",
)
@click.option(
    "--branch",
    type=click.Choice(["all", "active"]),
    default="all",
    show_default=True,
    help="Whether branches that a log left behind are kept, out of the window.",
)
@limit_option
@force_option
@strict_option
@json_option
def import_log(
    log: str,
    output: str,
    into: str | None,
    on_conflict: OnConflict,
    message_format: str,
    conversation: str | None,
    session_id: str | None,
    budget: int | None,
    model: str | None,
    branch: str,
    force: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Turns the messages of LOG into a session.

    LOG is JSON (a list of messages, or a request with `messages`), JSON lines with a message a
    line, text, the session file of Claude Code or Codex, a ChatGPT export, ShareGPT, or OpenTelemetry's
    GenAI messages; "-" reads stdin. An archive or a session document is taken as it is.
    """
    file = spooled(log)
    for_logs = (session_id, budget, model) != (None, None, None)
    if _is_session(log, file, for_logs, into is not None and output != STDIN):
        _take(file, output, into, on_conflict, force, as_json)
        return
    if session_id == "":
        raise UnusableError("--session is empty: give the session a name")
    name = session_id or session_name("stdin" if log == STDIN else log)
    check_id(name, "--session" if session_id else "the log's name")
    check_target(output, name, force)
    source = File("stdin" if log == STDIN else log, Path(file))
    found = log_in(source, message_format, conversation)
    found.branches = branch == "all"
    settings = {"model": model, "max_tokens": budget}
    settings = {key: value for key, value in settings.items() if value is not None}
    to = _Target(output, into, on_conflict, force, strict, as_json)
    with working("importing") as source.watch:
        long = budget is None and not strict and (into is not None or is_archive_name(output))
        done = (_streamed if long else _gathered)(found, name, settings, to)
    stats = done.stats()
    note(_told(found, done, stats, model))
    for what in found.left_out:
        note(f"left out: {what}")
    if done.compressed:
        note(done.compressed)
    if as_json:
        answer(done.document(format=found.format, stats=stats))
    if budget is not None:
        check_fit(done.memory, done.session_id)


Document = Callable[..., Answer]  # what is left to say is the format and the totals


class _Target(msgspec.Struct, frozen=True):
    """Where a session goes, as the options say it."""

    output: str
    into: str | None
    on_conflict: OnConflict
    force: bool
    strict: bool
    as_json: bool


class _Done(msgspec.Struct, frozen=True):
    """What an import made: the session in its manager, how many entries it has, and where it is."""

    memory: MemoryManager
    session_id: str
    entries: int
    document: Document
    compressed: str = ""

    def stats(self) -> SessionStats | None:
        """The session's; None where its window is too long to be read for that."""
        long = self.entries > MOST_IN_DOCUMENT
        return None if long else self.memory.get_stats(self.session_id)


def _streamed(found: Log, name: str, settings: dict[str, Any], to: _Target) -> _Done:
    """Puts a log of any length into a database or an archive, a piece of it in memory at a time."""
    model = settings.get("model")
    records = records_of_log(found.read(), found.counting(quiet_manager(model=model)), settings)
    with archived_records(name, records) as (file, entries):
        memory = database(_place(to.into), model)
        session_id = read_own_archive(memory, file, to.on_conflict)
    if to.into is None:
        write_archive(memory, session_id, to.output)
        return _Done(memory, session_id, entries, partial(ImportFileAnswer, session_file=to.output))
    return _Done(memory, session_id, entries, _in_database(to.into, session_id))


def _place(into: str | None) -> str:
    """The database, or one that goes when the command ends."""
    if into is not None:
        return into
    folder = tempfile.TemporaryDirectory(prefix="memman-")
    click.get_current_context().call_on_close(folder.cleanup)
    return f"{folder.name}/session.db"


def _gathered(found: Log, name: str, settings: dict[str, Any], to: _Target) -> _Done:
    """Makes one document of a log, which is in memory as a whole, and compresses it where it is over."""
    memory = quiet_manager(model=settings.get("model"))
    with strictly(memory, to.strict):
        found.fill(memory, name, settings, MOST_IN_DOCUMENT)
        done = _compressed(memory, name, settings.get("max_tokens"))
    state = memory.export_session(name)
    document = _in_file(state, to.output)
    if to.into is not None:
        document = _in_database(to.into, _stored(state, to.into, to.on_conflict))
    elif to.output != STDIN or not to.as_json:
        save(state, to.output, to.force)
    said = ""
    if done is not None and done.compression_id is not None:
        said = f"compressed {done.tokens_before:,} -> {done.tokens_after:,} tokens"
    return _Done(memory, name, len(state.entries), document, said)


def _told(log: Log, done: _Done, stats: SessionStats | None, model: str | None) -> str:
    """What was read, in a line."""
    messages = counted(len(log), "message")
    said = f"{log.name}: {log.format}, {messages}, {counted(done.entries, 'entry', 'entries')}"
    if stats is None:
        return said
    said += f", {counted(stats.total_tokens, 'token')}"
    window = done.memory.get_active_entries(done.session_id)  # which is there for the totals
    return f"{said} {counted_by(window[0].token_count, model)}" if window else said


def _is_session(log: str, file: str, for_logs: bool, two_targets: bool) -> bool:
    """Whether it is a session to be taken as it is. Raises `UnusableError` for options that cannot be."""
    if two_targets:
        raise UnusableError("-o and --into contradict each other: give one of the two")
    if not is_session(file):
        return False
    if for_logs:
        raise UnusableError(f"{log} is a session: --session, --budget and --model are for logs")
    return True


def _take(
    file: str, output: str, into: str | None, on_conflict: OnConflict, force: bool, as_json: bool
) -> None:
    """Takes a session in as it is: into a database, or into a file of the other kind."""
    if into is None:
        opened = load(file)
        if output != STDIN or not as_json:
            save(opened.state, output, force)
        document = _in_file(opened.state, output)
        told = opened.memory, opened.id
    else:
        memory = database(into)
        with working("importing") as watch:
            kept = (
                read_archive(memory, file, on_conflict, watch)
                if archived_session(file) is not None
                else memory.import_session(load(file).state, on_conflict)
            )
        document = _in_database(into, kept)
        told = memory, kept
    stats = told[0].get_stats(told[1])
    note(f"session {told[1]!r}: {counted(stats.total_entries, 'entry', 'entries')}")
    if as_json:
        answer(document(format="session", stats=stats))


def _in_file(state: SessionState, output: str) -> Document:
    """The session itself where it goes to no file."""
    if output == STDIN:
        return partial(ImportAnswer, session=state)
    return partial(ImportFileAnswer, session_file=output)


def _in_database(into: str, session_id: str) -> Document:
    return partial(ImportDatabaseAnswer, database=without_password(into), session_id=session_id)


def _stored(state: SessionState, into: str, on_conflict: OnConflict) -> str:
    """Puts a session into a database; the id that it has there."""
    return database(into).import_session(state, on_conflict, trust_settings=True)


def _compressed(
    memory: MemoryManager, session_id: str, budget: int | None
) -> CompressionResult | None:
    """Compresses once where the session is over a budget."""
    stats = memory.get_stats(session_id)
    if budget is None or stats.active_tokens + stats.overhead_tokens <= budget:
        return None
    return memory.compress(session_id)
