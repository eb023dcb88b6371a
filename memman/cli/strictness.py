"""`--strict`: what a counter or a summarizer failed at is not passed off as done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from memman import events
from memman.cli.options import note
from memman.cli.problems import FailedError
from memman.errors import CompressionFailed, CounterUnavailable
from memman.manager import MemoryManager

F = TypeVar("F", bound=Callable[..., Any])


def strict_option(command: F) -> F:
    """`--strict`: exit with 4, with nothing written, where something else had to stand in."""
    option = click.option(
        "--strict",
        is_flag=True,
        help="Exit with 4, and write nothing, when a counter or the summarizer fails.",
    )
    return option(command)


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Drops what the library logs of summaries, which points at an event that nobody sees in a terminal."""
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False


@contextmanager
def strictly(memory: MemoryManager, strict: bool) -> Iterator[None]:
    """Notes each summary that failed within; with `strict` raises `FailedError` for it or a count."""
    if strict:
        memory.update_config(on_failure="raise")
    failures: list[str] = []

    def failed(_sender: Any, event: events.CompressionFailedNotice) -> None:
        failures.append(f"no summary: {event.reason}")
        if not strict:
            note(failures[-1])

    def fell_back(_sender: Any, event: events.CountFellBack) -> None:
        failures.append(f"{event.counter} failed and its count was estimated: {event.reason}")

    with (
        _silent(logging.getLogger("memman.summaries")),
        events.compression_failed.connected_to(failed, sender=memory),
        events.count_fell_back.connected_to(fell_back, sender=memory),
    ):
        try:
            yield
        except (CompressionFailed, CounterUnavailable) as error:
            if strict:
                raise FailedError(str(error)) from error
            raise
    if strict and failures:
        raise FailedError(f"--strict: {failures[0]}")
