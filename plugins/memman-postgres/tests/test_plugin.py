"""The plugin itself: what needs no server."""

from __future__ import annotations

import subprocess
import sys

import pytest
from memman_postgres import memman_store


def test_the_driver_is_imported_with_the_first_store_and_not_with_the_plugin() -> None:
    code = "import memman_postgres, sys; print([n for n in sys.modules if n.startswith('psycopg')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["sqlite:///chat.db", "redis://x", "chat.db"])
def test_other_urls_are_left_to_others(url: str) -> None:
    assert memman_store(url) is None
