"""The fixtures of the command's tests."""

from __future__ import annotations

from command_fixtures import (
    _plain_environment,
    command,
    demo_file,
    demo_run,
    log_file,
    long_log,
    session_file,
)

__all__ = [
    "_plain_environment",
    "command",
    "demo_file",
    "demo_run",
    "log_file",
    "long_log",
    "session_file",
]
