"""The command group: its commands, those that plugins add, and how an error becomes one line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from memman import __version__
from memman.cli.commands import COMMANDS
from memman.cli.output import say
from memman.cli.problems import USAGE, exit_code, lines_of
from memman.errors import MemmanError
from memman.plugins import shared_plugins

logger = logging.getLogger("memman.cli")


class MemmanGroup(click.Group):
    """Asks plugins for commands only when a built-in one is not meant; shows no tracebacks."""

    _plugins_asked = False

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Adds a command. A taken name is refused: a plugin must not replace what is known."""
        wanted = name or cmd.name or ""
        if wanted in self.commands:
            raise ValueError(f"there is a command {wanted!r} already")
        super().add_command(cmd, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name, of memman or of a plugin."""
        if cmd_name not in self.commands:
            self._ask_plugins()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which they were added."""
        self._ask_plugins()
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs what was asked for. A reader that goes away has seen enough: that is no failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # before click, which would make a failure of it
            _leave_pipe()
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
        """Runs the command; standing alone, ends the process with its exit code."""

        def work() -> Any:
            return super(MemmanGroup, self).main(
                args, prog_name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return work()
        try:
            with _notes():
                code = work()
        except click.Abort:
            _end(["interrupted"], 130)
        except click.ClickException as error:
            _end([_with_hint(error)], error.exit_code)
        except MemmanError as error:
            _end(lines_of(error), exit_code(error))
        except OSError as error:  # of the output: what is read has errors of its own
            where = f" {error.filename}" if error.filename else ""
            _end([f"cannot write{where}: {error.strerror or error}"], USAGE)
        sys.exit(code if isinstance(code, int) else 0)

    def _ask_plugins(self) -> None:
        if self._plugins_asked:
            return
        self._plugins_asked = True
        for plugin in shared_plugins().hook.memman_cli_commands.get_hookimpls():
            try:
                plugin.function(*(self for _ in plugin.argnames))
            except Exception as error:  # noqa: BLE001 - a stranger's code
                name = plugin.plugin_name
                logger.warning("plugin %s failed to add its commands: %s", name, error)


def _with_hint(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        stop = "" if message.endswith((".", "?", "!", ")")) else "."
        return f"{message}{stop} See `{error.ctx.command_path} --help`."
    return message


def _leave_pipe() -> None:
    """Sends what is left in the buffer of stdout nowhere, so that the end of the process can."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _end(lines: Sequence[str], code: int) -> NoReturn:
    for number, line in enumerate(lines):
        say(line if number else f"memman: {line}", err=True)
    sys.exit(code)


class _OneLine(logging.Handler):
    """What the library logs, as notes on stderr: one line each, without traces."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"memman: {' '.join(record.getMessage().split())}", err=True)


@contextmanager
def _notes() -> Iterator[None]:
    """Shows what the library logs while a command runs, its help and plugins included."""
    handler = _OneLine(logging.WARNING)
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
    """Keeps an LLM agent's conversation inside its context window without losing a word of it.

    A session S is what `import` and `demo` write: a JSON document or an archive ("-" reads either from
    stdin), or a database, where --session says which of its sessions.
    Data goes to stdout, notes to stderr.
    Exit codes: 0 done, 1 a finding, 2 usage, 3 unreadable input, 4 a failure under --strict.
    """
    if no_color:
        ctx.color = False  # for this command and those below it
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
        ctx.exit(USAGE)


for _command in COMMANDS:
    memman.add_command(_command)


def run(args: Sequence[str] | None = None) -> None:
    """Runs `memman` and ends the process."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its escape instead of an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    memman.main(args=None if args is None else list(args), prog_name="memman")
