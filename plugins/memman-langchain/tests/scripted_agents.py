"""An offline chat model that checks each request, tools, and the agents that the tests run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from memman import MemoryConfig, MemoryManager
from memman.formats.rules import check

BUDGET = 2_500
Reply = Callable[[list[BaseMessage]], AIMessage]


class Scripted(BaseChatModel):
    """Calls a tool twice after each question, then answers. It refuses an invalid or too long request."""

    model_name: str = "gpt-4o"
    tool: str = "read_file"
    calls: int = 2
    budget: int | None = None
    factor: float = 0.25  # reported tokens per character
    fail_every: int = 0
    reply: Any = None  # a `Reply` in place of the script
    id_prefix: str = "call"
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _tools: list[Any] = PrivateAttr(default_factory=list)
    _requests: int = PrivateAttr(default=0)
    _counter: Any = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def seen(self) -> list[list[BaseMessage]]:
        """The accepted requests."""
        return self._seen

    @property
    def tools(self) -> list[Any]:
        """The tools of the last request."""
        return self._tools

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        self._tools = list(tools)
        return self

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        violations = check(messages_to_dict(messages), "langchain")
        assert not violations, violations
        self._requests += 1
        if self.budget is not None:
            tokens = price(messages, self._tools)
            assert tokens <= self.budget, f"{tokens} of {self.budget} tokens"
        if self.fail_every and self._requests % self.fail_every == 0:
            raise ConnectionError("503 overloaded")
        self._seen.append(list(messages))
        if self.reply is not None:
            answer: AIMessage = self.reply(messages)
        elif any(isinstance(m, ToolMessage) for m in messages[-2:]) or not self.calls:
            answer = AIMessage(f"Done with step {self._requests}: the files are fine.")
        else:
            calls = [
                {
                    "name": self.tool,
                    "args": {"path": f"src/mod_{self._requests}_{n}.py"},
                    "id": f"{self.id_prefix}_{self._requests}_{n}",
                }
                for n in range(self.calls)
            ]
            answer = AIMessage(f"I read {self.calls} files.", tool_calls=calls)
        answer.usage_metadata = UsageMetadata(
            input_tokens=(used := int(self.factor * characters(messages))),
            output_tokens=10,
            total_tokens=used + 10,
        )
        return answer

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        for word in answer.text.split(" "):
            chunk = ChatGenerationChunk(message=AIMessageChunk(word + " "))
            if run_manager:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": n}
            for n, call in enumerate(answer.tool_calls)
        ]
        end = AIMessageChunk(
            "", usage_metadata=answer.usage_metadata, tool_call_chunks=calls, chunk_position="last"
        )
        yield ChatGenerationChunk(message=end)


@tool
def read_file(path: str) -> str:
    """Read a file."""
    lines = "\n".join(f"def fn_{n}(x): return x + {n}  # {path}" for n in range(12))
    return f"# {path}\n{lines}"


def make_memory(store: Any = None, max_tokens: int = BUDGET, **options: Any) -> MemoryManager:
    """Return a manager with a small budget."""
    return MemoryManager(
        store, config=MemoryConfig(max_tokens=max_tokens), model="gpt-4o", **options
    )


def thread(name: str) -> Any:
    """Return the config of a thread, in which an endless loop ends."""
    return {"configurable": {"thread_id": name}, "recursion_limit": 100}


def ask(text: str) -> Any:
    """Return the input of a run."""
    return {"messages": [("user", text)]}


def logged(memory: MemoryManager, session_id: str) -> list[BaseMessage]:
    """Return the messages of a session's log, as LangChain's objects."""
    return messages_from_dict(memory.get_messages(session_id, format="langchain"))


def characters(messages: Sequence[BaseMessage]) -> int:
    """Return the length of a request."""
    return sum(len(str(m.content)) + len(str(getattr(m, "tool_calls", ""))) for m in messages)


_PRICES = MemoryManager(model="gpt-4o")


def price(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> int:
    """Return the tokens of a request, as another manager counts them."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    system = "\n".join(m.text for m in messages if isinstance(m, SystemMessage)) or None
    rest = [m for m in messages if not isinstance(m, SystemMessage)]
    given = [each if isinstance(each, dict) else convert_to_openai_tool(each) for each in tools]
    return _PRICES.count_tokens(rest, system=system, tools=given or None).tokens
