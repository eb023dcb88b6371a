"""The results of the methods that read a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final, Literal, Protocol

import msgspec

from memman.display import safe_repr
from memman.entries import Entry, TokenCount, excerpt
from memman.protocols import ModelInfo
from memman.records import NO_COST, Cost, Replacement
from memman.spend import NOTHING_REPORTED, ReportedTokens, Spend
from memman.window import WindowItem

EntryState = Literal[
    "active",
    "stubbed",
    "folded",
    "clipped",
    "summarised",
    "dropped",
    "retracted",
    "deleted",
    "cleared",
]
_OVERHEADS = ("system_prompt", "tools", "reserved", "framing")


class Source(msgspec.Struct, frozen=True, gc=False):
    """What a message of a context was made of.

    `entries` are the ids of the entries behind it: of a stub, a clip or a summary the replacement's, and
    none for a system prompt that was passed to `build_context` or a text of memman's own. `unaltered` is
    True if the message is a whole message as it was added, or whole messages that the format joins, so that
    a caller may send its own objects instead: nothing was replaced, left out, added or renamed. In
    `openai-responses` a message is an item.
    """

    entries: tuple[str, ...]
    unaltered: bool


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """Earlier entries that a context quotes behind a message of the user, since it speaks of them.

    `message_id` and `message_address` are those of the message's entry, and `words` are those of its terms
    by which the earlier ones were found; none if they were found by meaning. `addresses` are theirs, in
    order. `text` is what the model reads.
    """

    message_id: str
    message_address: str
    addresses: tuple[str, ...]
    words: tuple[str, ...]
    tokens: int
    text: str

    def __str__(self) -> str:
        words = ", ".join(map(safe_repr, self.words)) or "meaning"
        shown = ", ".join(self.addresses)
        return f"{shown} behind {self.message_address}, by {words} ({self.tokens:,} tokens)"


class Layout(Protocol):
    """The entries behind the messages of a context, computed when they are read."""

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries of the context in order."""

    def sources(self) -> tuple[Source, ...]:
        """Return the source of each message."""


class Marks(Protocol):
    """The cache marks of a context. Both methods may change what they are given."""

    def on_messages(self, messages: list[Any]) -> list[Any]:
        """Return the messages with their marks."""

    def on_head(self, system: str | None, tools: list[Any] | None) -> tuple[Any, list[Any] | None]:
        """Return the system prompt and the tools with their mark."""


