"""`memman count`, `counters` and `models`: token counters and the limits of models."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import asdict

from memman.core.resolver import known_counters, model_names
from memman.counting.estimator import NAME
from memman.counting.limits import known_limits, own_limits
from memman.counting.lookup import Models
from memman.counting.models import families, model_ref
from memman.counting.resolution import Candidate, explain, missing
from memman.display import did_you_mean, format_error
from memman.entries import TokenCount
from memman.errors import CounterUnavailable, InvalidInput
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.protocols import CounterSpec, ModelInfo, ModelRef
from memman_cli import answers, display, options
from memman_cli.answers import write_answer
from memman_cli.errors import FailedError, FindingError, UnreadableError, UnusableError
from memman_cli.files import STDIN, display_name, read_bytes
from memman_cli.output import note, say
from memman_cli.words import first_line, plural

_FAILED = "--strict: counter {} failed, and its count was estimated"
_KNOWN_MODEL = "gpt-4o"  # distinguishes a missing model from a broken counter


@click.command()
@click.argument("text", required=False)
@options.model
@click.option("--counter", metavar="NAME", help="A counter by name, such as estimate or tiktoken.")
@click.option("--all-counters", is_flag=True, help="Use each local counter that works here.")
@options.strict
@options.json
def count(
    text: str | None,
    model: str | None,
    counter: str | None,
    all_counters: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Count the tokens of TEXT, or of stdin for "-" or without TEXT."""
    if all_counters and counter is not None:
        raise UnusableError(
            "--counter and --all-counters contradict each other: give one of the two"
        )
    given = _text(text)
    if all_counters:
        _count_by_all(given, model, strict, as_json)
        return
    found = _count(given, model, counter)
    candidates = explain(model_ref(model or ""), known_counters())
    expected = counter or next((each.name for each in candidates if each.chosen), NAME)
    if strict and _is_substitute(expected, found):
        raise FailedError(_FAILED.format(expected))
    if as_json:
        write_answer(answers.CountAnswer(model=model, characters=len(given), **asdict(found)))
        return
    details = f"{found.method}, {found.accuracy} accuracy, {found.counter}"
    say(f"{plural(found.tokens, 'token')} ({details})")


def _count(text: str, model: str | None, counter: str | None) -> TokenCount:
    try:
        return MemoryManager(model=model, counter=counter).count_tokens(text)
    except CounterUnavailable:
        if model is not None:
            raise
        try:
            MemoryManager(model=_KNOWN_MODEL, counter=counter).count_tokens("")
        except CounterUnavailable:
            pass  # the counter is broken; the first error has the reason
        else:
            raise UnusableError(
                f"--counter {counter} needs a model: add --model {_KNOWN_MODEL}"
            ) from None
        raise


def _count_by_all(text: str, model: str | None, strict: bool, as_json: bool) -> None:
    """Count with each local counter; with `strict`, a failure of one that knows the model is an error."""
    found: list[TokenCount] = []
    ref = model_ref(model or "")
    for spec in known_counters():
        if spec.remote:
            continue
        try:
            counted = MemoryManager(model=model, counter=spec.name).count_tokens(text)
        except CounterUnavailable as error:
            if strict and spec.match(ref) > 0:
                raise FailedError(f"--strict: {error}") from None
            continue
        if strict and _is_substitute(spec.name, counted):
            raise FailedError(_FAILED.format(spec.name))
        found.append(counted)
    if as_json:
        counts = tuple(answers.Counted(**asdict(one)) for one in found)
        write_answer(answers.CountsAnswer(model=model, characters=len(text), counts=counts))
        return
    rows = [
        display.Row((f"{one.tokens:,}", one.method, one.accuracy, one.counter)) for one in found
    ]
    display.print_table(display.open_console(), (">tokens", "method", "accuracy", "counter"), rows)


def _is_substitute(counter: str, found: TokenCount) -> bool:
    """Return whether an estimate replaced the count of a counter that failed."""
    return counter != NAME and found.counter.startswith(f"{NAME}:")


