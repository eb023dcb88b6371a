"""What is particular to pydantic-ai: its parts, its histories, its ways to run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied

from memman import AsyncMemoryManager, Compressed, MemoryConfig, MemoryManager, Retracted
from memman.formats.rules import check
from memman_pydantic_ai import MemmanHistory

from .pydantic_ai_agents import definition, flat

IMAGE = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
AMPLE = MemoryConfig(max_tokens=1_000_000)


@dataclass
class Sent(AbstractCapability[Any]):
    """Keeps the messages of each request as the capabilities before it left them."""

    requests: list[list[ModelMessage]] = field(default_factory=list)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.requests.append(list(request_context.messages))
        return request_context


def answering(*parts: Any) -> FunctionModel:
    """Return a model that always answers with these parts, and reports a usage that it estimated."""
    return FunctionModel(lambda messages, info: ModelResponse(parts=list(parts)))


def stored(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages as an application loads them again."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(list(messages)))


def retractions(memory: MemoryManager, session_id: str = "s") -> int:
    log = memory.export_session(session_id).log
    return sum(isinstance(record, Compressed) and record.method == "retract" for record in log)
