"""The format of pydantic-ai's messages: loss-free, valid by construction, accepted by pydantic-ai."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memman_pydantic_ai import PydanticAIFormat
from pydantic_ai import messages as m

from memman.protocols import Format
from memman.testing import FormatConformance

AT = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE = m.BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")


def dumped(*messages: m.ModelMessage) -> list[Any]:
    found: list[Any] = m.ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return found


def asked(text: str = "Why is the build red?") -> m.ModelRequest:
    return m.ModelRequest(parts=[m.UserPromptPart(text)], instructions="Be brief.", run_id="r")


CONVERSATION = dumped(
    m.ModelRequest(parts=[m.SystemPromptPart("You build."), m.UserPromptPart("Why?")]),
    m.ModelResponse(
        parts=[
            m.ThinkingPart("hm", signature="c2ln", provider_name="anthropic"),
            m.TextPart("I look."),
            m.ToolCallPart("read", {"path": "a"}, "c1"),
            m.ToolCallPart("read", '{"path": "b"}', "c2"),
            m.TextPart("One more.", id="t1", provider_name="openai"),
            m.ToolCallPart("now", None, "c3"),
        ],
        model_name="claude",
        provider_details={"finish": "tool_use"},
    ),
    m.ModelRequest(
        parts=[
            m.ToolReturnPart("read", {"lines": [1, None]}, "c1", metadata={"seen": True}),
            m.ToolReturnPart("read", "no such file", "c2", outcome="retried"),
            m.ToolReturnPart("now", None, "c3"),
            m.UserPromptPart(
                [
                    "Look",
                    IMAGE,
                    m.CachePoint(),
                    m.TextContent("tagged", metadata={"a": 1}),
                    m.ImageUrl("https://example.com/a.png"),
                    m.DocumentUrl("https://example.com/a.pdf"),
                    m.AudioUrl("https://example.com/a.mp3"),
                    m.UploadedFile("file-1", "openai"),
                    m.BinaryContent(b"%PDF-1.7", media_type="application/pdf"),
                ]
            ),
        ],
        instructions="Be brief.",
        metadata={"mine": 1},
    ),
    m.ModelResponse(parts=[m.TextPart("Done.")]),
    asked(),
)
SAMPLES = [
    CONVERSATION,
    dumped(  # a text and a call, several requests in a row, files in a result
        asked(),
        m.ModelResponse(parts=[m.ToolCallPart("draw", "{}", "c1"), m.ToolCallPart("draw", "{}", "c2")]),
        m.ModelRequest(parts=[m.ToolReturnPart("draw", ["two", IMAGE, {"x": 1}], "c1")]),
        m.ModelRequest(parts=[m.ToolReturnPart("draw", IMAGE, "c2"), m.UserPromptPart("and now?")]),
        asked("really"),
        m.ModelResponse(
            parts=[
                m.FilePart(IMAGE, id="f", provider_name="google"),
                m.NativeToolCallPart("web_search", {"q": "x"}, "n1"),
                m.NativeToolReturnPart("web_search", [{"title": "y"}], "n1"),
                m.CompactionPart("all of it", provider_name="anthropic"),
                m.TextPart(""),
            ]
        ),
        asked(),
    ),
    dumped(  # feedback, state of the framework, messages without parts
        m.ModelRequest(parts=[], instructions="Only instructions."),
        m.ModelResponse(parts=[], finish_reason="length"),
        m.ModelRequest(
            parts=[
                m.RetryFeedbackPart("no number", retry=m.RetryInfo(cause="model_retry")),
                m.RetryFeedbackPart(
                    [{"type": "missing", "loc": ("a",), "msg": "Field required", "input": {}}],
                    retry=m.RetryInfo(cause="validation_error"),
                ),
                m.CompactionPart("a summary of the application's"),
                m.CompactionPart(),
                m.SpeechPart(speaker="user", transcript="hello"),
                m.SpeechPart(speaker="user"),
                m.ToolAvailabilityDeltaPart(tools_added=["read"]),
                m.InstructionDeltaPart(id=None, content="Be long."),
                m.InstructionDeltaPart(id=None, content=None),
                m.UserPromptPart([m.StructuredContent({"a": 1}, tag="state")]),
            ]
        ),
    ),
    [
        {
            "kind": "request",
            "parts": [
                {"part_kind": "hologram", "content": "?"},
                {"part_kind": "retry-prompt", "content": "again", "tool_name": None, "tool_call_id": "c"},
            ],
            "state": "complete",
        },
        {
            "kind": "response",
            "parts": [
                {"part_kind": "hologram", "content": {"x": [1]}},
                {"part_kind": "tool-call", "tool_name": "f", "args": "{oops", "tool_call_id": "c1"},
            ],
        },
        {
            "kind": "request",
            "parts": [
                {"part_kind": "retry-prompt", "content": [{"msg": "no"}], "tool_name": "f",
                 "tool_call_id": "c1"},
            ],
            "state": "complete",
        },
    ],
]  # fmt: skip


class TestPydanticAIFormat(FormatConformance):
    samples = SAMPLES

    def make_format(self) -> Format:
        return PydanticAIFormat()
