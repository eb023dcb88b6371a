"""`memman plugins`: lists the installed plugins, checks one, or writes the beginning of one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

import click

from memman.counting.builtin import builtin_specs
from memman.errors import InvalidInput
from memman.plugins import PluginInfo, shared_plugins
from memman_cli import answers, display, options
from memman_cli.answers import write_answer
from memman_cli.errors import FindingError, UnusableError
from memman_cli.output import note, say
from memman_cli.words import first_line, plural

KINDS: Final = ("counter", "summarizer")
_TEMPLATES: Final = Path(__file__).with_name("scaffold")
_FILES: Final = {
    "pyproject.toml": "$kind/pyproject.toml.tmpl",
    "README.md": "$kind/README.md.tmpl",
    "$package/__init__.py": "$kind/init.py.tmpl",
    "$package/$kind.py": "$kind/$kind.py.tmpl",
    "$package/py.typed": "py.typed.tmpl",
    "tests/test_$module.py": "$kind/test.py.tmpl",
}
_PREFIX: Final = "memman-"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 40
_RESERVED: Final = frozenset(
    ("core", "tiktoken", "mistral", "tokenizers", "anthropic", "openai", "google", "bedrock")
)  # memman's own distributions


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 if a plugin is broken or absent.")
@click.option("--check", metavar="NAME", help="Run the laws on each counter of a plugin.")
@click.option(
    "--summarizer", metavar="NAME", help="With --check: call this summarizer of it instead."
)
@click.option("--model", "models", metavar="NAME", multiple=True, help="A model to check with.")
@click.option("--scaffold", "new", metavar="NAME", help="Write the beginning of a plugin.")
@click.option(
    "--kind", type=click.Choice(KINDS), help="The content of the new plugin; default: counter."
)
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="DIR", help="Its folder; default: here."
)
@options.json
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
    """List the installed plugins, check one, or begin one.

    Broken plugins are listed with their errors. MEMMAN_PLUGINS restricts which are loaded:
    distributions separated by commas (memman-openai, or memman-openai:openai for one entry point), or
    empty for none.
    """
    if sum((strict, check is not None, new is not None)) > 1:
        raise click.UsageError("--strict, --check and --scaffold cannot be used together")
    _require("--check", check, {"--model": models, "--summarizer": summarizer})
    _require("--scaffold", new, {"--into": into, "--kind": kind})
    if models and summarizer is not None:
        raise click.UsageError("--model is for counters; --summarizer names its own model")
    if check is not None:
        _check(check, models, summarizer, as_json)
    elif new is not None:
        _scaffold(new, into or Path(), kind or KINDS[0], as_json)
    else:
        _list(strict, as_json)


def _require(option: str, given: str | None, others: Mapping[str, object]) -> None:
    """Raise `click.UsageError` for options that need a missing one."""
    for name, value in others.items():
        if value and given is None:
            raise click.UsageError(f"{name} is for {option}")


def _list(strict: bool, as_json: bool) -> None:
    found = shared_plugins().found
    if as_json:
        write_answer(answers.PluginsAnswer(plugins=found))
    elif found:
        headings = ("name", "distribution", "version", "hooks")
        display.print_table(display.open_console(), headings, [_row(plugin) for plugin in found])
    else:
        note("no plugins are installed (or MEMMAN_PLUGINS allows none)")
    broken = [plugin.name for plugin in found if plugin.error is not None]
    if strict and broken:
        raise FindingError(f"broken plugins: {', '.join(broken)}")
    distributions = {plugin.distribution for plugin in found}
    entry_points = {f"{plugin.distribution}:{plugin.name}" for plugin in found}
    wanted = {name.strip() for name in os.environ.get("MEMMAN_PLUGINS", "").split(",")} - {""}
    absent = sorted(wanted - distributions - entry_points)
    if strict and absent:
        raise FindingError(f"MEMMAN_PLUGINS names what is not installed: {', '.join(absent)}")


def _row(plugin: PluginInfo) -> display.Row:
    adds = ", ".join(plugin.hooks) if plugin.error is None else f"error: {plugin.error}"
    style = "" if plugin.error is None else "red"
    return display.Row(
        (plugin.name, plugin.distribution, plugin.version, first_line(adds, 300)), style
    )


# ---------------------------------------------------------------- check


def _check(name: str, models: tuple[str, ...], summarizer: str | None, as_json: bool) -> None:
    from memman_cli.conformance import check_counters, check_summarizer  # imports `memman.testing`

    counters: list[answers.CheckedCounter] = []
    summarizers: list[answers.CheckedSummarizer] = []
    if summarizer is not None:
        summarizers.append(check_summarizer(name, summarizer))
        if not as_json:
            _show_laws(f"{first_line(summarizer, 60)}: a summarizer", summarizers[0].laws)
    else:
        for one in check_counters(name, models):
            counters.append(one)
            if as_json:
                continue
            kind = "a remote counter" if one.remote else "a local counter"
            model = f"for {one.model}" if one.model else "for no model in particular"
            _show_laws(f"{first_line(one.counter, 60)}: {kind}, made {model}", one.laws)
            if one.model is None:
                note(f"{one.counter} knows none of the models that were tried: add --model NAME")
    if as_json:
        write_answer(
            answers.CheckedPluginAnswer(
                plugin=name, counters=tuple(counters), summarizers=tuple(summarizers)
            )
        )
    checked: list[answers.CheckedCounter | answers.CheckedSummarizer] = [*counters, *summarizers]
    laws = [law for one in checked for law in one.laws]
    failed = sum(law.outcome == "failed" for law in laws)
    if failed:
        raise FindingError(f"plugin {name}: {plural(failed, 'law')} not kept")


def _show_laws(head: str, laws: Sequence[answers.Law]) -> None:
    say(head)
    for law in laws:
        reason = f": {first_line(law.reason, 300)}" if law.reason else ""
        say(f"  {law.outcome:7}  {law.law}{reason}")


# ---------------------------------------------------------------- scaffold


def _scaffold(name: str, into: Path, kind: str, as_json: bool) -> None:
    _check_name(name)
    folder = into / f"{_PREFIX}{name}"
    files = _write_plugin(folder, name, kind)
    if as_json:
        write_answer(answers.ScaffoldAnswer(folder=str(folder), files=tuple(files)))
        return
    for file in files:
        say(str(folder / file))
    option = f" --summarizer {name}:MODEL" if kind == "summarizer" else ""
    note(f"next: pip install -e {folder}, then memman plugins --check {name}{option}")


def _check_name(name: str) -> None:
    """Raise `InvalidInput` for a name that a package cannot have, or that exists."""
    if name.startswith(_PREFIX):
        raise InvalidInput(f"give the name without {_PREFIX!r}: --scaffold {name[len(_PREFIX) :]}")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise InvalidInput(
            f"{name[:60]!r} cannot be a plugin's name: write lower-case letters and digits, in words with "
            f"one hyphen between, a letter first, at most {_LONGEST} characters, such as my-counter"
        )
    taken = {info.name for info in shared_plugins().found} | {spec.name for spec in builtin_specs()}
    if name in taken | _RESERVED:
        raise InvalidInput(f"{name!r} is taken by memman or an installed plugin: take another name")


def _write_plugin(folder: Path, name: str, kind: str) -> list[str]:
    """Write the files of a plugin into a new folder and return their names.

    Raises `UnusableError` if the folder exists or its parent does not.
    """
    if not folder.parent.is_dir():
        raise UnusableError(f"--into {folder.parent}: there is no such folder; make it first")
    try:
        folder.mkdir()
    except FileExistsError:
        raise UnusableError(
            f"{folder} exists and is not overwritten: take another name, or --into another folder"
        ) from None
    module = name.replace("-", "_")
    words = {
        "kind": kind,
        "name": name,
        "upper": name.upper(),
        "module": module,
        "package": f"memman_{module}",
        "distribution": f"{_PREFIX}{name}",
    }
    files = []
    try:
        for pattern, template in _FILES.items():
            path = Template(pattern).substitute(words)
            text = (_TEMPLATES / Template(template).substitute(words)).read_text(encoding="utf-8")
            target = folder / path
            target.parent.mkdir(exist_ok=True)
            target.write_text(Template(text).substitute(words), encoding="utf-8")
            files.append(path)
    except BaseException:
        shutil.rmtree(folder)  # created above, so everything in it is ours
        raise
    return files
