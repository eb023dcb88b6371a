"""`memman export`, `check` and `formats`: contexts in a provider's format, and its rules."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click
import msgspec

from memman.archive.info import Packing
from memman.core.resolver import known_formats
from memman.errors import BudgetExceeded
from memman.formats.rules import RULES, Violation, check
from memman.results import Context
from memman_cli import answers, display, options
from memman_cli.answers import write_answer
from memman_cli.archives import FORMAT, write_archive
from memman_cli.commands.compression import enough_budget
from memman_cli.errors import FindingError, UnusableError
from memman_cli.files import STDIN
from memman_cli.log_formats import IMPORT_FORMATS
from memman_cli.logs import read_log
from memman_cli.output import note, say, write_data, write_json
from memman_cli.sessions import Session, check_target, load
from memman_cli.words import entries_of, plural


@click.command()
@options.session
@click.option(
    "-t",
    "--to",
    "--format",
    "target",
    default="openai-chat",
    show_default=True,
    metavar="FORMAT",
    help="openai-chat, openai-responses, anthropic, gemini, bedrock, mistral, langchain, text, "
    "or a plugin's; memman-jsonl: the whole session as an archive.",
)
@click.option("-o", "--output", help='With memman-jsonl: the archive to write; "-" is stdout.')
@click.option(
    "--packing",
    type=click.Choice(["none", "gzip", "zstd"]),
    help="With memman-jsonl: the compression; default: by the file's suffix (.gz, .zst).",
)
@options.force
@options.budget("The budget of the context; default: the session's own.")
@options.model
@options.json
def export(
    session: str,
    target: str,
    output: str | None,
    packing: Packing | None,
    force: bool,
    budget: int | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Write the context of the session S in a provider's format.

    openai-chat, openai-responses, mistral, langchain: a list. anthropic: an object with `system` and
    `messages`; bedrock: the same, the system prompt as a block; gemini: an object with
    `systemInstruction` and `contents`.
    """
    if target == FORMAT:
        _archive(session, output or STDIN, packing, force, as_json)
        return
    if output is not None or packing is not None:
        raise UnusableError(
            f"-o and --packing go with --format {FORMAT}; other formats go to stdout"
        )
    opened = load(session, model)
    context = _build(opened, target, budget)
    faults = check(context.messages, target, system=context.system) if target in RULES else []
    if as_json:
        write_answer(_answer(context, faults))
    elif target == "text":
        write_data(f"{context.text}\n")
    else:
        write_json(_request(context))
    _note_size(context)
    for fault in faults:
        note(_fault_line(fault))
    if faults:
        raise FindingError(f"the context breaks {plural(len(faults), 'rule')} of {target}")


def _archive(
    session: str, output: str, packing: Packing | None, force: bool, as_json: bool
) -> None:
    """Write the whole session; that of a database is not held in memory."""
    if output == STDIN and as_json:
        raise UnusableError("the archive and --json both want stdout; name a file with -o")
    opened = load(session, to=session)
    check_target(output, opened.id, force)
    with display.progress("exporting"):
        info = write_archive(opened.memory, opened.id, output, packing)
    if as_json:
        write_answer(answers.ArchiveAnswer(format=FORMAT, session_file=output, archive=info))
    records = plural(info.records, "record")
    note(f"{records}, {entries_of(info.entries)}, {info.bytes:,} bytes unpacked")


def _build(opened: Session, target: str, budget: int | None) -> Context:
    """Return the context. Raises `FindingError` with a budget that is enough."""

    def required_at(tried: int) -> int | None:
        try:
            opened.memory.build_context(opened.id, format=target, budget=tried)
        except BudgetExceeded as error:
            return error.required
        return None

    try:
        return opened.memory.build_context(opened.id, format=target, budget=budget)
    except BudgetExceeded as error:
        enough = enough_budget(error.available, error.required, required_at)
        if enough is None:
            raise
        raise FindingError(
            f"the protected part of the context does not fit: the budget is {error.available:,} tokens; "
            f"the smallest that is enough is about {enough:,}: --budget {enough}"
        ) from None


def _request(context: Context) -> bytes:
    body: Any = context.messages
    system = context.system
    if context.format == "gemini":
        head = {} if system is None else {"systemInstruction": {"parts": [{"text": system}]}}
        body = {**head, "contents": body}
    elif system is not None:
        blocks: Any = [{"text": system}] if context.format == "bedrock" else system
        body = {"system": blocks, "messages": body}
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"


def _answer(context: Context, faults: list[Violation]) -> answers.ExportAnswer:
    return answers.ExportAnswer(
        format=context.format,
        system=context.system,
        messages=tuple(context.messages),
        tokens=context.tokens,
        budget=context.budget,
        trimmed=context.trimmed,
        violations=tuple(faults),
    )


def _note_size(context: Context) -> None:
    messages = plural(len(context), "message")
    line = f"{messages}, {context.tokens.tokens:,} of {context.budget:,} tokens"
    if context.trimmed:
        cut = sum(len(item.ids) for item in context.trimmed)
        entries = plural(cut, "entry was", "entries were")
        line += f"; {entries} shortened in this copy to fit, the session keeps the originals"
    note(line)


def _fault_line(fault: Violation) -> str:
    return f"message {fault.index}: {fault.rule}: {fault.message}"


# ---------------------------------------------------------------- formats and their rules


@click.command()
@options.json
def formats(as_json: bool) -> None:
    """List the formats, their use and their number of rules."""
    found = [answers.FormatRow(name, True, len(RULES.get(name, ()))) for name in known_formats()]
    found += [answers.FormatRow(form.name, False, 0) for form in IMPORT_FORMATS]
    if as_json:
        write_answer(answers.FormatsAnswer(formats=tuple(found)))
        return
    rows = [_format_row(form) for form in found]
    display.print_table(display.open_console(), ("format", "use", ">rules"), rows)


def _format_row(form: answers.FormatRow) -> display.Row:
    use = "read and written" if form.renders else "read only"
    return display.Row((form.format, use, f"{form.rules or '-'}"))


@click.command("check")
@click.argument("log", metavar="LOG")
@click.option("-t", "--to", "target", metavar="FORMAT", help="The rules; default: LOG's format.")
@options.message_format("The messages' format; auto detects it.")
@options.json
def check_log(log: str, target: str | None, message_format: str, as_json: bool) -> None:
    """Check the messages of LOG against the rules of a provider.

    The messages must be in the provider's own format; `memman import` and `memman export -t` convert any
    log to valid ones.
    """
    found = read_log(log, message_format)
    target = target or found.format
    if target not in RULES:
        raise UnusableError(f"there are no rules for {target!r}; known are {', '.join(RULES)}")
    messages = found.messages
    # A log in another format would break every rule of shape, which helps nobody.
    if found.format != target and not known_formats()[target].detect(messages):
        raise UnusableError(
            f"{found.name} is in the format {found.format}, not {target}; make a context of it: "
            f"`memman import {quote(log)} -o S.json`, then `memman export S.json -t {target}`"
        )
    # The Responses API has its own key for the system prompt.
    system = None if target == "openai-responses" else found.system
    faults = check(messages, target, system=system)
    if as_json:
        write_answer(
            answers.CheckAnswer(format=found.format, target=target, violations=tuple(faults))
        )
    else:
        for fault in faults:
            say(_fault_line(fault))
    if faults:
        raise FindingError(f"{found.name} breaks {plural(len(faults), 'rule')} of {target}")
    note(f"{found.name}: {plural(len(messages), 'message')}, no rule of {target} is broken")
