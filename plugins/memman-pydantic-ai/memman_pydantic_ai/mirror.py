"""The history of a conversation in pydantic-ai as a session of memman, and contexts as its messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from operator import is_
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
)

from memman import AsyncMethods, Context
from memman.adapters import HistoryMessage, HistoryMirror, ModelRequests, digest_of, message_id
from memman_pydantic_ai.messages import NAME

_PREFIX: Final = "pai-"  # of the ids that are made here
# Parts that change the meaning of later requests: without them a tool or an instruction is hidden.
_LASTING: Final = ("-delta", "-baseline")


@dataclass(frozen=True, eq=False)
class Piece:
    """One message of the log: a response, a request without parts, or one part of a request.

    `key` is the id of its first entry, and `dumped` the message that is logged.
    """

    message: ModelMessage
    part: ModelRequestPart | None = None
    first: bool = True
    key: str = ""
    dumped: Any = None

    def alone(self) -> ModelMessage:
        """Return the piece as a message; the first part of a request has the request's other fields."""
        if self.part is None or isinstance(self.message, ModelResponse):
            return self.message
        return replace(self.message if self.first else ModelRequest(parts=[]), parts=[self.part])

    def lasts(self) -> bool:
        """Return whether no compression may replace it."""
        kind = getattr(self.part, "tool_kind", None)
        return bool(kind) or (self.part is not None and self.part.part_kind.endswith(_LASTING))


class _Known:
    """A message in the log, and the keys of its pieces."""

    __slots__ = ("_count", "_message", "_parts", "keys")

    def __init__(self, message: ModelMessage, pieces: Iterable[Piece]) -> None:
        self._message = message
        self._parts = message.parts
        self._count = len(message.parts)
        self.keys = [piece.key for piece in pieces]

    def is_message(self, message: ModelMessage) -> bool:
        """Return whether a message is this one, with the same parts."""
        parts = message.parts
        return message is self._message and parts is self._parts and len(parts) == self._count


