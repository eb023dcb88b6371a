"""`memman import`: a log becomes a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from memman.archive import SessionState
from memman.cli.archives import archived_session, read_archive, spooled
from memman.cli.databases import database
from memman.cli.display import counted, counted_by, harmless
from memman.cli.fitting import check_fit
from memman.cli.logs import take_log
from memman.cli.options import (
    FILE,
    answer,
    budget_option,
    force_option,
    format_option,
    json_option,
    model_option,
    note,
)
from memman.cli.problems import UnusableError
from memman.cli.reading import STDIN, Log, read_log
from memman.cli.session_files import check_target, is_session, load, save
from memman.config import MemoryConfig
from memman.events import CompressionResult
from memman.manager import MemoryManager, OnConflict


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
@force_option
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
    force: bool,
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
    name = session_id or _name(log)
    check_target(output, name, force)
    found = read_log(file, message_format, conversation)
    if log == STDIN:
        found = msgspec.structs.replace(found, name="stdin")
    memory = _manager_for(name, found)
    settings = {"model": model, "max_tokens": budget}
    if given := {key: value for key, value in settings.items() if value is not None}:
        memory.update_config(name, **given)
    done = _added(memory, name, found, budget)
    state = memory.export_session(name)
    note(_told(memory, name, found, model))
    if done is not None and done.compression_id is not None:
        note(f"compressed {done.tokens_before:,} -> {done.tokens_after:,} tokens")
    document: dict[str, Any] = {"session_file": output} if output != STDIN else {"session": state}
    if into is not None:
        document = {"database": into, "session_id": _stored(state, into, on_conflict)}
    elif output != STDIN or not as_json:
        save(state, output, force)
    if as_json:
        stats = memory.get_stats(name)
        answer("import", format=found.format, stats=stats, **document)
    if budget is not None:
        check_fit(memory, name)


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
        document = {"session_file": output} if output != STDIN else {"session": opened.state}
        told = opened.memory, opened.id
    else:
        memory = database(into)
        kept = (
            read_archive(memory, file, on_conflict)
            if archived_session(file) is not None
            else memory.import_session(load(file).state, on_conflict)
        )
        document = {"database": into, "session_id": kept}
        told = memory, kept
    stats = told[0].get_stats(told[1])
    note(f"session {harmless(repr(told[1]))}: {counted(stats.total_entries, 'entry', 'entries')}")
    if as_json:
        answer("import", format="session", stats=stats, **document)


def _stored(state: SessionState, into: str, on_conflict: OnConflict) -> str:
    """Puts a session into a database; the id that it has there."""
    return database(into).import_session(state, on_conflict)


def _name(log: str) -> str:
    return Path(log).stem if log != STDIN else "stdin"


def _manager_for(session_id: str, log: Log) -> MemoryManager:
    """A manager for the session; what is only read is in it already, with its own times."""
    memory = MemoryManager(config=MemoryConfig(auto_compress=False))
    if log.read is not None:
        take_log(memory, session_id, log.read)
    return memory


def _added(
    memory: MemoryManager, session_id: str, log: Log, budget: int | None
) -> CompressionResult | None:
    """Adds all of the log at once, and compresses once when it is over a budget."""
    if log.system:
        memory.add_system_message(session_id, log.system)
    if log.read is None:
        memory.add_messages(session_id, log.messages, log.format)
    stats = memory.get_stats(session_id)
    if budget is None or stats.active_tokens + stats.overhead_tokens <= budget:
        return None
    return memory.compress(session_id)


def _told(memory: MemoryManager, session_id: str, log: Log, model: str | None) -> str:
    stats = memory.get_stats(session_id)
    by = counted_by(memory.get_entries(session_id)[0].token_count, model)
    return (
        f"{log.name}: {log.format}, {counted(len(log), 'message')}, "
        f"{counted(stats.total_entries, 'entry', 'entries')}, "
        f"{counted(stats.total_tokens, 'token')} {by}"
    )
