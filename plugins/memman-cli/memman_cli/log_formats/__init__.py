"""Read-only logs: sessions of coding agents, exports of chats, traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memman_cli.log_formats.chatgpt import ChatGPTExport
from memman_cli.log_formats.claude_code import ClaudeCodeLog
from memman_cli.log_formats.codex import CodexLog
from memman_cli.log_formats.otel import OTelMessages
from memman_cli.log_formats.protocol import ImportFormat
from memman_cli.log_formats.sharegpt import ShareGPT

__all__ = ["IMPORT_FORMATS", "detect_log"]

IMPORT_FORMATS: tuple[ImportFormat, ...] = (
    ClaudeCodeLog(),
    CodexLog(),
    ChatGPTExport(),
    ShareGPT(),
    OTelMessages(),
)


def detect_log(items: Sequence[Any]) -> ImportFormat | None:
    """Return the log format of the first items of a file, or None."""
    sure, _, best = max(
        ((form.detect(items), -number, form) for number, form in enumerate(IMPORT_FORMATS)),
        key=lambda found: found[:2],
    )
    return best if sure > 0 else None
