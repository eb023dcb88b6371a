"""`memman counters`: every token counter, and which of them answers for a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from memman.cli.answers import CountersAnswer, ExplainCounterAnswer, ListedCounter, answer
from memman.cli.display import Row, console, first_line, print_lines, table
from memman.cli.models import limits_in_words
from memman.cli.options import json_option
from memman.cli.problems import FindingError
from memman.core.resolver import known_counters
from memman.counting import (
    FAMILIES,
    Candidate,
    Models,
    explain,
    known_limits,
    missing,
    model_ref,
)
from memman.display import format_error
from memman.plugins import shared_plugins
from memman.protocols import CounterSpec, ModelRef

_NO_KNOWN_MODEL = "models in no table, or by name"


@click.group(invoke_without_command=True)
@click.option("--strict", is_flag=True, help="Exit with 1 when a counter cannot work here.")
@json_option
@click.pass_context
def counters(ctx: click.Context, strict: bool, as_json: bool) -> None:
    """Lists the token counters: what they count, how surely, and why one cannot work here.

    `memman counters explain MODEL` says which of them answers for a model, and why.
    """
    if ctx.invoked_subcommand is not None:
        if strict or as_json:
            raise click.UsageError(f"give the option to {ctx.invoked_subcommand}, behind its name")
        return
    known = [model_ref(key) for key, _ in known_limits()]
    found = [_listed(spec, known) for spec in known_counters()]
    if as_json:
        answer(CountersAnswer(counters=tuple(found)))
    else:
        rows = [_row(counter, len(known)) for counter in found]
        table(console(), ("name", "counts", "accuracy", "models"), rows)
    broken = [counter.name for counter in found if counter.missing]
    if strict and broken:
        raise FindingError(f"counters that cannot work here: {', '.join(broken)}")


@counters.command("explain")
@click.argument("model")
@json_option
def explain_model(model: str, as_json: bool) -> None:
    """Says how MODEL is understood, which counters know it, which answers and why, and its limits."""
    if not model.strip():
        raise click.UsageError("give the MODEL's name, such as gpt-4o")
    models = Models(shared_plugins)
    ref = models.ref(model)
    candidates = explain(ref, known_counters())
    limits = models.info(model)
    if as_json:
        answer(ExplainCounterAnswer(model=ref, candidates=tuple(candidates), limits=limits))
        return
    shown = console()
    facts = {
        "name": ref.name,
        "provider": ref.provider or "not said",
        "region": ref.region or "not said",
        "family": ref.family or "unknown",
        "limits": "unknown" if limits is None else limits_in_words(limits),
    }
    print_lines(shown, [f"{what:<9} {first_line(said, 300)}" for what, said in facts.items()])
    print_lines(shown, [""])
    rows = [_candidate_row(candidate) for candidate in candidates]
    table(shown, ("counter", ">match", "accuracy", "why"), rows)


def _listed(spec: CounterSpec, known: Sequence[ModelRef]) -> ListedCounter:
    try:
        matched = [ref for ref in known if spec.match(ref) > 0]
    except Exception as error:  # noqa: BLE001 - a stranger's code
        said = f"its match() failed: {format_error(error)}"
        return ListedCounter(spec.name, spec.remote, spec.accuracy, (), 0, said)
    families = {ref.family for ref in matched}
    # Any model will do to see whether it can be made; one that it knows, on its own service, is fairest.
    example = max(matched, key=partial(_fitness, spec), default=model_ref("a model"))
    return ListedCounter(
        name=spec.name,
        remote=spec.remote,
        accuracy=spec.accuracy,
        families=tuple(family for family in FAMILIES if family in families),
        models=len(matched),
        missing=missing(spec, example),
    )


def _fitness(spec: CounterSpec, ref: ModelRef) -> tuple[int, bool]:
    """How well a model shows what a counter wants."""
    return spec.match(ref), ref.provider in (None, spec.name)


def _row(counter: ListedCounter, known: int) -> Row:
    what = "whole requests, by network" if counter.remote else "texts, locally"
    if counter.missing:
        text = f"cannot work here: {counter.missing}"
    elif counter.models == known:
        text = "every model"
    else:
        text = ", ".join(counter.families) or _NO_KNOWN_MODEL
    return Row(
        (counter.name, what, counter.accuracy, first_line(text, 300)),
        "red" if counter.missing else "",
    )


def _candidate_row(candidate: Candidate) -> Row:
    why = candidate.reason
    if candidate.chosen:
        why = f"answers ({why})" if why else "answers"
    cells = (candidate.name, str(candidate.match), candidate.accuracy, first_line(why, 300))
    return Row(cells, "green" if candidate.chosen else "")
