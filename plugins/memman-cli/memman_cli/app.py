"""The command group: its commands, those of plugins, and the output of errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from memman import __version__
from memman.errors import MemmanError
from memman.plugins import shared_plugins
from memman_cli.commands.compression import compress, plan, undo
from memman_cli.commands.counters import count, counters, models
from memman_cli.commands.database_commands import follow, sessions
from memman_cli.commands.demo import demo
from memman_cli.commands.export import check_log, export, formats
from memman_cli.commands.importer import import_command, verify
from memman_cli.commands.inspection import diff, why
from memman_cli.commands.mcp import mcp
from memman_cli.commands.plugins import plugins
from memman_cli.commands.report import report
from memman_cli.commands.search import search
from memman_cli.commands.window import show, stats
from memman_cli.errors import USAGE, exit_code, lines_of, on_one_line
from memman_cli.output import NoteHandler, note, say

COMMANDS: tuple[click.Command, ...] = (
    demo, import_command, sessions, follow, stats, show, search, compress, plan, diff, why, undo, export,
    verify, report, check_log, formats, mcp, count, counters, models, plugins,
)  # fmt: skip
"""The built-in commands, in the order of the help."""

logger = logging.getLogger("memman.cli")


class MemmanGroup(click.Group):
    """A group that loads plugins if no built-in command matches, and prints no tracebacks."""

    _plugins_loaded = False

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command. Raises `ValueError` for an existing name, which a plugin must not replace."""
        wanted = name or cmd.name or ""
        if wanted in self.commands:
            raise ValueError(f"there is a command {wanted!r} already")
        super().add_command(cmd, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of memman or of a plugin by its name."""
        if cmd_name not in self.commands:
            self._load_plugins()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order in which they were added."""
        self._load_plugins()
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A closed output pipe is not a failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # click would turn it into a failure
            _discard_output()
            return 0
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; in standalone mode, end the process with its exit code."""

        def work() -> Any:
            return super(MemmanGroup, self).main(
                args, prog_name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return work()
        try:
            with _log_notes():
                code = work()
        except click.Abort:
            _end(["interrupted"], 130)
        except click.ClickException as error:
            _end([_with_hint(error)], error.exit_code)
        except MemmanError as error:
            _end(lines_of(error), exit_code(error))
        except OSError as error:  # of the output: input errors are converted when they occur
            where = f" {error.filename}" if error.filename else ""
            _end([f"cannot write{where}: {error.strerror or error}"], USAGE)
        sys.exit(code if isinstance(code, int) else 0)

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for plugin in shared_plugins().hook.memman_cli_commands.get_hookimpls():
            try:
                plugin.function(*(self for _ in plugin.argnames))
            except Exception as error:  # noqa: BLE001 - third-party code
                name = plugin.plugin_name
                logger.warning("plugin %s failed to add its commands: %s", name, error)


def _with_hint(error: click.ClickException) -> str:
    message = on_one_line(error.format_message())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        stop = "" if message.endswith((".", "?", "!", ")")) else "."
        return f"{message}{stop} See `{error.ctx.command_path} --help`."
    return message


def _discard_output() -> None:
    """Redirect the rest of stdout's buffer to nowhere, so that the process can end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _end(lines: Sequence[str], code: int) -> NoReturn:
    for number, line in enumerate(lines):
        note(line if number else f"memman: {line}")
    sys.exit(code)


@contextmanager
def _log_notes() -> Iterator[None]:
    """Show the library's warnings while a command runs, including its help and its plugins."""
    handler = NoteHandler(logging.WARNING)
    package = logging.getLogger("memman")
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)


@click.group(
    cls=MemmanGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="memman", message="%(prog)s %(version)s")
@click.option("--no-color", is_flag=True, help="No colours, as with NO_COLOR.")
@click.pass_context
def memman(ctx: click.Context, no_color: bool) -> None:
    """Keep an LLM agent's conversation inside its context window without losing a word of it.

    A session S is a file that `import` or `demo` wrote: a JSON document or an archive ("-" reads either
    from stdin); or a database, with --session for one of its sessions.
    Data goes to stdout, notes to stderr.
    Exit codes: 0 done, 1 a finding, 2 usage, 3 unreadable input, 4 a failure under --strict.
    """
    if no_color:
        ctx.color = False  # also for the commands below this one
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
        ctx.exit(USAGE)


for _command in COMMANDS:
    memman.add_command(_command)


def run(args: Sequence[str] | None = None) -> None:
    """Run `memman` and end the process."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its escape instead of an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    memman.main(args=None if args is None else list(args), prog_name="memman")
