"""pydantic-ai: the application's own history, and memman's capability."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from memman_pydantic_ai import MemmanHistory
    from pydantic_ai import Agent
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        # Without reported usage the model estimates it from all messages, which costs more than the agent.
        usage = RequestUsage(input_tokens=1_000, output_tokens=10)
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("They add up.")], usage=usage)
        number = len(messages)
        calls = [ToolCallPart("read", {"path": each}, f"{number}{each}") for each in "ab"]
        return ModelResponse(parts=calls, usage=usage)

    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def played(capabilities: Callable[[], list[Any]]) -> Play:
        async def run(turns: int) -> None:
            agent = Agent(
                FunctionModel(reply),
                instructions="You review code.",
                tools=[read],
                capabilities=capabilities(),
            )
            history: list[ModelMessage] = []
            for turn in range(turns):
                result = await agent.run(question(turn), message_history=history)
                history = result.all_messages()

        return lambda turns: asyncio.run(run(turns))

    def memman(max_tokens: int) -> Play:
        return played(
            lambda: [
                MemmanHistory(
                    MemoryManager(config=MemoryConfig(max_tokens=max_tokens)), session_id="x"
                )
            ]
        )

    return {
        "own history": played(list),
        "memman": memman(BUDGET),
        "memman, nothing to compress": memman(ENDLESS),
    }
