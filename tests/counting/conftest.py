"""Parts that several modules of this folder use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memman.plugins import shared_plugins
from tests.provider_kits import _one_tls_context

__all__ = ["_one_tls_context", "hooked"]


@pytest.fixture
def hooked() -> Iterator[Any]:
    """Register plugins for one test."""
    names: list[str] = []

    def register(plugin: object) -> None:
        names.append(f"test-{len(names)}")
        shared_plugins().register(plugin, names[-1])

    yield register
    for name in names:
        shared_plugins()._manager.unregister(name=name)
