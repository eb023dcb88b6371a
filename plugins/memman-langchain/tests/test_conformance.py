"""The laws of a framework adapter, for LangChain's agents and for deepagents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from memman_langchain import MemmanMiddleware, MemmanSummarization
from pydantic import ConfigDict

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel, FakeOverflow


class ChatModel(BaseChatModel):
    """LangChain's model over memman's fake."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    fake: Any
    tools: Any = ()
    model_name: str = ""

    @property
    def _llm_type(self) -> str:
        return "memman-fake"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        given = [each if isinstance(each, dict) else convert_to_openai_tool(each) for each in tools]
        return self.model_copy(update={"tools": given})

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        system = None
        if messages and messages[0].type == "system":
            system, messages = messages[0].text, messages[1:]
        seen = [
            block["signature"]
            for message in messages
            if isinstance(message, AIMessage) and isinstance(message.content, list)
            for block in message.content
            if isinstance(block, dict) and block["type"] == "thinking"
        ]
        try:
            reply = self.fake.reply(messages, system=system, tools=self.tools, natives=seen)
        except FakeOverflow as error:
            raise ContextOverflowError(str(error)) from error
        content: Any = reply.text
        if reply.native:
            thought = {"type": "thinking", "thinking": "Hm.", "signature": reply.native}
            content = [thought, {"type": "text", "text": reply.text}]
        return AIMessage(
            content,
            tool_calls=[
                {"name": call.name, "args": call.arguments, "id": call.call_id}
                for call in reply.calls
            ],
            usage_metadata=UsageMetadata(
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                total_tokens=reply.input_tokens + reply.output_tokens,
            ),
        )

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[Any]:
        reply = self._reply(messages)
        chunk = AIMessageChunk(
            content=reply.content,
            tool_calls=reply.tool_calls,
            usage_metadata=reply.usage_metadata,
            chunk_position="last",
        )
        yield ChatGenerationChunk(message=chunk)


class Future(HumanMessage):
    """A message of a type that memman does not know."""

    type: Any = "future"


class Driver(AdapterDriver):
    """A thread of an agent that has one tool."""

    def __init__(self, memory: MemoryManager, thread: str, model: FakeModel, saver: Any) -> None:
        self._memory, self._thread, self._model, self._saver = memory, thread, model, saver
        self._config: Any = {"configurable": {"thread_id": thread}}
        self._forked = False
        self.switch(model)

    def switch(self, model: FakeModel) -> None:
        named = ChatModel(fake=model, model_name=model.name)
        self._agent = self.make_agent(named, [self._tool()], self._saver)

    def make_agent(self, model: ChatModel, tools: list[Any], saver: Any) -> Any:
        return create_agent(
            model,
            tools=tools,
            system_prompt="You review code.",
            middleware=[MemmanMiddleware(self._memory, recall=self._model.recalls)],
            checkpointer=saver,
        )

    def _tool(self) -> StructuredTool:
        async def read(path: str) -> str:
            """Read a file."""
            return await self._model.read(path)

        def read_now(path: str) -> str:
            return self._model.read_sync(path)

        return StructuredTool.from_function(
            read_now, coroutine=read, name="read", description="Read a file."
        )

    @property
    def session_id(self) -> str:
        values = self._agent.get_state(self._config).values
        return str(values["memman"]["session"] if "memman" in values else valid_id(self._thread))

    async def run(self, text: str, *, stream: bool = False) -> str:
        given = {"messages": [HumanMessage(text)]}
        if not stream:
            return str((await self._go(given))["messages"][-1].text)
        said = ""
        async for mode, told in self._agent.astream(
            given, self._config, stream_mode=["messages", "custom"]
        ):
            if mode == "custom":
                self.events.append(told["name"])
                continue
            message, where = told
            if isinstance(message, AIMessageChunk) and where["langgraph_node"] == "model":
                said = message.text
        self._move()
        return said

    async def _go(self, given: Any) -> Any:
        done = await self._agent.ainvoke(given, self._config)
        self._move()
        return done

    def _move(self) -> None:
        """Go on from the newest checkpoint; after a fork, from the newest of this branch."""
        thread = {"configurable": {"thread_id": self._thread}}
        self._config = self._agent.get_state(thread).config if self._forked else thread

    def run_sync(self, text: str) -> str:
        # LangGraph runs the sync tools of a step on several threads; the kit expects their order.
        config = {**self._config, "max_concurrency": 1}
        done = self._agent.invoke({"messages": [HumanMessage(text)]}, config)
        return str(done["messages"][-1].text)

    async def retry(self, text: str) -> str:
        return str((await self._go(None))["messages"][-1].text)

    async def history(self) -> Sequence[Any]:
        return list((await self._agent.aget_state(self._config)).values.get("messages", []))

    def resume(self, memory: MemoryManager, model: FakeModel) -> Driver:
        return type(self)(memory, self._thread, model, self._saver)

    async def fork(self, turns: int) -> Driver:
        other = type(self)(self._memory, self._thread, self._model, self._saver)
        other._config, self._config = self._ended(turns), self._ended(0)
        other._forked = self._forked = True
        return other

    async def rewind(self, turns: int) -> None:
        self._config = self._ended(turns)

    def _ended(self, turns: int) -> Any:
        """Return the checkpoint at the end of the turn before the last ones."""
        states = self._agent.get_state_history({"configurable": {"thread_id": self._thread}})
        ends = [state for state in states if not state.next]
        return ends[turns].config

    async def add_unknown(self, text: str) -> None:
        await self._agent.aupdate_state(self._config, {"messages": [Future(text)]})


class TestLangChain(AdapterConformance):
    format = "langchain"
    lacks: ClassVar = {
        "surrogates": "LangGraph's checkpointers put `?` in place of a lone surrogate; see test_graphs.py"
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> Driver:
        return Driver(memory, session_id, model, InMemorySaver())


class DeepDriver(Driver):
    """A thread of a deep agent."""

    def make_agent(self, model: ChatModel, tools: list[Any], saver: Any) -> Any:
        return create_deep_agent(
            model,
            tools=tools,
            middleware=[MemmanSummarization(self._memory, recall=self._model.recalls)],
            checkpointer=saver,
        )


class TestDeepAgents(AdapterConformance):
    format = "langchain"
    lacks = TestLangChain.lacks
    turns = 60
    budget = 14_000  # most of it are the tools of deepagents
    small_window = 4_500

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> Driver:
        return DeepDriver(memory, session_id, model, InMemorySaver())
