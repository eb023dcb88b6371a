"""Search in the full-text index: the statements, and the candidates from their rows.

Terms are parameters, and only their letters and digits are read as text; PostgreSQL's syntax of queries is
never used. Row-level security admits no index for `@@` and `LIKE`, so that a tenant's search reads the rows
of its scope. Therefore one statement searches all words, and one all parts of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import combinations
from operator import mul
from typing import Final

import msgspec

from memman.display import warn_once
from memman.protocols import Candidate, Candidates, SearchRequest
from memman.records import Added
from memman.search import searchable
from memman.search.ranking import rarity
from memman.search.scan import (
    AS_BEGINNING,
    AS_NAMESAKE,
    AS_PART,
    AS_WORD,
    MOST_COUNTED,
    beginning_of,
    is_in,
    joined,
    scan,
    with_namesakes,
)
from memman.search.terms import chosen_terms
from memman.stores.rows import decoded
from memman_postgres.erasure import marked
from memman_postgres.index import ALL, WORD, IndexDamaged, ask, plain_of, words_of
from memman_postgres.transactions import Step

_MOST_ROWS: Final = 2_000  # of a statement; terms that fill it are searched in pairs, too
_MOST_PARTS: Final = 500  # rows with parts of words
_FREQUENT: Final = 4  # a term is frequent if every fourth row has it
_FEW: Final = 50  # entries with a term as a word; parts of words are searched if there are no more
_LEAST_PART: Final = 3  # characters: the index finds no shorter ones

Place = tuple[int, int]
"""The number of a session and a seq."""

_QUERY = "plainto_tsquery('memman_english', %s)"
_ONE = "SELECT number FROM memman_session WHERE id = %s"
_MANY = "SELECT number FROM memman_session WHERE starts_with(id, %s)"
# Of all sessions, one row is looked for.
_ENTRIES = """
SELECT count(*), greatest(sum(entries), 0)::bigint, to_regclass('memman_word_parts') IS NOT NULL,
    (SELECT count(words) FROM (SELECT words FROM memman_word WHERE {} true {}) AS its)
FROM memman_indexed WHERE session = ANY(%s)
"""
# With a plain join the planner may read every record.
_FOUND = """
SELECT (SELECT id FROM memman_session WHERE number = place.session), session, seq,
    (SELECT payload FROM memman_record AS its WHERE its.session = place.session AND its.seq = place.seq)
