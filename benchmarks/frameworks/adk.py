"""Google ADK: its own contents, its filter of old turns, and memman's plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.sessions.base_session_service import GetSessionConfig
    from google.genai import types
    from memman_adk import MemmanPlugin

    class Reading(BaseLlm):  # type: ignore[misc]  # Any, where ADK is not installed
        """Reads two files for each question, then answers."""

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncIterator[Any]:
            if llm_request.contents[-1].parts[0].function_response:
                parts = [types.Part(text="They add up.")]
            else:
                calls = [types.FunctionCall(name="read", args={"path": path}) for path in "ab"]
                parts = [types.Part(function_call=call) for call in calls]
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def played(plugins: Callable[[], list[Any]], recent: int | None = None) -> Play:
        loaded = GetSessionConfig(num_recent_events=recent)

        async def converse(turns: int) -> None:
            agent = LlmAgent(
                name="reviewer",
                model=Reading(model="reading"),
                instruction="You review code.",
                tools=[read],
            )
            app = App(name="benchmark", root_agent=agent, plugins=plugins())
            runner = Runner(
                app=app, session_service=InMemorySessionService(), auto_create_session=True
            )
            for turn in range(turns):
                message = types.Content(role="user", parts=[types.Part(text=question(turn))])
                async for _ in runner.run_async(
                    user_id="u",
                    session_id="x",
                    new_message=message,
                    run_config=RunConfig(get_session_config=loaded),
                ):
                    pass

        return lambda turns: asyncio.run(converse(turns))

    def memman(max_tokens: int, recent: int | None = None) -> Play:
        config = MemoryConfig(max_tokens=max_tokens)
        return played(lambda: [MemmanPlugin(MemoryManager(config=config))], recent)

    return {
        "own history": played(list),
        "own filter, last 5 turns": played(
            lambda: [ContextFilterPlugin(num_invocations_to_keep=5)]
        ),
        "memman": memman(BUDGET),
        "memman, ADK loads 40 events": memman(BUDGET, 40),
        "memman, nothing to compress": memman(ENDLESS),
    }
