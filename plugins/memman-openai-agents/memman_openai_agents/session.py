"""A session of the OpenAI Agents SDK that memman keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, Literal, cast

from agents import (
    Agent,
    FunctionTool,
    ModelResponse,
    RunContextWrapper,
    RunHooks,
    TResponseInputItem,
    Usage,
)
from agents.memory import OpenAIResponsesCompactionArgs, SessionSettings
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
from agents.run import CallModelData, ModelInputData

from memman import InvalidInput, Memory, SessionNotFound, valid_id
from memman.adapters import ModelRequests, methods_of
from memman_openai_agents.tools import function_tool_of, tools_of

_FORMAT: Final = "openai-responses"


class MemmanSession:
    """A `Session` whose items memman keeps: a log of all of them, and a context that fits the model.

    Args:
        session_id: any text. memman's session has the same id, or `valid_id(session_id)` if the text is
            too long or has control characters.
        memory: a manager, sync or async.
        view: the items of `get_items()`, with which the runner begins: "context" is memman's context, so
            that a run costs the same after 10 turns as after 1,000; "log" is every item.
        session_settings: the SDK's settings; a limit applies to items of the log.

    `fit` goes into `RunConfig(call_model_input_filter=session.fit)`, so that every request fits, also in
    the middle of a run; `hooks` into `Runner.run(hooks=session.hooks)`, so that counts follow the bill;
    `recall` into `Agent(tools=[..., session.recall])`, so that the agent can read entries that left its
    context. An object serves one run at a time.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        view: Literal["context", "log"] = "context",
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        if view not in ("context", "log"):
            raise InvalidInput(f"view must be 'context' or 'log', not {view!r}")
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or {})
        self.memman_id = valid_id(session_id)
        self._aio = methods_of(memory)
        self.memory = memory
        self._view = view
        # The items given to the runner at the start of its run, and by the runner since; None before.
        self._given: list[Any] | None = None
        self._fits_session = True  # the last request
        self._requests = ModelRequests(self._aio, self.memman_id)
        self._servers: dict[str, list[Any]] = {}

    # ------------------------------------------------------------ the SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest `limit` items of the log, exactly; without a limit, the `view`."""
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None:  # in the middle of a run too: what the runner was given stays
            return await self._log(limit)
        if self._view == "log":
            items = await self._log(None)
        else:
            context = await self._aio.build_context(
                self.memman_id, format=_FORMAT, complete=False, missing_ok=True
            )
            items = cast("list[TResponseInputItem]", context.messages)
        self._given = list(items)
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the log, all or none; an item of a type that memman does not know is kept."""
        if items:
            await self._aio.add_messages(self.memman_id, items, _FORMAT, unknown="keep")
            if self._given is not None:
                self._given += items

    async def pop_item(self) -> TResponseInputItem | None:
        """Retract the newest item and return it; None if there is none. `undo_compression` restores it."""
        items = await self._log(1)
        if not items:
            return None
        newest = await self._aio.get_entries(self.memman_id, last=1)
        await self._aio.retract(self.memman_id, [newest[0].id], reason="pop_item")
        if self._given:
            self._given.pop()
        return items[0]

    async def clear_session(self) -> None:
        """Empty the session; its log stays readable and begins a new era."""
        self._given = []
        with suppress(SessionNotFound):
            await self._aio.clear_session(self.memman_id)

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Compress if `args` has `force`. The runner calls it after each turn, without."""
        if args and args.get("force"):
            with suppress(SessionNotFound):
                await self._aio.compress(self.memman_id)

    # ------------------------------------------------------------ in a run

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the model's input within its window, the agent's instructions and tools included.

        Input that is not this session's is fitted by itself: after a nested handoff, an `input_filter` or a
        `session_input_callback` that removes items, with a limit, or resumed by another object.
        """
        given, model = data.model_data, data.agent.model
        name = getattr(model, "model", model)  # of an object, or the name itself
        pending = None if self._given is None else _after(self._given, given.input)
        self._fits_session = pending is not None
        options: dict[str, Any] = {
            "format": _FORMAT,
            "system": given.instructions or None,
            "tools": await tools_of(data.agent, self._servers) or None,
            "system_inline": False,
        }
        said = {"messages": given.input} if pending is None else {"pending": pending}
        context = await self._requests.build(name, **said, **options)
        items = cast("list[TResponseInputItem]", context.messages)
        return ModelInputData(items, given.instructions)

    @property
    def hooks(self) -> RunHooks[Any]:
        """Hooks that record the usage of each response to the session's context, to calibrate counts."""
        return UsageHooks(self._record)

    @cached_property
    def recall(self) -> FunctionTool:
        """The agent's tool `recall`, which returns items that left the context.

        From the first use of this attribute on, and as long as the session exists, notices name the tool.
        """
        return function_tool_of(self._aio.recall_tool(self.memman_id))

    async def _record(self, usage: Usage) -> None:
        if not usage.input_tokens or not self._fits_session:
            return
        details = usage.input_tokens_details
        await self._requests.record_usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=details.cached_tokens,
            cache_written_tokens=details.cache_write_tokens,
        )

    async def _log(self, limit: int | None) -> list[TResponseInputItem]:
        if limit is not None and limit <= 0:
            return []
        try:
            items = await self._aio.get_messages(self.memman_id, format=_FORMAT, last=limit)
        except SessionNotFound:
            return []
        return cast("list[TResponseInputItem]", items)


class UsageHooks(RunHooks[Any]):
    """Hooks of a run that pass the usage of each response on."""

    def __init__(self, record: Callable[[Usage], Awaitable[None]]) -> None:
        self._record = record

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """Record the usage of a response."""
        await self._record(response.usage)


def _after(known: Sequence[Any], items: Sequence[Any]) -> Sequence[Any] | None:
    """Return the items after the known ones; None if the list does not begin with the known ones.

    The runner drops keys of items, calls without an output, and the reasoning before such a call.
    """
    answered = {item.get("call_id") for item in known if "output" in item}
    at = 0
    for item in known:
        if at < len(items) and all(item.get(key) == value for key, value in items[at].items()):
            at += 1
        elif item.get("type") != "reasoning" and item.get("call_id") in {None, *answered}:
            return None
    return items[at:]
