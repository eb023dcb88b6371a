"""`memman import` and `memman verify`: a log becomes a session, and a session file is checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click
import msgspec

from memman.archive.document import SessionState
from memman.archive.importer import verify as verify_archive
from memman.archive.info import OnConflict
from memman.entries import check_id
from memman.errors import MemmanError, StateError
from memman.manager import MemoryManager
from memman.results import SessionStats
from memman.stores import without_password
from memman_cli import answers, display, options
from memman_cli.answers import write_answer
from memman_cli.archives import (
    FORMAT,
    archived_records,
    archived_session,
    import_archive,
    import_own_archive,
    is_archive_name,
    write_archive,
)
from memman_cli.commands.compression import check_fit, strictly
from memman_cli.conversion import MOST_IN_DOCUMENT, counter_for, import_log, records_of_log
from memman_cli.databases import create_database, quiet_manager
from memman_cli.errors import UNREADABLE, UnusableError
from memman_cli.files import STDIN, File, display_name, on_disk, read_bytes, temporary_folder
from memman_cli.logs import Log, log_in
from memman_cli.output import note, say
from memman_cli.sessions import check_target, is_session, load, parse_document, save, session_name
from memman_cli.words import counter_note, entries_of, plural


@click.command("import")
@click.argument("log", metavar="LOG", type=options.FILE)
@click.option(
    "-o", "--output", default=STDIN, help='The session file to write; "-", the default, is stdout.'
)
@options.message_format("The messages' format; auto detects it.")
@click.option(
    "--conversation", metavar="NUMBER", help="Which one, if LOG has several; or its title."
)
@click.option(
    "--session", "session_id", metavar="ID", help="The session's id; default: LOG's name."
)
@options.budget("Compress to fit this many tokens; default: no compression.")
@options.model
@click.option("--into", metavar="DB", help="The database to put the session in, instead of -o.")
@click.option(
    "--on-conflict",
    type=click.Choice(["fail", "skip", "new_session"]),
    default="fail",
    show_default=True,
    help="With --into: what to do if the database has a session with this id.",
)
@click.option(
    "--branch",
    type=click.Choice(["all", "active"]),
    default="all",
    show_default=True,
    help="Whether abandoned branches of a log are kept, outside the window.",
)
@options.limit
@options.force
@options.strict
@options.json
def import_command(
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
    """Turn the messages of LOG into a session.

    LOG is JSON (a list of messages, or a request with `messages`), JSON lines with a message a
    line, text, the session file of Claude Code or Codex, a ChatGPT export, ShareGPT, or OpenTelemetry's
    GenAI messages; "-" reads stdin. The session of an archive or a document is imported unchanged.
    """
    if into is not None and output != STDIN:
        raise UnusableError("-o and --into contradict each other: give one of the two")
    target = _Target(output, into, on_conflict, force, strict, as_json)
    name, local = display_name(log), on_disk(log)
    if is_session(local):
        if (session_id, budget, model) != (None, None, None):
            raise UnusableError(f"{log} is a session: --session, --budget and --model are for logs")
        _import_session(local, target)
        return
    if session_id == "":
        raise UnusableError("--session is empty: give the session a name")
    session = session_id or session_name(name)
    check_id(session, "--session" if session_id else "the log's name")
    check_target(output, session, force)
    given = {"model": model, "max_tokens": budget}
    settings = {key: value for key, value in given.items() if value is not None}
    streamed = budget is None and not strict and (into is not None or is_archive_name(output))
    with display.progress("importing") as watch:
        file = File(name, Path(local), watch=watch)
        found = log_in(file, message_format, conversation, branch == "all")
        imported = (_stream if streamed else _import_whole)(found, session, settings, target)
    # The window of a longer session is not read for its totals.
    short = imported.entries <= MOST_IN_DOCUMENT
    stats = imported.memory.get_stats(imported.session_id) if short else None
    note(_summary_line(found, imported, stats, model))
    for item in found.left_out:
        note(f"left out: {item}")
    if imported.compressed:
        note(imported.compressed)
    if as_json:
        write_answer(target.answer(found.format, stats, imported.stored_id, imported.state))
    if budget is not None:
        check_fit(imported.memory, imported.session_id)


class _Target(msgspec.Struct, frozen=True):
    """The options for the target of an import."""

    output: str
    into: str | None
    on_conflict: OnConflict
    force: bool
    strict: bool
    as_json: bool

    def save(self, state: SessionState) -> None:
        """Write the session to the file, unless a JSON answer on stdout holds it."""
        if self.output != STDIN or not self.as_json:
            save(state, self.output, self.force)

    def answer(
        self, form: str, stats: SessionStats | None, session_id: str, state: SessionState | None
    ) -> answers.Answer:
        """Return the JSON document of the import."""
        if self.into is not None:
            database = without_password(self.into)
            return answers.ImportDatabaseAnswer(
                format=form, stats=stats, database=database, session_id=session_id
            )
        if self.output != STDIN or state is None:
            return answers.ImportFileAnswer(format=form, stats=stats, session_file=self.output)
        return answers.ImportAnswer(format=form, stats=stats, session=state)


class _Imported(msgspec.Struct, frozen=True):
    """An imported log: its session in a manager, its id in the target, and its document if it has one."""

    memory: MemoryManager
    session_id: str
    stored_id: str
    entries: int
    state: SessionState | None = None
    compressed: str = ""


def _stream(found: Log, name: str, settings: dict[str, Any], target: _Target) -> _Imported:
    """Import a log of any length into a database or an archive, a piece of it in memory at a time."""
    model = settings.get("model")
    count = counter_for(found, quiet_manager(model=model))
    records = records_of_log(found.read(), count, settings)
    with archived_records(name, records, temporary_folder()) as (file, entries):
        database = target.into or str(temporary_folder() / "session.db")
        memory = create_database(database, model)
        session_id = import_own_archive(memory, file, target.on_conflict)
    if target.into is None:
        write_archive(memory, session_id, target.output)
    return _Imported(memory, session_id, session_id, entries)


def _import_whole(found: Log, name: str, settings: dict[str, Any], target: _Target) -> _Imported:
    """Import a log in one piece, and compress it if it is over its budget."""
    memory = quiet_manager(model=settings.get("model"))
    compressed = ""
    with strictly(memory, target.strict):
        import_log(memory, found, name, settings, MOST_IN_DOCUMENT)
        stats, budget = memory.get_stats(name), settings.get("max_tokens")
        if budget is not None and stats.active_tokens + stats.overhead_tokens > budget:
            result = memory.compress(name)
            if result.compression_id is not None:
                change = f"{result.tokens_before:,} -> {result.tokens_after:,} tokens"
                compressed = f"compressed {change}"
    state = memory.export_session(name)
    stored = name
    if target.into is None:
        target.save(state)
    else:
        database = create_database(target.into)
        stored = database.import_session(state, target.on_conflict, trust_settings=True)
    return _Imported(memory, name, stored, len(state.entries), state, compressed)


def _summary_line(
    log: Log, imported: _Imported, stats: SessionStats | None, model: str | None
) -> str:
    messages = plural(len(log), "message")
    line = f"{log.name}: {log.format}, {messages}, {entries_of(imported.entries)}"
    if stats is None:
        return line
    line += f", {plural(stats.total_tokens, 'token')}"
    window = imported.memory.get_active_entries(imported.session_id)  # loaded for the totals
    return f"{line} {counter_note(window[0].token_count, model)}" if window else line


def _import_session(file: str, target: _Target) -> None:
    """Import a session unchanged into a database, or into a file of the other kind."""
    state: SessionState | None = None
    if target.into is None:
        opened = load(file)
        memory, session_id, state = opened.memory, opened.id, opened.state
        target.save(state)
    else:
        memory = create_database(target.into)
        if archived_session(file) is not None:
            session_id = import_archive(memory, file, target.on_conflict)
        else:
            session_id = memory.import_session(load(file).state, target.on_conflict)
    stats = memory.get_stats(session_id)
    note(f"session {session_id!r}: {entries_of(stats.total_entries)}")
    if target.as_json:
        write_answer(target.answer("session", stats, session_id, state))


# ---------------------------------------------------------------- verify


@click.command()
@click.argument("file", metavar="FILE")
@options.limit
@options.json
def verify(file: str, as_json: bool) -> None:
    """Check an archive or a session document to its end.

    "-" reads stdin. Nothing is changed. Every fault of an archive is listed with its line;
    the exit code is then 3.
    """
    name, local = display_name(file), on_disk(file)
    try:
        answer = _verified(local, name)
    except MemmanError as error:
        problems = error.problems if isinstance(error, StateError) else (str(error),)
        answer = answers.VerifyAnswer(file=name, ok=False, problems=problems)
    if as_json:
        write_answer(answer)
    if not answer.ok:
        note(f"memman: {name} is not sound: {plural(len(answer.problems), 'fault')}")
        for problem in answer.problems:
            note(f"  - {problem}")
        click.get_current_context().exit(UNREADABLE)
    if not as_json:
        content = f"{plural(answer.records or 0, 'record')}, {entries_of(answer.entries or 0)}"
        say(f"{name}: OK, {answer.format} of session {answer.session_id!r}, {content}")
        say(f"SHA-256 {answer.sha256}")


def _verified(path: str, name: str) -> answers.VerifyAnswer:
    """Return the content of a sound file."""
    if archived_session(path) is not None:
        with display.progress("verifying") as watch, Path(path).open("rb") as source:
            info = verify_archive(watch(source), limits=options.archive_limits())
        return answers.VerifyAnswer(
            file=name,
            ok=True,
            format=FORMAT,
            session_id=info.session_id,
            records=info.records,
            entries=info.entries,
            sha256=info.sha256,
        )
    data = read_bytes(path)
    state = parse_document(data, name)
    quiet_manager().import_session(state)
    return answers.VerifyAnswer(
        file=name,
        ok=True,
        format=state.format,
        session_id=state.session_id,
        records=len(state.log),
        entries=len(state.entries),
        sha256=hashlib.sha256(data).hexdigest(),
    )
