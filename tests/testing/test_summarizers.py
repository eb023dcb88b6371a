"""A summarizer that behaves conforms, sync or async, and the kit tells when one does not."""

import pytest

from memman.compression import heuristic_summary
from memman.ports import Summarizer, SummaryReply, SummaryRequest
from memman.testing import (
    AsyncScriptedSummarizer,
    ScriptedSummarizer,
    SummarizerConformance,
    broken_laws,
)


class Heuristic:
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text=heuristic_summary(request.entries))


class AsyncHeuristic:
    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text=heuristic_summary(request.entries))


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
    ],
)
def test_the_kit_catches_a_summarizer_that_breaks(reply, law):
    class Kit(SummarizerConformance):
        def make_summarizer(self) -> Summarizer:
            return ScriptedSummarizer(reply)

    assert law in broken_laws(Kit)
