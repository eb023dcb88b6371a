"""A correct summarizer conforms, sync or async, and the kit finds one that does not."""

import time

import msgspec
import pytest

from memman.protocols import Summarizer, SummaryReply, SummaryRequest, SummaryUsage
from memman.testing import (
    AsyncScriptedSummarizer,
    ScriptedSummarizer,
    SummarizerConformance,
    broken_laws,
)


def shortened(request: SummaryRequest) -> str:
    """Return the beginning of each entry's text, in as many characters as the target has tokens."""
    most = max(1, request.target_tokens // len(request.entries))
    return "\n".join(entry.text[:most] for entry in request.entries)


class Heuristic:
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text=shortened(request))


class AsyncHeuristic:
    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text=shortened(request))


class TestHeuristic(SummarizerConformance):
    def make_summarizer(self) -> Summarizer:
        return Heuristic()


class TestAsyncHeuristic(SummarizerConformance):
    def make_summarizer(self) -> Summarizer:
        return AsyncHeuristic()


class TestScripted(SummarizerConformance):
    def make_summarizer(self) -> Summarizer:
        return ScriptedSummarizer("they looked at thirty modules")


class TestAsyncScripted(SummarizerConformance):
    def make_summarizer(self) -> Summarizer:
        return AsyncScriptedSummarizer("they looked at thirty modules")


@pytest.mark.parametrize(
    ("reply", "law"),
    [
        ("", "test_it_answers_with_text"),
        (
            SummaryReply(text="half a", truncated=True),
            "test_a_whole_answer_is_not_called_truncated",
        ),
        ("\ud83d", "test_its_text_can_be_stored"),
        (lambda request: request.prompt, "test_its_text_is_shorter_than_what_it_stands_for"),
        (OSError("429"), "test_it_takes_a_previous_summary_and_a_focus"),
        (SummaryReply(text="no", refused=True), "test_an_answer_is_not_called_refused"),
        (
            SummaryReply(text="so", usage=SummaryUsage(1.5, 2)),
            "test_it_says_what_was_billed_in_tokens_or_nothing",
        ),
        (
            SummaryReply(text="so", usage={"input_tokens": 1}),
            "test_it_says_what_was_billed_in_tokens_or_nothing",
        ),
        (SummaryReply(text="so", model=""), "test_it_names_the_model_or_nothing"),
        (lambda request: "word " * 5_000, "test_a_manager_compresses_with_it"),
    ],
)
def test_the_kit_catches_a_summarizer_that_breaks(reply, law):
    class Kit(SummarizerConformance):
        def make_summarizer(self) -> Summarizer:
            return ScriptedSummarizer(reply)

    assert law in broken_laws(Kit)


def laws_broken_by(summarizer: object) -> list[str]:
    class Kit(SummarizerConformance):
        seconds = 0.5

        def make_summarizer(self) -> Summarizer:
            return summarizer

    return broken_laws(Kit)


def test_kit_catches_an_invalid_limit():
    class Wrong(Heuristic):
        max_input_tokens = "many"

    assert "test_what_it_takes_at_most_is_a_number_of_tokens_or_unknown" in laws_broken_by(Wrong())


def test_the_kit_catches_one_that_is_too_slow():
    class Slow(Heuristic):
        def summarize(self, request: SummaryRequest) -> SummaryReply:
            if request.timeout is not None:
                time.sleep(request.timeout + 0.3)
            return super().summarize(request)

    class Kit(SummarizerConformance):
        seconds = 0.3

        def make_summarizer(self) -> Summarizer:
            return Slow()

    with pytest.raises(AssertionError, match="not done after"):
        Kit().test_it_answers_within_the_time_out_of_the_request()


def test_the_kit_catches_one_that_answers_once_or_one_at_a_time():
    class Once(Heuristic):
        calls = 0

        def summarize(self, request: SummaryRequest) -> SummaryReply:
            self.calls += 1
            return SummaryReply(text="said" if self.calls == 1 else "")

    broken = laws_broken_by(Once())
    assert "test_it_answers_again_and_again" in broken
    assert "test_several_threads_may_ask_at_once" in broken


def test_the_kit_catches_one_that_changes_the_request():
    class Changing(Heuristic):
        def summarize(self, request: SummaryRequest) -> SummaryReply:
            entries = request.entries
            reply = super().summarize(request)
            msgspec.structs.force_setattr(request, "entries", entries[:1])
            return reply

    assert "test_it_leaves_the_request_as_it_was" in laws_broken_by(Changing())
