"""`AsyncMemoryManager`: the methods, awaited. `MemoryManager` has the same without `await`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Self

from memman.config import MemoryConfig
from memman.core.core import Core, Redact
from memman.core.methods import AsyncMethods
from memman.formats import FormatName
from memman.protocols import (
    AsyncStore,
    Embed,
    LocalCounter,
    ModelInfo,
    Store,
    SummarizeCallback,
    Summarizer,
)
from memman.runtime.async_runtime import AsyncRuntime
from memman.state import Keeps


class AsyncMemoryManager(AsyncMethods):
    """Keep conversations inside their context windows without losing a word of them.

    Args:
        store: None keeps logs in this process; a path (or `sqlite:///PATH`) names a SQLite file; plugins
            open other URLs; or a `Store`.
        model: the model that contexts are built for; its counter and limits are found by name.
        config: the settings; `MemoryConfig()` by default.
        summarizer: None uses the one from the settings, if any; a `str -> str` callable, a `Summarizer`,
            or a name: `anthropic:MODEL`, `cmd:PROGRAM ARGS`, or `outline` for none.
        counter: None chooses it by `model`; a counter's name, a `str -> int`, or a counter.
        format: the message format of contexts, "openai-chat" by default.
        model_info: the limits of `model`, instead of the known ones.
        redact: `Entry -> Entry`, called before an entry is counted and stored, and again before it is
            sent to a summarizer or a remote counter.
        embed: returns a vector of floats for each of some texts, so that entries are also found by their
            meaning; called for a search, and in the background. Another model needs another name.
        keeps: sections of your own in the outline, such as `{"Tickets": find_tickets}`: a title, and a
            function `Entry -> Iterable[str]` that returns the texts to keep of an entry.
        plugins: the distributions whose plugins may be loaded, such as `["memman-openai"]` or
            `["memman-openai:openai"]` for one entry point; None for all, `[]` for none.
        clock: returns aware datetimes; for tests.
        new_id: returns unique strings, before the first attempt to store; for tests.
        new_nonce: returns 8 to 64 random hexadecimal digits for a new session; for tests.
        exclusive: whether this manager is the only writer of the store, so that it need not check for new
            records at each operation. Always true for the store in memory of `None`.
        trust_settings: whether settings of stored sessions may name a model, a summarizer, a prompt or a
            counting policy, or lift a limit; False for a store that others write to.

    A manager belongs to one event loop of asyncio, and to the next one after that is closed; in another
    its methods raise `WrongEventLoop`. The store, the summarizer and receivers of events may be async.

    Raises:
        ConfigError: a setting, or a combination of settings, is invalid.
        PluginNotFound: no counter, format, summarizer or store has this name; nothing was opened.
        AsyncPortRefused: a port is async and must not be.
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
        embed: Embed | None = None,
        keeps: Keeps | None = None,
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
            embed=embed,
            keeps=keeps,
            plugins=plugins,
            clock=clock,
            new_id=new_id,
            new_nonce=new_nonce,
            exclusive=exclusive,
            trust_settings=trust_settings,
        )
        super().__init__(core)

    @property
    def aio(self) -> AsyncMethods:
        """This manager: the methods to await, of either manager. Each of its calls is in its event loop."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
