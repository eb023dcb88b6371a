"""`memman plugins`: what is installed, what it adds, what is broken; and how to make one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from memman.cli.answers import (
    CheckedPluginAnswer,
    Law,
    PluginsAnswer,
    ScaffoldAnswer,
    answer,
)
from memman.cli.display import Row, console, counted, first_line, table
from memman.cli.options import json_option, note
from memman.cli.output import say
from memman.cli.problems import FindingError
from memman.cli.scaffolding import KINDS, scaffold
from memman.plugins import PluginInfo, shared_plugins


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 when a plugin is broken or absent.")
@click.option("--check", metavar="NAME", help="Run the laws on each counter of a plugin.")
@click.option(
    "--summarizer", metavar="NAME", help="With --check: this summarizer of it, which is asked."
)
@click.option("--model", "models", metavar="NAME", multiple=True, help="A model to check with.")
@click.option("--scaffold", "new", metavar="NAME", help="Write a plugin to begin with.")
@click.option(
    "--kind", type=click.Choice(KINDS), help="What the new plugin has; a counter if none is named."
)
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="DIR", help="Where to; here if none."
)
@json_option
def plugins(
    strict: bool,
    check: str | None,
    summarizer: str | None,
    models: tuple[str, ...],
    new: str | None,
    kind: str | None,
    into: Path | None,
    as_json: bool,
) -> None:
    """Lists the installed plugins, the broken ones too; checks one, or writes one to begin with.

    MEMMAN_PLUGINS restricts which are loaded: distributions with commas between (memman-openai, or
    memman-openai:openai for one entry point), or empty for none.
    """
    if sum((strict, check is not None, new is not None)) > 1:
        raise click.UsageError("--strict, --check and --scaffold cannot be used together")
    _belong("--check", check, {"--model": models, "--summarizer": summarizer})
    _belong("--scaffold", new, {"--into": into, "--kind": kind})
    if models and summarizer is not None:
        raise click.UsageError("--model is for counters, and --summarizer names its own")
    if check is not None and summarizer is not None:
        _check_summarizer(check, summarizer, as_json)
    elif check is not None:
        _check(check, models, as_json)
    elif new is not None:
        _scaffold(new, into or Path(), kind or KINDS[0], as_json)
    else:
        _list(strict, as_json)


def _belong(option: str, given: str | None, others: Mapping[str, object]) -> None:
    """Refuses options that say something about another one that is not there."""
    for name, value in others.items():
        if value and given is None:
            raise click.UsageError(f"{name} is for {option}")


def _list(strict: bool, as_json: bool) -> None:
    found = shared_plugins().found
    if as_json:
        answer(PluginsAnswer(plugins=found))
    elif found:
        rows = [_row(plugin) for plugin in found]
        table(console(), ("name", "distribution", "version", "hooks"), rows)
    else:
        note("no plugins are installed (or MEMMAN_PLUGINS allows none)")
    broken = [plugin.name for plugin in found if plugin.error is not None]
    if strict and broken:
        raise FindingError(f"broken plugins: {', '.join(broken)}")
    known = {name for plugin in found for name in (plugin.distribution, _full_name(plugin))}
    absent = sorted(_asked_for() - known)
    if strict and absent:
        raise FindingError(f"MEMMAN_PLUGINS names what is not installed: {', '.join(absent)}")


def _check(name: str, models: tuple[str, ...], as_json: bool) -> None:
    # The kits load what no other command needs.
    from memman.cli.checking import checked_counters

    counters = []
    for one in checked_counters(name, models):
        counters.append(one)
        if as_json:
            continue
        kind = "a remote counter" if one.remote else "a local counter"
        with_what = f"for {one.model}" if one.model else "for no model in particular"
        _show(f"{first_line(one.counter, 60)}: {kind}, made {with_what}", one.laws)
        if one.model is None:
            note(f"{one.counter} answers for none of the models that were tried: add --model NAME")
    _judge(CheckedPluginAnswer(plugin=name, counters=tuple(counters), summarizers=()), as_json)


def _check_summarizer(name: str, summarizer: str, as_json: bool) -> None:
    from memman.cli.checking import checked_summarizer

    one = checked_summarizer(name, summarizer)
    if not as_json:
        _show(f"{first_line(summarizer, 60)}: a summarizer", one.laws)
    _judge(CheckedPluginAnswer(plugin=name, counters=(), summarizers=(one,)), as_json)


def _judge(checked: CheckedPluginAnswer, as_json: bool) -> None:
    """The answer, and a finding where a law is not kept."""
    if as_json:
        answer(checked)
    counters, summarizers = checked.counters, checked.summarizers
    failed = sum(one.failed() for one in counters) + sum(one.failed() for one in summarizers)
    if failed:
        raise FindingError(f"plugin {checked.plugin}: {counted(failed, 'law')} not kept")


def _show(head: str, laws: Sequence[Law]) -> None:
    """What was checked, and below it a line a law."""
    say(head)
    for law in laws:
        reason = f": {first_line(law.reason, 300)}" if law.reason else ""
        say(f"  {law.outcome:7}  {law.law}{reason}")


def _scaffold(name: str, into: Path, kind: str, as_json: bool) -> None:
    folder, files = scaffold(name, into, kind)
    if as_json:
        answer(ScaffoldAnswer(folder=str(folder), files=tuple(files)))
        return
    for file in files:
        say(str(folder / file))
    asked = f" --summarizer {name}:MODEL" if kind == "summarizer" else ""
    note(f"next: pip install -e {folder}, then memman plugins --check {name}{asked}")


def _full_name(plugin: PluginInfo) -> str:
    return f"{plugin.distribution}:{plugin.name}"


def _asked_for() -> set[str]:
    """The plugins that the environment names."""
    names = os.environ.get("MEMMAN_PLUGINS", "").split(",")
    return {name.strip() for name in names} - {""}


def _row(plugin: PluginInfo) -> Row:
    adds = ", ".join(plugin.hooks) if plugin.error is None else f"error: {plugin.error}"
    style = "" if plugin.error is None else "red"
    return Row((plugin.name, plugin.distribution, plugin.version, first_line(adds, 300)), style)
