"""`AsyncMemoryManager`: the methods, awaited. `MemoryManager` has the same without `await`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Self

from memman.config import MemoryConfig
from memman.core.methods import ManagerMethods
from memman.core.wiring import Core, Redact
from memman.formats import FormatName
from memman.protocols import (
    AsyncStore,
    LocalCounter,
    ModelInfo,
    Store,
    SummarizeCallback,
    Summarizer,
)
from memman.runtime import AsyncRuntime


class AsyncMemoryManager(ManagerMethods):
    """Keeps conversations inside their context windows without losing a word of them.

    Args:
        store: None keeps logs in this process; a path (or `sqlite:///PATH`) in a SQLite file; another
            URL is passed to the plugins; or a `Store`.
        model: the model that the contexts are for; its counter and limits are found by name.
        config: the settings; `MemoryConfig()` by default.
        summarizer: None uses the one from the settings, if any; a `str -> str` callable, a `Summarizer`,
            or a name: `anthropic:MODEL`, `cmd:PROGRAM ARGS`, or `digest` for none.
        counter: None is resolved by `model`; a counter's name, a `str -> int`, or a counter.
        format: the message format of contexts, "openai-chat" by default.
        model_info: the limits of `model`, in place of those that memman knows.
        redact: `Entry -> Entry`, called before an entry is counted and stored, and again before a
            summarizer or a remote counter sees it.
        plugins: the distributions whose plugins may be loaded, such as `["memman-openai"]` or
            `["memman-openai:openai"]` for one entry point; None for all, `[]` for none.
        clock: aware datetimes; for tests.
        new_id: unique strings, made before the first attempt to store; for tests.
        new_nonce: 8 to 64 random hexadecimal digits for a new session; for tests.
        exclusive: this manager is the only writer of the store, so that it need not be asked for
            news at each operation. Always so for the store in memory that `None` makes.
        trust_settings: whether the settings that sessions of the store have may name a model, a
            summarizer, a prompt or a counting policy, or lift a limit; False for a store that others
            write to.

    A manager belongs to one event loop of asyncio, and to the next one after that is closed; in another
    its methods raise `WrongEventLoop`. The store, the summarizer and receivers of events may be async.

    Raises:
        ConfigError: a setting, or a combination of settings, is invalid.
        PluginNotFound: no counter, format, summarizer or store has this name; nothing was opened.
        AsyncPortRefused: a port is async and cannot be here.
        InvalidInput: an argument is of the wrong kind.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | AsyncStore | None = None,
        *,
        model: str | None = None,
        config: MemoryConfig | None = None,
        summarizer: str | SummarizeCallback | Summarizer | None = None,
        counter: str | Callable[[str], int] | LocalCounter | None = None,
        format: FormatName | str | None = None,
        model_info: ModelInfo | None = None,
        redact: Redact | None = None,
        plugins: Iterable[str] | None = None,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
        new_nonce: Callable[[], str] | None = None,
        exclusive: bool = False,
        trust_settings: bool = True,
    ) -> None:
        core = Core(
            AsyncRuntime(),
            self,
            store,
            model=model,
            config=config,
            summarizer=summarizer,
            counter=counter,
            format=format,
            model_info=model_info,
            redact=redact,
            plugins=plugins,
            clock=clock,
            new_id=new_id,
            new_nonce=new_nonce,
            exclusive=exclusive,
            trust_settings=trust_settings,
        )
        super().__init__(core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
