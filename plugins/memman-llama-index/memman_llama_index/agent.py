"""`MemmanFunctionAgent`: a function agent whose runs stay within the budget of its memory."""

# Without postponed annotations: LlamaIndex reads the type of `ctx` in the signature of a tool.
import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final, Literal

from llama_index.core.agent.workflow import AgentOutput, FunctionAgent, ToolCallResult
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata
from llama_index.core.workflow import Context, Event

from memman import MemoryManager, RecallTool
from memman.adapters import streamed
from memman.formats.plain import field_of
from memman_llama_index.memory import MemmanMemory

_MARKING: Final = "llama_index.llms.anthropic"  # Bedrock's models would mark inside of tool results
_USAGE: Final = ("usage", "usage_metadata")


class MemmanEvent(Event):
    """What memman did to the context, in the stream of a run: see `memman.events.as_ag_ui`."""

    name: str
    value: dict[str, Any]


class MemmanFunctionAgent(FunctionAgent):
    """A `FunctionAgent` that puts each step of a run into its `MemmanMemory` as it is made.

    Every request fits the memory's budget, with the system prompt and the tools, and the usage of each
    response is recorded. With another memory it is a `FunctionAgent`.
    """

    recall: bool = Field(
        default=False,
        description="Whether the agent gets the tool `recall`, which returns what left its context.",
    )
    stream: bool = Field(
        default=True,
        description="Whether a run's stream has a `MemmanEvent` before and after each compression.",
    )
    cache: Literal["auto"] | None = Field(
        default=None, description="'auto' places cache points for models of Anthropic."
    )

    def model_post_init(self, context: Any, /) -> None:
        """Add the tool `recall`."""
        super().model_post_init(context)
        if self.recall:
            self.tools = [*(self.tools or []), _recall_tool()]

    async def take_step(
        self,
        ctx: Any,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """Send a request that fits; again, shorter, if the model refuses it as too long."""
        if not isinstance(memory, MemmanMemory):
            return await super().take_step(ctx, llm_input, tools, memory)
        await self._put_steps(ctx, memory)
        definitions = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        marks = self.cache if _takes_cache_points(self.llm) else None
        fit = partial(
            memory.fit, llm_input, definitions, llm=self.llm, recall=self.recall, cache=marks
        )
        while True:
            with self._streamed(ctx, memory):
                sent = await asyncio.to_thread(fit)
            try:
                output = await super().take_step(ctx, sent, tools, memory)
                break
            except Exception as error:
                if not await asyncio.to_thread(memory.learn_limit, error):
                    raise
        await self._put_steps(ctx, memory)
        await asyncio.to_thread(_record_usage, memory, output)
        return output

    async def handle_tool_call_results(
        self, ctx: Context, results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        """Put the results into the memory."""
        await super().handle_tool_call_results(ctx, results, memory)
        if isinstance(memory, MemmanMemory):
            await self._put_steps(ctx, memory)

    def _streamed(self, ctx: Any, memory: MemmanMemory) -> AbstractContextManager[None]:
        """Write memman's events into the stream of a run, also those since its last step."""
        loop = asyncio.get_running_loop()

        def write(event: dict[str, Any]) -> None:
            made = MemmanEvent(name=event["name"], value=event["value"])
            loop.call_soon_threadsafe(ctx.write_event_to_stream, made)

        for event in memory.pop_events():
            if self.stream:
                write(event)
        return streamed(write if self.stream else None)

    async def _put_steps(self, ctx: Any, memory: MemmanMemory) -> None:
        """Move what the agent noted of its run into the memory."""
        steps = await ctx.store.get(self.scratchpad_key, default=[])
        if steps:
            # Emptied first: a run that is cancelled in between leaves its steps in one place.
            await ctx.store.set(self.scratchpad_key, [])
            try:
                with self._streamed(ctx, memory):
                    await memory.aput_messages(steps)
            except Exception:
                await ctx.store.set(self.scratchpad_key, steps)
                raise


def _takes_cache_points(llm: LLM) -> bool:
    """Return whether a model takes cache points, and the application has not set its own caching."""
    is_marking = any(kind.__module__.startswith(_MARKING) for kind in type(llm).__mro__)
    return is_marking and getattr(llm, "cache_idx", None) is None


def _record_usage(memory: MemmanMemory, output: AgentOutput) -> None:
    """Record the usage in a response: LlamaIndex leaves it where each provider has it."""
    raw = output.raw
    nested = (field_of(raw, "response"), field_of(raw, "metadata"))
    places = (raw, *nested, output.response.additional_kwargs)
    usages = (field_of(place, name) for place in places for name in _USAGE)
    usage = next(filter(None, usages), None)
    if usage is not None:
        memory.record_usage(usage)


class _Arguments(BaseModel):
    """The arguments of the tool `recall`."""

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the schema of memman's tool."""
        return _definition().parameters


@cache
def _definition() -> RecallTool:
    """Return a tool of any session: the definition is the same for each."""
    return MemoryManager(plugins=[]).recall_tool("any")


def _recall_tool() -> FunctionTool:
    """Return the tool `recall` of the memory of a run."""

    async def recall(ctx: Context, **arguments: Any) -> str:
        memory = await ctx.store.get("memory")
        if not isinstance(memory, MemmanMemory):
            return "There is nothing to recall."
        return await asyncio.to_thread(memory.recall, arguments)

    tool = _definition()
    metadata = ToolMetadata(tool.description, tool.name, fn_schema=_Arguments)
    return FunctionTool(async_fn=recall, metadata=metadata)
