"""memman for LlamaIndex: a memory, an agent whose runs it bounds, and the format of its messages.

memman loads this package in every process where it is installed, so LlamaIndex is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from memman import hookimpl
from memman.protocols import Format
from memman_llama_index.messages import LlamaIndexFormat

if TYPE_CHECKING:
    from memman_llama_index.agent import MemmanEvent, MemmanFunctionAgent
    from memman_llama_index.memory import MemmanMemory

__all__ = [
    "LlamaIndexFormat",
    "MemmanEvent",
    "MemmanFunctionAgent",
    "MemmanMemory",
    "memman_formats",
]
_MODULES = {"MemmanEvent": "agent", "MemmanFunctionAgent": "agent", "MemmanMemory": "memory"}


@hookimpl
def memman_formats() -> list[Format]:
    """Return the format of LlamaIndex's messages."""
    return [LlamaIndexFormat()]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"memman_llama_index.{_MODULES[name]}"), name)
