"""memman's own formats conform, and the kit finds one that does not."""

import copy
from typing import Any

from memman.formats.anthropic import AnthropicFormat
from memman.formats.bedrock import BedrockFormat
from memman.formats.gemini import GeminiFormat
from memman.formats.langchain import LangChainFormat
from memman.formats.mistral import MistralFormat
from memman.formats.openai_chat import OpenAIChatFormat
from memman.formats.openai_responses import OpenAIResponsesFormat
from memman.formats.text import TextFormat
from memman.protocols import Format, Rendered, Turn
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

RESPONSES = [
    [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Now."}]},
        {"role": "user", "content": "What is in a.py?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read",
         "arguments": '{"path": "a.py"}', "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "print(1)"},
        {"type": "function_call_output", "call_id": "c2", "output": [
            {"type": "input_text", "text": "no such file"}]},
        {"role": "assistant", "content": "A print \u4f60\u597d."},
    ],
    [
        {"role": "user", "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "https://e/x.png", "detail": "low"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "assistant", "content": "An image."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.py"},
    ],
]  # fmt: skip

GEMINI = [
    [
        {"role": "user", "parts": [{"text": "What is in a.py?"}]},
        {"role": "model", "parts": [
            {"text": "I should look.", "thought": True},
            {"text": "Looking."},
            {"functionCall": {"name": "read", "args": {"path": "a.py"}}, "thoughtSignature": "YWJj"},
            {"functionCall": {"name": "read", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "read", "response": {"output": "print(1)"}}},
            {"functionResponse": {"name": "read", "response": {"error": "no such file"}}}]},
        {"role": "model", "parts": [{"text": "A print."}]},
        {"role": "user", "parts": [{"text": "Thanks \u4f60\u597d"}]},
    ],
    [
        {"role": "user", "parts": [
            {"text": "What is this?"},
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "look", "args": {"a": None}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "look", "response": {"seen": [1, None]}}}]},
    ],
]  # fmt: skip

BEDROCK = [
    [
        {"role": "user", "content": [{"text": "What is in a.py?"}, {"cachePoint": {"type": "default"}}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "I should look.", "signature": "abc"}}},
            {"text": "Looking."},
            {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "a.py"}}},
            {"toolUse": {"toolUseId": "t2", "name": "read", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "t1", "content": [{"json": {"lines": 1}}], "status": "success"}},
            {"toolResult": {"toolUseId": "t2", "content": [{"text": "no such file"}],
                            "status": "error"}},
            {"text": "And?"}]},
        {"role": "assistant", "content": [{"text": "A print."}]},
        {"role": "user", "content": [{"text": "Thanks \u4f60\u597d"}]},
    ],
    [
        {"role": "user", "content": [
            {"text": "What are these?"},
            {"image": {"format": "png", "source": {"bytes": "AA=="}}},
            {"document": {"format": "pdf", "name": "paper 1", "source": {"bytes": "AA=="}}}]},
    ],
]  # fmt: skip

MISTRAL = [
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is in a.py?", "x": 1},
        {"role": "assistant", "content": "", "prefix": False, "tool_calls": [
            {"id": "a1B2c3D4e", "type": "function", "index": 0,
             "function": {"name": "read", "arguments": '{"path": "a.py"}'}},
            {"id": "f5G6h7I8j", "type": "function",
             "function": {"name": "read", "arguments": {"path": "b.py"}}}]},
        {"role": "tool", "tool_call_id": "f5G6h7I8j", "name": "read", "content": "no such file"},
        {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": [{"type": "text", "text": "print"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "A print?"}], "closed": True},
            {"type": "text", "text": "A print."}]},
        {"role": "user", "content": "Thanks \u4f60\u597d"},
    ],
    [
        {"role": "user", "content": [
            {"type": "text", "text": "What are these?"},
            {"type": "image_url", "image_url": "https://x.test/a.png"},
            {"type": "image_url", "image_url": {"url": "https://x.test/b.png"}},
            {"type": "image_url", "image_url": {"url": "https://x.test/c.png", "detail": "low"}},
            {"type": "document_url", "document_url": "https://x.test/d.pdf", "document_name": "d"},
            {"type": "input_audio", "input_audio": "AA=="}]},
        {"role": "assistant", "content": "They are", "prefix": True},
    ],
]  # fmt: skip

