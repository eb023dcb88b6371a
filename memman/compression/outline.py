"""What a conversation said and did: the sentences, calls and outcomes of an outline, and their order of
worth.

The lines that together cover most of the words come first, each word weighted by how often it occurs
(greedy maximum coverage under a budget, after Lin and Bilmes, "A Class of Submodular Functions for
Document Summarization", 2011). Words of scripts without spaces are pairs of characters. No model is
called.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log1p
from typing import Final

from memman.compression.state_items import ENDING, PASTED, Found
from memman.compression.user_messages import ENDS
from memman.compression.words import words_of
from memman.compression.working_set import decoded
from memman.display import line_of
from memman.entries import Entry

LEAST_WORDS: Final = 3  # of a line of a long message, and of a conclusion
_SENTENCE: Final = 500  # characters; a longer one is cut
_SENTENCE_WORDS: Final = 2
_PRECISION: Final = 2**20  # whole weights: their sum does not depend on the order of a set
_BESIDES: Final = 8  # characters of a line besides its text
_CALL: Final = 0.2  # the worth of a call's line, and of a program's text in the user's place
_OLDEST: Final = 0.5  # the worth of the oldest line; the newest has 1.5
_FENCE: Final = re.compile(
    r"^[ \t]*(?:```|~~~).*?(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_BULLET: Final = re.compile(r"^(?:[\s>#*+\u2022-]|\d{1,3}[.)]\s)+")
_PROGRAM: Final = re.compile(r"[{}\[\]=;<>|\\]|\w\(")  # marks program text
_RULER: Final = "=-*# "  # around the last line of many programs
_MOST_OUTCOME: Final = 100
_MOST_ARGUMENT: Final = 90
_LARGE: Final = 200  # tokens of a result that shows its size in place of its last line
_ARGUMENTS: Final = ("command", "cmd", "file_path", "path", "pattern", "query", "url")


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a spoken text with their numbers, without code blocks and marks of lists."""
    for number, piece in enumerate(ENDS.split(_FENCE.sub("\n", text)), 1):
        sentence = line_of(_BULLET.sub("", piece).replace("**", "").strip("*_ "), _SENTENCE)
        if len(words_of(sentence)) >= _SENTENCE_WORDS:
            yield number, sentence


def call_line(call: Entry) -> str:
    """Return a call on one line: its tool, and the argument that says most."""
    arguments = decoded(call)
    given = arguments if isinstance(arguments, dict) else {}
    texts = {name: text for name, text in given.items() if isinstance(text, str) and text.strip()}
    name = next((name for name in _ARGUMENTS if name in texts), next(iter(texts), ""))
    text = texts.get(name, "")
    if "path" in name:
        text = text.rpartition("/")[2] or text  # the values in use have the directory
    return f"{line_of(call.name or 'tool', 40)} {line_of(text, _MOST_ARGUMENT)}".strip()


def outcome_of(result: Entry) -> str:
    """Return the outcome of a call on one line, with the size of a large result.

    That is the last line of an error, or of a result of less than 200 tokens unless it looks like program
    text; otherwise only the address and the size.
    """
    tokens, lines = result.token_count.tokens, result.text.strip().splitlines()
    if not lines:
        return "no output"
    is_large = tokens >= _LARGE
    size = f"(#{result.seq}, {tokens:,} tokens)" if is_large else f"(#{result.seq})"
    last = lines[-1].strip(_RULER) or lines[-1]
    hidden = is_large or (len(lines) > 1 and _PROGRAM.search(last))
    told = "" if hidden and not result.is_error else f"{line_of(last, _MOST_OUTCOME)} "
    return f"{told}{size}"


class Cover:
    """The lines of an outline in the order in which they cover most words for their length."""

    def __init__(self, items: Sequence[Found], words: Sequence[frozenset[str]]) -> None:
        """Weigh the words of the lines."""
        self.items = items
        self._words = words
        seen = Counter(word for each in words for word in each)
        self._weights = {word: round(_PRECISION * log1p(times)) for word, times in seen.items()}
        first = min((item.seq for item in items), default=0)
        span = max(1, max((item.seq for item in items), default=0) - first)
        self._factors: list[float] = [
            (_OLDEST + (item.seq - first) / span)
            * (_CALL if item.section == "did" or item.score == PASTED else 1.0)
            / (len(item.text) + _BESIDES)
            for item in items
        ]

    def order(self, taken: Iterable[Found]) -> Iterator[Found]:
        """Yield the lines, the best first, behind those that are taken already."""
        known = {id(item) for item in taken}
        covered: set[str] = set()
        for item, words in zip(self.items, self._words, strict=True):
            if id(item) in known:
                covered |= words
        left = [number for number, item in enumerate(self.items) if id(item) not in known]
        heap = [(-self._gain(number, covered), number) for number in left]
        heapq.heapify(heap)
        while heap:
            gain, number = heap[0]
            now = -self._gain(number, covered)
            if now == 0:
                heapq.heappop(heap)
            elif now > gain:
                heapq.heapreplace(heap, (now, number))
            else:
                heapq.heappop(heap)
                covered |= self._words[number]
                yield self.items[number]

    def endings(self) -> list[Found]:
        """Return sentences of the messages that end a turn, the newest message first.

        The first sentence of each with enough words, which names the outcome, comes before the last of
        each.
        """
        said: dict[int, list[Found]] = {}
        for item, words in zip(self.items, self._words, strict=True):
            ends = item.section == "said" and item.score == ENDING
            if ends and len(words) >= LEAST_WORDS:
                said.setdefault(item.seq, []).append(item)
        newest = [said[seq] for seq in sorted(said, reverse=True)]
        return [each[0] for each in newest] + [each[-1] for each in newest]

    def _gain(self, number: int, covered: set[str]) -> float:
        new = self._words[number] - covered
        return self._factors[number] * sum(self._weights[word] for word in new)
