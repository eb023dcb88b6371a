"""An agent of pydantic-ai for the tests, with a model that reports what it is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from memman_pydantic_ai import MemmanHistory
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
)
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from memman import Memory
from memman.testing import FakeModel, ModelReply
from memman.testing.models import FakeOverflow


def flat(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages in OpenAI's form, independently of the adapter's format."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            found += map(_flat_part, message.parts)
            continue
        text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        found.append({"role": "assistant", "content": text or None})
        if calls:
            found[-1]["tool_calls"] = calls
    return found


def _flat_part(part: Any) -> dict[str, Any]:
    match part:
        case SystemPromptPart():
            return {"role": "system", "content": part.content}
        case ToolReturnPart():
            content = part.model_response_str(wrap_if_error=False)
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        case RetryFeedbackPart():
            return {"role": "user", "content": part.model_response()}
        case UserPromptPart(content=str() as text):
            return {"role": "user", "content": text}
        case UserPromptPart():
            texts = [item if isinstance(item, str) else f"[{item.kind}]" for item in part.content]
            return {"role": "user", "content": "\n".join(texts)}
    raise AssertionError(part)


def definition(tool: ToolDefinition) -> dict[str, Any]:
    schema = tool.parameters_json_schema
    function = {"name": tool.name, "description": tool.description or "", "parameters": schema}
    return {"type": "function", "function": function}


class ReportingModel(FunctionModel):
    """A model of pydantic-ai that passes each request to a `FakeModel`, and its reply back."""

    def __init__(self, fake: FakeModel) -> None:
        super().__init__(self._answer, stream_function=self._stream, model_name=fake.name)
        self._fake = fake

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer with the usage that the fake model bills."""
        self._system = "openai"
        return await super().request(*args, **kwargs)

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[StreamedResponse]:
        """Answer piece by piece, with an estimated usage: a function has no other in a stream."""
        self._system = "function"
        async with super().request_stream(*args, **kwargs) as response:
            yield response

    def _reply(self, messages: Sequence[ModelMessage], info: AgentInfo) -> ModelReply:
        thoughts = [
            part.signature
            for message in messages
            for part in message.parts
            if isinstance(part, ThinkingPart) and part.signature
        ]
        tools = [definition(tool) for tool in [*info.function_tools, *info.output_tools]]
        try:
            return self._fake.reply(
                flat(messages), system=info.instructions, tools=tools, natives=thoughts
            )
        except FakeOverflow as error:
            body = {"message": str(error), "code": "context_length_exceeded"}
            raise ModelHTTPError(400, self.model_name, body) from error

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = self._reply(messages, info)
        parts: list[ModelResponsePart] = []
        if reply.native:
            parts.append(ThinkingPart("hm", signature=reply.native, provider_name="fake"))
        if reply.text:
            parts.append(TextPart(reply.text))
        parts += [ToolCallPart(call.name, call.arguments, call.call_id) for call in reply.calls]
        usage = RequestUsage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
        return ModelResponse(parts=parts, usage=usage)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        reply = self._reply(messages, info)
        if reply.native:
            yield {0: DeltaThinkingPart(content="hm", signature=reply.native)}
        for word in reply.text.split(" ") if reply.text else ():
            yield word if reply.text.startswith(word) else f" {word}"
        for number, call in enumerate(reply.calls, 1):
            arguments = json.dumps(call.arguments)
            yield {
                number: DeltaToolCall(
                    name=call.name, json_args=arguments, tool_call_id=call.call_id
                )
            }


def calling_once(call: ToolCallPart) -> FunctionModel:
    """Return a model that makes one call for each question, and then answers."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        called = isinstance(messages[-1].parts[0], ToolReturnPart)
        return ModelResponse(parts=[TextPart("well") if called else call])

    return FunctionModel(answer)


def reading_agent(
    memory: Memory, fake: FakeModel, session_id: str | None = None
) -> Agent[None, str]:
    """Return an agent with the tool `read` and memman."""
    agent = Agent(
        ReportingModel(fake),
        instructions="You explain code.",
        capabilities=[MemmanHistory(memory, session_id, recall=fake.recalls)],
    )

    @agent.tool_plain
    async def read(path: str) -> str:
        """Read a file."""
        return await fake.read(path)

    return agent


__all__ = ["ReportingModel", "calling_once", "definition", "flat", "reading_agent"]
