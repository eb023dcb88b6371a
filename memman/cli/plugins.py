"""`memman plugins`: what is installed, what it adds, what is broken; and how to make one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from memman.cli.display import Row, console, counted, first_line, table
from memman.cli.options import answer, json_option, note
from memman.cli.problems import FindingError
from memman.cli.scaffolding import scaffold
from memman.plugins import PluginInfo, shared_plugins


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 when a plugin is broken or absent.")
@click.option("--check", metavar="NAME", help="Run the laws on each counter of a plugin.")
@click.option("--model", "models", metavar="NAME", multiple=True, help="A model to check with.")
@click.option("--scaffold", "new", metavar="NAME", help="Write a plugin to begin with.")
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="DIR", help="Where to; here if none."
)
@json_option
def plugins(
    strict: bool,
    check: str | None,
    models: tuple[str, ...],
    new: str | None,
    into: Path | None,
    as_json: bool,
) -> None:
    """Lists the installed plugins, the broken ones too; checks one, or writes one to begin with.

    MEMMAN_PLUGINS restricts which are loaded: names with commas between, or empty for none.
    """
    _refuse_mixtures(strict, check, models, new, into)
    if check is not None:
        _check(check, models, as_json)
    elif new is not None:
        _scaffold(new, into or Path(), as_json)
    else:
        _list(strict, as_json)


def _refuse_mixtures(
    strict: bool, check: str | None, models: tuple[str, ...], new: str | None, into: Path | None
) -> None:
    if sum((strict, check is not None, new is not None)) > 1:
        raise click.UsageError("--strict, --check and --scaffold cannot be used together")
    if models and check is None:
        raise click.UsageError("--model is for --check")
    if into is not None and new is None:
        raise click.UsageError("--into is for --scaffold")


def _list(strict: bool, as_json: bool) -> None:
    found = shared_plugins().found
    if as_json:
        answer("plugins", plugins=found)
    elif found:
        rows = [_row(plugin) for plugin in found]
        table(console(), ("name", "distribution", "version", "hooks"), rows)
    else:
        note("no plugins are installed (or MEMMAN_PLUGINS allows none)")
    broken = [plugin.name for plugin in found if plugin.error is not None]
    if strict and broken:
        raise FindingError(f"broken plugins: {', '.join(broken)}")
    absent = sorted(_asked_for() - {plugin.name for plugin in found})
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
        click.echo(f"{first_line(one.counter, 60)}: {kind}, made {with_what}")
        for law in one.laws:
            reason = f": {first_line(law.reason, 300)}" if law.reason else ""
            click.echo(f"  {law.outcome:7}  {law.law}{reason}")
        if one.model is None:
            note(f"{one.counter} answers for none of the models that were tried: add --model NAME")
    if as_json:
        answer("plugins", plugin=name, counters=counters)
    failed = sum(one.failed() for one in counters)
    if failed:
        raise FindingError(f"plugin {name}: {counted(failed, 'law')} not kept")


def _scaffold(name: str, into: Path, as_json: bool) -> None:
    folder, files = scaffold(name, into)
    if as_json:
        answer("plugins", folder=str(folder), files=files)
        return
    for file in files:
        click.echo(folder / file)
    note(f"next: pip install -e {folder}, then memman plugins --check {name}")


def _asked_for() -> set[str]:
    """The plugins that the environment names."""
    names = os.environ.get("MEMMAN_PLUGINS", "").split(",")
    return {name.strip() for name in names} - {""}


def _row(plugin: PluginInfo) -> Row:
    adds = ", ".join(plugin.hooks) if plugin.error is None else f"error: {plugin.error}"
    style = "" if plugin.error is None else "red"
    return Row((plugin.name, plugin.distribution, plugin.version, first_line(adds, 300)), style)
