"""`memman export`: what to send to a model, checked against its provider's rules."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from memman.archive import Packing
from memman.cli.answers import ArchiveAnswer, ExportAnswer, answer
from memman.cli.archives import FORMAT, write_archive
from memman.cli.display import counted
from memman.cli.fitting import enough
from memman.cli.lines import STDIN
from memman.cli.options import (
    budget_option,
    force_option,
    json_option,
    model_option,
    note,
    session_argument,
)
from memman.cli.output import write_data, write_json
from memman.cli.problems import FindingError, UnusableError
from memman.cli.progress import working
from memman.cli.session_files import Session, check_target, load
from memman.errors import BudgetExceeded
from memman.formats.rules import RULES, Violation, check
from memman.results import Context


@click.command()
@session_argument
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
    help="With memman-jsonl: how it is packed; by the file's suffix (.gz, .zst) if not given.",
)
@force_option
@budget_option("What the context must fit; the session's own budget if none.")
@model_option
@json_option
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
    """Writes the context of the session S as its provider takes it.

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
    context = _built(opened, target, budget)
    faults = check(context.messages, target, system=context.system) if target in RULES else []
    if as_json:
        answer(_told(context, faults))
    elif target == "text":
        write_data(f"{context.text}\n")
    else:
        write_json(_request(context))
    _notes(context)
    for fault in faults:
        note(f"message {fault.index}: {fault.rule}: {fault.message}")
    if faults:
        raise FindingError(f"the context breaks {counted(len(faults), 'rule')} of {target}")


def _archive(
    session: str, output: str, packing: Packing | None, force: bool, as_json: bool
) -> None:
    """Writes the whole session, of a database without holding it in memory."""
    if output == STDIN and as_json:
        raise UnusableError("the archive and --json both want stdout; name a file with -o")
    opened = load(session, to=session)
    check_target(output, opened.id, force)
    with working("exporting"):
        info = write_archive(opened.memory, opened.id, output, packing)
    if as_json:
        answer(ArchiveAnswer(format=FORMAT, session_file=output, archive=info))
    entries = counted(info.entries, "entry", "entries")
    note(f"{counted(info.records, 'record')}, {entries}, {info.bytes:,} bytes unpacked")


def _built(opened: Session, target: str, budget: int | None) -> Context:
    """The context, or a `FindingError` that says which budget would serve."""

    def required_at(tried: int) -> int | None:
        try:
            opened.memory.build_context(opened.id, format=target, budget=tried)
        except BudgetExceeded as error:
            return error.required
        return None

    try:
        return opened.memory.build_context(opened.id, format=target, budget=budget)
    except BudgetExceeded as error:
        serves = enough(error.available, error.required, required_at)
        if serves is None:
            raise
        raise FindingError(
            f"what must stay in the context does not fit: the budget is {error.available:,} tokens; "
            f"the smallest that serves is about {serves:,}: --budget {serves}"
        ) from None


def _request(context: Context) -> bytes:
    body: Any = context.messages
    if context.system is not None or context.format == "gemini":
        body = _REQUESTS.get(context.format, _plain_request)(context.system, context.messages)
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"


def _plain_request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    return {"system": system, "messages": messages}


def _bedrock_request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    return {"system": [{"text": system}], "messages": messages}


def _gemini_request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    head = {} if system is None else {"systemInstruction": {"parts": [{"text": system}]}}
    return {**head, "contents": messages}


_REQUESTS = {"bedrock": _bedrock_request, "gemini": _gemini_request}


def _told(context: Context, faults: list[Violation]) -> ExportAnswer:
    return ExportAnswer(
        format=context.format,
        system=context.system,
        messages=tuple(context.messages),
        tokens=context.tokens,
        budget=context.budget,
        trimmed=context.trimmed,
        violations=tuple(faults),
    )


def _notes(context: Context) -> None:
    messages = counted(len(context), "message")
    said = f"{messages}, {context.tokens.tokens:,} of {context.budget:,} tokens"
    if context.trimmed:
        cut = sum(len(item.ids) for item in context.trimmed)
        entries = counted(cut, "entry was", "entries were")
        said += f"; {entries} shortened in this copy to fit, the session keeps all of it"
    note(said)