class Context(msgspec.Struct, frozen=True, eq=False):
    """A context to send to the model: valid for its format and within its budget.

    Attributes:
        format: the message format.
        budget: the tokens that the context had to fit.
        tokens: the price of the whole.
        trimmed: the replacements made in this copy to fit the budget; the session keeps the originals.
        unchanged_prefix: how many leading messages equal those of the last other context of this session.
            A provider's prompt cache can reuse them if the model, `system` and the tools are unchanged too.
            0 if no context was built since the session was loaded, or if its format differed. An
            unchanged session, as in a retry, returns the same object with the same figure.
        compacted: whether this is not the whole conversation: entries of it were replaced or dropped, by a
            compression or in this copy.
        prompt_cache_key: with `cache="auto"` and a format of OpenAI, the value for the request's field of
            this name: the same for each request of the session, else None.
        cache_ttl: with `cache="auto"`, the setting of this name, for a framework that places marks itself.
        thoughts_left_out: the ids of entries whose thoughts are not sent: the model refuses them, since
            what preceded them has changed. The log keeps them.
        needs: arguments that the request must have besides, or {}: a tool turn that is not over has such
            thoughts. The provider wants them back, and skips them itself if it is told to. With
            Anthropic's SDK they are for `client.beta.messages.create`.
        recalled: the texts of earlier entries behind messages of the user, in their order.
    """

    format: str
    budget: int
    tokens: TokenCount
    trimmed: tuple[Replacement, ...]
    unchanged_prefix: int
    compacted: bool
    prompt_cache_key: str | None
    cache_ttl: float | None
    _system: str | None
    _tools: bytes | None  # as JSON
    _messages: list[dict[str, Any]]
    _shares: dict[str, int]
    _overheads: tuple[int, int, int, int]
    _layout: Layout
    _marks: Marks | None
    thoughts_left_out: tuple[str, ...]
    needs: dict[str, Any]
    recalled: tuple[Recalled, ...] = ()

    @property
    def messages(self) -> list[Any]:
        """The messages in the provider's format, as fresh plain dicts that every SDK accepts."""
        copied: list[dict[str, Any]] = msgspec.to_builtins(self._messages)
        return copied if self._marks is None else self._marks.on_messages(copied)

    @property
    def system(self) -> Any:
        """The system prompt if the format has a separate place for it, else None.

        A text; with a cache mark a list of blocks.
        """
        return self._head[0]

    @property
    def tools(self) -> list[Any] | None:
        """The tools that were passed, in a fresh list, with a cache mark if they need one; None without."""
        return self._head[1]

    @property
    def _head(self) -> tuple[Any, list[Any] | None]:
        tools = msgspec.json.decode(self._tools) if self._tools else None
        if self._marks is None:
            return self._system, tools
        return self._marks.on_head(self._system, tools)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the context in order: those of the window, or of the copy that was trimmed."""
        return self._layout.entries()

    @property
    def sources(self) -> tuple[Source, ...]:
        """For each message the entries behind it, and whether it is as it was added.

        Entries without a message are system messages in `system`, and blank ones that the provider rejects.
        """
        return self._layout.sources()

    @property
    def text(self) -> str:
        """All message texts as one string; in the format `text` this is the conversation."""
        contents = [message.get("content") for message in self._messages]
        return "\n\n".join(content for content in contents if isinstance(content, str))

    @property
    def breakdown(self) -> dict[str, int]:
        """Tokens by entry type, and of `state`, `recalled`, `system_prompt`, `tools`, `framing` ..."""
        prompt, tools, reserved, framing = self._overheads
        # If the provider has counted less than memman, it has counted less framing.
        overheads = (prompt, tools, max(0, reserved), framing + min(0, reserved))
        parts = {**self._shares, **dict(zip(_OVERHEADS, overheads, strict=True))}
        return {part: tokens for part, tokens in parts.items() if tokens}

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return (
            f"Context({self.format!r}, {len(self)} messages, "
            f"{self.tokens.tokens} of {self.budget} tokens, {len(self.trimmed)} trimmed)"
        )

    def _repr_html_(self) -> str:
        """The context as a bar, for notebooks."""
        title = f"{len(self)} messages, {self.tokens.tokens:,} of {self.budget:,} tokens"
        return bar_html(title, self.breakdown, self.budget)


class OverflowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a model's window in a provider's error.

    `overflow` is whether the request was too long; False for a rate limit, a quota and all other errors.
    `limits` are those of the model from now on; None if nothing was learned. `requested` is the number of
    tokens of the refused request, if the error named it.

    `needs` is {} unless the model refused a thought because something before it has changed, such as the
    system prompt or the tools. The same request passes with these arguments; give them to each later
    request of the session too.
    """

    overflow: bool
    limits: ModelInfo | None = None
    requested: int | None = None
    needs: dict[str, Any] = {}


