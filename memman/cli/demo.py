"""`memman demo`: a conversation through the same path as any log. No line of it is scripted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
import msgspec

from memman.cli.answers import DemoAnswer, answer
from memman.cli.display import (
    arrow,
    console,
    counted,
    counted_by,
    has_colours,
    mark,
    print_lines,
    usage_block,
)
from memman.cli.lines import STDIN
from memman.cli.options import (
    budget_option,
    force_option,
    json_option,
    model_option,
    own_command,
)
from memman.cli.playing import Run, enough_for, faults_of, line_of
from memman.cli.problems import FindingError, UnusableError
from memman.cli.reading import bundled_log, read_log
from memman.cli.session_files import check_target, save

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

DEFAULT_MODEL = "gpt-4o"
DEFAULT_OUTPUT = "memman-demo.json"
SESSION = "demo"


@click.command()
@click.option("--file", "path", metavar="LOG", help='A log of your own; "-" reads stdin.')
@budget_option("The context window to play it in, in tokens.", default="8k")
@model_option
@click.option(
    "-o", "--output", default=DEFAULT_OUTPUT, show_default=True, help="The session file to write."
)
@force_option
@json_option
def demo(
    path: str | None, budget: int, model: str | None, output: str, force: bool, as_json: bool
) -> None:
    """Plays a long agent conversation through a small window.

    Without --file it is the bundled one: a coding agent's working day. Each message is added as an
    agent would add it; then a context for OpenAI and one for Anthropic is built and checked.
    """
    if output == STDIN:
        raise UnusableError("stdout is for the report; name a file for the session with -o")
    log = bundled_log() if path is None else read_log(path)
    check_target(output, SESSION, force)
    run = Run(log, SESSION, budget, model or DEFAULT_MODEL)
    report = _played(run)
    report = msgspec.structs.replace(report, session_file=output, enough=enough_for(log, report))
    report = msgspec.structs.replace(report, faults=faults_of(report))
    size = save(run.memory.export_session(SESSION), output, force)
    if as_json:
        answer(report)
    else:
        _show(report, output, size)
    if report.faults:
        raise FindingError("; ".join(report.faults))


def _played(run: Run) -> DemoAnswer:
    """Plays with live progress on a terminal, and with plain lines elsewhere; both on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    shown_on = console("stderr")
    to = arrow(shown_on)
    print_lines(shown_on, _opening(run))
    columns = (TextColumn("      "), BarColumn(40), MofNCompleteColumn(), TextColumn("messages"))
    with Progress(
        *columns, console=shown_on, transient=True, disable=not shown_on.is_terminal
    ) as progress:
        task = progress.add_task("", total=len(run.log))
        return run.play(
            lambda done: print_lines(shown_on, [line_of(done, to, run.budget)]),
            lambda: progress.advance(task),
        )


def _opening(run: Run) -> list[Text | str]:
    from rich.text import Text

    count = run.counter()
    return [
        Text(f"Playing {run.log.name} through {run.budget:,} tokens", "bold"),
        f"  {counted(len(run.log), f'{run.log.format} message')}, {counted_by(count, run.model)}",
        "",
    ]


def _show(report: DemoAnswer, output: str, size: int) -> None:
    """The report as a person reads it."""
    from rich.text import Text

    shown_on = console()
    wrote = f"the session is in {output} ({size / 1000:,.0f} kB)"
    blocks: tuple[list[Text | str], ...] = (
        [*usage_block(report.usage, has_colours(shown_on), shown_on.width)],
        [Text("Checked after every message", "bold"), *_checks(report, shown_on)],
        [Text.assemble(("Try next", "bold"), f"   {wrote}"), *_suggestions(output, report)],
    )
    for block in blocks:
        print_lines(shown_on, ["", *block])


def _checks(report: DemoAnswer, shown_on: Console) -> list[Text]:
    """A line for each promise: kept or not, its number, and what it is about."""
    number = sum(report.contexts.values())
    built = ", ".join(f"{count:,} {target}" for target, count in report.contexts.items())
    kept = f"{report.entries:,} came in, {report.entries - report.entries_lost:,} are in the log"
    same = report.import_equals_export
    rows: tuple[tuple[bool | None, str, int | str, str], ...] = (
        (not report.refused, "contexts built", number, built),
        (not report.over_budget, "over budget", report.over_budget, f"largest {report.largest:,}"),
        (not report.violations, "rules broken", len(report.violations), "of both providers"),
        (not report.entries_lost, "entries lost", report.entries_lost, kept),
        (same, "import(export)", "equal" if same else "differs", "the session, read back"),
    )
    if not number:  # nothing was built, so nothing is known of it
        unknown = "not checked"
        rows = (
            rows[0],
            (None, "over budget", unknown, ""),
            (None, "rules broken", unknown, ""),
            *rows[3:],
        )
    return [_check(*row, shown_on) for row in rows]


def _check(good: bool | None, name: str, said: int | str, about: str, shown_on: Console) -> Text:
    from rich.text import Text

    number = f"{said:,}" if isinstance(said, int) else said
    line = Text.assemble("  ", mark(good, shown_on), f" {name:<15}{number:>8}")
    return line.append(f"   {about}", "dim") if about else line


def _suggestions(output: str, report: DemoAnswer) -> list[str]:
    """Commands that work as printed on the session file that was written."""
    command, file = own_command(), shlex.quote(output)
    budget = report.enough or report.budget // 2 or 1
    return [
        f"  {command} show {file} --active",
        f"  {command} stats {file}",
        f"  {command} plan {file} --budget {budget}",
        f"  {command} export {file} -t anthropic",
    ]
