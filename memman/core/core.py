"""The wiring of a manager: its ports, settings, live sessions and subscriptions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from memman import events
from memman.compression.strategies import stages_of
from memman.config import MemoryConfig, no_room, readable, resolve_budget, room_of
from memman.core.arguments import (
    aware,
    check_embed,
    check_function,
    check_positive,
    check_switch,
    checked_ids,
    checked_keeps,
    checked_nonces,
)
from memman.core.resolver import DEFAULT_FORMAT, Resolver
from memman.counting.lookup import sound_limits
from memman.display import safe_repr
from memman.entries import Entry, file_mode
from memman.errors import ConfigError, InvalidInput, MemmanError
from memman.events import Subscription
from memman.formats import FormatName
from memman.ids import new_id as uuid7
from memman.ids import new_nonce as random_nonce
from memman.plugins import chosen_plugins
from memman.protocols import (
    AsyncStore,
    Embed,
    LocalCounter,
    ModelInfo,
    Store,
    SummarizeCallback,
    Summarizer,
)
from memman.runtime.base import Runtime, refuse_async_port
from memman.runtime.observation import Observer
from memman.session.cache import SessionCache
from memman.session.meaning import Meaning
from memman.session.shared import Shared
from memman.session.store import FullStore, store_methods
from memman.state import Keeps
from memman.stores import MemoryStore
from memman.summarizers import Asker, Summarizers

logger = logging.getLogger("memman")
Redact = Callable[[Entry], Entry]
"""Takes an entry and returns it, changed or not, before it is counted, stored or sent anywhere."""
_CLOSE_SECONDS = 5.0
_FILES = frozenset((".db", ".sqlite", ".sqlite3"))  # suffixes that no model's name has


class Core:
    """The parts of one manager, sync or async; the arguments are those of `AsyncMemoryManager`.

    `sender` is the manager itself: the sender of its events.
    """

    def __init__(
        self,
        runtime: Runtime,
        sender: object,
        store: str | os.PathLike[str] | Store | AsyncStore | None,
        *,
        model: str | None,
        config: MemoryConfig | None,
        summarizer: str | SummarizeCallback | Summarizer | None,
        counter: str | Callable[[str], int] | LocalCounter | None,
        format: FormatName | str | None,
        model_info: ModelInfo | None,
        redact: Redact | None,
        embed: Embed | None,
        keeps: Keeps | None,
        plugins: Iterable[str] | None,
        clock: Callable[[], datetime] | None,
        new_id: Callable[[], str] | None,
        new_nonce: Callable[[], str] | None,
        exclusive: bool,
        trust_settings: bool,
    ) -> None:
        self.runtime = runtime
        self._plugins = chosen_plugins(plugins)
        self.resolver = resolver = Resolver(counter, self._plugins)
        self.summarizers = Summarizers(runtime, self._plugins, resolver.limits)
        self.summarizers.give(summarizer)
        form = resolver.format_named(DEFAULT_FORMAT if format is None else format)
        ports = {"redact": redact, "clock": clock, "new_id": new_id, "new_nonce": new_nonce}
        for name, port in ports.items():
            check_function(port, name)
        check_switch(exclusive, "exclusive")
        check_switch(trust_settings, "trust_settings")
        check_embed(embed, runtime.async_ports)
        opened = MemoryStore() if store is None else self._open(store)
        refuse_async_port(opened, store_methods(opened), runtime, "store")
        full = FullStore(opened, runtime)
        self.shared = Shared(
            runtime=runtime,
            store=full,
            meaning=None if embed is None else Meaning(embed, full, runtime),
            exclusive=exclusive or store is None,
            clock=partial(datetime.now, UTC) if clock is None else aware(clock),
            new_id=uuid7 if new_id is None else checked_ids(new_id),
            new_nonce=random_nonce if new_nonce is None else checked_nonces(new_nonce),
            trust_settings=trust_settings,
            redact=redact,
            keeps=checked_keeps(keeps),
            sender=sender,
            counter=resolver.counter,
            remote=resolver.remote,
            limits=resolver.limits,
            prices=lambda name: resolver.models.prices(name),
            binds=lambda name: name is not None and resolver.models.binds(name),
            warn_unknown=resolver.warn_unknown,
            summarizer=self._summarizer_for,
            format=form.name,
            format_named=resolver.format_named,
            check=self._check,
            check_change=self._check_change,
        )
        self.sessions = SessionCache(self.shared)
        self._subscriptions: set[Subscription] = set()
        self._configure(self._settings(config, model, model_info))

    def __repr__(self) -> str:
        shared = self.shared
        kind, store = type(shared.sender).__name__, type(shared.store.port).__name__
        return f"<{kind} of {store}, model {shared.config.model!r}>"

    def subscribe(self, event: Any, callback: Callable[[Any], object]) -> Subscription:
        """Call `callback` for every event of this kind that the manager emits."""
        return events.subscribe(event, callback, self.shared.sender, self._subscriptions)

    def observe(self, observer: Observer | None) -> None:
        """Set the observer of this manager's operations; None ends the observation."""
        check_function(observer, "observer")
        if observer is not None and self.runtime.observer is not None:
            raise InvalidInput("this manager has an observer: end it with observe(None) first")
        self.runtime.observe(observer)

    async def close(self) -> None:
        """Finish background work, emit the remaining events, and close the store."""
        shared = self.shared
        await self.runtime.stop_background(_CLOSE_SECONDS)
        shared.close()
        for session in self.sessions:
            await session.settle()
        await shared.store.close()
        self.sessions.forget()
        self.runtime.end()

    # ------------------------------------------------------------ settings

    def _settings(
        self, config: MemoryConfig | None, model: str | None, model_info: ModelInfo | None
    ) -> MemoryConfig:
        """Return the manager's first settings; use the given limits of the model."""
        if config is not None and not isinstance(config, MemoryConfig):
            raise InvalidInput(f"config must be a MemoryConfig, not {type(config).__name__}")
        settings = config or MemoryConfig()
        if model is not None:
            settings = settings.updated({"model": model})
        if model_info is not None:
            if settings.model is None:
                raise ConfigError("model_info= has the limits of a model: give model= too")
            if not isinstance(model_info, ModelInfo) or not sound_limits(model_info):
                raise ConfigError(
                    "model_info must be a ModelInfo(context, max_input, max_output) of positive numbers "
                    f"of tokens, with Prices or none, not {safe_repr(model_info, 60)}"
                )
            models = self.resolver.models
            self.resolver.use_models(models.with_limits(settings.model, model_info))
        return settings

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Change settings of the manager, one change at a time, so that none is lost."""
        with self.shared.settings_lock:
            self._configure(self.shared.config.updated(settings))

    def _configure(self, config: MemoryConfig) -> None:
        before = self.shared.config
        self._check_change(before, config, config)
        for session in self.sessions:
            fault = self._fault_with(session.log.totals.settings, config)
            # A conflict that existed before, such as a stored name of a missing plugin, is ignored.
            if fault is not None and self._fault_with(session.log.totals.settings, before) is None:
                whose = f"with the settings of session {session.id!r}"
                raise ConfigError(f"{whose}: {fault}") from fault
        self.shared.configure(config)

    def _fault_with(
        self, settings: Mapping[str, Any], managers: MemoryConfig
    ) -> MemmanError | None:
        """Return the conflict of a session's settings with the manager's; None if there is not any."""
        try:
            self._check(managers.updated(readable(settings)), managers)
        except MemmanError as error:
            return error
        return None

    def _check_change(
        self, before: MemoryConfig, config: MemoryConfig, managers: MemoryConfig | None = None
    ) -> None:
        """Raise an error as `_check` does, or if the change makes `overhead_tokens` take the whole budget.

        An unrelated change is accepted if there was already no room before it, because the limits of the
        model or the manager's settings changed later.
        """
        self._check(config, managers)
        limits = self.resolver.limits(config.model)
        room = room_of(config, limits)
        if room < 1 and room != room_of(before, self.resolver.limits(before.model)):
            raise no_room(config, limits)

    def _check(self, config: MemoryConfig, managers: MemoryConfig | None = None) -> None:
        """Raise an error if a name in the settings is unknown, or if `reserve_output` leaves no input.

        `managers` are the manager's new settings if they are about to change.
        """
        stages_of(config.strategy)
        if callable(config.summary_prompt):
            check_function(config.summary_prompt, "summary_prompt")
        resolve_budget(config, self.resolver.limits(config.model))
        self.resolver.warn_unknown(config)
        self.summarizers.check(config.summarizer, (managers or self.shared.config).summarizer)
        self.resolver.counter(config)

    def tell_window(self, model: str | None, window: int | None) -> None:
        """Lower the limits of a model to a window that the caller knows. Raises `InvalidInput`."""
        check_positive(window, "window", "a number of tokens")
        if window is None:
            return
        name = model or self.shared.config.model or ""
        info = self.resolver.models.within(name, window, self.today)
        if info is not None:
            self.learn_limits(name, info)

    @property
    def today(self) -> str:
        """The date, as the limits of a model have it."""
        return f"{self.shared.clock():%Y-%m-%d}"

    def learn_limits(self, model: str, info: ModelInfo) -> None:
        """Change the limits of a model, unless settings contradict them."""
        with self.shared.settings_lock:
            before = self.resolver.models
            self.resolver.use_models(before.with_limits(model, info))
            try:
                resolve_budget(self.shared.config, info.limits)
                self._configure(self.shared.config)
            except BaseException:
                self.resolver.use_models(before)
                raise

    def _summarizer_for(self, config: MemoryConfig) -> Asker | None:
        return self.summarizers.chosen(config.summarizer, self.shared.config.summarizer)

    # ------------------------------------------------------------ the store

    def _open(self, store: str | os.PathLike[str] | Store | AsyncStore) -> Store | AsyncStore:
        """Return the store of a path or URL, or the given store itself."""
        if isinstance(store, MemoryConfig):
            raise InvalidInput("the first argument is the store: write config=MemoryConfig(...)")
        if isinstance(store, type):
            raise InvalidInput(f"{store.__name__} is a class: pass {store.__name__}(...)")
        if not isinstance(store, str | os.PathLike):
            return store
        where = os.fspath(store)
        if self._is_model(where):
            raise InvalidInput(
                f"{where!r} is a model, and the first argument is the store: write model={where!r} "
                f"(or './{where}' for a file of that name)"
            )
        from memman.stores import open_store

        return open_store(where, self._plugins)

    def _is_model(self, where: str) -> bool:
        """Return whether a bare word, not an existing file, is the name of a known model."""
        path = Path(where)
        bare = where == path.name and path.suffix not in _FILES
        return bare and not file_mode(path) and self.resolver.limits(where) is not None