class SessionStats(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a session.

    `active_entries` and `active_tokens` are those of the window, with summaries and stubs;
    `get_active_entries` returns them, and `max_entries` and `max_tokens` limit them. `total_entries` and
    `total_tokens` count the entries added in this era and not retracted, `compressed_entries` those of them
    that left the window. `drift` is reported by estimated input tokens, minus one (0.05: the provider
    counts 5 % more), None before the first report. `cost` is that of the era's compressions, with failed
    ones of this process: calls of the summarizer, their seconds, and the billed tokens. `spend` is the
    money of all eras, with that of failed calls; None if no price is known. `reported` has the tokens that
    the provider reported in all eras.
    """

    session_id: str
    total_entries: int
    active_entries: int
    compressed_entries: int
    summaries: int
    total_tokens: int
    active_tokens: int
    max_tokens: int
    max_entries: int | None
    overhead_tokens: int
    counter: str
    last_counted_at: datetime | None
    drift: float | None = None
    cost: Cost = NO_COST
    spend: Spend | None = None
    reported: ReportedTokens = NOTHING_REPORTED

    def __repr__(self) -> str:
        return f"<SessionStats {self.session_id}: {self._filled}>"

    def __str__(self) -> str:
        summaries = f", {self.summaries:,} of them summaries" if self.summaries else ""
        lines = [
            f"session {self.session_id}: {self._filled}{summaries}",
            f"added: {self.total_tokens:,} tokens in {self.total_entries:,} entries, "
            f"{self.compressed_entries:,} of them compressed",
            f"counter: {self.counter}",
        ]
        if self.overhead_tokens:
            lines.append(f"overhead: {self.overhead_tokens:,} tokens")
        if self.drift is not None:
            lines.append(f"drift: {100 * self.drift:+.1f} % reported over estimated")
        if self.cost.calls:
            lines.append(f"summarizer: {self.cost.calls:,} calls, {self.cost.seconds:.1f} s")
        if self.reported.requests:
            lines.append(f"reported: {self.reported}")
        if self.spend is not None:
            lines.append(f"spend: {self.spend}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The window as a bar, and the spend, for notebooks."""
        parts = {"in the window": self.active_tokens, "overhead": self.overhead_tokens}
        bar = bar_html(f"{self.session_id}: {self._filled}", parts, self.max_tokens)
        return bar if self.spend is None else f"{bar}<div>{escape(str(self.spend))}</div>"

    @property
    def _filled(self) -> str:
        most = "" if self.max_entries is None else f" of {self.max_entries:,}"
        return (
            f"{self.active_tokens:,} of {self.max_tokens:,} tokens, "
            f"{self.active_entries:,}{most} entries in the window"
        )


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a search found.

    `score` compares the hits of one search; more is better. `snippet` is the part of the text with the
    most words of the query, on one line. `state` is the entry's state in the current window, `shown_by`
    the address of the entry that represents it there: None if it is active itself, or if there is none. A
    `neighbour` was not found itself; it follows the hit before it in the conversation.
    """

    session_id: str
    entry: Entry
    score: float
    snippet: str
    state: EntryState
    shown_by: str | None = None
    neighbour: bool = False

    @property
    def address(self) -> str:
        """The entry's position in the log of its session, such as `#118`."""
        return self.entry.address

    def __repr__(self) -> str:
        state = f"{self.state} by {self.shown_by}" if self.shown_by else self.state
        return f"<Hit {self.address} in {self.session_id!r}, {state}: {self.snippet!r}>"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """An active summary and the entries that it replaces. `ratio` is original by summary tokens."""

    id: str
    content: str
    original_entry_ids: tuple[str, ...]
    token_count: int
    original_token_count: int
    ratio: float
    created_at: datetime
    time_range: tuple[datetime, datetime]

    def __repr__(self) -> str:
        """Short enough for a prompt; every field is an attribute."""
        return (
            f"<Summary of {len(self.original_entry_ids):,} entries, {self.token_count:,} tokens for "
            f"{self.original_token_count:,}: {excerpt(self.content)!r}>"
        )


def summary_of(window_item: WindowItem, originals: Sequence[Entry]) -> Summary:
    """Return the summary of a window item."""
    entry = window_item.entry
    original = sum(item.token_count.tokens for item in originals)
    times = [item.timestamp for item in originals] or [entry.timestamp]
    return Summary(
        id=entry.id,
        content=entry.text,
        original_entry_ids=tuple(item.id for item in originals),
        token_count=window_item.tokens,
        original_token_count=original,
        ratio=round(original / max(1, window_item.tokens), 2),
        created_at=entry.timestamp,
        time_range=(min(times), max(times)),
    )


# ---------------------------------------------------------------- notebooks

_COLOURS: Final = {
    "message": "#4263eb",
    "tool_call": "#0b8fa3",
    "tool_result": "#e08a00",
    "context": "#ae3ec9",
    "summary": "#2f9e44",
    "state": "#0b6674",
    "in the window": "#4263eb",
}
_OTHER: Final = "#868e96"


def bar_html(title: str, parts: Mapping[str, int], room: int) -> str:
    """Return HTML with a title, a bar of the parts of `room` tokens, and a legend.

    Args:
        title: the title of the bar.
        parts: tokens by the name of a part; parts without tokens are left out.
        room: the tokens of the whole bar; a part of it that nothing takes stays empty.
    """
    taken = {name: tokens for name, tokens in parts.items() if tokens > 0}
    whole = max(room, sum(taken.values()), 1)
    pieces = "".join(
        f'<span style="width:{100 * tokens / whole:.2f}%;background:{_colour(name)}" '
        f'title="{escape(name)}: {tokens:,} tokens"></span>'
        for name, tokens in taken.items()
    )
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{_colour(name)}">&#9632;</span> '
        f"{escape(name.replace('_', ' '))} {tokens:,}</span>"
        for name, tokens in taken.items()
    )
    return (
        f'<div style="max-width:40em"><div><b>{escape(title)}</b></div>'
        '<div style="display:flex;height:0.9em;margin:0.3em 0;border-radius:3px;overflow:hidden;'
        f'background:rgba(128,128,128,0.25)">{pieces}</div><small>{legend}</small></div>'
    )


def _colour(name: str) -> str:
    return _COLOURS.get(name, _OTHER)
