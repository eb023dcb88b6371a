"""Invalid replies are distinguished from summaries."""

from __future__ import annotations

import pytest

from memman.compression.prompt import summary_request
from memman.compression.reply import fault_of, is_refusal
from memman.protocols import SummaryReply
from tests.compression.entries import entry

REQUEST = summary_request([entry(1, "Why is the build red? " * 40)], 100, None)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("", "was empty"),
        (" \n\t", "was empty"),
        ("\u200b\ufeff\x00", "was empty"),
        ("```\n```", "was empty"),
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
        ('```tool_call\n{"name": "x"}\n```', "tool call"),
        ('<acme:tool_call>{"name": "x"}', "tool call"),
        ('<|channel|>commentary to=functions.read {"a": 1}', "tool call"),
        ('{"action": "read_file", "action_input": "a.py"}', "tool call"),
        ('{"recipient_name": "functions.read", "parameters": {}}', "tool call"),
        (REQUEST.prompt, "the prompt itself"),
        (REQUEST.prompt + " and more", "the prompt itself"),
        (f"Sure.\n{REQUEST.content}", "the prompt itself"),
    ],
)
def test_invalid_reply_is_rejected(reply: str, fault: str) -> None:
    assert fault in fault_of(SummaryReply(text=reply), REQUEST)


@pytest.mark.parametrize(
    "reply",
    [
        "Sorry, I'm not able to help with that.",
        "Es tut mir leid, aber dabei kann ich dir nicht helfen.",
        "D\u00e9sol\u00e9, je ne peux pas vous aider avec cette demande.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Sinto muito, mas n\u00e3o posso ajud\u00e1-lo com isso.",
        "Mi dispiace, ma non posso aiutarti con questa richiesta.",
        "Het spijt me, maar ik kan je daar niet mee helpen.",
        "\u0418\u0437\u0432\u0438\u043d\u0438\u0442\u0435, \u043d\u043e \u044f \u043d\u0435 "
        "\u043c\u043e\u0433\u0443 \u043f\u043e\u043c\u043e\u0447\u044c \u0441 \u044d\u0442"
        "\u0438\u043c \u0437\u0430\u043f\u0440\u043e\u0441\u043e\u043c.",
        "\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u534f\u52a9\u5904\u7406\u8fd9\u4e2a\u8bf7\u6c42"
        "\u3002",
        "\u7533\u3057\u8a33\u3042\u308a\u307e\u305b\u3093\u304c\u3001\u304a\u624b\u4f1d\u3044"
        "\u3067\u304d\u307e\u305b\u3093\u3002",
        "\uc8c4\uc1a1\ud569\ub2c8\ub2e4. \uadf8 \uc694\uccad\uc740 \ub3c4\uc640\ub4dc\ub9b4 "
        "\uc218 \uc5c6\uc2b5\ub2c8\ub2e4.",
    ],
)
def test_refusal_in_any_language_is_rejected(reply: str) -> None:
    assert "refused" in fault_of(SummaryReply(text=reply), REQUEST)


@pytest.mark.parametrize(
    "reply",
    [
        "All is well.",
        "Ich kann bei service-7 nicht helfen.",
        "\u7528\u6237\u8bf7\u6c42\u90e8\u7f72\uff0c\u4f46\u6211\u4eec\u65e0\u6cd5\u5b8c\u6210"
        "\uff0c\u56e0\u4e3a\u78c1\u76d8\u5df2\u6ee1\u3002",
        "The user is sorry, but the agent can't assist with that: the service is down.",
        "I can't help with that, the agent said, and the user asked for the log of service-7 "
        "instead.",
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


def test_providers_stop_reason_is_used() -> None:
    assert "cut off" in fault_of(SummaryReply(text="All is", truncated=True), REQUEST)
    assert "refused" in fault_of(SummaryReply(text="", refused=True), REQUEST)


def test_repeated_summary_is_not_an_echo_of_the_prompt() -> None:
    text = "They looked at many modules and found the fault. " * 10
    again = summary_request([entry(1, text, type="summary", role="system")], 100, None)
    assert fault_of(SummaryReply(text=text), again) == ""


@pytest.mark.parametrize(
    "text", ["i " * 100, "sorry" + " a" * 90, "I can't help" + " to" * 60 + "x"]
)
def test_refusals_are_recognised_in_linear_time(text: str) -> None:
    fault_of(SummaryReply(text=text), REQUEST)


@pytest.mark.parametrize(
    "text",
    [
        "Please share the conversation you'd like me to summarize.",
        "It looks like there is no conversation to summarize. Please provide the text.",
        "Bitte teile das Gespräch, das ich zusammenfassen soll.",
        "Por favor, comparte la conversación que quieres resumir.",
        "请提供您需要我总结的对话内容。",
    ],
)
def test_request_for_the_conversation_is_no_summary(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    ["Please share the report with Ana: that is the goal.", "The user asked to share the report."],
)
def test_short_summary_about_sharing_is_no_refusal(text: str) -> None:
    assert not is_refusal(text)
