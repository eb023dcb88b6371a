"""The digest: what a run of entries said, without asking a model.

Two parts share the room. The ledger has exact values (paths, identifiers, numbers, dates, addresses), each
with the entry that it last stood in, because exact values are what the next steps need and what summaries
lose. The extract has the lines that together cover most of what was said: a line is worth the weight of its
words that no chosen line has yet, over the square root of its length, and the best goes in first until the
room is full (greedy maximum coverage under a budget, after Lin and Bilmes, "A Class of Submodular Functions
for Document Summarization", 2011). What is seen at a glance stands before both.

Deterministic, and no language is preferred. An earlier digest among the entries is read back, so that its
values keep the entries they came from. What is kept is measured by `python -m benchmarks.facts`.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import log, log1p
from typing import Final

import msgspec

from memman.compression.words import exact_values, words_of
from memman.entries import Entry

_HEAD: Final = "[Previous conversation summary]"
LEDGER_HEAD: Final = "Exact values by entry: "
# The shares of a digest's room were chosen on recorded conversations (benchmarks/facts.py): values are
# short and many are needed again; where there are few, all the rest is the extract's.
_LEDGER_SHARE: Final = 0.9
_LENGTH_POWER: Final = 0.5  # 1 would take only short lines, 0 only long ones
_SEEN_MOST: Final = 4  # in how many entries a value stood counts up to this; then how lately
_WITH_DIGITS: Final = 2  # more than that is worth what has digits: it is told by nothing else
_DIGIT: Final = re.compile(r"\d")
_LINE_CHARS: Final = 200  # a longer one is cut, where it can be, between clauses
_SHORTEST_CUT: Final = 80
_LEAST_ROOM: Final = 16
_LEAST_HEADED: Final = 600  # characters: with less room every one is for values and lines
_QUOTE_SHARE: Final = 0.05  # of the room, for the first and for the last user message each
_QUOTE_CHARS: Final = 160
_ROUNDS: Final = 8
_FULL: Final = 0.985  # of the tokens: near enough

_FIRST: Final = re.compile(r'^First: "(.*?)(?:\.\.\.)?"$', re.MULTILINE)
_AT_A_GLANCE: Final = re.compile(
    r"^(?:\[Previous conversation summary\]|\d+ user messages|(?:First|Last): \".*\"|Tools used: .*"
    r"|\d+ errors encountered)$",
    re.MULTILINE,
)
_KEPT: Final = re.compile(r"#(\d+): ([^;]*)")
_SENTENCE: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+|(?<=[\u3002\uff01\uff1f])")

CountText = Callable[[str], int]


class _Value(msgspec.Struct, gc=False):
    """An exact value: in how many entries it stood, and the last of them."""

    seen: int
    order: int
    seq: int


class _Line(msgspec.Struct, gc=False):
    """A candidate of the extract, and the words that it would cover."""

    text: str
    words: frozenset[str]


def digest(entries: Sequence[Entry], tokens: int, count: CountText) -> str:
    """At most `tokens` tokens, as `count` sees them, of what the entries said; "" where nothing fits."""
    lines, ranked = _lines_of(entries), _ranked(_values_of(entries))
    return _within(tokens, count, lambda room: _composed(entries, lines, ranked, room))


def ledger(entries: Sequence[Entry], tokens: int, count: CountText) -> str:
    """The exact values alone, at most `tokens` tokens of them; "" where there are none."""
    ranked = _ranked(_values_of(entries))
    return _within(tokens, count, lambda room: _ledger_line(ranked, room))


def _within(tokens: int, count: CountText, composed: Callable[[int], str]) -> str:
    """The longest text found that `composed` makes of some room in characters and that has at most
    `tokens` tokens.
    """
    fits, over = 0, 0  # rooms, 0 where none is known
    room, best = tokens * 4, ""
    for _ in range(_ROUNDS):
        text = composed(room)
        cost = count(text)
        if cost <= tokens:
            fits = room
            best = max(best, text, key=len)
            if cost >= _FULL * tokens or len(text) < room // 2:
                break
        else:
            over = room
        guess = int(room * tokens * 0.99 / max(cost, 1))
        room = guess if fits < guess and (not over or guess < over) else (fits + over) // 2
        if room <= fits:
            break
    return best


def _composed(
    entries: Sequence[Entry], lines: Sequence[_Line], ranked: Sequence[tuple[str, int]], room: int
) -> str:
    kept = _ledger_line(ranked, int(room * _LEDGER_SHARE))
    head = ""
    if room >= _LEAST_HEADED:
        head = heuristic_summary(entries, min(_QUOTE_CHARS, int(room * _QUOTE_SHARE)))
    left = room - sum([len(part) + 1 for part in (head, kept) if part])
    chosen = _covering(lines, left, words_of(head))
    return "\n".join([part for part in (head, *chosen, kept) if part])


# ---------------------------------------------------------------- exact values


def _values_of(entries: Sequence[Entry]) -> dict[str, _Value]:
    """Every exact value of the entries, with how often and how lately it was seen."""
    found: dict[str, _Value] = {}
    order = 0
    for entry in entries:
        text = entry.text
        if entry.type == "summary":
            text, kept = without_ledger(text)
            for value, seq in kept:
                order += 1
                found[value] = _Value(1, order, seq)
        order += 1
        for value in exact_values(text):
            known = found.get(value)
            if known is None:
                found[value] = _Value(1, order, entry.seq)
            elif entry.type != "summary":  # which only repeats it
                known.seen += 1
                known.order, known.seq = order, entry.seq
    return found


def without_ledger(text: str) -> tuple[str, list[tuple[str, int]]]:
    """A summary's text, and the values of the ledger below it with their entries."""
    before, head, after = text.partition(LEDGER_HEAD)
    if not head:
        return text, []
    line, _, rest = after.partition("\n")
    kept = [(v, int(seq)) for seq, values in _KEPT.findall(line) for v in values.split()]
    return before + rest, kept