def _text(text: str | None) -> str:
    if text is not None and text != STDIN:
        if _is_file(text):
            quoted = shlex.quote(text)
            note(f"the words were counted; for the content of the file: memman count < {quoted}")
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


# ---------------------------------------------------------------- counters


@click.group(invoke_without_command=True)
@click.option("--strict", is_flag=True, help="Exit with 1 if a counter cannot work here.")
@options.json
@click.pass_context
def counters(ctx: click.Context, strict: bool, as_json: bool) -> None:
    """List the token counters and their accuracy.

    A counter that cannot work here has the reason. `memman counters explain MODEL` shows which of them
    counts for a model, and why.
    """
    if ctx.invoked_subcommand is not None:
        if strict or as_json:
            raise click.UsageError(f"give the option to {ctx.invoked_subcommand}, after its name")
        return
    known = [model_ref(key) for key, _ in known_limits()]
    found = [_listed(spec, known) for spec in known_counters()]
    if as_json:
        write_answer(answers.CountersAnswer(counters=tuple(found)))
    else:
        rows = [_counter_row(counter, len(known)) for counter in found]
        display.print_table(display.open_console(), ("name", "counts", "accuracy", "models"), rows)
    broken = [counter.name for counter in found if counter.missing]
    if strict and broken:
        raise FindingError(f"counters that cannot work here: {', '.join(broken)}")


@counters.command("explain")
@click.argument("model")
@options.json
def explain_model(model: str, as_json: bool) -> None:
    """Show how MODEL is read, which counters know it, which counts and why, and its limits."""
    if not model.strip():
        raise click.UsageError("give the MODEL's name, such as gpt-4o")
    models = Models(shared_plugins)
    ref, limits = models.ref(model), models.info(model)
    candidates = explain(ref, known_counters())
    if as_json:
        answer = answers.ExplainCounterAnswer(
            model=ref, candidates=tuple(candidates), limits=limits
        )
        write_answer(answer)
        return
    facts = {
        "name": ref.name,
        "provider": ref.provider or "not given",
        "region": ref.region or "not given",
        "family": ref.family or "unknown",
        "limits": "unknown" if limits is None else _limits_line(limits),
    }
    console = display.open_console()
    display.print_lines(
        console, [f"{name:<9} {first_line(value, 300)}" for name, value in facts.items()]
    )
    display.print_lines(console, [""])
    rows = [_candidate_row(candidate) for candidate in candidates]
    display.print_table(console, ("counter", ">match", "accuracy", "why"), rows)


def _listed(spec: CounterSpec, known: Sequence[ModelRef]) -> answers.ListedCounter:
    try:
        matched = [ref for ref in known if spec.match(ref) > 0]
    except Exception as error:  # noqa: BLE001 - third-party code
        fault = f"its match() failed: {format_error(error)}"
        return answers.ListedCounter(spec.name, spec.remote, spec.accuracy, (), 0, fault)

    def fitness(ref: ModelRef) -> tuple[int, bool]:
        return spec.match(ref), ref.provider in (None, spec.name)

    served = {ref.family for ref in matched}
    # Its best model, on its own service, is the fairest example of one that it can be made for.
    example = max(matched, key=fitness, default=model_ref("a model"))
    return answers.ListedCounter(
        name=spec.name,
        remote=spec.remote,
        accuracy=spec.accuracy,
        families=tuple(family for family in families() if family in served),
        models=len(matched),
        missing=missing(spec, example),
    )


def _counter_row(counter: answers.ListedCounter, known: int) -> display.Row:
    what = "whole requests, by network" if counter.remote else "texts, locally"
    if counter.missing:
        text = f"cannot work here: {counter.missing}"
    elif counter.models == known:
        text = "every model"
    else:
        text = ", ".join(counter.families) or "models outside the table, or by name"
    cells = (counter.name, what, counter.accuracy, first_line(text, 300))
    return display.Row(cells, "red" if counter.missing else "")


