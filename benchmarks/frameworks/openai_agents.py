"""The OpenAI Agents SDK: its own `SQLiteSession`, and memman's session."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call
    from memman_openai_agents import MemmanSession

    @function_tool
    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def replies(turns: int) -> list[Any]:
        found: list[Any] = []
        for turn in range(turns):
            found.append(
                [function_call("read", {"path": each}, call_id=f"{turn}{each}") for each in "ab"]
            )
            found.append([assistant_message("They add up.")])
        return found

    async def run(turns: int, session: Any, **config: Any) -> None:
        agent = Agent(
            name="reviewer",
            instructions="You review code.",
            tools=[read],
            model=ScriptedModel(replies(turns)),
        )
        run_config = RunConfig(tracing_disabled=True, **config)
        for turn in range(turns):
            await Runner.run(agent, question(turn), session=session, run_config=run_config)

    def own(turns: int) -> None:
        asyncio.run(run(turns, SQLiteSession("x")))

    def memman(max_tokens: int, view: Literal["context", "log"] = "context") -> Play:
        def play(turns: int) -> None:
            memory = MemoryManager(config=MemoryConfig(max_tokens=max_tokens))
            session = MemmanSession("x", memory, view=view)
            asyncio.run(run(turns, session, call_model_input_filter=session.fit))

        return play

    return {
        "SQLiteSession in memory": own,
        "memman": memman(BUDGET),
        "memman, view=log": memman(BUDGET, "log"),
        "memman, nothing to compress": memman(ENDLESS),
    }
