"""`memman count`: the tokens of a text, who counted them, and how far to trust the number."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
import msgspec

from memman.cli.display import counted
from memman.cli.options import answer, json_option, model_option, note
from memman.cli.problems import UnreadableError, UnusableError
from memman.cli.reading import STDIN, read_bytes
from memman.entries import TokenCount
from memman.errors import CounterUnavailable
from memman.manager import MemoryManager

_KNOWN_MODEL = "gpt-4o"  # of which counters know, to tell a missing model from a broken counter


@click.command()
@click.argument("text", required=False)
@model_option
@click.option("--counter", metavar="NAME", help="A counter by name, such as estimate or tiktoken.")
@json_option
def count(text: str | None, model: str | None, counter: str | None, as_json: bool) -> None:
    """Counts the tokens of TEXT, or of stdin for "-" or without TEXT."""
    given = _given(text)
    found = _counted(given, model, counter)
    if as_json:
        answer("count", model=model, characters=len(given), **msgspec.structs.asdict(found))
        return
    said = counted(found.tokens, "token")
    click.echo(f"{said} ({found.method}, {found.accuracy} accuracy, {found.counter})")


def _counted(text: str, model: str | None, counter: str | None) -> TokenCount:
    try:
        return MemoryManager(model=model, counter=counter).count_tokens(text)
    except CounterUnavailable:
        if model is not None or not _works(counter, _KNOWN_MODEL):
            raise
    raise UnusableError(f"--counter {counter} needs a model: add --model {_KNOWN_MODEL}")


def _works(counter: str | None, model: str) -> bool:
    try:
        MemoryManager(model=model, counter=counter).count_tokens("")
    except CounterUnavailable:
        return False
    return True


def _given(text: str | None) -> str:
    if text is not None and text != STDIN:
        if _is_file(text):
            quoted = shlex.quote(text)
            note(f"counted are the words given; for what is in the file: memman count < {quoted}")
        return text
    if text is None and sys.stdin.isatty():
        raise click.UsageError("give a TEXT, or pipe one in")
    try:
        return read_bytes(STDIN).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"stdin is not UTF-8 text (byte {error.start})") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False
