"""Conformance tests of summarizers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from memman.async_manager import AsyncMemoryManager
from memman.compression.prompt import summary_request
from memman.config import MemoryConfig
from memman.entries import Entry
from memman.events import CompressionResult
from memman.manager import MemoryManager
from memman.protocols import Summarizer, SummaryReply, SummaryRequest, SummaryUsage
from memman.runtime.base import is_async_callable
from memman.testing.laws import finished, finished_answer, in_threads
from memman.testing.stores.records import AT

_CAP = 400  # tokens
_CONFIG = MemoryConfig(auto_compress=False, max_tokens=4_000, max_entries=None)


def _entry(number: int, text: str, **fields: Any) -> Entry:
    settings: dict[str, Any] = {"type": "message", "role": "user", **fields}
    return Entry(id=f"e{number}", content=text, timestamp=AT, seq=number, **settings)


def conversation() -> tuple[Entry, ...]:
    """Return a conversation of about 3,000 words with tools, an error and odd characters."""
    entries: list[Entry] = []
    for turn in range(30):
        at = 4 * turn
        asked = f"Look at module {turn} \u2192 \u4f60\u597d, and mind the NUL \x00. " * 3
        path, source = f'{{"path": "src/{turn}.py"}}', "line of a source file\n" * 12
        tool = {"name": "read_file", "call_id": f"c{turn}"}
        entries += [
            _entry(at + 1, asked),
            _entry(at + 2, path, type="tool_call", role="assistant", **tool),
            _entry(at + 3, source, type="tool_result", role="tool", is_error=turn == 7, **tool),
            _entry(at + 4, f"Module {turn} keeps port {8_000 + turn} open.", role="assistant"),
        ]
    return tuple(entries)


class SummarizerConformance:
    """The laws of a `Summarizer`: derive from it and implement `make_summarizer`.

        class TestMine(SummarizerConformance):
            def make_summarizer(self):
                return MySummarizer()

    `seconds` is the most that one summary may take.
    """

    seconds: float = 30.0

    def make_summarizer(self) -> Summarizer:
        """Return the summarizer under test; it may be sync or async."""
        raise NotImplementedError

    @contextmanager
    def summarizer(self) -> Iterator[Summarizer]:
        """Yield the summarizer under test."""
        yield self.make_summarizer()

    def summary(self, request: SummaryRequest) -> SummaryReply:
        """Return the reply of the summarizer under test."""
        with self.summarizer() as summarizer:
            return _asked(summarizer, request)

    # ------------------------------------------------------------ the reply

    def test_it_answers_with_text(self) -> None:
        reply = self.summary(summary_request(conversation(), _CAP, None))
        assert isinstance(reply.text, str)
        assert reply.text.strip()

    def test_its_text_is_shorter_than_what_it_stands_for(self) -> None:
        entries = conversation()
        reply = self.summary(summary_request(entries, _CAP, None))
        assert len(reply.text) < sum(len(entry.text) for entry in entries) / 2

    def test_a_whole_answer_is_not_called_truncated(self) -> None:
        assert self.summary(summary_request(conversation()[:8], _CAP, None)).truncated is False

    def test_an_answer_is_not_called_refused(self) -> None:
        assert self.summary(summary_request(conversation()[:8], _CAP, None)).refused is False

    def test_its_text_can_be_stored(self) -> None:
        reply = self.summary(summary_request(conversation(), _CAP, None))
        assert reply.text.encode().decode() == reply.text

    def test_it_says_what_was_billed_in_tokens_or_nothing(self) -> None:
        usage = self.summary(summary_request(conversation()[:8], _CAP, None)).usage
        if usage is not None:
            assert isinstance(usage, SummaryUsage), f"usage is a {type(usage).__name__}"
            for tokens in (usage.input_tokens, usage.output_tokens):
                assert type(tokens) is int, f"{tokens!r} is no number of tokens"
                assert tokens >= 0

    def test_it_names_the_model_or_nothing(self) -> None:
        model = self.summary(summary_request(conversation()[:8], _CAP, None)).model
        assert model is None or (isinstance(model, str) and model), f"{model!r} is no model"

    # ------------------------------------------------------------ what it is asked

    def test_it_takes_a_previous_summary_and_a_focus(self) -> None:
        earlier = _entry(0, "Before: port 7999 was closed.", type="summary", role="system")
        request = summary_request((earlier, *conversation()), _CAP, "the ports")
        assert self.summary(request).text.strip()

    def test_it_takes_a_single_short_entry(self) -> None:
        assert self.summary(summary_request(conversation()[:1], _CAP, None)).text.strip()

    def test_it_is_asked_again_more_strictly_without_complaint(self) -> None:
        request = summary_request(conversation(), _CAP, None, "the summary was empty")
        assert self.summary(request).text.strip()

    def test_it_leaves_the_request_as_it_was(self) -> None:
        request = summary_request(conversation(), _CAP, "the ports")
        before = msgspec.json.encode(request)
        self.summary(request)
        assert msgspec.json.encode(request) == before

    def test_it_answers_within_the_time_out_of_the_request(self) -> None:
        request = summary_request(conversation()[:8], _CAP, None)
        request = msgspec.structs.replace(request, timeout=self.seconds)
        assert finished(lambda: self.summary(request), self.seconds).text.strip()

    def test_it_answers_again_and_again(self) -> None:
        request = summary_request(conversation()[:8], _CAP, None)
        with self.summarizer() as summarizer:
            assert all(_asked(summarizer, request).text.strip() for _ in range(3))

    def test_several_threads_may_ask_at_once(self) -> None:
        request = summary_request(conversation()[:8], _CAP, None)
        with self.summarizer() as summarizer:
            ask = partial(_asked, summarizer, request)
            assert all(reply.text.strip() for reply in in_threads([ask] * 4, self.seconds))

    # ------------------------------------------------------------ what a manager needs

    def test_what_it_takes_at_most_is_a_number_of_tokens_or_unknown(self) -> None:
        with self.summarizer() as summarizer:
            limit = getattr(summarizer, "max_input_tokens", None)
            assert limit is None or (type(limit) is int and limit > 0), f"{limit!r} is no limit"

    def test_a_manager_compresses_with_it(self) -> None:
        with self.summarizer() as summarizer:
            # Raises the reason of a failure.
            _asked(summarizer, summary_request(conversation()[:8], _CAP, None))
            for compressed in (compressed_in_sync, compressed_in_async):
                result = compressed(summarizer)
                methods = {item.method for item in result.replacements} if result else {"summary"}
                assert "summary" in methods, f"the manager did without it: {sorted(methods)}"


def _asked(summarizer: Summarizer, request: SummaryRequest) -> SummaryReply:
    reply = finished_answer(summarizer.summarize(request))
    assert isinstance(reply, SummaryReply), f"it answered with a {type(reply).__name__}"
    return reply


def compressed_in_sync(summarizer: Summarizer) -> CompressionResult | None:
    """Return the result of a `MemoryManager`'s compression; None if the summarizer is async."""
    if is_async_callable(summarizer.summarize):
        return None
    memory = MemoryManager(counter="chars4", config=_CONFIG, summarizer=summarizer)
    for entry in conversation():
        memory.add_user_message("s", entry.text)
    return memory.compress("s")


def compressed_in_async(summarizer: Summarizer) -> CompressionResult:
    """Return the result of an `AsyncMemoryManager`'s compression, in a loop of its own."""
    return asyncio.run(compressed(summarizer))


async def compressed(summarizer: Summarizer) -> CompressionResult:
    """Return the result of a compression in the running loop."""
    memory = AsyncMemoryManager(counter="chars4", config=_CONFIG, summarizer=summarizer)
    for entry in conversation():
        await memory.add_user_message("s", entry.text)
    return await memory.compress("s")
