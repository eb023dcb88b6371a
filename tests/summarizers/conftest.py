"""A request, and a manager with enough entries for a summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memman import MemoryManager
from memman.compression.prompt import summary_request
from memman.protocols import SummaryRequest
from memman.testing.summarizers import conversation


@pytest.fixture
def request_() -> SummaryRequest:
    return summary_request(conversation()[:8], 400, None)


@pytest.fixture
def filled() -> Callable[..., Any]:
    """Fill a session `s` of a manager with thirty exchanges."""

    def fill(memory: MemoryManager) -> MemoryManager:
        for number in range(30):
            memory.add_user_message("s", f"Question {number}: " + "why is the build red? " * 5)
            memory.add_assistant_message("s", f"Answer {number}: " + "a line is too long. " * 5)
        return memory

    return fill
