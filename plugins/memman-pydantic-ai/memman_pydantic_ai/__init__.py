"""memman for pydantic-ai: a capability, and the format of its messages.

memman loads this package in every process where it is installed, so pydantic-ai is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memman import hookimpl
from memman.lazy_imports import on_first_use
from memman.protocols import Format
from memman_pydantic_ai.messages import PydanticAIFormat

if TYPE_CHECKING:
    from memman_pydantic_ai.history import MemmanHistory
else:
    __getattr__ = on_first_use(__name__, {"history": "MemmanHistory"})

__all__ = ["MemmanHistory", "PydanticAIFormat", "memman_formats"]


@hookimpl
def memman_formats() -> list[Format]:
    """Return the format of pydantic-ai's messages."""
    return [PydanticAIFormat()]
