"""An agent of LlamaIndex for the tests, with a model that reports what it is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    LLMMetadata,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from memman_llama_index import MemmanFunctionAgent, MemmanMemory

from memman.testing import FakeModel, ModelReply


def flat(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages in OpenAI's form, independently of the adapter's format."""
    found: list[dict[str, Any]] = []
    for message in messages:
        found.append({"role": message.role.value, "content": message.content})
        if message.role == "tool":
            found[-1]["tool_call_id"] = message.additional_kwargs["tool_call_id"]
        calls = [
            {
                "id": block.tool_call_id,
                "type": "function",
                "function": {"name": block.tool_name, "arguments": json.dumps(block.tool_kwargs)},
            }
            for block in message.blocks
            if isinstance(block, ToolCallBlock)
        ]
        if calls:
            found[-1]["tool_calls"] = calls
    return found


class ReportingModel(MockFunctionCallingLLM):
    """LlamaIndex's own mock, which passes each request to a `FakeModel`, and its reply back."""

    _fake: FakeModel = PrivateAttr()

    def __init__(self, fake: FakeModel) -> None:
        super().__init__(is_chat_model=True)
        self._fake = fake

    @property
    def metadata(self) -> LLMMetadata:
        """Name the model."""
        return LLMMetadata(
            is_function_calling_model=True, is_chat_model=True, model_name=self._fake.name
        )

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer."""
        reply = self._reply(messages, kwargs.get("tools"))
        return ChatResponse(message=message_of(reply), raw={"usage": usage_of(reply)})

    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        """Answer piece by piece; the last piece has the usage."""
        reply = self._reply(messages, kwargs.get("tools"))

        async def pieces() -> AsyncGenerator[ChatResponse, None]:
            if reply.text:
                half = reply.text[: len(reply.text) // 2]
                yield ChatResponse(message=ChatMessage(half, role="assistant"), delta=half, raw={})
            rest = reply.text[len(reply.text) // 2 :]
            yield ChatResponse(
                message=message_of(reply), delta=rest, raw={"usage": usage_of(reply)}
            )

        return pieces()

    def _reply(self, messages: Sequence[ChatMessage], tools: Any) -> ModelReply:
        natives = [
            block.additional_information["signature"]
            for message in messages
            for block in message.blocks
            if isinstance(block, ThinkingBlock)
        ]
        definitions = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools or ()]
        return self._fake.reply(flat(messages), tools=definitions or None, natives=natives)


def message_of(reply: ModelReply) -> ChatMessage:
    """Return a reply as a message."""
    blocks: list[Any] = []
    if reply.native:
        blocks.append(
            ThinkingBlock(content="hm", additional_information={"signature": reply.native})
        )
    if reply.text:
        blocks.append(TextBlock(text=reply.text))
    blocks += [
        ToolCallBlock(tool_call_id=call.call_id, tool_name=call.name, tool_kwargs=call.arguments)
        for call in reply.calls
    ]
    return ChatMessage(role="assistant", blocks=blocks)


def usage_of(reply: ModelReply) -> dict[str, int]:
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens}


class Both(MemmanMemory):
    """memman's memory that also writes into LlamaIndex's own, which is the history to compare with."""

    _own: ChatMemoryBuffer = PrivateAttr(
        default_factory=lambda: ChatMemoryBuffer.from_defaults(token_limit=10**9)
    )

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Put messages into both."""
        super().put_messages(messages)
        self._own.put_messages(messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Set the messages of both."""
        own = self._own
        self._own = ChatMemoryBuffer.from_defaults(token_limit=10**9)
        super().set(messages)
        self._own = own
        own.set(messages)


def reading_agent(
    fake: FakeModel, cls: type[FunctionAgent] = MemmanFunctionAgent, **options: Any
) -> FunctionAgent:
    """Return an agent with the tool `read`."""

    async def read(path: str) -> str:
        """Read a file."""
        return await fake.read(path)

    if cls is MemmanFunctionAgent:
        options["recall"] = fake.recalls
    return cls(
        llm=ReportingModel(fake),
        tools=[FunctionTool.from_defaults(async_fn=read)],
        system_prompt="You review code.",
        **options,
    )
