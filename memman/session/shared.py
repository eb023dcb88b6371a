"""The ports and settings that the sessions of one manager share."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from memman.compression import EntryFactory, Step
from memman.compression.strategies import stages_of
from memman.config import HARMLESS, Budget, MemoryConfig, lowered, readable, resolve_budget
from memman.counting.counter import TokenCounter
from memman.counting.failures import CountFailure
from memman.entries import (
    NO_JSON,
    Entry,
    NewEntry,
    TokenCount,
    check_new_entry,
    encode_json,
    entry_of,
    noted,
)
from memman.errors import InvalidInput
from memman.protocols import Format, Prices
from memman.records import SettingsInEffect
from memman.runtime.base import Flag, Runtime
from memman.runtime.forks import renew_in_child
from memman.runtime.observation import Operation, observed
from memman.session.meaning import Meaning
from memman.session.store import FullStore
from memman.state import Keeps, State
from memman.summarizers import Asker

if TYPE_CHECKING:
    from memman.counting.remote import RemoteTokenCounter


_MOST_RETURNED = 10_000  # pieces of entries that a session's recall tool remembers


class Remote(msgspec.Struct, frozen=True):
    """A remote counter of whole requests, and the format that it takes them in."""

    counter: RemoteTokenCounter
    format: str


class ResolvedConfig(msgspec.Struct, frozen=True):
    """A session's settings in effect, with the budget, stages and counter that follow from them.

    `trigger` is the limit at which a compression is due: the budget, or less if it is prepared in the
    background. A report adds at most `headroom` tokens to our own count. The log records `observed`.
    `remote` is set with `count_policy="confirm"` and a remote counter for the model.
    """

    config: MemoryConfig
    budget: Budget
    trigger: Budget
    headroom: int
    counter: TokenCounter
    stages: tuple[Step, ...]
    observed: SettingsInEffect
    remote: Remote | None = None

    def price(self, entry: Entry) -> int:
        """Return the tokens of an entry by the counter in use."""
        count = entry.token_count
        known = count.counter in (self.counter.fingerprint, "")
        return count.tokens if known else self.counter.recount(entry)


class RecallUse:
    """The use of the agent's recall tool in one session, as long as a tool for the session exists."""

    def __init__(self) -> None:
        self.name = ""  # of the newest tool
        self.names: set[str] = set()  # of all
        self._returned: LRUCache[tuple[str, int], bool] = LRUCache(_MOST_RETURNED)
        self._lock = threading.Lock()  # calls of `memory.aio` have a thread each

    def begin(self, name: str) -> None:
        """Note that there is a tool with this name."""
        self.name = name
        self.names.add(name)

    def was_returned(self, address: str, start: int) -> bool:
        """Return whether the piece of an entry from this character on was returned before; note it."""
        with self._lock:
            before = (address, start) in self._returned
            self._returned[address, start] = True
        return before


# The fields of an entry that its message is rendered from.
_MESSAGE = ("content", "call_id", "name", "message_id", "is_error")


_WORDS = re.compile(r"\w+")
_DIRTY = object()


def _words(entry: Entry) -> set[str]:
    """Return the words of an entry."""
    texts = (entry.text, entry.call_id, entry.name, entry.message_id)
    return set(_WORDS.findall(" ".join(filter(None, texts))))


def _shape(entry: Entry) -> list[type]:
    """Return the types of an entry's parts: other keys belong to a part by its index."""
    return [str] if isinstance(entry.content, str) else [type(part) for part in entry.content]


def _without_secrets(
    value: Any, is_clean: Callable[[str, str], bool], same: bool, key: str = ""
) -> Any:
    """Return raw data without the keys that are, or whose values have, a text that is not clean.

    `same` is False if the entry's content was changed: a block of the provider has the old one.
    """
    if isinstance(value, str):
        return value if is_clean(key, value) else _DIRTY
    if isinstance(value, dict):
        found = {
            name: _without_secrets(item, is_clean, same, name)
            for name, item in value.items()
            if is_clean("key", name) and (same or name != "own")
        }
        # A whole block of the provider is useless without some of it.
        whole = found.get("own", value.get("own")) == value.get("own")
        return {k: v for k, v in found.items() if v is not _DIRTY and (whole or k != "own")}
    if isinstance(value, list):
        items = [_without_secrets(item, is_clean, same, key) for item in value]
        return _DIRTY if any(item is _DIRTY for item in items) else items
    return value


