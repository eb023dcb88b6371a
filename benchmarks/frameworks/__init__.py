"""A turn of an agent in each framework, with memman and with the framework's own memory.

A turn is a question, two parallel tool calls with results of about 700 characters, and an answer: two
requests to an offline model. A module per framework has `load()`, which returns its memories by name, the
framework's own unbounded one first.
"""

from __future__ import annotations

from collections.abc import Callable

BUDGET = 2_500  # tokens of a request, for memories that have a limit
TEXT = "total = total + compute(row)\n" * 25  # a tool's result
ENDLESS = 10**7  # tokens of a budget under which nothing is ever compressed

Play = Callable[[int], None]
"""Runs a new agent for a number of turns."""


def question(turn: int) -> str:
    """Return the user's message of a turn."""
    return f"Question {turn}: which rows does part {turn} add up?"
