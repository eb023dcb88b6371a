"""memman keeps an LLM agent's conversation inside its context window without losing a word of it.

from memman import MemoryManager

memory = MemoryManager(model="gpt-5")
memory.add_user_message("s1", "Why is the build red?")
messages = memory.build_context("s1").messages
"""

from memman import events, plugins
from memman.archive.document import SessionState
from memman.archive.info import ArchiveInfo
from memman.archive.limits import ArchiveLimits
from memman.async_manager import AsyncMemoryManager
from memman.config import MemoryConfig
from memman.core.methods import AsyncMethods
from memman.entries import Entry, FilePart, ImagePart, OpaquePart, TextPart, TokenCount
from memman.errors import (
    AsyncPortRefused,
    BudgetExceeded,
    CompressionFailed,
    ConfigError,
    CounterUnavailable,
    EntryNotFound,
    FileError,
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
    SummarizerFailed,
    SummarizerUnavailable,
    WrongEventLoop,
)
from memman.events import CompressionPlan, CompressionResult, PlannedEntry
from memman.explain.cache_state import CacheState
from memman.explain.explanation import Explanation, SummarizerState, Trigger
from memman.explain.history import CompressionStatus, EntryStatus
from memman.hookspecs import hookimpl
from memman.ids import valid_id
from memman.manager import MemoryManager
from memman.protocols import (
    CounterSpec,
    FeedItem,
    ModelInfo,
    ModelRef,
    Prices,
    PriceTier,
    SessionInfo,
    Summarizer,
    SummaryReply,
    SummaryRequest,
    SummaryUsage,
)
from memman.recall import AsyncRecallTool, RecallTool
from memman.results import Context, Hit, OverflowResult, Recalled, SessionStats, Source, Summary
from memman.spend import ReportedTokens, Spend

Memory = MemoryManager | AsyncMemoryManager
"""Either manager; both have `aio`, the methods to await."""
__version__ = plugins.VERSION


def __dir__() -> list[str]:
    """The public names alone."""
    return [*__all__, "__version__"]


__all__ = [
    # the managers and their settings
    "AsyncMemoryManager",
    "AsyncMethods",
    "Memory",
    "MemoryConfig",
    "MemoryManager",
    # their arguments and results
    "AsyncRecallTool",
    "CompressionStatus",
    "CompressionPlan",
    "CompressionResult",
    "Context",
    "Entry",
    "EntryStatus",
    "Explanation",
    "FeedItem",
    "FilePart",
    "Hit",
    "ImagePart",
    "OpaquePart",
    "OverflowResult",
    "PlannedEntry",
    "RecallTool",
    "ArchiveInfo",
    "ArchiveLimits",
    "SessionInfo",
    "SessionState",
    "SessionStats",
    "Source",
    "Recalled",
    "ReportedTokens",
    "Spend",
    "Summary",
    "SummarizerState",
    "TextPart",
    "TokenCount",
    "Trigger",
    "events",
    "valid_id",
    # what plugins implement
    "CounterSpec",
    "ModelInfo",
    "ModelRef",
    "PriceTier",
    "Prices",
    "Summarizer",
    "SummaryReply",
    "SummaryRequest",
    "SummaryUsage",
    "hookimpl",
    # errors
    "AsyncPortRefused",
    "BudgetExceeded",
    "CacheState",
    "CompressionFailed",
    "ConfigError",
    "CounterUnavailable",
    "EntryNotFound",
    "FileError",
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
    "SummarizerFailed",
    "SummarizerUnavailable",
    "WrongEventLoop",
]
