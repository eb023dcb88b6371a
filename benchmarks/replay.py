"""Replay one recorded conversation through memman, message by message, and check every promise.

The expected values come from the source messages alone, the actual ones from memman's public methods.
No total, pairing or check of the package is trusted, except the rules of `memman.formats.rules`, which
share no code with the renderers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from time import process_time

import msgspec

from benchmarks.tokens import Recount, o200k
from benchmarks.trajectories import Message, Trajectory
from memman import (
    BudgetExceeded,
    Context,
    Entry,
    MemoryConfig,
    MemoryManager,
    SessionState,
    StateError,
    events,
)
from memman.archive.document import Shown
from memman.formats import rules
from memman.records import Added, Compressed, Opened, Record

MODEL = "gpt-4o"
COUNTER = "tiktoken:o200k_base"
FORMATS = (
    "openai-chat",
    "anthropic",
    "openai-responses",
    "gemini",
    "bedrock",
    "mistral",
    "langchain",
)
_SESSION = "replay"
_LOG_SIGNALS = (
    events.session_opened,
    events.entry_added,
    events.compressed,
    events.compression_undone,
    events.session_cleared,
    events.entries_deleted,
    events.entry_pinned,
    events.session_configured,
    events.usage_reported,
)
_WHICH = re.compile(r""", #.*$|#[0-9.]+ ?|['"].*$""")  # of a culprit: its address and first words
_KEPT_FINDINGS = 20
_SAYS_WHY = "above the target of"  # part of the reason that a compression above its target gives


class Refusal(msgspec.Struct, frozen=True):
    """A context that memman refused to build because protected entries (largest first) need too much."""

    trajectory: str
    message: int
    format: str
    required: int
    culprits: tuple[tuple[str, int], ...]


class Outcome(msgspec.Struct, kw_only=True):
    """Counts of one replay. All of `FAULTS` must be 0."""

    trajectory: str
    budget: int
    messages: int = 0
    entries: int = 0
    contexts: int = 0
    trimmed: int = 0
    refusals: list[Refusal] = []
    over: int = 0
    violations: int = 0
    missing: int = 0
    unequal: int = 0
    state: int = 0
    unreported: int = 0
    unexplained: int = 0
    compared: int = 0
    apart: Counter[str] = msgspec.field(default_factory=Counter)
    tokens_added: int = 0
    tokens_left: int = 0
    largest: int = 0
    compressions: int = 0
    short: int = 0
    seconds_adding: float = 0.0
    seconds_building: float = 0.0
    findings: list[str] = []

    def fault(self, kind: str, what: str, times: int = 1) -> None:
        """Counts a broken promise and keeps the first descriptions."""
        setattr(self, kind, getattr(self, kind) + times)
        if len(self.findings) < _KEPT_FINDINGS:
            self.findings.append(f"{kind}: {self.trajectory} at {self.budget:,}: {what}")


FAULTS = ("over", "violations", "missing", "unequal", "state", "unreported", "unexplained")


def replay(trajectory: Trajectory, budget: int, max_entries: int | None = None) -> Outcome:
    """Runs one conversation at one budget. Raises every error that no promise allows for."""
    return _Replay(trajectory, budget, max_entries).run()


class _Sent(msgspec.Struct, frozen=True):
    """A source message and the ids of the entries that it became."""

    message: Message
    ids: frozenset[str]


