"""`memman formats`: which message formats and logs are known; `memman check`: a log under their rules."""

from __future__ import annotations

from shlex import quote

import click

from memman.cli.answers import CheckAnswer, FormatRow, FormatsAnswer, answer
from memman.cli.display import Row, console, counted, table
from memman.cli.options import format_option, json_option, note
from memman.cli.output import say
from memman.cli.problems import FindingError, UnusableError
from memman.cli.reading import read_log
from memman.core.resolver import known_formats
from memman.formats.logs import IMPORT_FORMATS
from memman.formats.rules import RULES, check


@click.command()
@json_option
def formats(as_json: bool) -> None:
    """Lists the formats: what is parsed, what is rendered, and how many rules each has."""
    rows = [FormatRow(name, True, len(RULES.get(name, ()))) for name in known_formats()]
    rows += [FormatRow(form.name, False, 0) for form in IMPORT_FORMATS]
    if as_json:
        answer(FormatsAnswer(formats=tuple(rows)))
        return
    said = [
        Row((row.format, "read and written" if row.renders else "read only", f"{row.rules or '-'}"))
        for row in rows
    ]
    table(console(), ("format", "use", ">rules"), said)


@click.command("check")
@click.argument("log", metavar="LOG")
@click.option("-t", "--to", "target", metavar="FORMAT", help="Whose rules; LOG's own if none.")
@format_option("The messages' format; auto detects it.")
@json_option
def check_log(log: str, target: str | None, message_format: str, as_json: bool) -> None:
    """Checks the messages of LOG, as they are, against the rules of a provider.

    The messages have to be in the target's own format: `memman import` and `memman export -t` make
    valid ones of any log.
    """
    found = read_log(log, message_format)
    whose = target or found.format
    if whose not in RULES:
        raise UnusableError(f"there are no rules for {whose!r}; there are for {', '.join(RULES)}")
    # A log in another format would break every rule of shape, which says nothing about it.
    if found.format != whose and not _may_be(found.messages, whose):
        raise UnusableError(
            f"{found.name} is in the format {found.format}, not {whose}; make a context of it: "
            f"`memman import {quote(log)} -o S.json`, then `memman export S.json -t {whose}`"
        )
    faults = check(found.messages, whose, system=_beside(found.system, whose))
    if as_json:
        answer(CheckAnswer(format=found.format, target=whose, violations=tuple(faults)))
    else:
        for fault in faults:
            say(f"message {fault.index}: {fault.rule}: {fault.message}")
    if faults:
        raise FindingError(f"{found.name} breaks {counted(len(faults), 'rule')} of {whose}")
    note(f"{found.name}: {counted(len(found.messages), 'message')}, no rule of {whose} is broken")


def _may_be(messages: list[object], target: str) -> bool:
    """Whether messages that were taken for another format's could be this one's too."""
    return known_formats()[target].detect(messages) > 0


def _beside(system: str | None, target: str) -> str | None:
    """The system prompt where it stands apart; the Responses API has its own name for it."""
    return None if target == "openai-responses" else system
