"""`memman count`: the tokens of a text, who counted them, and how far to trust the number."""

from __future__ import annotations

import sys

import click
import msgspec

from memman.cli.options import answer, json_option, model_option
from memman.cli.problems import UnreadableError
from memman.cli.reading import STDIN, read_bytes
from memman.manager import MemoryManager


@click.command()
@click.argument("text", required=False)
@model_option
@click.option("--counter", metavar="NAME", help="A counter by name, such as bytes4 or tiktoken.")
@json_option
def count(text: str | None, model: str | None, counter: str | None, as_json: bool) -> None:
    """Counts the tokens of TEXT, or of stdin for "-" or without TEXT."""
    given = _given(text)
    found = MemoryManager(model=model, counter=counter).count_tokens(given)
    if as_json:
        answer("count", model=model, characters=len(given), **msgspec.structs.asdict(found))
        return
    noun = "token" if found.tokens == 1 else "tokens"
    click.echo(
        f"{found.tokens} {noun} ({found.method}, {found.accuracy} accuracy, {found.counter})"
    )


def _given(text: str | None) -> str:
    if text not in (None, STDIN):
        return str(text)
    if text is None and sys.stdin.isatty():
        raise click.UsageError("give a TEXT, or pipe one in")
    try:
        return read_bytes(STDIN).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"stdin is not UTF-8 text (byte {error.start})") from None
