"""A chat client of Agent Framework for the tests, which reports what it is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    ResponseStream,
    UsageDetails,
    tool,
)

from memman.testing import FakeModel, ModelReply


class ReportingClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A client with the framework's tool loop, that passes each request to a `FakeModel`."""

    def __init__(self, fake: FakeModel) -> None:
        super().__init__()
        self.function_invocation_configuration["max_iterations"] = 100
        self.fake, self.model = fake, fake.name

    def reply(self, messages: Sequence[Message], options: Mapping[str, Any]) -> ModelReply:
        """Return the model's reply to a request."""
        natives = [
            content.protected_data
            for message in messages
            for content in message.contents
            if content.type == "text_reasoning" and content.protected_data
        ]
        return self.fake.reply(
            chat(messages),
            system=options.get("instructions"),
            tools=[each.to_json_schema_spec() for each in options.get("tools") or ()] or None,
            natives=natives,
        )

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Any:
        if stream:
            return ResponseStream(
                self._stream(messages, options), finalizer=ChatResponse.from_updates
            )
        return self._respond(messages, options)

    async def _respond(
        self, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> ChatResponse[Any]:
        *contents, usage = contents_of(self.reply(messages, options))
        return ChatResponse(
            messages=Message("assistant", contents), usage_details=usage.usage_details
        )

    async def _stream(
        self, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponseUpdate]:
        for content in contents_of(self.reply(messages, options)):
            if content.type == "text" and content.text:
                yield ChatResponseUpdate(
                    contents=[Content.from_text(content.text[:2])], role="assistant"
                )
                content = Content.from_text(content.text[2:])
            yield ChatResponseUpdate(contents=[content], role="assistant")


def contents_of(reply: ModelReply) -> list[Content]:
    """Return a reply as contents, with the usage as the last."""
    contents = []
    if reply.native:
        contents.append(Content.from_text_reasoning(text="Hm.", protected_data=reply.native))
    if reply.text:
        contents.append(Content.from_text(reply.text))
    contents += [
        Content.from_function_call(call.call_id, call.name, arguments=json.dumps(call.arguments))
        for call in reply.calls
    ]
    usage = UsageDetails(
        input_token_count=reply.input_tokens,
        output_token_count=reply.output_tokens,
        total_token_count=reply.input_tokens + reply.output_tokens,
    )
    return [*contents, Content.from_usage(usage)]


def chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as a client of OpenAI chat sends them."""
    found: list[dict[str, Any]] = []
    for message in messages:
        texts = [content.text for content in message.contents if content.type == "text"]
        calls = [
            {
                "id": content.call_id,
                "type": "function",
                "function": {"name": content.name, "arguments": content.arguments},
            }
            for content in message.contents
            if content.type == "function_call"
        ]
        if texts or calls:
            said = {"role": message.role, "content": "\n".join(filter(None, texts)) or None}
            found.append({**said, **({"tool_calls": calls} if calls else {})})
        found += [
            {"role": "tool", "tool_call_id": content.call_id, "content": content.result}
            for content in message.contents
            if content.type == "function_result"
        ]
    return found


def reading_tool(fake: FakeModel, **options: Any) -> FunctionTool:
    """Return the tool `read` of the laws."""

    async def read(path: str) -> str:
        """Read a file."""
        return await fake.read(path)

    made: FunctionTool = tool(read, **{"approval_mode": "never_require", **options})
    return made
