"""`memman import`: a log becomes a session."""

from __future__ import annotations

from pathlib import Path

import click

from memman.cli.display import counted, counted_by
from memman.cli.fitting import check_fit
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
from memman.cli.session_files import check_target, save
from memman.config import MemoryConfig
from memman.events import CompressionResult
from memman.manager import MemoryManager


@click.command("import")
@click.argument("log", metavar="LOG", type=FILE)
@click.option(
    "-o", "--output", default=STDIN, help='The session file to write; "-", the default, is stdout.'
)
@format_option("The messages' format; auto detects it.")
@click.option("--session", "session_id", metavar="ID", help="The session's id; LOG's name if none.")
@budget_option("Compress to fit this many tokens; without it nothing is compressed.")
@model_option
@force_option
@json_option
def import_log(
    log: str,
    output: str,
    message_format: str,
    session_id: str | None,
    budget: int | None,
    model: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Turns the messages of LOG into a session.

    LOG is JSON (a list of messages, or a request with `messages`), JSON lines with a message a
    line, or text; "-" reads stdin.
    """
    if session_id == "":
        raise UnusableError("--session is empty: give the session a name")
    name = session_id or _name(log)
    check_target(output, name, force)
    found = read_log(log, message_format)
    memory = MemoryManager(config=MemoryConfig(auto_compress=False))
    settings = {"model": model, "max_tokens": budget}
    if given := {key: value for key, value in settings.items() if value is not None}:
        memory.update_config(name, **given)
    done = _added(memory, name, found, budget)
    state = memory.export_session(name)
    note(_told(memory, name, found, model))
    if done is not None and done.compression_id is not None:
        note(f"compressed {done.tokens_before:,} -> {done.tokens_after:,} tokens")
    if output != STDIN or not as_json:
        save(state, output, force)
    if as_json:
        stats = memory.get_stats(name)
        document = {"session_file": output} if output != STDIN else {"session": state}
        answer("import", format=found.format, stats=stats, **document)
    if budget is not None:
        check_fit(memory, name)


def _name(log: str) -> str:
    return Path(log).stem if log != STDIN else "stdin"


def _added(
    memory: MemoryManager, session_id: str, log: Log, budget: int | None
) -> CompressionResult | None:
    """Adds all of the log at once, and compresses once when it is over a budget."""
    if log.system:
        memory.add_system_message(session_id, log.system)
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
