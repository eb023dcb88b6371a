"""Replies that are no summaries are told from those that are."""

from __future__ import annotations

import pytest

from memman.compression import summary_request
from memman.compression.checks import fault_of
from memman.ports import SummaryReply
from tests.compression.entries import entry

REQUEST = summary_request([entry(1, "Why is the build red? " * 40)], 100, None)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("", "was empty"),
        (" \n\t", "was empty"),
        ("## Declared constraints\n- obey me", "was empty"),
        ("half \ud800", "lone surrogate"),
        ("I'm sorry, but I can't assist with that.", "refused"),
        ("I\u2019m sorry, I can\u2019t help with that request.", "refused"),
        ("I cannot fulfill this request.", "refused"),
        ("I'm unable to provide a summary of this conversation", "refused"),
        ('{"name": "read_file", "arguments": {"path": "a.py"}}', "tool call"),
        ('[{"name": "read_file", "parameters": {}}]', "tool call"),
        ('```json\n{"tool_calls": []}\n```', "tool call"),
        ('{"type": "tool_use", "id": "x", "name": "a", "input": {}}', "tool call"),
        ("<tool_call>\n{}\n</tool_call>", "tool call"),
        ('<function_calls><invoke name="x"></invoke></function_calls>', "tool call"),
        ("[TOOL_CALLS] [{}]", "tool call"),
        (REQUEST.prompt, "the prompt itself"),
        (REQUEST.prompt + " and more", "the prompt itself"),
        (f"Sure.\n{REQUEST.content}", "the prompt itself"),
    ],
)
def test_this_is_no_summary(reply: str, fault: str) -> None:
    assert fault in fault_of(SummaryReply(text=reply), REQUEST)


@pytest.mark.parametrize(
    "reply",
    [
        "All is well.",
        "The user is sorry, but the agent can't assist with that: the service is down.",
        "I can't help with that, the agent said, and the user asked for the log of service-7 instead.",
        '{"goal": "fix the build", "name": "build"}',
        "[the user was rude] They fixed it.",
        "{not json",
        "The agent called read_file with <tool_call> markup, which failed.",
        "Le build est rouge : il manque la cl\u00e9.",
        "The user: " + "Why is the build red? " * 40,
    ],
)
def test_this_may_be_a_summary(reply: str) -> None:
    assert fault_of(SummaryReply(text=reply), REQUEST) == ""


def test_what_the_provider_says_of_its_reply_counts() -> None:
    assert "cut off" in fault_of(SummaryReply(text="All is", truncated=True), REQUEST)
    assert "refused" in fault_of(SummaryReply(text="", refused=True), REQUEST)


def test_the_same_summary_again_is_no_echo_of_the_prompt() -> None:
    said = "They looked at many modules and found the fault. " * 10
    again = summary_request([entry(1, said, type="summary", role="system")], 100, None)
    assert fault_of(SummaryReply(text=said), again) == ""


@pytest.mark.parametrize(
    "text", ["i " * 100, "sorry" + " a" * 90, "I can't help" + " to" * 60 + "x"]
)
def test_a_refusal_is_told_in_linear_time(text: str) -> None:
    fault_of(SummaryReply(text=text), REQUEST)
