"""Search by meaning: vectors of the caller's `embed`, made in the background and compared with a query's.

They are made after a search or a context of a session, of its messages alone, in the order of the log. So
the newest vector shows how far they go.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Final

from memman.display import format_error
from memman.errors import InvalidInput
from memman.protocols import Candidate, Embed
from memman.records import Added, Record
from memman.runtime.base import Runtime, is_async_callable
from memman.runtime.forks import renew_in_child
from memman.search.vectors import nearest, packed
from memman.session.store import FullStore

logger: Final = logging.getLogger("memman")
_AT_ONCE: Final = 32  # records that are read, and texts that are embedded
_CHARS: Final = 1_000  # of a text, its beginning
_MOST: Final = 100_000  # vectors that a search compares, the newest
_LAST: Final = 0xFFFFFFFF  # no seq is greater


class Meaning:
    """The vectors of one manager's entries."""

    def __init__(self, embed: Embed, store: FullStore, runtime: Runtime) -> None:
        self._embed = embed
        self._store = store
        self._runtime = runtime
        self._size = 0  # of a vector, once one was made
        self._has_failed = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without work: a forked child has no thread for it."""
        self._lock = self._runtime.lock()  # held by the running work
        self._waiting: set[str] = set()  # sessions whose work has not begun

    @property
    def _name(self) -> str:
        """What identifies the vectors of this embed."""
        name = getattr(self._embed, "__qualname__", type(self._embed).__qualname__)
        return f"{name} {self._size}"

    async def nearest(
        self, session_id: str, text: str, until: int | None = None
    ) -> AsyncIterator[tuple[Candidate, float]]:
        """Yield the entries up to a seq with their nearness to a text, nearest first."""
        query = await self._embedded([text])
        if not query:
            return
        last = _LAST if until is None else until
        found = await self._store.vectors(session_id, self._name, last, _MOST)
        for seq, similarity in nearest(query[0], found):
            for _, record in await self._store.read(session_id, seq - 1, 1):
                if isinstance(record, Added) and record.entry.text:  # else it was deleted
                    yield Candidate(session_id, seq, record, ()), similarity

    async def _embedded(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts; none if `embed` fails, which is logged once."""
        call = partial(self._embed, texts)
        try:
            answer = await self._runtime.call_summarizer(call, None, is_async_callable(self._embed))
            vectors = [packed(vector) for vector in answer]
            self._size = _size_of(vectors, len(texts), self._size)
        except Exception as error:  # noqa: BLE001 - of the caller's function
            self._report(error)
            return []
        return vectors

    def _report(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning("entries are not found by meaning: %s", format_error(error))

    # ------------------------------------------------------------ in the background

    def prepare(self, session_id: str) -> None:
        """Begin to make the missing vectors of a session."""
        if session_id not in self._waiting:
            self._waiting.add(session_id)
            if not self._runtime.start_background(partial(self._work, session_id)):
                self._waiting.discard(session_id)

    async def _work(self, session_id: str) -> None:
        async with self._lock:
            self._waiting.discard(session_id)
            try:
                # The first vector shows the length, which is a part of the name.
                if self._size or await self._embedded(["memman"]):
                    await self._complete(session_id)
            except Exception as error:  # noqa: BLE001 - of the store: the next search tries again
                self._report(error)

    async def _complete(self, session_id: str) -> None:
        """Make the missing vectors of a session."""
        store, name = self._store, self._name
        after: int | None = None  # a deletion may have dropped vectors: look where they end
        while (state := await store.state(session_id)) and not self._runtime.closing:
            if after is None:
                newest = await store.vectors(session_id, name, _LAST, 1)
                after = newest[0][0] if newest else 0
            if not (page := await store.read(session_id, after, _AT_ONCE)):
                return
            if texts := dict(_texts_of(page)):
                keep = partial(store.keep_vectors, session_id, name, state[1])
                if not await keep(()):  # which shows whether vectors can be kept, before they cost
                    after = None
                    continue
                if not (vectors := await self._embedded(list(texts.values()))):
                    return
                if not await keep(list(zip(texts, vectors, strict=True))):
                    after = None
                    continue
            after = page[-1][0]


def _texts_of(page: Sequence[tuple[int, Record]]) -> Iterator[tuple[int, str]]:
    """Yield the beginnings of the texts of messages, with their seqs."""
    for seq, record in page:
        if not isinstance(record, Added) or record.entry.type != "message":
            continue
        if text := record.entry.text[:_CHARS].strip():
            yield seq, text


def _size_of(vectors: Sequence[bytes], texts: int, known: int) -> int:
    """Return the length of the vectors of so many texts; `known` is that of others, or 0.

    Raises `InvalidInput` if there are more or fewer, or not all have one length.
    """
    sizes = {len(vector) for vector in vectors} | ({known} if known else set())
    if len(vectors) != texts or len(sizes) != 1:
        raise InvalidInput(
            f"embed must return a vector for each of {texts} texts, all of one length; it returned "
            f"{len(vectors)}, and the lengths so far are {sorted(sizes)}"
        )
    return sizes.pop()