class Mirror:
    """A session with the history of pydantic-ai: what is new is added, what is gone is retracted.

    The id of a piece is a digest of its content. A history that was stored and loaded, or whose adjacent
    requests pydantic-ai merged, adds only what is new.
    """

    def __init__(self, memory: AsyncMethods, session_id: str) -> None:
        self._log = HistoryMirror(
            memory,
            session_id,
            format=NAME,
            prefix=_PREFIX,
            continuing="give the run message_history= or conversation=",
        )
        self._known: list[_Known] = []
        self._pieces: dict[str, Piece] = {}  # of the known messages, by their keys
        self._is_read = False  # whether they were compared with the log
        self._standing: list[SystemPromptPart] = []
        self.requests = ModelRequests(memory, session_id)

    @property
    def standing(self) -> list[str]:
        """The system prompts at the start of the history: configuration, which is not logged."""
        return [part.content for part in self._standing]

    async def sync(self, history: Sequence[ModelMessage]) -> None:
        """Make the log equal to a history."""
        pairs = zip(self._known, history, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].is_message(pair[1]), pairs))
        if not same:
            self._standing = _standing(history)
        messages = history[same:]
        split = [list(_split(message, self._standing)) for message in messages]
        after = [key for known in self._known[same:] for key in known.keys]
        taken = self._pieces.keys() - after if after else self._pieces
        pieces = _named(list(chain.from_iterable(split)), taken)
        if self._is_read and [piece.key for piece in pieces[: len(after)]] == after:
            await self._log.add(_logged(pieces[len(after) :]))
        elif same:
            return await self.resync(history)
        else:
            await self._log.reconcile(_logged(pieces))
            self._pieces = {}
        named = iter(pieces)
        self._known[same:] = [
            _Known(message, islice(named, len(each)))
            for message, each in zip(messages, split, strict=True)
        ]
        self._pieces |= {piece.key: replace(piece, dumped=None) for piece in pieces}
        self._is_read = True
        return None

    async def resync(self, history: Sequence[ModelMessage]) -> None:
        """Make the log equal to a history, whatever was known of both."""
        self._known, self._pieces, self._is_read = [], {}, False
        await self.sync(history)

    def lacks(self, context: Context) -> bool:
        """Return whether a context has pieces that the history has not."""
        return self._log.lacks(context, self._pieces)

    def messages_of(self, context: Context, history: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return a context as messages: the history's own objects wherever they are unaltered."""
        found: list[ModelMessage] = []
        for message, source in zip(context.messages, context.sources, strict=True):
            own = [self._pieces.get(key) for key in dict.fromkeys(map(message_id, source.entries))]
            whole = [piece for piece in own if piece is not None]
            if source.unaltered and whole and len(whole) == len(own):
                found.append(_whole(whole, () if found else self._standing))
            else:
                found += ModelMessagesTypeAdapter.validate_python([message])
        standing, newest, last = self._standing, history[-1], found[-1]
        if standing and not any(part is standing[0] for part in found[0].parts):
            found.insert(0, ModelRequest(parts=standing))
        if (
            isinstance(newest, ModelRequest)
            and isinstance(last, ModelRequest)
            and last is not newest
        ):
            found[-1] = replace(last, instructions=newest.instructions)
        return found


def _logged(pieces: Iterable[Piece]) -> list[HistoryMessage]:
    return [
        HistoryMessage(
            piece.key, piece.dumped, piece.lasts(), isinstance(piece.part, ToolReturnPart)
        )
        for piece in pieces
    ]


def _standing(history: Sequence[ModelMessage]) -> list[SystemPromptPart]:
    found = []
    for part in history[0].parts if history else ():
        if not isinstance(part, SystemPromptPart):
            break
        found.append(part)
    return found


def _split(message: ModelMessage, standing: Sequence[SystemPromptPart]) -> Iterator[Piece]:
    """Yield the pieces of a message without the standing prompts."""
    if isinstance(message, ModelResponse) or not message.parts:
        yield Piece(message)
        return
    configured = set(map(id, standing))
    parts = [part for part in message.parts if id(part) not in configured]
    for part in parts:
        yield Piece(message, part, part is parts[0])


def _named(pieces: Sequence[Piece], taken: Collection[str]) -> list[Piece]:
    """Return the pieces with their keys, and with what is logged of them."""
    dumped = ModelMessagesTypeAdapter.dump_python(
        [piece.alone() for piece in pieces], mode="json", fallback=repr, warnings=False
    )
    named: dict[str, Piece] = {}
    for piece, message in zip(pieces, dumped, strict=True):
        parts = [_without_nulls(part) for part in message["parts"]]
        # Other fields are set while a run goes on, and lost when requests are merged.
        lasting = [{**part, "metadata": None} for part in parts]
        when = message["timestamp"] if piece.part is None else None
        digest = digest_of(json.dumps([lasting, when]), 15)
        key, copies = _PREFIX + digest, 1
        while key in taken or key in named:
            copies += 1
            key = f"{_PREFIX}{digest}-{copies}"
        # The format joins further parts to the first, which has the request's other fields.
        other = _without_nulls(message) if piece.first else {"kind": "request"}
        message = {**other, "parts": parts}
        named[key] = replace(piece, key=key, dumped=message)
    return list(named.values())


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message or part without fields that have their default, None."""
    return {key: item for key, item in value.items() if item is not None or key == "content"}


def _whole(pieces: Sequence[Piece], standing: Sequence[SystemPromptPart]) -> ModelMessage:
    """Return pieces that are one message of a context: the history's own if it has just these parts."""
    message = pieces[0].message
    if isinstance(message, ModelResponse):
        return message
    parts = [*standing, *(piece.part for piece in pieces if piece.part is not None)]
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else replace(message, parts=parts)
