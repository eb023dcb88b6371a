"""LlamaIndex: its own memory, and memman's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.frameworks import BUDGET, ENDLESS, TEXT, Play, question
from memman import MemoryConfig, MemoryManager


def load() -> dict[str, Play]:
    """Return the memories by name. Raises `ImportError` if the framework or the adapter is missing."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.memory import ChatMemoryBuffer, Memory
    from memman_llama_index import MemmanFunctionAgent, MemmanMemory

    def reply(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        """Read two files for each question, then answer."""
        if messages[-1].role == "tool":
            return ChatMessage(role="assistant", content="They add up.")
        calls = [
            ToolCallBlock(
                tool_call_id=f"{len(messages)}{path}", tool_name="read", tool_kwargs={"path": path}
            )
            for path in ("a", "b")
        ]
        return ChatMessage(role="assistant", blocks=calls)

    async def read(path: str) -> str:
        """Read a file."""
        return TEXT

    def tokens(text: str) -> range:
        return range(len(text) // 4)

    def played(memory: Callable[[], Any], cls: Any = FunctionAgent) -> Play:
        async def turns_of(turns: int) -> None:
            llm = MockFunctionCallingLLM(response_generator=reply, is_chat_model=True)
            agent = cls(llm=llm, tools=[read], system_prompt="You review code.", streaming=False)
            kept = memory()
            for turn in range(turns):
                await agent.run(question(turn), memory=kept)

        return lambda turns: asyncio.run(turns_of(turns))

    def memman(max_tokens: int) -> Play:
        config = MemoryConfig(max_tokens=max_tokens)
        return played(
            lambda: MemmanMemory.from_defaults(MemoryManager(config=config)), MemmanFunctionAgent
        )

    def buffer(token_limit: int) -> Any:
        return ChatMemoryBuffer.from_defaults(token_limit=token_limit, tokenizer_fn=tokens)

    return {
        "own history": played(lambda: buffer(ENDLESS)),
        "own buffer": played(lambda: buffer(BUDGET)),
        "own database": played(
            lambda: Memory.from_defaults(token_limit=BUDGET, tokenizer_fn=tokens)
        ),
        "memman": memman(BUDGET),
        "memman, nothing to compress": memman(ENDLESS),
    }
