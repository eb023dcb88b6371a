"""The fixtures of the MCP server's tests."""

from __future__ import annotations

from mcp_clients import http, log, temporary

__all__ = ["http", "log", "temporary"]
