"""Agents of ADK for the tests, with a model that reports what it is sent."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types
from memman_adk.contents import message_of

from memman.testing import FakeModel, ModelReply

# Without a2a ADK tries to import this module at each run, and compiles it each time.
sys.modules.setdefault("google.adk.agents.remote_a2a_agent", None)  # type: ignore[arg-type]


class ReportingModel(BaseLlm):
    """A model of ADK that passes each request to a `FakeModel`, and its reply back."""

    fake: Any = None

    def __init__(self, fake: FakeModel) -> None:
        super().__init__(model=fake.name)
        self.fake = fake

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer, piece by piece if `stream`."""
        signatures = [
            part.thought_signature.decode()
            for content in llm_request.contents
            for part in content.parts or ()
            if part.thought_signature
        ]
        reply = self.fake.reply(
            [message_of(content) for content in llm_request.contents],
            system=llm_request.config.system_instruction,
            tools=[message_of_tool(tool) for tool in llm_request.config.tools or ()] or None,
            natives=signatures,
        )
        for response in responses_of(reply, stream):
            yield response


def message_of_tool(tool: Any) -> Any:
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


def responses_of(reply: ModelReply, stream: bool) -> list[LlmResponse]:
    """Return a reply as the responses of a model."""
    parts = [types.Part(text=reply.text)] if reply.text else []
    parts += [
        types.Part(
            function_call=types.FunctionCall(id=call.call_id, name=call.name, args=call.arguments)
        )
        for call in reply.calls
    ]
    if reply.native:
        signature = reply.native.encode()
        parts.insert(0, types.Part(text=reply.native, thought=True, thought_signature=signature))
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=reply.input_tokens,
        candidates_token_count=reply.output_tokens,
        total_token_count=reply.input_tokens + reply.output_tokens,
    )
    whole = LlmResponse(
        content=types.Content(role="model", parts=parts), usage_metadata=usage, partial=False
    )
    if not stream or not reply.text:
        return [whole]
    middle = len(reply.text) // 2
    pieces = [
        LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=text)]),
            usage_metadata=usage,
            partial=True,
        )
        for text in (reply.text[:middle], reply.text[middle:])
    ]
    return [*pieces, whole]


def reading_tool(fake: FakeModel) -> Any:
    """Return the tool `read` of the laws."""

    async def read(path: str) -> dict[str, str]:
        """Read a file."""
        return {"output": await fake.read(path)}

    return read


def user(text: str) -> types.Content:
    """Return a message of the user."""
    return types.Content(role="user", parts=[types.Part(text=text)])
