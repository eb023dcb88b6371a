"""Microsoft Agent Framework: its own in-memory history, and memman's history provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        InMemoryHistoryProvider,
        Message,
        tool,
    )
    from memman_agent_framework import MemmanHistoryProvider

    class Reading(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
        """Reads two files for each question, then answers."""

        calls = 0

        async def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
            if messages[-1].role == "tool":
                return ChatResponse(messages=Message("assistant", ["They add up."]))
            self.calls += 1
            contents = [
                Content.from_function_call(f"{self.calls}{path}", "read", arguments={"path": path})
                for path in "ab"
            ]
            return ChatResponse(messages=Message("assistant", contents))

    @tool(approval_mode="never_require")
    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def played(provider: Callable[[], Any]) -> Play:
        async def several(turns: int) -> None:
            agent = Agent(
                Reading(), "You review code.", tools=[read], context_providers=[provider()]
            )
            session = agent.create_session()
            for turn in range(turns):
                await agent.run(question(turn), session=session)

        return lambda turns: asyncio.run(several(turns))

    def memman(max_tokens: int) -> Play:
        return played(
            lambda: MemmanHistoryProvider(MemoryManager(config=MemoryConfig(max_tokens=max_tokens)))
        )

    return {
        "own history": played(InMemoryHistoryProvider),
        "memman": memman(BUDGET),
        "memman, nothing to compress": memman(ENDLESS),
    }
