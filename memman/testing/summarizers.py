"""The laws of a `Summarizer`, each a test."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from memman.compression import summary_request
from memman.entries import Entry
from memman.ports import Summarizer, SummaryReply, SummaryRequest
from memman.testing.laws import settled

AT = datetime(2026, 1, 1, tzinfo=UTC)
_CAP = 400  # tokens


def _entry(number: int, text: str, **fields: object) -> Entry:
    settings: dict[str, object] = {"type": "message", "role": "user", **fields}
    return msgspec.convert(
        {"id": f"e{number}", "content": text, "timestamp": AT, "seq": number, **settings}, Entry
    )


def conversation() -> tuple[Entry, ...]:
    """A conversation worth a summary: about 3,000 words with tools, an error and odd characters."""
    entries: list[Entry] = []
    for turn in range(30):
        at = 4 * turn
        entries += [
            _entry(
                at + 1, f"Look at module {turn} \u2192 \u4f60\u597d, and mind the NUL \x00. " * 3
            ),
            _entry(
                at + 2,
                f'{{"path": "src/{turn}.py"}}',
                type="tool_call",
                role="assistant",
                name="read_file",
                call_id=f"c{turn}",
            ),
            _entry(
                at + 3,
                "line of a source file\n" * 12,
                type="tool_result",
                role="tool",
                name="read_file",
                call_id=f"c{turn}",
                is_error=turn == 7,
            ),
            _entry(at + 4, f"Module {turn} keeps port {8_000 + turn} open.", role="assistant"),
        ]
    return tuple(entries)


class SummarizerConformance:
    """Derive from it and say how the summarizer is made; every law of the port becomes a test."""

    def make_summarizer(self) -> Summarizer:
        """The summarizer under test; it may be sync or async."""
        raise NotImplementedError

    def summary(self, request: SummaryRequest) -> SummaryReply:
        """What the summarizer under test answers."""
        reply = settled(self.make_summarizer().summarize(request))
        assert isinstance(reply, SummaryReply), f"it answered with a {type(reply).__name__}"
        return reply

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

    def test_its_text_can_be_stored(self) -> None:
        reply = self.summary(summary_request(conversation(), _CAP, None))
        assert reply.text.encode().decode() == reply.text

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
