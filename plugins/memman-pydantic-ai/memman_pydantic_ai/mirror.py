"""The history of a conversation in pydantic-ai as a session of memman, and contexts as its messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import takewhile
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

from memman import AsyncMethods, Context, EntryNotFound, SessionNotFound
from memman_pydantic_ai.messages import NAME

_PREFIX: Final = "pai-"  # of the ids that are made here
_REASON: Final = "no longer in pydantic-ai's history"
# Parts that change the meaning of later requests: without them a tool or an instruction is hidden.
_LASTING: Final = ("-delta", "-baseline")


@dataclass(eq=False)
class Piece:
    """One message of the log: a response, a request without parts, or one part of a request.

    `key` is the id of its first entry, `dumped` the message that is logged, and `values` are those that an
    application could replace in place.
    """

    message: ModelMessage
    part: ModelRequestPart | None = None
    first: bool = True
    key: str = ""
    dumped: Any = None
    values: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = self.message.parts if self.part is None else [self.part]
        self.values = [getattr(part, name, None) for part in parts for name in ("content", "args")]

    def alone(self) -> ModelMessage:
        """Return the piece as a message; the first part of a request has the request's other fields."""
        if self.part is None or isinstance(self.message, ModelResponse):
            return self.message
        return replace(self.message if self.first else ModelRequest(parts=[]), parts=[self.part])

    def is_known_as(self, known: Piece) -> bool:
        """Return whether a known piece is this one, without an edit since."""
        native, same = self.part or self.message, known.part or known.message
        values = known.values
        return (
            native is same
            and len(self.values) == len(values)
            and all(map(is_, self.values, values))
        )

    def lasts(self) -> bool:
        """Return whether no compression may replace it."""
        kind = getattr(self.part, "tool_kind", None)
        return bool(kind) or (self.part is not None and self.part.part_kind.endswith(_LASTING))


