"""memman for pydantic-ai: a capability, and the format of its messages.

memman loads this package in every process where it is installed, so pydantic-ai is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memman import hookimpl
from memman.protocols import Format
from memman_pydantic_ai.messages import PydanticAIFormat

if TYPE_CHECKING:
    from memman_pydantic_ai.history import MemmanHistory

__all__ = ["MemmanHistory", "PydanticAIFormat", "memman_formats"]


@hookimpl
def memman_formats() -> list[Format]:
    """Return the format of pydantic-ai's messages."""
    return [PydanticAIFormat()]


def __getattr__(name: str) -> object:
    if name != "MemmanHistory":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memman_pydantic_ai.history import MemmanHistory

    return MemmanHistory
