"""An agent of Strands for the tests, with a model that reports what it is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from strands import tool
from strands.models.model import Model
from strands.types.exceptions import ContextWindowOverflowException

from memman.testing import FakeModel, FakeOverflow, ModelReply


class ReportingModel(Model):
    """A model of Strands that passes each request to a `FakeModel`, and its reply back."""

    def __init__(self, fake: FakeModel) -> None:
        self._fake = fake

    def update_config(self, **model_config: Any) -> None:
        """Take no settings."""

    def get_config(self) -> Any:
        """Return the name of the model."""
        return {"model_id": self._fake.name}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        """Have no structured output."""
        raise NotImplementedError
        yield

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, *_: Any, **__: Any
    ) -> AsyncIterator[Any]:
        """Answer piece by piece."""
        thoughts = [
            block["reasoningContent"]["reasoningText"]["signature"]
            for message in messages
            for block in message["content"]
            if "reasoningContent" in block
        ]
        try:
            reply = self._fake.reply(
                plain(messages),
                system=system_prompt,
                tools=[{"toolSpec": spec} for spec in tool_specs or []] or None,
                natives=thoughts,
            )
        except FakeOverflow as error:
            raise ContextWindowOverflowException(str(error)) from error
        for event in events_of(reply):
            yield event


def plain(messages: Any) -> list[Any]:
    """Return messages as a provider gets them, without Strands' own keys."""
    return [
        {key: message[key] for key in message if key not in ("tracking_id", "metadata")}
        for message in messages
    ]


def events_of(reply: ModelReply) -> list[Any]:
    """Return a reply as the events of a stream."""
    blocks: list[tuple[Any, list[Any]]] = []
    if reply.native:
        thought = [{"text": "Hm."}, {"signature": reply.native}]
        blocks.append(({}, [{"reasoningContent": piece} for piece in thought]))
    if reply.text:
        middle = len(reply.text) // 2
        blocks.append(({}, [{"text": reply.text[:middle]}, {"text": reply.text[middle:]}]))
    for call in reply.calls:
        start = {"toolUse": {"name": call.name, "toolUseId": call.call_id}}
        blocks.append((start, [{"toolUse": {"input": json.dumps(call.arguments)}}]))
    events: list[Any] = [{"messageStart": {"role": "assistant"}}]
    for start, deltas in blocks:
        events.append({"contentBlockStart": {"start": start}})
        events += [{"contentBlockDelta": {"delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {}})
    usage = {
        "inputTokens": reply.input_tokens,
        "outputTokens": reply.output_tokens,
        "totalTokens": reply.input_tokens + reply.output_tokens,
    }
    reason = "tool_use" if reply.calls else "end_turn"
    events.append({"messageStop": {"stopReason": reason}})
    events.append({"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}})
    return events


def reading_tool(fake: FakeModel) -> Any:
    """Return the tool `read` of the laws."""

    @tool
    async def read(path: str) -> str:
        """Read a file."""
        return await fake.read(path)

    return read