class _Replay:
    def __init__(self, trajectory: Trajectory, budget: int, max_entries: int | None) -> None:
        self._messages = trajectory.messages
        self._budget = budget
        self._outcome = Outcome(trajectory=trajectory.id, budget=budget)
        config = MemoryConfig(max_tokens=budget, max_entries=max_entries)
        self._memory = MemoryManager(model=MODEL, config=config)
        self._emitted = EmittedEvents(self._memory)
        self._target = int(config.target_ratio * budget)
        encode = o200k()
        self._recount = Recount(lambda text: len(encode(text)))
        self._unedited: list[_Sent] = []
        self._waiting: list[str] = []

    def run(self) -> Outcome:
        for index, message in enumerate(self._messages):
            try:
                self._add(message)
                if self._is_turn(index):
                    self._build(index)
            except Exception as error:
                error.add_note(f"in {self._outcome.trajectory}, message {index}, {self._budget:,}")
                raise
        self._finish()
        return self._outcome

    def _add(self, message: Message) -> None:
        began = process_time()
        entries = self._memory.add_messages(_SESSION, [message], "openai-chat")
        self._outcome.seconds_adding += process_time() - began
        self._outcome.messages += 1
        self._check_fit()
        reason = self._set_apart(message)
        if reason is None:
            self._unedited.append(_Sent(message, frozenset(entry.id for entry in entries)))
        else:
            self._outcome.apart[reason] += 1

    def _check_fit(self) -> None:
        """Checks that compressions reach the target or give a reason, and `over_budget` was emitted."""
        outcome = self._outcome
        results, over_emitted = self._emitted.take_fit()
        for result in results:
            says_why = _SAYS_WHY in result.reason
            outcome.short += says_why
            if result.tokens_after > self._target and not says_why:
                outcome.fault(
                    "unexplained",
                    f"{result.tokens_after:,} tokens after a compression to {self._target:,}: "
                    f"{result.reason}",
                )
        active = self._memory.get_stats(_SESSION).active_tokens
        if active > self._budget and not over_emitted:
            outcome.fault("unexplained", f"a window of {active:,} tokens without an event")

    def _set_apart(self, message: Message) -> str | None:
        """Return why a provider would refuse this message, which then cannot come back equal."""
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        self._waiting += calls
        if message["role"] == "tool":
            if message["tool_call_id"] not in self._waiting:
                return "result without a call"
            self._waiting.remove(message["tool_call_id"])
        elif message["role"] == "assistant" and not message.get("content") and not calls:
            return "assistant message with neither content nor calls"
        return None

    def _is_turn(self, index: int) -> bool:
        """Whether an agent could call its model now: all results are in, and the user has spoken."""
        following = self._messages[index + 1 : index + 2]
        between_results = bool(following) and following[0]["role"] == "tool"
        spoken = any(message["role"] != "system" for message in self._messages[: index + 1])
        return spoken and not between_results

    # ------------------------------------------------------------ contexts

    def _build(self, index: int) -> None:
        began = process_time()
        built = [self._context(form, index) for form in FORMATS]
        self._outcome.seconds_building += process_time() - began
        openai, anthropic, *more = built
        if openai is not None:
            messages = openai.messages
            self._check(openai, messages, self._recount.openai_chat(messages), index)
            self._check_equality(openai, messages, index)
        if anthropic is not None:
            messages = anthropic.messages
            tokens = self._recount.anthropic(messages, anthropic.system)
            self._check(anthropic, messages, tokens, index)
        for context in more:
            if context is not None:
                messages = context.messages
                tokens = self._priced(context, messages)
                self._check(context, messages, tokens, index)
                if index == len(self._messages) - 1:
                    self._check_return(context, messages)

    def _priced(self, context: Context, messages: list[Message]) -> int:
        """Count the tokens of a request in a format other than OpenAI chat and Anthropic."""
        if context.format == "mistral":  # same shape as OpenAI chat
            return self._recount.openai_chat(messages)
        if context.format == "langchain":
            return self._recount.langchain(messages)
        return self._recount.more(messages, context.system)

    def _context(self, form: str, index: int) -> Context | None:
        try:
            return self._memory.build_context(_SESSION, format=form)
        except BudgetExceeded as error:
            culprits = tuple(
                (_WHICH.sub("", what).strip(), tokens) for what, tokens in error.culprits
            )
            self._outcome.refusals.append(
                Refusal(self._outcome.trajectory, index, form, error.required, culprits)
            )
            return None

    def _check(
        self, context: Context, messages: Sequence[Message], tokens: int, index: int
    ) -> None:
        outcome, form = self._outcome, context.format
        outcome.contexts += 1
        outcome.trimmed += bool(context.trimmed)
        outcome.largest = max(outcome.largest, tokens)
        if tokens > self._budget:
            outcome.fault("over", f"{form} after message {index} has {tokens:,} tokens")
        for broken in rules.check(messages, form, system=context.system):
            outcome.fault(
                "violations", f"{form} after message {index}: {broken.rule}: {broken.message}"
            )

    def _check_equality(self, context: Context, messages: Sequence[Message], index: int) -> None:
        """Checks that each message whose entries are all in the window is in the request, unchanged."""
        active = {entry.id for entry in self._memory.get_active_entries(_SESSION)}
        # Nothing is undone here, so an entry that has left the window does not come back.
        self._unedited = [sent for sent in self._unedited if sent.ids <= active]
        trimmed = {entry_id for item in context.trimmed for entry_id in item.ids}
        expected = [sent.message for sent in self._unedited if sent.ids.isdisjoint(trimmed)]
        self._outcome.compared += len(expected)
        for message in absent(expected, messages):
            self._outcome.fault("unequal", f"after message {index}: {message!r:.300}")

    def _check_return(self, context: Context, messages: Sequence[Message]) -> None:
        """Checks that rendered messages are parsed back equal, and detected as their format."""
        roomy = MemoryConfig(max_tokens=10**8, auto_compress=False)
        other = MemoryManager(model=MODEL, config=roomy)
        other.add_messages(_SESSION, list(messages))
        again = other.build_context(_SESSION, format=context.format).messages
        self._outcome.compared += len(messages)
        for message in absent(messages, again):
            self._outcome.fault("unequal", f"{context.format} at the end: {message!r:.300}")

    # ------------------------------------------------------------ at the end

    def _finish(self) -> None:
        outcome, memory = self._outcome, self._memory
        self._emitted.close()
        stats = memory.get_stats(_SESSION)
        if stats.counter != COUNTER:
            raise RuntimeError(f"counted with {stats.counter}, not with {COUNTER}")
        outcome.entries = stats.total_entries
        outcome.tokens_added, outcome.tokens_left = stats.total_tokens, stats.active_tokens
        outcome.compressions = sum(kind == "Compressed" for kind, _ in self._emitted.records)
        expected = [said for message in self._messages for said in entries_of(message)]
        state = memory.export_session(_SESSION)
        for place, found in (("log", memory.get_entries(_SESSION)), ("export", state.entries)):
            lost = lacking(expected, [_said(entry) for entry in found])
            if lost:
                outcome.fault("missing", f"{lost} entries in the {place}", lost)
        self._check_state(state)
        if self._emitted.records != [_logged(item) for item in state.log]:
            outcome.fault("unreported", "the events are not one per record in log order")

    def _check_state(self, state: SessionState) -> None:
        """The document is lossless: as JSON, and through another manager."""
        if SessionState.from_json(state.to_json()) != state:
            self._outcome.fault("state", "from_json(to_json(x)) differs from x")
        other = MemoryManager(model=MODEL, config=MemoryConfig(max_tokens=self._budget))
        try:
            other.import_session(state)
        except StateError as error:
            self._outcome.fault("state", f"import(x) refused: {error}")
            return
        if other.export_session(_SESSION) != state:
            self._outcome.fault("state", "export(import(x)) differs from x")


