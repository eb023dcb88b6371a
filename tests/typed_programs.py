"""Programs of users, for mypy alone: correct calls pass its strictest check, wrong ones do not.

Nothing here runs. A comment marks each line that mypy must refuse; an unneeded mark is an error.
"""

from collections.abc import Coroutine
from typing import Any

from anthropic import Anthropic, omit
from anthropic.types import ToolParam
from memman_postgres.async_store import AsyncPostgresStore
from memman_postgres.store import PostgresStore
from openai import OpenAI
from openai.types.chat import ChatCompletionToolParam

from memman import (
    AsyncMemoryManager,
    AsyncMethods,
    Context,
    Entry,
    Memory,
    MemoryConfig,
    MemoryManager,
    SessionStats,
    TokenCount,
    events,
)
from memman.compression import EntryFactory, Goal, View, drop_oldest
from memman.protocols import AsyncStore, Store


def chat(client: OpenAI, memory: MemoryManager, tools: list[ChatCompletionToolParam]) -> str | None:
    context: Context = memory.build_context("s", tools=tools)
    reply = client.chat.completions.create(model="m", messages=context.messages, tools=tools)
    added: list[Entry] = memory.add_messages("s", reply)
    first: TokenCount = added[0].token_count
    return reply.choices[0].message.content if first.tokens else None


def responses(client: OpenAI, memory: MemoryManager) -> None:
    context = memory.build_context("s", format="openai-responses")
    memory.add_messages("s", client.responses.create(model="m", input=context.messages))


def claude(client: Anthropic, memory: MemoryManager, tools: list[ToolParam]) -> None:
    context = memory.build_context("s", format="anthropic", tools=tools)
    reply = client.messages.create(
        model="m",
        max_tokens=9,
        system=context.system or omit,
        messages=context.messages,
        tools=tools,
    )
    memory.add_messages("s", reply)


def step(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    old = [entry.id for entry in view.shown("old")]
    return view.stub(old, make_entry) if goal.tokens else None


async def summary(prompt: str) -> str:
    return prompt


async def count(text: str) -> int:
    return len(text)


class Words:
    fingerprint = "words:1"

    def count_texts(self, texts: object) -> list[int]:
        return [len(str(texts))]


def listen(sender: MemoryManager, event: events.CompressionResult) -> list[str]:
    return [item.method for item in event.replacements] if event.tokens_saved else []


def saved(event: events.CompressionResult) -> int:
    return event.tokens_saved


async def awaited() -> str:
    store: AsyncStore = AsyncPostgresStore("postgresql://db")
    async with AsyncMemoryManager(store, summarizer=summary) as memory:
        stats: SessionStats = await memory.get_stats("s")
        async for item in memory.follow(timeout=stats.active_tokens):
            return item.cursor
    return ""


async def adapter(memory: Memory) -> Context:
    view: AsyncMethods = memory.aio
    await view.add_user_message("s", "Hello")
    await view.record_usage("s", input_tokens=12, cache_written_tokens=4)
    await view.set_summarize_callback(summary)
    return await view.build_context("s")


def shared(store: AsyncStore) -> tuple[Coroutine[Any, Any, Context], Coroutine[Any, Any, Context]]:
    memory = MemoryManager(store, summarizer=summary, async_ports=True)
    return adapter(memory), adapter(AsyncMemoryManager())


def made() -> MemoryManager:
    store: Store = PostgresStore("postgresql://db")
    config = MemoryConfig(strategy=(step, "summarise", drop_oldest), max_tokens=500)
    MemoryManager("chat.db", counter=lambda text: len(text), summarizer=lambda prompt: prompt)
    events.compressed.connect(listen)
    memory = MemoryManager()
    memory.on("compressed", saved).off()
    memory.on(events.CompressionResult, saved)
    return MemoryManager(store, config=config, counter=Words(), summarizer="digest")


def wrong(memory: MemoryManager) -> None:
    MemoryManager(5)  # type: ignore[arg-type]
    MemoryManager(counter=count)  # type: ignore[arg-type]
    MemoryManager(config={"max_tokens": 5})  # type: ignore[arg-type]
    MemoryManager(max_tokens=5)  # type: ignore[call-arg]
    MemoryConfig(max_token=5)  # type: ignore[call-arg]
    MemoryConfig(on_failure="fall")  # type: ignore[arg-type]
    MemoryConfig(strategy=5)  # type: ignore[arg-type]
    memory.add_user_message("s", None)  # type: ignore[arg-type]
    memory.record_usage("s", input_tokens="12")  # type: ignore[arg-type]
    memory.aio.add_user_message("s", None)  # type: ignore[arg-type,unused-coroutine]
    memory.aio.get_stats()  # type: ignore[call-arg,unused-coroutine]
    adapter(memory.aio)  # type: ignore[arg-type,unused-coroutine]
    memory.add_tool_result("s", "f", {"a": 1})  # type: ignore[arg-type]
    memory.build_context("s", budget="5")  # type: ignore[arg-type]
    memory.import_session({}, on_conflict="replace")  # type: ignore[arg-type]
    memory.on("compresed", saved)  # type: ignore[call-overload]
    memory.on(events.EntryAdded, saved)  # type: ignore[arg-type]
