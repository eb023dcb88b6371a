"""LangChain's agent: without a limit, with `SummarizationMiddleware`, and with memman."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.memory import InMemorySaver
    from memman_langchain import MemmanMiddleware

    class Offline(BaseChatModel):
        """Calls the tool twice, and answers when it has the results."""

        @property
        def _llm_type(self) -> str:
            return "offline"

        def bind_tools(self, tools: Sequence[Any], **_options: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
            if isinstance(messages[-1], ToolMessage):
                reply = AIMessage("They add up.")
            else:
                n = len(messages)
                calls = [
                    {"name": "read", "args": {"path": each}, "id": f"{n}{each}"} for each in "ab"
                ]
                reply = AIMessage("I read both.", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=reply)])

    def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def played(middleware: Callable[[], list[Any]]) -> Play:
        def play(turns: int) -> None:
            agent = create_agent(
                Offline(),
                tools=[read],
                system_prompt="You review code.",
                middleware=middleware(),
                checkpointer=InMemorySaver(),
            )
            for turn in range(turns):
                agent.invoke(
                    {"messages": [HumanMessage(question(turn))]},
                    {"configurable": {"thread_id": "x"}},
                )

        return play

    def memman(max_tokens: int, **options: Any) -> Play:
        return played(
            lambda: [
                MemmanMiddleware(
                    MemoryManager(config=MemoryConfig(max_tokens=max_tokens)), **options
                )
            ]
        )

    return {
        "no limit": played(list),
        "SummarizationMiddleware": played(
            lambda: [
                SummarizationMiddleware(
                    Offline(), trigger=("tokens", BUDGET), keep=("tokens", BUDGET // 2)
                )
            ]
        ),
        "memman": memman(BUDGET),
        "memman, trim_state": memman(BUDGET, trim_state=True),
        "memman, nothing to compress": memman(ENDLESS),
    }
