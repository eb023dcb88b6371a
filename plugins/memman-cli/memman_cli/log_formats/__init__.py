"""Read-only logs: sessions of coding agents, exports of chats, traces."""

from __future__ import annotations

from memman_cli.log_formats.chatgpt import ChatGPTExport
from memman_cli.log_formats.claude_code import ClaudeCodeLog
from memman_cli.log_formats.codex import CodexLog
from memman_cli.log_formats.otel import OTelMessages
from memman_cli.log_formats.protocol import ImportFormat
from memman_cli.log_formats.sharegpt import ShareGPT

__all__ = ["IMPORT_FORMATS"]

IMPORT_FORMATS: tuple[ImportFormat, ...] = (
    ClaudeCodeLog(),
    CodexLog(),
    ChatGPTExport(),
    ShareGPT(),
    OTelMessages(),
)
