"""memman for Microsoft Agent Framework: a history provider, and the format of its messages.

memman loads this package in every process where it is installed, so the framework is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memman import hookimpl
from memman.protocols import Format
from memman_agent_framework.messages import AgentFrameworkFormat

if TYPE_CHECKING:
    from memman_agent_framework.provider import MemmanHistoryProvider

__all__ = ["AgentFrameworkFormat", "MemmanHistoryProvider", "memman_formats"]


@hookimpl
def memman_formats() -> list[Format]:
    """Return the format of Agent Framework's messages."""
    return [AgentFrameworkFormat()]


def __getattr__(name: str) -> object:
    if name != "MemmanHistoryProvider":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memman_agent_framework.provider import MemmanHistoryProvider

    return MemmanHistoryProvider