class EmittedEvents:
    """Emitted events as (kind of record, id of its entry or of the record), in order."""

    def __init__(self, sender: object) -> None:
        self.records: list[tuple[str, str]] = []
        self._results: list[events.CompressionResult] = []
        self._over = False
        for signal in _LOG_SIGNALS:
            signal.connect(self._take, sender=sender)
        events.over_budget.connect(self._take_over, sender=sender)

    def take_fit(self) -> tuple[list[events.CompressionResult], bool]:
        """Return the compressions since the last call, and whether `over_budget` was emitted."""
        taken = self._results, self._over
        self._results, self._over = [], False
        return taken

    def close(self) -> None:
        """Disconnects the receivers."""
        for signal in _LOG_SIGNALS:
            signal.disconnect(self._take)
        events.over_budget.disconnect(self._take_over)

    def _take_over(self, _sender: object, event: events.OverBudget) -> None:
        self._over = True

    def _take(self, _sender: object, event: events.Event) -> None:
        match event:
            case events.EntryAdded():
                self.records.append(("Added", event.entry.id))
            case events.CompressionResult():
                self.records.append(("Compressed", str(event.compression_id)))
                self._results.append(event)
            case events.SessionOpened():
                self.records.append(("Opened", event.session_id))
            case _:
                self.records.append((type(event).__name__, event.session_id))


def _logged(item: Record | Shown) -> tuple[str, str]:
    """Return the pair that `EmittedEvents` should have kept for an item of a document's log."""
    kind = "Added" if isinstance(item, Shown | Added) else type(item).__name__
    known = isinstance(item, Shown | Added | Compressed)
    if isinstance(item, Opened):
        return (kind, _SESSION)
    return (kind, item.id if known else f"no replay makes a {kind}")


def absent(expected: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """The expected messages that have no equal of their own among the messages of a request.

    Both have nearly the same order (only late results move up to their calls), so each search starts
    after the previous match, and starts over only if that fails.
    """
    missing: list[Message] = []
    used: set[int] = set()
    at = 0
    for message in expected:
        places = chain(range(at, len(messages)), range(at))
        place = next((i for i in places if messages[i] == message and i not in used), None)
        if place is None:
            missing.append(message)
        else:
            used.add(place)
            at = place + 1
    return missing


Said = tuple[str, str, str]


def entries_of(message: Message) -> list[Said]:
    """Return (type, name, text) of each entry that a source message must become."""
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        return [("tool_result", "", content)]
    calls = [
        ("tool_call", call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return [("message", role, content), *calls] if content or not calls else calls


def _said(entry: Entry) -> Said:
    if entry.type == "tool_result":
        return (entry.type, "", entry.text)
    return (entry.type, (entry.name if entry.type == "tool_call" else entry.role) or "", entry.text)


def lacking(expected: Sequence[Said], found: Sequence[Said]) -> int:
    """Count the `expected` that are not in `found`; at least 1 if order or number differ."""
    lost = (Counter(expected) - Counter(found)).total()
    return lost or int(list(expected) != list(found))