FROM unnest(%s::bigint[], %s::bigint[]) AS place (session, seq)
"""
_BEHIND = """
SELECT its.id, record.seq, record.payload FROM memman_session AS its {}
JOIN memman_record AS record ON record.session = its.number AND record.seq > {} WHERE {}
"""
_OF_INDEX = (
    "LEFT JOIN memman_indexed AS known ON known.session = its.number",
    "coalesce(known.upto, 0)",
)
_NO_PARTS = (
    "a search in PostgreSQL finds whole words only: pg_trgm or btree_gin is missing. Let the owner of the "
    "database run CREATE EXTENSION pg_trgm, CREATE EXTENSION btree_gin and the script that "
    "`python -m memman_postgres` prints"
)


class _Scope(msgspec.Struct, frozen=True):
    """The rows of `memman_word` in scope: a condition and its values; about how many entries they are.

    `has_parts` is whether parts of words have an index, and `is_known` whether all sessions are in it.
    """

    condition: str
    values: tuple[object, ...]
    entries: int
    has_parts: bool
    is_known: bool


class _Term(msgspec.Struct, frozen=True):
    """A term as the index has it: its words, and those of them that may be searched as parts.

    `pattern` finds several words next to each other, which the index cannot; None for one word.
    """

    text: str
    words: str
    parts: tuple[str, ...]
    pattern: re.Pattern[str] | None

    def weight_in(self, text: str, weight: float) -> float:
        """Return the weight of the term in a text in which the index found its words with a weight."""
        if weight == AS_BEGINNING and not is_in(text, plain_of(self.text), AS_BEGINNING):
            return 0.0
        if self.pattern is None or not weight:
            return weight
        whole = [not any(found.groups()) for found in self.pattern.finditer(text)]
        return AS_WORD if any(whole) else AS_PART if whole else 0.0


def search(request: SearchRequest, is_current: bool = True) -> Step[Candidates]:
    """Return the entries of the index that contain some of the terms.

    If the index is not current, records that it lacks are read, too.
    """
    scope = yield from _scope_of(request)
    terms = [_term(text) for text in request.terms]
    if len(chosen_terms(request.terms, lambda _: 1)) < len(terms):
        terms = yield from _chosen(scope, terms)
    matches = _Matches(terms, request.limit)
    yield from _find_words(scope, terms, matches)
    rare = [n for n, term in enumerate(terms) if term.parts and matches.counts[n] <= _FEW]
    if rare and scope.has_parts:
        yield from _find_parts(scope, terms, rare, matches, AS_PART)
        absent = [n for n in rare if not matches.counts[n] and beginning_of(terms[n].text)]
        yield from _find_parts(scope, terms, absent, matches, AS_BEGINNING)
    elif rare:
        warn_once("memman", _NO_PARTS)
    best = matches.best(scope.entries)
    found = with_namesakes(request.terms, (yield from _candidates(terms, best)))
    columns = zip(*(each.weights for each in found), strict=True) if found else [()] * len(terms)
    counts = tuple(
        column.count(AS_WORD) if AS_NAMESAKE in column else count
        for column, count in zip(columns, matches.counts, strict=True)
    )
    answer = Candidates(scope.entries, counts, found, more=len(best) == request.limit)
    if is_current and scope.is_known:
        return answer
    return joined(request, answer, (yield from scanned(request, behind_index=True)))


def scanned(request: SearchRequest, *, behind_index: bool) -> Step[Candidates]:
    """Return the candidates among the records that the index lacks, or among all without using it."""
    where, value = "its.id = %s", request.session_id
    if value is None:
        where, value = "starts_with(its.id, %s)", request.prefix
    if behind_index:
        rows = yield from ask(_BEHIND.format(*_OF_INDEX, where), (value,))
    else:
        rows = yield _BEHIND.format("", "0", where), (value,)
    return scan(request, ((name, *decoded(seq, payload)) for name, seq, payload in rows))


def _chosen(scope: _Scope, terms: Sequence[_Term]) -> Step[list[_Term]]:
    """Return the terms with nothing to look for in those that are not chosen."""
    known = [term for term in terms if term.words]
    some = f"(SELECT count(*) FROM (SELECT 1 FROM memman_word WHERE {scope.condition}"  # noqa: S608 - our own words
    some += f" words @@ {_QUERY} LIMIT {MOST_COUNTED}) AS hit)"
    values = [value for term in known for value in (*scope.values, term.words)]
    [counts] = yield from ask(f"SELECT {', '.join([some] * len(known))}", values)
    by_text = dict(zip((term.text for term in known), counts, strict=True))
    chosen = chosen_terms([term.text for term in terms], lambda text: by_text.get(text, 0))
    nothing = {"words": "", "parts": (), "pattern": None}
    return [
        term if number in chosen else msgspec.structs.replace(term, **nothing)
        for number, term in enumerate(terms)
    ]


class _Matches:
    """The rows that contain terms, with the weight of each term, and the number of rows of each term."""

    def __init__(self, terms: Sequence[_Term], limit: int) -> None:
        self._none = (0.0,) * len(terms)
        self.limit = limit
        self._weights: dict[Place, tuple[float, ...]] = {}
        self.counts = [0] * len(terms)

    def add(self, places: Iterable[Place], weights: Sequence[float]) -> None:
        """Note rows with the same weights."""
        for place in places:
            before = self._weights.get(place, self._none)
            self._weights[place] = tuple(map(max, before, weights))

    def best(self, entries: int) -> list[tuple[Place, tuple[float, ...]]]:
        """Return the rows with many and rare terms, at most the limit; of equal ones the newer."""
        rarities = [rarity(max(entries, count), count) for count in self.counts]
        return nlargest(
            self.limit,
            self._weights.items(),
            key=lambda row: (sum(map(mul, row[1], rarities)), row[0][1]),
        )


def _scope_of(request: SearchRequest) -> Step[_Scope]:
    numbers, condition, most = [ALL], "", "LIMIT 1"
    values: tuple[object, ...] = ()
    if request.session_id is not None:
        numbers = [number for (number,) in (yield _ONE, (request.session_id,))]
        condition, values, most = "session = %s::bigint AND ", ([*numbers, ALL][0],), ""
    elif request.prefix:
        numbers = [number for (number,) in (yield _MANY, (request.prefix,))]
        condition, values, most = "session = ANY(%s::bigint[]) AND ", (numbers,), ""
    statement = _ENTRIES.format(condition, most)
    [(known, entries, has_parts, rows)] = yield from ask(statement, (*values, numbers))
    if rows != entries and not (most and rows >= (entries > 0)):
        raise IndexDamaged(f"the search index is damaged: it has {rows} of {entries} entries")
    if request.until is not None:
        condition, values, entries = (
            f"{condition}seq <= %s AND ",
            (*values, request.until),
            request.until,
        )
    return _Scope(condition, values, entries, has_parts, known == len(numbers))


def _term(text: str) -> _Term:
    parts = WORD.findall(plain_of(text))
    pattern = None
    if len(parts) > 1:
        words = r"[\W_]+".join(map(_beginning, parts))
        pattern = re.compile(rf"([^\W_])?{words}([^\W_])?")
    long = tuple(dict.fromkeys(part for part in parts if len(part) >= _LEAST_PART))
    return _Term(text, " ".join(words_of(text)), long, pattern)


def _beginning(word: str) -> str:
    """Return a pattern of a word with any English ending."""
    if len(word) > _LEAST_PART and word.isascii() and word.isalpha():
        return word[:-1] + r"[^\W_]{0,4}"
    return re.escape(word)


def _find_words(scope: _Scope, terms: Sequence[_Term], matches: _Matches) -> Step[None]:
    """Find rows that have the words of a term."""
    numbers = [number for number, term in enumerate(terms) if term.words]
    rows = yield from _match_words(scope, terms, [[number] for number in numbers], matches)
    if rows < _MOST_ROWS:
        return
    # Rows of rare terms, and those of several frequent ones, may be among the missing ones.
    frequent = [n for n in numbers if matches.counts[n] * _FREQUENT >= rows]
    rare = [[n] for n in numbers if n not in frequent]
    yield from _match_words(scope, terms, [*rare, *map(list, combinations(frequent, 2))], matches)


def _match_words(
    scope: _Scope, terms: Sequence[_Term], groups: Sequence[Sequence[int]], matches: _Matches
) -> Step[int]:
    """Find rows that have the words of all terms of a group, and return how many."""
    if not groups:
        return 0
    flags, flag_values = _flags(terms)
    wanted = " || ".join(f"({' && '.join([_QUERY] * len(group))})" for group in groups)
    found = yield from ask(
        f"WITH hit AS (SELECT session, seq, {flags} AS whole FROM memman_word"  # noqa: S608 - our own words
        f" WHERE {scope.condition} words @@ ({wanted}) LIMIT {_MOST_ROWS})"
        " SELECT whole, count(*), (array_agg(session ORDER BY seq DESC, session))[1:%s],"
        " (array_agg(seq ORDER BY seq DESC, session))[1:%s] FROM hit GROUP BY whole",
        (
            *flag_values, *scope.values, *(terms[n].words for group in groups for n in group),
            matches.limit, matches.limit,
        ),
    )  # fmt: skip
    counts = [0] * len(terms)
    for whole, count, sessions, seqs in found:
        matches.add(zip(sessions, seqs, strict=True), [AS_WORD * has for has in whole])
        counts = [before + count * has for before, has in zip(counts, whole, strict=True)]
    matches.counts = list(map(max, matches.counts, counts))
    return sum(count for _, count, _, _ in found)


def _find_parts(
    scope: _Scope,
    terms: Sequence[_Term],
    numbers: Sequence[int],
    matches: _Matches,
    weight: float,
) -> Step[None]:
    """Find rows in which every word of a term is a part of a word, or the beginning of the term is."""
    if not numbers:
        return
    parts_of = [
        (beginning_of(plain_of(terms[number].text)),)
        if weight == AS_BEGINNING
        else terms[number].parts
        for number in numbers
    ]
    conditions = [f"({' AND '.join(['words::text LIKE %s'] * len(each))})" for each in parts_of]
    patterns = [f"%{part}%" for each in parts_of for part in each]
    flags, flag_values = _flags(terms)
    found = yield from ask(
        f"SELECT session, seq, {flags}, ARRAY[{', '.join(conditions)}] FROM memman_word"  # noqa: S608 - our own words
        f" WHERE {scope.condition} ({' OR '.join(conditions)}) LIMIT {_MOST_PARTS}",
        (*flag_values, *patterns, *scope.values, *patterns),
    )
    for session, seq, whole, parts in found:
        weights = [AS_WORD * has for has in whole]
        for number, has in zip(numbers, parts, strict=True):
            if has and not weights[number]:
                weights[number] = weight
                matches.counts[number] += 1
        matches.add([(session, seq)], weights)


def _flags(terms: Sequence[_Term]) -> tuple[str, list[str]]:
    """Return an expression for an array of which terms a row has as words, and its values."""
    return f"ARRAY[{', '.join([f'words @@ {_QUERY}'] * len(terms))}]", [
        term.words for term in terms
    ]


def _candidates(
    terms: Sequence[_Term], best: Sequence[tuple[Place, tuple[float, ...]]]
) -> Step[list[Candidate]]:
    """Read the entries of rows, without those that only have the words of a phrase at different places."""
    sessions, seqs = [place[0] for place, _ in best], [place[1] for place, _ in best]
    found = yield _FOUND, (sessions, seqs)
    records = {
        (number, seq): (name, record)
        for name, number, seq, payload in found
        if payload is not None and isinstance(record := decoded(seq, payload)[1], Added)
    }
    checked = any(term.pattern for term in terms) or any(AS_BEGINNING in row for _, row in best)
    candidates: list[Candidate] = []
    for place, weights in best:
        if place not in records:
            if place[0] in (yield from marked()):
                continue  # a deletion could not remove its words
            raise IndexDamaged("the search index is damaged: it has words of no entry")
        name, record = records[place]
        real = weights
        if checked:
            text = plain_of(searchable(record.entry))
            pairs = zip(terms, weights, strict=True)
            real = tuple(term.weight_in(text, weight) for term, weight in pairs)
        if any(real):
            candidates.append(Candidate(name, place[1], record, real))
    return candidates