def _identity(entry: Entry) -> tuple[str, str, str, datetime]:
    """Return the fields that `redact` may not change."""
    return entry.id, entry.type, entry.role, entry.timestamp


@dataclass(kw_only=True, eq=False, repr=False)
class Shared:
    """The ports, the settings and the clock of a manager, as its sessions use them."""

    runtime: Runtime
    store: FullStore
    meaning: Meaning | None
    exclusive: bool
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    new_nonce: Callable[[], str]
    trust_settings: bool
    redact: Callable[[Entry], Entry] | None
    keeps: Keeps
    sender: object
    counter: Callable[[MemoryConfig], TokenCounter]
    remote: Callable[[MemoryConfig], Remote | None]
    limits: Callable[[str | None], tuple[int, int, int] | None]
    prices: Callable[[str], Prices | None]
    binds: Callable[[str | None], bool]
    warn_unknown: Callable[[MemoryConfig], None]
    summarizer: Callable[[MemoryConfig], Asker | None]
    format: str
    format_named: Callable[[str], Format]
    check: Callable[[MemoryConfig], None]
    check_change: Callable[[MemoryConfig, MemoryConfig], None]

    def __post_init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)
        self._uses = count(1).__next__
        self.version = 0  # grows when the manager's settings change
        self.configure(MemoryConfig())
        self.closed = False  # no compression commits from then on
        self.flags: set[Flag] = set()  # of followers; a set flag ends a pause
        self._resolved: tuple[int, ResolvedConfig] | None = None
        # The outlines that this manager made, by id(): they contain redacted texts only.
        self._made: WeakValueDictionary[int, State] = WeakValueDictionary()
        self._recalls: WeakValueDictionary[str, RecallUse] = WeakValueDictionary()

    def _renew(self) -> None:
        # Re-entrant: a signal handler may change settings, too.
        self.settings_lock = threading.RLock()

    def configure(self, config: MemoryConfig) -> None:
        """Replace the manager's settings."""
        self.config = config
        self.version += 1
        # Orders the uses of sessions: by time if a setting needs it, else by count.
        timed = config.session_ttl is not None
        self.moment = (lambda: self.clock().timestamp()) if timed else self._uses

    def close(self) -> None:
        """Refuse further commits of compressions, and wake all followers."""
        self.closed = True
        for flag in list(self.flags):
            flag.set()

    def resolved(
        self, settings: Mapping[str, Any], untrusted: frozenset[str], model: str | None = None
    ) -> ResolvedConfig:
        """Return the manager's settings combined with a session's own, for a `model` in place of theirs."""
        if settings or model is not None:
            config = self.config.updated(self.effective(settings, untrusted))
            return self._resolve(config if model is None else config.updated({"model": model}))
        # In this order: another thread may change both.
        version, known = self.version, self._resolved
        if known is None or known[0] != version:
            known = self._resolved = version, self._resolve(self.config)
        return known[1]

    def effective(self, settings: Mapping[str, Any], untrusted: frozenset[str]) -> dict[str, Any]:
        """Return those of a session's settings that take effect.

        Of untrusted ones these are the harmless ones that lift no limit of the trusted settings.
        """
        given = readable(settings)
        if not self.trust_settings:
            untrusted = frozenset(given)
        chosen = {name: value for name, value in given.items() if name not in untrusted}
        if len(chosen) == len(given):
            return chosen
        base = self.budget(self.config.updated(chosen))
        for name in HARMLESS:
            if name in untrusted and name in given:
                wanted = {**chosen, name: given[name]}
                budget = self.budget(self.config.updated(wanted))
                more = budget.max_entries is None or budget.max_entries > (base.max_entries or 0)
                lifts = name == "max_entries" and base.max_entries is not None and more
                if budget.max_tokens <= base.max_tokens and not lifts:
                    chosen = wanted
        return chosen

    def budget(self, config: MemoryConfig, target: int | None = None) -> Budget:
        """Return the budget of settings. It asks plugins for prices only without a `max_tokens`."""
        prices = self.prices(config.model) if config.model and config.max_tokens is None else None
        step = prices.tiers[0].above if prices and prices.tiers else None
        return resolve_budget(config, self.limits(config.model), step=step, target_tokens=target)

    def _resolve(self, config: MemoryConfig) -> ResolvedConfig:
        budget = self.budget(config)
        if config.max_tokens is not None:
            lowered("max_tokens", config.max_tokens, budget.usable, config.model)
        trigger = budget.prepared() if config.background else budget
        headroom = budget.trigger_tokens - budget.target_tokens
        stages = stages_of(config.strategy)
        counter, remote = self.counter(config), self.remote(config)
        observed = SettingsInEffect(
            config.model,
            budget.max_tokens,
            budget.max_entries,
            budget.target_tokens,
            counter.fingerprint,
        )
        return ResolvedConfig(config, budget, trigger, headroom, counter, stages, observed, remote)

    async def price(
        self, counter: RemoteTokenCounter, request: Mapping[str, Any], session_id: str | None = None
    ) -> TokenCount | CountFailure:
        """Return a remote counter's result for a request."""
        model = request["model"]
        operation = Operation(
            kind="count", session_id=session_id, model=model, port=counter, request=request
        )
        work = self.runtime.price(counter, request)
        return await observed(self.runtime.observer, operation, work)

    def remember(self, state: State) -> None:
        """Note that this manager made an outline."""
        self._made[id(state)] = state

    def has_made(self, state: State) -> bool:
        """Return whether this manager made an outline, so that it need not be redacted again."""
        return self._made.get(id(state)) is state

    def recall_use(self, session_id: str) -> RecallUse:
        """Return the use of the recall tools of a session."""
        with self.settings_lock:
            use = self._recalls.get(session_id) or RecallUse()
            self._recalls[session_id] = use
        return use

    def recall_name(self, session_id: str) -> str:
        """Return the name of a session's recall tool; "" if it has none."""
        use = self._recalls.get(session_id)
        return "" if use is None else use.name

    def redacted(self, entry: Entry, outcome: str) -> Entry:
        """Return the entry as `redact` leaves it, with its old count.

        Raises `InvalidInput` if that fails; `outcome` ends the message.
        """
        if self.redact is None:
            return entry
        try:
            clean = self.redact(entry)
        except Exception as error:  # noqa: BLE001 - of the caller's function; its type is named
            # Its message and traceback may quote the secret, so it is not the cause either.
            what = f"redact raised {type(error).__name__} for a {entry.type}"
            raise InvalidInput(f"{what}; {outcome}") from None
        if not isinstance(clean, Entry) or _identity(clean) != _identity(entry):
            raise InvalidInput(
                f"redact must return the entry with its id, type, role and time kept; {outcome}"
            )
        try:
            clean = check_new_entry(clean)
            encode_json(clean.metadata, "metadata")
        except (InvalidInput, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            what = f"redact returned what cannot be stored: {error}"
            raise InvalidInput(f"{what}; {outcome}") from None
        same = all(getattr(clean, name) == getattr(entry, name) for name in _MESSAGE)
        raw = added = entry.raw
        if raw is not None:
            gone = _words(entry) - _words(clean)
            kept = same or _shape(clean) == _shape(entry)
            is_clean = partial(self._is_clean, entry, gone)
            raw = _without_secrets({"raw": raw}, is_clean, same).get("raw") if kept else None
        if not same or raw != added:
            clean = noted(clean, altered="redacted")
        return msgspec.structs.replace(clean, raw_json=encode_json(raw, "raw"))

    def _is_clean(self, entry: Entry, gone: AbstractSet[str], key: str, text: str) -> bool:
        """Return whether `redact` leaves a text of a raw message as it is, and has removed no word of it.

        In a call the text is an argument, because a call's content is JSON.
        """
        if not gone.isdisjoint(_WORDS.findall(text)):
            return False
        if entry.type == "tool_call":
            text = msgspec.json.encode({key: text}).decode()
        probe = msgspec.structs.replace(entry, content=text, raw_json=NO_JSON)
        try:
            return self.redact is None or bool(self.redact(probe).content == text)
        except Exception:  # noqa: BLE001 - of the caller's function, for a text that is no message
            return False

    def redacted_focus(self, focus: str | None) -> str | None:
        """Return the focus of a summary, redacted as a user's message. Raises `InvalidInput`."""
        if focus is None or self.redact is None:
            return focus
        said = NewEntry(type="message", role="user", content=focus)
        entry = entry_of(said, "focus", self.clock(), TokenCount(0))
        return self.redacted(entry, "nothing was changed").text

    def make_entry(self, counter: TokenCounter) -> EntryFactory:
        """Return a function that gives a new entry its id, time and count."""

        def make(new_entry: NewEntry) -> Entry:
            return entry_of(new_entry, self.new_id(), self.clock(), counter.count_entry(new_entry))

        return make
