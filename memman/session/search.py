"""Search in one session or in many: candidates of the store, ranked, filtered, with their states."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from memman.entries import Entry, EntryType
from memman.errors import SessionNotFound
from memman.protocols import Candidate, Candidates, SearchRequest
from memman.records import Added
from memman.results import EntryState, Hit
from memman.search import searchable
from memman.search.evidence import answers
from memman.search.ranking import ranked
from memman.search.snippets import snippet_of
from memman.session.cache import SessionCache
from memman.session.shared import Shared

_CANDIDATES, _TO_FILL, _MORE, _MOST = 100, 400, 4, 20_000
"""Candidates at first, and at first to fill a budget; how many times more if they are too few; at most."""
_NEAR = 4  # records behind a hit, of which the first that is an entry is its neighbour


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The validated arguments of a search.

    The scope is one session, or with `session_id=None` those whose ids begin with `prefix`. Without types,
    tools or times, all are accepted.
    """

    query: str
    terms: tuple[str, ...]
    session_id: str | None
    prefix: str
    limit: int | None
    budget: int | None
    types: frozenset[EntryType]
    tools: frozenset[str]
    states: frozenset[EntryState]
    since: datetime | None
    until: datetime | None

    def accepts(self, entry: Entry) -> bool:
        """Return whether an entry has one of the types, tools and times."""
        at = entry.timestamp
        return (
            (not self.types or entry.type in self.types)
            and (not self.tools or (entry.name in self.tools and entry.type in _OF_TOOLS))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


_OF_TOOLS = ("tool_call", "tool_result")


class Searcher:
    """Runs one search over the sessions of a manager."""

    def __init__(self, wanted: Search, shared: Shared, sessions: SessionCache) -> None:
        self._wanted = wanted
        self._store, self._meaning = shared.store, shared.meaning
        self._sessions = sessions
        self._hits: list[Hit] = []
        self._seen: set[tuple[str, int]] = set()
        self._room = wanted.budget

    async def hits(self) -> list[Hit]:
        """Return the hits, best first, each followed by its neighbour if that fits the budget."""
        async for candidate, score in self._candidates():
            if self._is_full():
                break
            if await self._take(candidate, score):
                await self._take_neighbour(candidate, score)
        if self._meaning is not None and self._wanted.session_id is not None:
            self._meaning.prepare(self._wanted.session_id)
        return self._hits

    def _is_full(self) -> bool:
        return self._wanted.limit is not None and len(self._hits) >= self._wanted.limit

    async def _candidates(self) -> AsyncIterator[tuple[Candidate, float]]:
        """Yield the accepted candidates, best first: by meaning if no word hit is good, else by words.

        Searches the store again if these are too few.
        """
        wanted = self._wanted
        asked = first = _CANDIDATES if wanted.budget is None else _TO_FILL
        is_near = False
        while True:
            request = SearchRequest(
                terms=wanted.terms, session_id=wanted.session_id, prefix=wanted.prefix, limit=asked
            )
            found = await self._store.search(request)
            if asked == first:
                async for candidate, similarity in self._by_meaning(found):
                    is_near = True
                    yield candidate, similarity
            if is_near:
                return
            for each in ranked(found, wanted.terms):
                candidate = each.candidate
                if wanted.accepts(candidate.record.entry):
                    yield candidate, each.score
            if not found.more or asked >= _MOST:
                return
            asked *= _MORE

    async def _by_meaning(self, found: Candidates) -> AsyncIterator[tuple[Candidate, float]]:
        """Yield the accepted candidates by meaning, unless a word hit is good, or the query is a word."""
        meaning, wanted = self._meaning, self._wanted
        if meaning is None or wanted.session_id is None or answers(wanted.query, found):
            return
        if not found.found or len(wanted.terms) > 1:
            async for candidate, similarity in meaning.nearest(wanted.session_id, wanted.query):
                if wanted.accepts(candidate.record.entry):
                    yield candidate, similarity

    async def _take(self, found: Candidate, score: float, neighbour: bool = False) -> bool:
        """Add an entry to the hits, unless it is there, does not fit, or is in an unwanted state."""
        session_id, entry = found.session_id, found.record.placed(found.seq)
        tokens, key = entry.token_count.tokens, (session_id, found.seq)
        if key in self._seen or (self._room is not None and tokens > self._room):
            return False
        try:
            place = await (await self._sessions.existing(session_id)).place(entry)
        except SessionNotFound:  # it has been deleted since
            return False
        if place.state not in self._wanted.states:
            return False
        self._seen.add(key)
        if self._room is not None:
            self._room -= tokens
        self._hits.append(
            Hit(
                session_id=session_id,
                entry=place.of(entry),
                score=round(score, 4),
                snippet=snippet_of(searchable(entry), self._wanted.terms),
                state=place.state,
                shown_by=None if place.shown_by is None else place.shown_by.address,
                neighbour=neighbour,
            )
        )
        return True

    async def _take_neighbour(self, found: Candidate, score: float) -> None:
        if not self._room or self._is_full():
            return
        for seq, record in await self._store.read(found.session_id, found.seq, _NEAR):
            if isinstance(record, Added):
                if self._wanted.accepts(record.entry):
                    behind = Candidate(found.session_id, seq, record, ())
                    await self._take(behind, score, neighbour=True)
                return
