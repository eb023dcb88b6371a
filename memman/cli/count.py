"""`memman count`: the tokens of a text, who counted them, and how far to trust the number."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from msgspec.structs import asdict

from memman.cli.answers import CountAnswer, Counted, CountsAnswer, answer
from memman.cli.display import Row, console, counted, table
from memman.cli.lines import STDIN, read_bytes
from memman.cli.options import json_option, model_option, note
from memman.cli.output import say
from memman.cli.problems import FailedError, UnreadableError, UnusableError
from memman.cli.strictness import strict_option
from memman.core.resolver import known_counters
from memman.counting import explain, model_ref
from memman.counting.estimator import NAME
from memman.entries import TokenCount
from memman.errors import CounterUnavailable
from memman.manager import MemoryManager

_FAILED = "--strict: counter {} failed, and its count was estimated"
_KNOWN_MODEL = "gpt-4o"  # of which counters know, to tell a missing model from a broken counter


@click.command()
@click.argument("text", required=False)
@model_option
@click.option("--counter", metavar="NAME", help="A counter by name, such as estimate or tiktoken.")
@click.option("--all-counters", is_flag=True, help="By every counter that works here, a line each.")
@strict_option
@json_option
def count(
    text: str | None,
    model: str | None,
    counter: str | None,
    all_counters: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Counts the tokens of TEXT, or of stdin for "-" or without TEXT."""
    if all_counters and counter is not None:
        raise UnusableError(
            "--counter and --all-counters contradict each other: give one of the two"
        )
    given = _given(text)
    if all_counters:
        _count_by_all(given, model, strict, as_json)
        return
    found = _counted(given, model, counter)
    asked = counter or _answering(model)
    if strict and _stood_in(asked, found):
        raise FailedError(_FAILED.format(asked))
    if as_json:
        answer(CountAnswer(model=model, characters=len(given), **asdict(found)))
        return
    said = counted(found.tokens, "token")
    say(f"{said} ({found.method}, {found.accuracy} accuracy, {found.counter})")


def _count_by_all(text: str, model: str | None, strict: bool, as_json: bool) -> None:
    """By each local counter, for the model or for what it counts without one.

    With `strict` one that is for the model and fails is a failure.
    """
    found: list[TokenCount] = []
    meant = model_ref(model or "")
    for spec in known_counters():
        if spec.remote:
            continue
        try:
            counted_by_it = MemoryManager(model=model, counter=spec.name).count_tokens(text)
        except CounterUnavailable as error:
            if strict and spec.match(meant) > 0:
                raise FailedError(f"--strict: {error}") from None
            continue
        if strict and _stood_in(spec.name, counted_by_it):
            raise FailedError(_FAILED.format(spec.name))
        found.append(counted_by_it)
    if as_json:
        counts = tuple(Counted(**asdict(one)) for one in found)
        answer(CountsAnswer(model=model, characters=len(text), counts=counts))
        return
    rows = [Row((f"{one.tokens:,}", one.method, one.accuracy, one.counter)) for one in found]
    table(console(), (">tokens", "method", "accuracy", "counter"), rows)


def _stood_in(counter: str, found: TokenCount) -> bool:
    """Whether the estimate took the place of a counter that failed."""
    return counter != NAME and found.counter.startswith(f"{NAME}:")


def _counted(text: str, model: str | None, counter: str | None) -> TokenCount:
    try:
        return MemoryManager(model=model, counter=counter).count_tokens(text)
    except CounterUnavailable:
        if model is not None or not _works(counter, _KNOWN_MODEL):
            raise
    raise UnusableError(f"--counter {counter} needs a model: add --model {_KNOWN_MODEL}")


def _answering(model: str | None) -> str:
    """The counter that is meant to answer for a model."""
    ref = model_ref(model or "")
    return next((one.name for one in explain(ref, known_counters()) if one.chosen), NAME)


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
