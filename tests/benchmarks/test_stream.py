"""The summarized tokens of a stream of messages; no times, so it is a test."""

from __future__ import annotations

import pytest

from benchmarks import stream
from benchmarks.goals import any_failed
from memman import MemoryConfig, MemoryManager


@pytest.mark.parametrize("name", [name for name, way in stream.WAYS.items() if way.calls])
def test_stream_calls_and_reads_within_the_promise(name: str) -> None:
    way = stream.WAYS[name]
    found = stream.flow_of(way)
    assert not any_failed(stream.goals_of(name, way, found)), found
    # Each entry outside of the window was read once, and each entry in it was not read.
    assert found.calls > 10
    assert found.tokens_read > 0.8 * 400 * 100


def test_no_second_call_without_new_content() -> None:
    reader = stream.Reader()
    memory = MemoryManager(
        counter=stream.count,
        summarizer=reader.summarize,
        config=MemoryConfig(max_tokens=stream.LIMIT),
    )
    for item in stream.messages():
        memory.add_user_message("s", item.content)
    memory.compress("s")
    calls = reader.summarized
    assert memory.compress("s").compression_id is None
    memory.build_context("s")
    memory.add_user_message("s", "ok")
    assert reader.summarized == calls


def test_reread_summaries_count_and_instructions_do_not() -> None:
    reader = stream.Reader()
    one, other, *_ = [item.content for item in stream.messages()]
    summary = reader.summarize(f"Instructions.\n{one}\n{other}")
    assert (reader.tokens_read, reader.nothing_new) == (200, 0)
    reader.summarize(f"Instructions.\n{summary}\n{one}")
    assert (reader.tokens_read, reader.nothing_new) == (200 + 200 + 100, 1)
    assert reader.times_read[one] == 2


def test_reader_that_keeps_to_a_request_answers_in_its_words() -> None:
    reader = stream.Reader(summary_tokens=100, keeps=True)
    assert len(reader.summarize("in plain text of at most about 7 words, nothing").split()) == 7
    whole = reader.summarize("in plain text of at most about 900 words, nothing")
    assert stream.count(whole) == 100
    reader.summarize(f"in plain text of at most about 900 words\n{whole}")
    assert reader.tokens_read == 100
