"""`memman plugins`: what is installed, what it adds, and what is broken."""

from __future__ import annotations

import os

import click

from memman.cli.display import Row, console, first_line, table
from memman.cli.options import answer, json_option, note
from memman.cli.problems import FindingError
from memman.plugins import PluginInfo, shared_plugins


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 when a plugin is broken or absent.")
@json_option
def plugins(strict: bool, as_json: bool) -> None:
    """Lists the installed plugins, the broken ones too.

    MEMMAN_PLUGINS restricts which are loaded: names with commas between, or empty for none.
    """
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


def _asked_for() -> set[str]:
    """The plugins that the environment names."""
    names = os.environ.get("MEMMAN_PLUGINS", "").split(",")
    return {name.strip() for name in names} - {""}


def _row(plugin: PluginInfo) -> Row:
    adds = ", ".join(plugin.hooks) if plugin.error is None else f"error: {plugin.error}"
    style = "" if plugin.error is None else "red"
    return Row((plugin.name, plugin.distribution, plugin.version, first_line(adds, 300)), style)
