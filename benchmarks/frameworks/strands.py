"""Strands Agents: its own messages, and memman's conversation manager."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from memman_strands import MemmanConversationManager
    from strands import Agent, tool
    from strands.agent.conversation_manager import NullConversationManager
    from strands.models import Model

    class Reading(Model):  # type: ignore[misc]  # Any, where Strands is not installed
        """Reads two files for each question, then answers."""

        def update_config(self, **config: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {}

        async def structured_output(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            raise NotImplementedError
            yield

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            answers = "toolResult" in messages[-1]["content"][0]
            yield {"messageStart": {"role": "assistant"}}
            for path in ("answer",) if answers else ("a", "b"):
                call = {"toolUse": {"name": "read", "toolUseId": f"{len(messages)}{path}"}}
                arguments = {"toolUse": {"input": json.dumps({"path": path})}}
                yield {"contentBlockStart": {"start": {} if answers else call}}
                said = {"text": "They add up."} if answers else arguments
                yield {"contentBlockDelta": {"delta": said}}
                yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn" if answers else "tool_use"}}

    @tool
    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def played(manager: Callable[[], Any]) -> Play:
        def run(turns: int) -> None:
            agent = Agent(
                model=Reading(),
                system_prompt="You review code.",
                tools=[read],
                conversation_manager=manager(),
                callback_handler=None,
            )
            for turn in range(turns):
                agent(question(turn))

        return run

    def memman(max_tokens: int) -> Play:
        return played(
            lambda: MemmanConversationManager(
                MemoryManager(config=MemoryConfig(max_tokens=max_tokens)), "x"
            )
        )

    return {
        "own history": played(NullConversationManager),
        "memman": memman(BUDGET),
        "memman, nothing to compress": memman(ENDLESS),
    }
