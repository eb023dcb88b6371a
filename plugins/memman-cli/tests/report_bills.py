"""A session of an agent whose provider reports usage, with prices, compressions and lost caches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memman import MemoryConfig, MemoryManager, ModelInfo, Prices, Summarizer
from memman.testing import sequential_ids

BILLED = "review"
PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
_HEAD = 4_000  # tokens of the system prompt and the tools


def billed(
    turns: int = 60, prices: Prices | None = PRICES, summarizer: Summarizer | None = None
) -> MemoryManager:
    """Return a manager with a session of one request a turn; without prices if `prices` is None."""
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        nonlocal now
        now += timedelta(seconds=1)
        return now

    info = ModelInfo(200_000, 200_000, 8_000, prices=prices)
    config = MemoryConfig(max_tokens=12_000, max_entries=None)
    memory = MemoryManager(
        model="some-model", model_info=info, counter="chars4", config=config, clock=clock,
        new_id=sequential_ids(), summarizer=summarizer,
    )  # fmt: skip
    cached = messages = 0
    for turn in range(turns):
        memory.add_user_message(BILLED, f"What does module {turn} do?")
        memory.add_tool_call(BILLED, "read_file", {"path": f"src/{turn}.py"}, call_id=f"c{turn}")
        code = "def one(): return 1\n" * (100 + 37 * turn % 200)
        memory.add_tool_result(BILLED, "read_file", code, call_id=f"c{turn}")
        context = memory.build_context(BILLED)
        tokens = _HEAD + int(context.tokens)
        read = cached if context.unchanged_prefix == messages else _HEAD
        memory.record_usage(
            BILLED, input_tokens=tokens, output_tokens=200, cached_tokens=read,
            cache_written_tokens=tokens - read,
        )  # fmt: skip
        memory.add_assistant_message(BILLED, "It returns 1.")
        cached, messages = tokens, len(context)
    return memory
