"""The format of LlamaIndex's messages: loss-free, valid by construction, accepted by LlamaIndex."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from memman_llama_index import LlamaIndexFormat

from memman import MemoryManager
from memman.protocols import Format
from memman.testing import FormatConformance

PNG = b"\x89PNG\r\n\x1a\n" * 3


def dumped(*messages: ChatMessage) -> list[Any]:
    return [message.model_dump(mode="json") for message in messages]


def called(call_id: str, name: str = "read", arguments: Any = None) -> ToolCallBlock:
    return ToolCallBlock(
        tool_call_id=call_id, tool_name=name, tool_kwargs=arguments or {"path": "a"}
    )


def result(call_id: str, *blocks: Any) -> ChatMessage:
    given = list(blocks) or [TextBlock(text="found")]
    return ChatMessage(role="tool", blocks=given, additional_kwargs={"tool_call_id": call_id})


def copied(*calls: Any, blocks: Any = ()) -> ChatMessage:
    return ChatMessage(
        role="assistant", blocks=list(blocks), additional_kwargs={"tool_calls": list(calls)}
    )


def openai_call(call_id: str, arguments: str = '{"path": "a"}') -> dict[str, Any]:
    function = {"name": "read", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, "index": 0}


QUESTION = ChatMessage(role="user", content="Why?")
SAMPLES = [
    dumped(
        ChatMessage(role="system", content="You build."),
        ChatMessage(
            role="user",
            blocks=[
                TextBlock(text="Look"),
                ImageBlock(image=PNG, image_mimetype="image/png", detail="low"),
                ImageBlock(url="https://example.com/a.png"),
                ImageBlock(url="data:image/png;base64,iVBORw0KGgo="),
                DocumentBlock(data=b"%PDF-1.7", document_mimetype="application/pdf", title="a.pdf"),
                DocumentBlock(url="https://example.com/a.pdf"),
                AudioBlock(audio=b"RIFF1234WAVEfmt ", format="wav"),
                CachePoint(cache_control=CacheControl(type="ephemeral")),
                CitableBlock(title="t", source="s", content=[TextBlock(text="quoted")]),
            ],
        ),
        ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="hm", additional_information={"signature": "c2ln"}),
                TextBlock(text="I look."),
                called("c1"),
                TextBlock(text="And once more."),
                called("c2", arguments='{"path": "b"}'),
            ],
            additional_kwargs={"k": 1, "thinking_delta": None},
        ),
        result("c1"),
        result("c2", TextBlock(text="two"), ImageBlock(image=PNG, image_mimetype="image/png")),
        ChatMessage(
            role="assistant",
            blocks=[
                TextBlock(text="Done."),
                CitationBlock(
                    cited_content="quoted", source="s", title="t", additional_location_info={"at": 1}
                ),
            ],
        ),
        QUESTION,
    ),
    dumped(  # calls in the keyword arguments: beside the blocks, and alone
        QUESTION,
        copied(
            openai_call("c1"), openai_call("c2", "{}"),
            blocks=[called("c1", arguments='{"path": "a"}'), called("c2", arguments="{}")],
        ),
        result("c1"),
        result("c2"),
        copied(openai_call("c3"), blocks=[TextBlock(text="Old.")]),
        result("c3"),
        copied({"id": "c4", "name": "read", "input": {"path": "a"}, "type": "tool_use"}),
        result("c4"),
        copied({"toolUseId": "c5", "name": "read", "input": {}}),
        result("c5"),
        copied({"tool_id": "c6", "tool_name": "read", "tool_kwargs": {}}),
        result("c6"),
        copied({"call_id": "c7", "name": "read", "arguments": "{}", "id": "fc", "status": "done"}),
        result("c7"),
        copied({"something": "else"}, blocks=[TextBlock(text="Odd.")]),
        QUESTION,
    ),
    dumped(  # ids that are the names of the tools, other roles, messages without blocks
        ChatMessage(role="developer", content="Be brief."),
        QUESTION,
        ChatMessage(role="chatbot", blocks=[called("read", "read"), called("read", "read")]),
        result("read"),
        result("read"),
        ChatMessage(role="assistant", blocks=[called("read", "read")]),
        result("read"),
        ChatMessage(role="model", content="Done."),
        ChatMessage(role="user", blocks=[]),
        ChatMessage(role="user", content=""),
        ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")]),
        ChatMessage(role="assistant", content="Done.", additional_kwargs={"tool_call_id": "c9"}),
        QUESTION,
    ),
    [
        {
            "role": "user",
            "additional_kwargs": {},
            "blocks": [{"block_type": "hologram", "beam": {"x": [1]}, "type": "of its own"}],
        }
    ],
]  # fmt: skip


class TestLlamaIndexFormat(FormatConformance):
    samples = SAMPLES

    def make_format(self) -> Format:
        return LlamaIndexFormat()


@pytest.mark.parametrize("sample", SAMPLES[:3])
def test_what_is_rendered_is_a_message_again(sample: list[Any]) -> None:
    memory = MemoryManager()
    memory.add_messages("s", sample, "llama-index")
    read = [
        ChatMessage.model_validate(each)
        for each in memory.build_context("s", format="llama-index").messages
    ]
    assert dumped(*read) == sample
    assert memory.get_messages("s", format="llama-index") == sample