def _ranked(values: dict[str, _Value]) -> list[tuple[str, int]]:
    """The values with their entries, what was seen often first, then what was seen lately."""
    return [
        (value, known.seq)
        for value, known in sorted(
            values.items(), key=lambda item: (-_worth(item[0], item[1].seen), -item[1].order)
        )
    ]


def _worth(value: str, seen: int) -> int:
    return min(seen, _SEEN_MOST) + (_WITH_DIGITS if _DIGIT.search(value) else 0)


def _ledger_line(ranked: Sequence[tuple[str, int]], room: int) -> str:
    """As many values as there is room for, those of one entry together."""
    left = room - len(LEDGER_HEAD)
    kept: dict[int, list[str]] = {}
    for value, seq in ranked:
        cost = len(value) + 1 + (0 if seq in kept else len(str(seq)) + 4)
        if cost <= left:
            kept.setdefault(seq, []).append(value)
            left -= cost
        elif left < _LEAST_ROOM:
            break
    parts = [f"#{seq}: {' '.join(values)}" for seq, values in sorted(kept.items())]
    return LEDGER_HEAD + "; ".join(parts) if kept else ""


# ---------------------------------------------------------------- the extract


def heuristic_summary(entries: Sequence[Entry], quote: int = _QUOTE_CHARS) -> str:
    """What is seen at a glance: how many user messages, the first and last of them, tools, errors.

    Source of the shape: the fallback of the reference memory manager. The first message of all stays first
    when an earlier text of this shape is among the entries.
    """
    users = [entry.text for entry in entries if entry.type == "message" and entry.role == "user"]
    told = [entry.text for entry in entries if entry.type == "summary"]
    began = next((found[1] for text in told if (found := _FIRST.search(text))), None)
    tools = dict.fromkeys(
        entry.name for entry in entries if entry.type == "tool_call" and entry.name
    )
    errors = sum(entry.is_error for entry in entries)
    lines = [_HEAD, f"{len(users)} user messages"]
    if users or began:
        lines.append(f'First: "{_quoted(began or users[0], quote)}"')
    if users:
        lines.append(f'Last: "{_quoted(users[-1], quote)}"')
    if tools:
        lines.append(f"Tools used: {_quoted(', '.join(tools), 2 * quote)}")
    if errors:
        lines.append(f"{errors} errors encountered")
    return "\n".join(lines)


def _quoted(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[:limit]}..."


def _lines_of(entries: Sequence[Entry]) -> list[_Line]:
    """The candidates of the extract in order: each sentence or line once."""
    seen: set[str] = set()
    lines: list[_Line] = []
    for entry in entries:
        for text in _pieces(entry):
            if text not in seen:
                seen.add(text)
                words = words_of(text)
                if words:
                    lines.append(_Line(text, words))
    return lines


def _pieces(entry: Entry) -> Iterator[str]:
    text = entry.text
    if entry.type == "summary":
        text, _ = without_ledger(_AT_A_GLANCE.sub("", text))
    elif entry.type == "tool_call":
        text = f"{entry.name}({text})"
    for sentence in _SENTENCE.split(text):
        piece = sentence.strip()
        while len(piece) > _LINE_CHARS:
            end = max(
                piece.rfind(", ", _SHORTEST_CUT, _LINE_CHARS),
                piece.rfind("; ", _SHORTEST_CUT, _LINE_CHARS),
            )
            if end < 0:
                end = piece.rfind(" ", _SHORTEST_CUT, _LINE_CHARS)
            end = _LINE_CHARS - 1 if end < 0 else end
            yield piece[: end + 1].strip()
            piece = piece[end + 1 :].strip()
        if piece:
            yield piece


def _weights(seen: Counter[str], lines: int) -> dict[str, float]:
    """What is said often counts more, what is said everywhere less."""
    return {word: log1p(times) * log(1 + lines / times) ** 2 for word, times in seen.items()}


def _covering(lines: Sequence[_Line], room: int, known: frozenset[str]) -> list[str]:
    """Lines that together cover most of what is not `known`, in their order.

    The gain of a line only falls as others are taken, so a line whose gain is still the best after it was
    computed anew is the best (lazy greedy).
    """
    seen: Counter[str] = Counter()
    for line in lines:
        seen.update(line.words)
    weight = _weights(seen, len(lines))
    costs = [(len(line.text) + 1) ** _LENGTH_POWER for line in lines]
    heap = [
        (-sum([weight[word] for word in sorted(line.words)]) / costs[number], number)
        for number, line in enumerate(lines)
    ]
    heapq.heapify(heap)
    covered = set(known)
    taken: list[int] = []
    while heap and room > _LEAST_ROOM:
        _, number = heapq.heappop(heap)
        line = lines[number]
        if len(line.text) + 1 > room:
            continue
        fresh = line.words - covered
        if not fresh:
            continue
        gain = -sum([weight[word] for word in sorted(fresh)]) / costs[number]
        if heap and (gain, number) > heap[0]:
            heapq.heappush(heap, (gain, number))
            continue
        taken.append(number)
        room -= len(line.text) + 1
        covered |= line.words
    return [lines[number].text for number in sorted(taken)]
