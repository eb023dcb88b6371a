"""memman's own formats conform, and the kit tells when a format does not."""

import copy
from typing import Any

from memman.formats import AnthropicFormat, OpenAIChatFormat, TextFormat
from memman.ports import Format, Rendered, Turn
from memman.testing import FormatConformance, broken_laws

OPENAI = [
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is in a.py?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "read", "arguments": '{"path": "a.py"}'}},
                {"id": "c2", "type": "function",
                 "function": {"name": "read", "arguments": '{"path":"b.py"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "print(1)"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "assistant", "content": "A print, and an empty file."},
    ],
    [
        {"role": "developer", "content": "Mind the \x00 and \U0001f600."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                     {"type": "image_url", "image_url": {"url": "https://e/x.png"}}]},
        {"role": "user", "content": "And two in a row.", "name": "ann"},
        {"role": "assistant", "content": "An image.", "refusal": None, "annotations": []},
    ],
    [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "look",
         "content": [{"type": "text", "text": "found"}]},
    ],
]  # fmt: skip

ANTHROPIC = [
    [
        {"role": "user", "content": "What is in a.py?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I should look.", "signature": "abc=="},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}},
            {"type": "tool_use", "id": "t2", "name": "read", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "print(1)"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no such file",
             "is_error": True}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A print."}]},
        {"role": "user", "content": "Thanks \u4f60\u597d"},
    ],
    [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
        {"role": "assistant", "content": "An image."},
        {"role": "user", "content": "Good."},
    ],
]  # fmt: skip

TEXT = """\
=== Recent Conversation ===
User: What is in a.py?
Assistant: Looking.
It has two lines.
Tool call read({"path": "a.py"})
Tool read: print(1)
Context notes.txt: all \u4f60\u597d
User: Thanks"""


class TestOpenAIChat(FormatConformance):
    samples = OPENAI
    rules = "openai-chat"

    def make_format(self) -> Format:
        return OpenAIChatFormat()


class TestAnthropic(FormatConformance):
    samples = ANTHROPIC
    rules = "anthropic"

    def make_format(self) -> Format:
        return AnthropicFormat()


class TestText(FormatConformance):
    samples = ([TEXT],)
    unknown = None

    def make_format(self) -> Format:
        return TextFormat()

    def as_given(self, messages: list[Any]) -> list[Any]:
        return [message["content"] for message in messages]


class Forgetful(OpenAIChatFormat):
    """Renders without what it has no meaning for."""

    def render(self, turn: Turn) -> Rendered:
        rendered = super().render(turn)
        known = ("role", "content", "tool_calls", "tool_call_id")
        kept = tuple({k: v for k, v in m.items() if k in known} for m in rendered.messages)
        return Rendered(kept, rendered.framing, rendered.extras)


class Invalid(OpenAIChatFormat):
    """Forgets to answer calls."""

    def render(self, turn: Turn) -> Rendered:
        rendered = super().render(turn)
        kept = tuple(message for message in rendered.messages if message["role"] != "tool")
        return Rendered(kept, rendered.framing, rendered.extras)


class Shared(OpenAIChatFormat):
    """Changes the messages that it is given."""

    def parse(self, messages):
        drafts = super().parse(copy.deepcopy(messages))
        for message in messages:
            message["times seen"] = message.get("times seen", 0) + 1
        return drafts


def kit_for(form: type[OpenAIChatFormat]) -> type[FormatConformance]:
    class Kit(TestOpenAIChat):
        samples = copy.deepcopy(OPENAI)

        def make_format(self) -> Format:
            return form()

    return Kit


def test_the_kit_catches_a_format_that_forgets_unknown_keys():
    assert "test_unknown_keys_of_a_message_are_kept" in broken_laws(kit_for(Forgetful))


def test_the_kit_catches_a_format_that_renders_what_its_provider_refuses():
    broken = broken_laws(kit_for(Invalid))
    assert "test_every_conversation_obeys_the_rules_of_its_provider" in broken


def test_the_kit_catches_a_format_that_changes_what_it_is_given():
    assert "test_parsing_leaves_the_messages_as_they_were" in broken_laws(kit_for(Shared))
