"""Ways to keep a conversation within a limit, as requests to a provider: for `benchmarks.bill`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from benchmarks.cache_server import text_of, tokens
from benchmarks.peers import langmem
from benchmarks.trajectories import Message
from memman import BudgetExceeded, MemoryConfig, MemoryManager

Request = Mapping[str, Any]
HEAD = "You are a coding agent. (The rest of the instructions and the tools.)"
_SESSION = "s"
_MARK = {"cache_control": {"type": "ephemeral"}}
_NONCE = "c0ffee11"  # a run repeats
_BLOCK = 4  # tokens around a message
_START = datetime(2026, 1, 1, tzinfo=UTC)


class Policy(Protocol):
    """A conversation under a limit; `prompts` are those of the summarizer since the last look."""

    compressions: int
    prompts: list[str]

    def add(self, messages: Sequence[Message], now: float) -> None:
        """Add messages at a time in seconds."""

    def request(self) -> Request | None:
        """Return the next request with its cache marks; None if nothing can be sent."""

    def close(self) -> None:
        """Release what it holds."""


Make = Callable[[int], Policy]
"""`limit -> policy`."""


class Plain:
    """Messages as they were recorded, with the marks of a careful caller: head, last, last before."""

    def __init__(self) -> None:
        self.compressions = 0
        self.prompts: list[str] = []
        self.messages: list[Message] = []
        self._last: Message | None = None

    def add(self, messages: Sequence[Message], _now: float) -> None:
        """Add messages."""
        self.messages += messages

    def chosen(self) -> Sequence[Message]:
        """Return the messages to send."""
        return self.messages

    def request(self) -> Request | None:
        """Return the request with the chosen messages."""
        chosen = self.chosen()
        if not chosen:
            return None
        marked = {id(chosen[-1]), id(self._last)}
        self._last = chosen[-1]
        sent = [{**each, **_MARK} if id(each) in marked else each for each in chosen]
        return {"system": [{"type": "text", "text": HEAD, **_MARK}], "messages": sent}

    def close(self) -> None:
        """Release nothing."""


class Trimmed(Plain):
    """The newest messages that fit, chosen for each request; a result stays with its call."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._sizes: list[int] = []

    def add(self, messages: Sequence[Message], now: float) -> None:
        """Add messages and count them."""
        super().add(messages, now)
        self._sizes += [tokens(text_of(each)) + _BLOCK for each in messages]

    def chosen(self) -> Sequence[Message]:
        """Return the newest messages that fit."""
        used, start = 0, len(self.messages)
        while start and (used := used + self._sizes[start - 1]) <= self._limit:
            start -= 1
        while start < len(self.messages) and self.messages[start]["role"] == "tool":
            start += 1
        return self.messages[start:]


class LangMem(Plain):
    """LangMem's running summary. There is no network, so sumy's extract stands in for its model."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._memory = langmem.load_summaries()(limit, limit // 10)
        self._known: dict[str, Message] = {}

    def add(self, messages: Sequence[Message], _now: float) -> None:
        """Add messages."""
        for each in messages:
            self._memory.append(each)

    def chosen(self) -> Sequence[Message]:
        """Return the summary and the newest messages."""
        return self._memory.context()


class Memman:
    """memman with these settings; `summarizer` takes the place of a model if `summarized`."""

    def __init__(self, limit: int, *, summarized: bool = False, **settings: Any) -> None:
        self.prompts: list[str] = []
        self._now = 0.0
        config = MemoryConfig(**{"max_tokens": limit, "max_entries": None} | settings)
        self._memory = MemoryManager(
            config=config,
            summarizer=self._summary if summarized else None,
            clock=self._clock,
            new_nonce=lambda: _NONCE,
        )
        self.compressions = 0
        self._memory.on("compressed", self._compressed)

    def add(self, messages: Sequence[Message], now: float) -> None:
        """Add messages."""
        self._now = now
        if messages:
            self._memory.add_messages(_SESSION, list(messages), format="openai-chat")

    def request(self) -> Request | None:
        """Return the request with a built context."""
        try:
            context = self._memory.build_context(
                _SESSION, format="anthropic", system=HEAD, missing_ok=True, cache="auto"
            )
        except BudgetExceeded:
            return None
        if not context.messages:
            return None
        return {"system": context.system, "messages": context.messages}

    def close(self) -> None:
        """Close the manager."""
        self._memory.close()

    def _compressed(self, _event: Any) -> None:
        self.compressions += 1

    def _clock(self) -> datetime:
        return _START + timedelta(seconds=self._now)

    def _summary(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return "The session so far. " + prompt[-6_000:]


def turns(messages: Sequence[Message]) -> Iterator[tuple[int, Sequence[Message], Message]]:
    """Yield the position of each recorded answer, the messages since the last one, and the answer."""
    start = 0
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            yield at, messages[start:at], message
            start = at + 1