LANGCHAIN = [
    [
        {"type": "system", "data": {"content": "Be brief.", "additional_kwargs": {}, "type": "system"}},
        {"type": "human", "data": {"content": "What is in a.py?", "name": None, "id": "h1"}},
        {"type": "ai", "data": {
            "content": [{"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
            "tool_calls": [{"name": "read", "args": {"path": "a.py"}, "id": "c1", "type": "tool_call"}],
            "invalid_tool_calls": [], "usage_metadata": {"input_tokens": 3, "output_tokens": 1},
            "response_metadata": {"model_name": "m"}}},
        {"type": "tool", "data": {"content": "print(1)", "tool_call_id": "c1", "name": "read",
                                  "artifact": {"k": 1}, "status": "success"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [
            {"name": "read", "args": {}, "id": "c2", "type": "tool_call"}], "invalid_tool_calls": [
            {"name": "read", "args": "{", "id": "c3", "error": "bad", "type": "invalid_tool_call"}]}},
        {"type": "tool", "data": {"content": "no such file", "tool_call_id": "c3", "status": "error"}},
        {"type": "tool", "data": {"content": ["one", {"type": "text", "text": "two"}],
                                  "tool_call_id": "c2"}},
        {"type": "AIMessageChunk", "data": {"content": "A print.", "chunk_position": "last"}},
        {"type": "chat", "data": {"content": "And?", "role": "user"}},
        {"type": "human", "data": {"content": [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
            {"type": "image", "base64": "AA==", "mime_type": "image/png", "id": "i"},
            {"type": "file", "base64": "AA==", "mime_type": "application/pdf"},
            {"type": "audio", "base64": "AA==", "mime_type": "audio/wav"}]}},
    ],
    [
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
         "kwargs": {"content": "What is in a.py?", "type": "human"}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
         "kwargs": {"content": "A print.", "type": "ai", "tool_calls": [], "invalid_tool_calls": []}},
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
    unknown = None  # a request has only the provider's keys

    def make_format(self) -> Format:
        return AnthropicFormat()


class TestOpenAIResponses(FormatConformance):
    samples = RESPONSES
    rules = "openai-responses"
    unknown = None  # a request has only the provider's keys

    def make_format(self) -> Format:
        return OpenAIResponsesFormat()


class TestGemini(FormatConformance):
    unknown = None  # a request has only the provider's keys
    samples = GEMINI
    rules = "gemini"

    def make_format(self) -> Format:
        return GeminiFormat()


class TestBedrock(FormatConformance):
    unknown = None  # a request has only the provider's keys
    samples = BEDROCK
    rules = "bedrock"

    def make_format(self) -> Format:
        return BedrockFormat()


class TestMistral(FormatConformance):
    samples = MISTRAL
    rules = "mistral"

    def make_format(self) -> Format:
        return MistralFormat()


class TestLangChain(FormatConformance):
    samples = LANGCHAIN
    rules = "langchain"
    unknown = None  # keys other than `type` and `data` have no owner

    def make_format(self) -> Format:
        return LangChainFormat()


class TestText(FormatConformance):
    samples = ([TEXT],)
    unknown = None

    def make_format(self) -> Format:
        return TextFormat()

    def as_given(self, messages: list[Any]) -> list[Any]:
        return [message["content"] for message in messages]


class Forgetful(OpenAIChatFormat):
    """A format that drops unknown parts."""

    def render(self, turn: Turn) -> Rendered:
        rendered = super().render(turn)
        known = ("role", "content", "tool_calls", "tool_call_id")
        kept = tuple({k: v for k, v in m.items() if k in known} for m in rendered.messages)
        return Rendered(kept, rendered.framing, rendered.extras)


class Invalid(OpenAIChatFormat):
    """A format that drops the results of calls."""

    def render(self, turn: Turn) -> Rendered:
        rendered = super().render(turn)
        kept = tuple(message for message in rendered.messages if message["role"] != "tool")
        return Rendered(kept, rendered.framing, rendered.extras)


class Shared(OpenAIChatFormat):
    """A format that changes the given messages."""

    def parse(self, messages):
        new_entries = super().parse(copy.deepcopy(messages))
        for message in messages:
            message["times seen"] = message.get("times seen", 0) + 1
        return new_entries


def kit_for(form: type[OpenAIChatFormat]) -> type[FormatConformance]:
    class Kit(TestOpenAIChat):
        samples = copy.deepcopy(OPENAI)

        def make_format(self) -> Format:
            return form()

    return Kit


def test_the_kit_catches_a_format_that_forgets_unknown_keys():
    assert "test_unknown_keys_of_a_message_are_kept" in broken_laws(kit_for(Forgetful))


def test_kit_catches_rendering_that_the_provider_refuses():
    broken = broken_laws(kit_for(Invalid))
    assert "test_every_conversation_obeys_the_rules_of_its_provider" in broken


def test_kit_catches_a_format_that_changes_its_input():
    assert "test_parsing_leaves_the_messages_as_they_were" in broken_laws(kit_for(Shared))
