"""Exactness: compare each backend of memman-tiktoken with `len(encode_ordinary)`, text by text.

    python -m benchmarks.exactness [--quick] [--data FOLDER]

The texts are all strings of the recorded conversations (contents, names and arguments of calls; those of
the bundled demo if there are none), and 20,000 seeded hard strings. They are counted one by one
and in one batch. Exit codes: 0 no mismatch, 1 a mismatch, or a backend that could not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from memman_tiktoken import counter_in
from memman_tiktoken.vocabulary import encoding

from benchmarks.tables import table
from benchmarks.trajectories import demo_trajectory, read_trajectories
from memman.errors import CounterUnavailable

ENCODINGS = ("o200k_base", "cl100k_base")
BACKENDS = ("tiktoken", "toktok", "quicktok")
SEED = 20261121
FUZZ = 20_000
QUICK = 2_000
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_SHOWN = 5
# Hard input for tokenizers: contractions, runs, special tokens as text, joiners, marks, kinds of space.
_PIECES = (
    " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufeff",
    "\ufe0f", "'s", "'LL", "'", "\u2019re", "don't", "a", "Z", "the", " The", "WORD", "camelCase",
    "\u01c5", "\u00e9", "e\u0301", "\u0301", "\u0308\u0323", "\u00df", "\u4f60\u597d", "\u3002",
    "\u306e", "\ud55c", "\u0434\u0430", "\u0639\u0631\u0628", "\u0939\u093f",
    "\u0e44\u0e17\u0e22", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f467",
    "\U0001f1eb\U0001f1f7", "0", "1234", "3.14", "\u0663", "\u00bd", "\u216b", "-", "--", "...",
    "//", "\\", "{}", '":"', "</", "=>", "_", "<|endoftext|>", "<|im_start|>", "<|", "\x00",
    "\x85", "\ud83d", "\udc4d", "\U00020000",
)  # fmt: skip


class Outcome(msgspec.Struct):
    """One backend in one encoding: the number of texts, and the wrong counts."""

    backend: str
    encoding: str
    texts: int = 0
    mismatches: list[tuple[str, int, int]] = []  # text, answer, truth
    failure: str = ""


def recorded(folder: Path) -> list[str]:
    """Return every string of the recorded conversations once; without recordings, those of the demo."""
    path = folder / "fixture_trajectories.jsonl.gz"
    trajectories = read_trajectories(path) if path.is_file() else [demo_trajectory()]
    found = (text for each in trajectories for text in _strings(each.messages))
    return list(dict.fromkeys(found))


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)


def fuzz(number: int, seed: int = SEED) -> Iterator[str]:
    """Return seeded strings: hard pieces in any order, random characters of all planes, and long runs."""
    random = Random(seed)
    for _ in range(number):
        kind = random.random()
        if kind < 0.6:
            yield "".join(random.choices(_PIECES, k=random.randint(1, 40)))
        elif kind < 0.8:
            yield "".join(map(chr, random.choices(range(0x110000), k=random.randint(1, 40))))
        elif kind < 0.95:
            top = random.choice((0x80, 0x250, 0x3000, 0x10000))
            yield "".join(map(chr, random.choices(range(top), k=random.randint(1, 120))))
        else:
            pieces = random.choices(_PIECES, k=3)
            yield "".join(piece * random.randint(1, 300) for piece in pieces)


def compare(
    texts: Sequence[str],
    encodings: Sequence[str] = ENCODINGS,
    backends: Sequence[str] = BACKENDS,
) -> list[Outcome]:
    """Compare each backend's counts of `texts` with the truth."""
    outcomes = []
    for name in encodings:
        encode = encoding(name).encode_ordinary
        truths = [len(encode(text)) for text in texts]
        outcomes += [_compared(backend, name, texts, truths) for backend in backends]
    return outcomes


def _compared(backend: str, name: str, texts: Sequence[str], truths: Sequence[int]) -> Outcome:
    outcome = Outcome(backend, name)
    try:
        counter = counter_in(name, backend)
        batch = counter.count_texts(texts)
    except CounterUnavailable as error:
        outcome.failure = error.reason
        return outcome
    for text, together, truth in zip(texts, batch, truths, strict=True):
        [alone] = counter.count_texts((text,))
        if not alone == together == truth:
            outcome.mismatches.append((text, alone, truth))
    outcome.texts = len(texts)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} seeded strings")
    parser.add_argument(
        "--data", type=Path, default=_DATA, help="folder of the recorded conversations"
    )
    options = parser.parse_args(arguments)
    real = recorded(options.data)
    made = list(fuzz(QUICK if options.quick else FUZZ))
    outcomes = compare([*real, *made])
    rows = [
        (f"{each.encoding}, {each.backend}", each.texts, each.failure or len(each.mismatches))
        for each in outcomes
    ]
    print(f"{len(real):,} recorded texts, {len(made):,} seeded strings")
    print(table(("against encode_ordinary", "texts", "mismatches"), rows))
    for each in outcomes:
        for text, answer, truth in each.mismatches[:_SHOWN]:
            print(f"{each.encoding}, {each.backend}: {answer}, not {truth}: {text[:200]!r}")
    return int(any(each.mismatches or each.failure for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
