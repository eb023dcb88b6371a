"""The functions that print: no text they print can steer a terminal."""

from __future__ import annotations

import json
import logging
import sys
from typing import BinaryIO, cast

import click

from memman_cli.errors import on_one_line


def harmless(text: str) -> str:
    """Return the text with control characters as escapes, so that it cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def say(line: str, *, err: bool = False) -> None:
    """Write a line for a person, escaped, to stdout or stderr."""
    click.echo(harmless(line), err=err)


def note(text: str) -> None:
    """Write a note for the person at the terminal to stderr."""
    say(text, err=True)


def write_data(data: str | bytes) -> None:
    """Write data to stdout: unaltered to a pipe or a file, escaped on a terminal."""
    if sys.stdout.isatty():
        data = harmless(data if isinstance(data, str) else data.decode(errors="replace"))
    click.echo(data, nl=False)


def write_json(data: bytes) -> None:
    """Write JSON to stdout; on a terminal, characters that could steer it are JSON escapes."""
    click.echo(_escaped_json(data) if sys.stdout.isatty() else data, nl=False)


def json_output() -> BinaryIO:
    """Return stdout for programs that write lines of JSON, escaped on a terminal."""
    return cast("BinaryIO", _JSONLines()) if sys.stdout.isatty() else sys.stdout.buffer


class _JSONLines:
    """Stdout as a binary file of whole lines of JSON."""

    def write(self, data: bytes) -> int:
        write_json(data)
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


def _escaped_json(data: bytes) -> str:
    """Return equal JSON in which each character that cannot be printed is an escape."""
    text = data.decode(errors="replace")
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


class NoteHandler(logging.Handler):
    """Writes log records to stderr: one line each, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        note(f"memman: {on_one_line(record.getMessage())}")
