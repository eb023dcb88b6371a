"""`memman models`: the limits of the models that memman knows."""

from __future__ import annotations

import click
import msgspec

from memman.cli.answers import KnownModel, ModelsAnswer, answer
from memman.cli.display import Row, console, counted, table
from memman.cli.options import json_option, note
from memman.cli.problems import FindingError
from memman.core.resolver import model_names
from memman.counting import Models, known_limits, model_ref
from memman.display import did_you_mean
from memman.plugins import shared_plugins
from memman.protocols import ModelInfo


@click.command()
@click.argument("query", required=False)
@json_option
def models(query: str | None, as_json: bool) -> None:
    """Lists the limits of models, in tokens: of all, or of those that QUERY is in or names.

    QUERY may be a part of a name, or any spelling of a model: a prefix, an ARN, a fine-tune.
    """
    found = _found(query)
    if as_json:
        answer(ModelsAnswer(models=tuple(_known(name, info) for name, info in found.items())))
    elif found:
        heads = ("model", ">context", ">max input", ">max output", "source")
        table(console(), heads, [_row(name, info) for name, info in found.items()])
        note(counted(len(found), "model"))
    if not found:
        name = model_ref(query or "").name
        hint = did_you_mean(name, model_names()) or ": unknown stays unknown"
        raise FindingError(f"no limits are known for {query!r}{hint}")


def limits_in_words(info: ModelInfo) -> str:
    """A model's limits in one line."""
    return (
        f"context {info.context:,}, input {info.max_input:,}, output {info.max_output:,} tokens "
        f"({_source(info)})"
    )


def _found(query: str | None) -> dict[str, ModelInfo]:
    wanted = (query or "").strip().lower()
    found = {name: info for name, info in known_limits() if wanted in name}
    if query is None or not wanted:
        return found
    named = Models(shared_plugins).info(query)  # as a program that names it gets them; plugins too
    if named is not None:  # before all that only contain the name
        found = {wanted if found else query.strip(): named, **found}
    return found


def _row(name: str, info: ModelInfo) -> Row:
    numbers = (f"{number:,}" for number in (info.context, info.max_input, info.max_output))
    return Row((name, *numbers, _source(info)))


def _source(info: ModelInfo) -> str:
    return ", ".join(said for said in (info.source, info.date) if said) or "no source given"


def _known(name: str, info: ModelInfo) -> KnownModel:
    return KnownModel(model=name, **msgspec.structs.asdict(info))