class Mirror:
    """A session with the history of pydantic-ai: what is new is added, what is gone is retracted.

    The id of a piece is a digest of its content. A history that was stored and loaded, or whose adjacent
    requests pydantic-ai merged, adds only what is new.
    """

    def __init__(self, memory: AsyncMethods, session_id: str) -> None:
        self._memory = memory
        self._session_id = session_id
        self._pieces: list[Piece] = []
        self._is_read = False  # whether the pieces were compared with the log
        self._standing: list[SystemPromptPart] = []
        self._tokens = 0  # of the last context
        self.budget: int | None = None

    @property
    def standing(self) -> list[str]:
        """The system prompts at the start of the history: configuration, which is not logged."""
        return [part.content for part in self._standing]

    def shorten(self, factor: float) -> None:
        """Set the budget to a part of the last context, which was too long for the model."""
        self.budget = int(self._tokens * factor)

    async def sync(self, history: Sequence[ModelMessage]) -> None:
        """Make the log equal to a history."""
        self._standing = _standing(history)
        pieces = list(_pieces(history, len(self._standing)))
        known = self._pieces
        pairs = zip(pieces, known, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].is_known_as(pair[1]), pairs))
        for piece, before in zip(pieces[:same], known, strict=False):
            piece.key = before.key
        _name(pieces, same)
        continued = [piece.key for piece in pieces[: len(known)]] == [piece.key for piece in known]
        if self._is_read and continued:
            await self._add(pieces[len(known) :])
        else:
            _name(pieces, 0)
            await self._reconcile(pieces)
        for piece in pieces:
            piece.dumped = None
        self._pieces, self._is_read = pieces, True

    async def resync(self, history: Sequence[ModelMessage]) -> None:
        """Make the log equal to a history after another process changed the log."""
        self._is_read = False
        await self.sync(history)

    def lacks(self, context: Context) -> bool:
        """Return whether a context has pieces that the history has not."""
        keys = {piece.key for piece in self._pieces}
        ids = (entry.id for entry in context.entries)
        return any(id_.startswith(_PREFIX) and _key(id_) not in keys for id_ in ids)

    def messages_of(self, context: Context, history: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return a context as messages: the history's own objects wherever they are unaltered."""
        self._tokens = int(context.tokens)
        pieces = {piece.key: piece for piece in self._pieces}
        found: list[ModelMessage] = []
        for message, source in zip(context.messages, context.sources, strict=True):
            own = [pieces.get(key) for key in dict.fromkeys(map(_key, source.entries))]
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

    # ------------------------------------------------------------ the log

    async def _reconcile(self, pieces: Sequence[Piece]) -> None:
        """Make the stored log equal to the pieces."""
        stored = await self._stored()
        order = list(stored)
        matched, missing, late = 0, list[Piece](), list[Piece]()
        for piece in pieces:
            if matched < len(order) and order[matched] == piece.key:
                late, matched = list(missing), matched + 1
            else:
                missing.append(piece)
        await self._retract(stored, order[matched:])
        # What was retracted by hand stays so, and what was deleted is not added.
        hidden = [piece for piece in late if await self._is_retracted(piece)]
        added = await self._add([piece for piece in missing if piece not in hidden])
        inserted = [
            number
            for number, piece in enumerate(pieces)
            if piece in late and piece.key in added and not isinstance(piece.part, ToolReturnPart)
        ]  # without late results, which find their calls
        if inserted:
            behind = pieces[inserted[0] :]
            await self._retract(await self._stored(), [piece.key for piece in behind])
            await self._add(behind)

    async def _stored(self) -> dict[str, list[str]]:
        """Return the ids of the entries of each piece in the log, in order."""
        found: dict[str, list[str]] = {}
        try:
            entries = await self._memory.get_entries(self._session_id)
        except SessionNotFound:
            return found
        for entry in entries:
            if entry.id.startswith(_PREFIX):
                found.setdefault(_key(entry.id), []).append(entry.id)
        return found

    async def _retract(self, stored: dict[str, list[str]], keys: Iterable[str]) -> None:
        ids = [id_ for key in keys for id_ in stored.get(key, ())]
        if ids:
            await self._memory.retract(self._session_id, ids, reason=_REASON)

    async def _is_retracted(self, piece: Piece) -> bool:
        try:
            await self._memory.get_entry(self._session_id, piece.key)
        except EntryNotFound:
            return False
        return True

    async def _add(self, pieces: Sequence[Piece]) -> set[str]:
        """Add pieces, and return the keys of those that are in the log now."""
        if not pieces:
            return set()
        by_key = {piece.key: piece for piece in pieces}
        entries = await self._memory.add_messages(
            self._session_id,
            [piece.dumped for piece in pieces],
            NAME,
            ids=list(by_key),
            unknown="keep",
        )
        for entry in entries:
            if by_key[_key(entry.id)].lasts():
                await self._memory.pin(self._session_id, entry.id)
        return {_key(entry.id) for entry in entries}


def _key(entry_id: str) -> str:
    """Return the key of the piece that an entry belongs to."""
    return entry_id.partition(":")[0]


def _standing(history: Sequence[ModelMessage]) -> list[SystemPromptPart]:
    found = []
    for part in history[0].parts if history else ():
        if not isinstance(part, SystemPromptPart):
            break
        found.append(part)
    return found


def _pieces(history: Sequence[ModelMessage], standing: int) -> Iterator[Piece]:
    """Yield the pieces of a history that begins with `standing` system prompts."""
    for message in history:
        if isinstance(message, ModelResponse) or not message.parts:
            yield Piece(message)
            continue
        for number, part in enumerate(message.parts[standing:]):
            yield Piece(message, part, number == 0)
        standing = 0


def _name(pieces: Sequence[Piece], first: int) -> None:
    """Set the keys of the pieces from `first` on, and what is logged of them."""
    taken = {piece.key for piece in pieces[:first]}
    named = pieces[first:]
    dumped = ModelMessagesTypeAdapter.dump_python(
        [piece.alone() for piece in named], mode="json", fallback=repr, warnings=False
    )
    for piece, message in zip(named, dumped, strict=True):
        parts = [_without_nulls(part) for part in message["parts"]]
        piece.dumped = {**_without_nulls(message), "parts": parts}
        # Other fields are set while a run goes on, and lost when requests are merged.
        lasting = [{**part, "metadata": None} for part in parts]
        when = message["timestamp"] if piece.part is None else None
        digest = blake2b(json.dumps([lasting, when]).encode(), digest_size=15).hexdigest()
        piece.key, copies = _PREFIX + digest, 1
        while piece.key in taken:
            copies += 1
            piece.key = f"{_PREFIX}{digest}-{copies}"
        taken.add(piece.key)


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
