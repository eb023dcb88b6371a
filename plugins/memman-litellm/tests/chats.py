"""Chats over LiteLLM for the tests, with a provider of its own that passes requests to a `FakeModel`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import litellm
from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import GenericStreamingChunk, Message, ModelResponse, Usage
from memman_litellm import MemmanLogger, session_of

from memman import MemoryManager
from memman.testing import FakeModel, FakeOverflow, ModelReply

TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
MODELS: dict[str, FakeModel] = {}  # by the URL of their deployment
LOGGERS: WeakKeyDictionary[MemoryManager, MemmanLogger] = WeakKeyDictionary()


def logger_of(memory: MemoryManager) -> MemmanLogger:
    """Return the callback of a memory. LiteLLM has one list of them, and each sees all requests."""
    number = str(id(memory))

    def session(request: Mapping[str, Any]) -> str | None:
        metadata = request.get("metadata") or {}
        return session_of(request) if metadata.get("memory") == number else None

    if memory not in LOGGERS:
        LOGGERS[memory] = MemmanLogger(memory, session_of=session)
        litellm.logging_callback_manager._reset_all_callbacks()  # it keeps 30 at most
        litellm.callbacks = [*LOGGERS.values()]
    return LOGGERS[memory]


class Provider(CustomLLM):
    """A provider whose deployments are `MODELS`."""

    async def acompletion(self, *_: Any, **request: Any) -> ModelResponse:
        """Answer as a whole."""
        reply = reply_to(request)
        response = ModelResponse(model=request["model"])
        response.choices[0].message = message_of(reply)
        response.usage = usage_of(reply)
        return response

    async def astreaming(self, *_: Any, **request: Any) -> AsyncIterator[GenericStreamingChunk]:
        """Answer piece by piece."""
        for chunk in chunks_of(reply_to(request)):
            yield chunk


def reply_to(request: Mapping[str, Any]) -> ModelReply:
    """Return the reply of a deployment; an overflow is LiteLLM's error, as its providers raise it."""
    messages = [dict(message) for message in request["messages"]]
    thoughts = [
        thought["signature"]
        for message in messages
        for thought in message.pop("thinking_blocks", None) or ()
    ]
    fake = MODELS[request["api_base"]]
    try:
        return fake.reply(messages, tools=request["optional_params"].get("tools"), natives=thoughts)
    except FakeOverflow as error:
        raise litellm.ContextWindowExceededError(
            message=str(error), model=request["model"], llm_provider="house"
        ) from error


def message_of(reply: ModelReply) -> Message:
    """Return a reply as a message of LiteLLM."""
    calls = [call_of(call) for call in reply.calls]
    thoughts = [{"type": "thinking", "thinking": "Hm.", "signature": reply.native}]
    more: Any = {"thinking_blocks": thoughts} if reply.native else {}
    return Message(content=reply.text or None, tool_calls=calls or None, **more)


def call_of(call: Any) -> dict[str, Any]:
    """Return a tool call as OpenAI's API has it."""
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


def usage_of(reply: ModelReply) -> Usage:
    """Return the usage of a reply."""
    return Usage(
        prompt_tokens=reply.input_tokens,
        completion_tokens=reply.output_tokens,
        total_tokens=reply.input_tokens + reply.output_tokens,
    )


def chunks_of(reply: ModelReply) -> list[GenericStreamingChunk]:
    """Return a reply as the pieces of a stream."""
    middle = len(reply.text) // 2
    pieces: list[Any] = [{"text": reply.text[:middle]}, {"text": reply.text[middle:]}]
    pieces += [
        {"tool_use": {**call_of(call), "index": number}} for number, call in enumerate(reply.calls)
    ]
    end = {
        "is_finished": True,
        "finish_reason": "tool_calls" if reply.calls else "stop",
        "usage": usage_of(reply).model_dump(),
    }
    empty = {"text": "", "is_finished": False, "finish_reason": "", "usage": None, "index": 0}
    return [{**empty, "tool_use": None, **piece} for piece in (*pieces, end)]


async def ask(
    model: FakeModel, messages: list[Any], *, stream: bool = False, **more: Any
) -> Message:
    """Send a chat request to a model and return the message of the reply."""
    base = f"memory:{id(model)}"
    MODELS[base] = model
    response = await litellm.acompletion(
        model=model.name,
        custom_llm_provider="house",
        api_base=base,
        messages=messages,
        stream=stream,
        **more,
    )
    if stream:
        chunks = [chunk async for chunk in response]
        response = litellm.stream_chunk_builder(chunks)
        await settled()
    message: Message = response.choices[0].message
    return message


async def settled() -> None:
    """Wait until LiteLLM has logged what has ended: it does so in the background."""
    loggers = list(LOGGERS.values())
    for _ in range(5_000):
        if not any(call.has_ended for each in loggers for call in [*each._calls.values()]):
            return
        await asyncio.sleep(0.002)


litellm.custom_provider_map = [{"provider": "house", "custom_handler": Provider()}]
litellm.suppress_debug_info = True