def _candidate_row(candidate: Candidate) -> display.Row:
    why = candidate.reason
    if candidate.chosen:
        why = f"counts ({why})" if why else "counts"
    cells = (candidate.name, str(candidate.match), candidate.accuracy, first_line(why, 300))
    return display.Row(cells, "green" if candidate.chosen else "")


# ---------------------------------------------------------------- models


@click.command()
@click.argument("query", required=False)
@click.option("--check", "file", metavar="FILE", help="Show the window and counter of each name.")
@options.json
def models(query: str | None, file: str | None, as_json: bool) -> None:
    """List the limits of models in tokens.

    All are listed, or those that QUERY names. QUERY may be a part of a name, or any spelling of a
    model: a prefix, an ARN, a fine-tune. The FILE of --check has names of models, separated by space or
    lines, or is a table for MEMMAN_MODELS; "-" is stdin.
    """
    if file is not None:
        if query is not None:
            raise click.UsageError("give a QUERY or --check FILE")
        _check(file, as_json)
        return
    found = _models(query)
    if as_json:
        known = tuple(
            answers.KnownModel(model=name, **asdict(info)) for name, info in found.items()
        )
        write_answer(answers.ModelsAnswer(models=known))
    elif found:
        headings = ("model", ">context", ">max input", ">max output", "source")
        display.print_table(
            display.open_console(), headings, [_model_row(*item) for item in found.items()]
        )
        note(plural(len(found), "model"))
    if not found:
        name = model_ref(query or "").name
        hint = did_you_mean(name, model_names()) or ""
        raise FindingError(f"no limits are known for {query!r}{hint}")


def _models(query: str | None) -> dict[str, ModelInfo]:
    wanted = (query or "").strip().lower()
    found = {name: info for name, info in known_limits() if wanted in name}
    if query is None or not wanted:
        return found
    named = Models(shared_plugins).info(query)  # the limits for a program, plugins included
    if named is not None:  # before the models that only contain the name
        found = {wanted if found else query.strip(): named, **found}
    return found


def _check(file: str, as_json: bool) -> None:
    """Show the window and the counter of each model of a file; one without a window is a finding."""
    known, memory = Models(shared_plugins), MemoryManager()
    found = [
        answers.CheckedModel(
            name, own or known.info(name), memory.count_tokens("x", model=name).counter
        )
        for name, own in _named_in(read_bytes(file), display_name(file)).items()
    ]
    if as_json:
        write_answer(answers.CheckedModelsAnswer(checked=tuple(found)))
    else:
        rows = [_checked_row(each.model, each.limits, each.counter) for each in found]
        headings = ("model", ">window", "counter", "source")
        display.print_table(display.open_console(), headings, rows)
    unknown = [one.model for one in found if one.limits is None]
    if unknown:
        raise FindingError(f"no limits are known for {', '.join(unknown)}")


def _checked_row(name: str, info: ModelInfo | None, counter: str) -> display.Row:
    if info is None:
        return display.Row((name, "unknown", counter, ""), "red")
    return display.Row((name, f"{info.max_input:,}", counter, _source(info)))


def _named_in(data: bytes, name: str) -> dict[str, ModelInfo | None]:
    """Return the models in a file, with their limits if it is a table. Raises `UnreadableError`."""
    try:
        text = data.decode()
        if not text.lstrip().startswith("{"):
            return dict.fromkeys(text.split())
        return {key.removeprefix("/"): info for key, info in own_limits(data, name).items()}
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{name} is not UTF-8 text (byte {error.start})") from None
    except InvalidInput as error:
        raise UnreadableError(str(error)) from None


def _model_row(name: str, info: ModelInfo) -> display.Row:
    numbers = (f"{number:,}" for number in info.limits)
    return display.Row((name, *numbers, _source(info)))


def _limits_line(info: ModelInfo) -> str:
    return (
        f"context {info.context:,}, input {info.max_input:,}, output {info.max_output:,} tokens "
        f"({_source(info)})"
    )


def _source(info: ModelInfo) -> str:
    return ", ".join(part for part in (info.source, info.date) if part) or "no source given"
