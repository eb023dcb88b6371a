"""What tests need of the machine: each is marked, and skips with its reason where it is missing.

`MEMMAN_REQUIRE=shared,service,browser` turns such a skip into a failure: CI has all of them.
"""

from __future__ import annotations

import os
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def _missing_shared() -> str | None:
    return None if SHARED.is_dir() else f"the conversations of {SHARED} are not here"


def _missing_service() -> str | None:
    try:
        socket.create_connection(("127.0.0.1", 5432), timeout=1).close()
    except OSError as error:
        return f"no PostgreSQL answers on this machine ({error})"
    return None


def _missing_browser() -> str | None:
    if shutil.which("chromium") is None:
        return "there is no Chromium: install your system's `chromium`"
    if find_spec("playwright") is None:
        return "there is no Playwright: run with `uv run --group browser`"
    return None


MISSING = {"shared": _missing_shared, "service": _missing_service, "browser": _missing_browser}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a marked test whose part of the machine is missing, or fails it where it is required."""
    required = os.environ.get("MEMMAN_REQUIRE", "").split(",")
    for mark, missing in MISSING.items():
        if item.get_closest_marker(mark) and (reason := missing()):
            if mark in required:
                pytest.fail(f"{mark} is required here: {reason}")
            pytest.skip(reason)
