"""memman keeps an LLM agent's conversation inside its context window without losing a word of it.

from memman import MemoryManager

memory = MemoryManager(model="gpt-5")
memory.add_user_message("s1", "Why is the build red?")
messages = memory.build_context("s1").messages
"""

from memman import events
from memman.archive import SessionState
from memman.compression import CompressionPlan, PlannedEntry
from memman.config import MemoryConfig
from memman.entries import Entry, FilePart, ImagePart, OpaquePart, TextPart, TokenCount
from memman.errors import (
    AsyncPortRefused,
    BudgetExceeded,
    CompressionFailed,
    ConfigError,
    CounterUnavailable,
    EntryNotFound,
    FormatError,
    IdConflict,
    InvalidInput,
    MemmanError,
    NotFound,
    PluginNotFound,
    Refused,
    SessionExists,
    SessionNotFound,
    StateError,
    StoreBusy,
    StoreConflict,
    StoreError,
    StoreFull,
)
from memman.events import CompressionResult
from memman.hookspecs import hookimpl
from memman.manager import AsyncMemoryManager, MemoryManager
from memman.ports import (
    CounterSpec,
    ModelInfo,
    ModelRef,
    SummaryReply,
    SummaryRequest,
    SummaryUsage,
)
from memman.results import Context, SessionStats, Summary

__version__ = "0.1.0"

__all__ = [
    # the managers and their settings
    "AsyncMemoryManager",
    "MemoryConfig",
    "MemoryManager",
    # what they work with and answer
    "CompressionPlan",
    "CompressionResult",
    "Context",
    "Entry",
    "FilePart",
    "ImagePart",
    "OpaquePart",
    "PlannedEntry",
    "SessionState",
    "SessionStats",
    "Summary",
    "TextPart",
    "TokenCount",
    "events",
    # what plugins implement
    "CounterSpec",
    "ModelInfo",
    "ModelRef",
    "SummaryReply",
    "SummaryRequest",
    "SummaryUsage",
    "hookimpl",
    # errors
    "AsyncPortRefused",
    "BudgetExceeded",
    "CompressionFailed",
    "ConfigError",
    "CounterUnavailable",
    "EntryNotFound",
    "FormatError",
    "IdConflict",
    "InvalidInput",
    "MemmanError",
    "NotFound",
    "PluginNotFound",
    "Refused",
    "SessionExists",
    "SessionNotFound",
    "StateError",
    "StoreBusy",
    "StoreConflict",
    "StoreError",
    "StoreFull",
]
