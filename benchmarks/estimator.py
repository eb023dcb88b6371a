"""Compare the estimator with tiktoken, chars/4 and bytes/4 on the kinds of text of `corpus.py`.

    python -m benchmarks.estimator [--encoding o200k_base] [--json]
    python -m benchmarks.estimator --golden tests/counting/golden_counts.json

Only documents that were not used for fitting are judged, in samples of 128 to 4,096 characters. `mean`
and `p95` are of the samples' relative errors, `total` is the error of their sum: negative means below the
truth. `upper` is the share of samples with more tokens than `TextEstimator.upper` returns. Exit
codes: 0 goals met, 1 a goal missed, 2 without a vocabulary or with fewer than 15 kinds of text.

`--golden` writes the tokens of short texts, our own or generated, for the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from time import process_time

import msgspec
from memman_tiktoken import vocabulary

from benchmarks.corpus import GENERATED, OWN_TEXTS, Document, documents, generated, samples
from benchmarks.goals import RATIO_NOISE, TIME_NOISE, Goal, any_failed, report
from benchmarks.tables import table
from memman.counting.builtin import BYTES4, CHARS4
from memman.counting.estimator import TextEstimator, estimator_for
from memman.counting.models import model_ref
from memman.errors import CounterUnavailable

_MODELS = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}
_SAMPLES = 120  # of a kind
_SHORTEST = 128  # characters
_LEAST_KINDS = 15
_LONG = 40_000  # characters
_GOLDEN_CHARACTERS = 600

Count = Callable[[str], int]


class Errors(msgspec.Struct, frozen=True):
    """Relative errors of one counter on one kind of text: mean, 95th percentile, and of the total."""

    mean: float
    p95: float
    total: float

    def shown(self) -> tuple[str, str, str]:
        return f"{self.mean:.1%}", f"{self.p95:.1%}", f"{self.total:+.1%}"


class Kind(msgspec.Struct, frozen=True):
    """One kind of text: `over` is the share of samples with more tokens than the upper figure."""

    name: str
    samples: int
    characters_a_token: float
    estimate: Errors
    chars4: Errors
    bytes4: Errors
    over: float


class Times(msgspec.Struct, frozen=True):
    """Seconds of CPU for a text of so many characters."""

    characters: int
    estimate: float
    tiktoken: float


class Measured(msgspec.Struct, frozen=True):
    """All figures of a run, as a table and as goals."""

    encoding: str
    kinds: list[Kind]
    long: Errors
    times: list[Times]

    @property
    def goals(self) -> list[Goal]:
        kinds = self.kinds
        at = {each.characters: each for each in self.times}
        return [
            Goal(
                "mean over kinds of the mean error",
                100 * _mean(kind.estimate.mean for kind in kinds),
                7,
                unit="%",
            ),
            Goal(
                "worst total of a kind under the truth",
                100 * max(-kind.estimate.total for kind in kinds),
                12,
                unit="%",
            ),
            Goal(
                "samples over the upper figure",
                100 * _mean(kind.over for kind in kinds),
                5,
                unit="%",
            ),
            Goal(
                "time at 2,048 characters, x tiktoken",
                at[2_048].estimate / at[2_048].tiktoken,
                0.6,
                RATIO_NOISE,
            ),
            Goal("time at 200,000 characters", 1_000 * at[200_000].estimate, 1, TIME_NOISE, "ms"),
        ]

    def __str__(self) -> str:
        headers = ["kind", "n", "chars/token", "mean", "p95", "total", "upper"]
        headers += ["chars/4 mean", "p95", "total", "bytes/4 mean", "p95", "total"]
        rows: list[Sequence[object]] = [
            (kind.name, kind.samples, f"{kind.characters_a_token:.2f}", *kind.estimate.shown(),
             f"{kind.over:.0%}", *kind.chars4.shown(), *kind.bytes4.shown())
            for kind in self.kinds
        ]  # fmt: skip
        means = [
            f"{_mean(getattr(kind, name).mean for kind in self.kinds):.1%}"
            for name in ("estimate", "chars4", "bytes4")
        ]
        over = f"{_mean(kind.over for kind in self.kinds):.1%}"
        rows.append(
            ("mean over kinds", "", "", means[0], "", "", over, means[1], "", "", means[2], "", "")
        )
        timed = [
            (
                each.characters,
                f"{each.estimate * 1e6:.1f}",
                f"{each.tiktoken * 1e6:.1f}",
                each.estimate / each.tiktoken,
            )
            for each in self.times
        ]
        mean, p95, total = self.long.shown()
        return "\n".join((
            f"== {self.encoding}, {len(self.kinds)} kinds of text",
            table(headers, rows),
            f"\ntexts of over {_LONG:,} characters, sampled: mean {mean}, p95 {p95}, total {total}\n",
            table(("characters of Python", "estimate us", "tiktoken us", "ratio"), timed),
        ))  # fmt: skip


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(sum(found) / len(found))


def errors(estimated: Sequence[int], truth: Sequence[int]) -> Errors:
    """Return the errors of estimates against the truth."""
    off = sorted(
        abs(one - other) / max(1, other) for one, other in zip(estimated, truth, strict=True)
    )
    return Errors(
        sum(off) / len(off), off[int(0.95 * (len(off) - 1))], sum(estimated) / sum(truth) - 1
    )


def _kind(name: str, texts: list[str], estimator: TextEstimator, exact: Count) -> Kind:
    truth = [exact(text) for text in texts]
    over = sum(estimator.upper(text) < tokens for text, tokens in zip(texts, truth, strict=True))
    return Kind(
        name,
        len(texts),
        sum(map(len, texts)) / sum(truth),
        errors(estimator.count_texts(texts), truth),
        errors(CHARS4.count_texts(texts), truth),
        errors(BYTES4.count_texts(texts), truth),
        over / len(texts),
    )


def _sampled(judged: Sequence[Document]) -> list[str]:
    each = -(-2 * _SAMPLES // len(judged))
    pieces = [piece for document in judged for piece in samples(document, each)]
    Random(0).shuffle(pieces)
    return [piece for piece in pieces if len(piece) >= _SHORTEST][:_SAMPLES]


def _fastest(count: Count, text: str, calls: int, rounds: int = 9) -> float:
    least = float("inf")
    for _ in range(rounds):
        began = process_time()
        for _ in range(calls):
            count(text)
        least = min(least, (process_time() - began) / calls)
    return least


def _times(text: str, estimator: TextEstimator, exact: Count) -> list[Times]:
    def estimate(text: str) -> int:
        return estimator.count_texts((text,))[0]

    found = []
    for length, calls in ((50, 4_000), (2_048, 200), (16_384, 20), (200_000, 4)):
        part = text[:length]
        found.append(Times(length, _fastest(estimate, part, calls), _fastest(exact, part, calls)))
    return found


def measure(encoding: str) -> Measured:
    """Measure all figures. Raises `CounterUnavailable` when the vocabulary is not on this machine."""
    encode = vocabulary.encoding(encoding).encode_ordinary
    estimator = estimator_for(model_ref(_MODELS[encoding]))

    def exact(text: str) -> int:
        return len(encode(text))

    judged: dict[str, list[Document]] = {}
    for document in documents():
        if document.held_out:
            judged.setdefault(document.kind, []).append(document)
    code = "".join(document.text for document in islice(judged["Python"], 20))
    times = _times(code, estimator, exact)
    kinds = [_kind(name, _sampled(each), estimator, exact) for name, each in judged.items()]
    whole = [document.text for each in judged.values() for document in each]
    # Most documents are shorter: an agent reads texts of this length as several files of one kind.
    whole += ["\n".join(document.text for document in each) for each in judged.values()]
    long = [text[:200_000] for text in whole if len(text) > _LONG]
    longest = errors(estimator.count_texts(long), [exact(text) for text in long])
    return Measured(encoding, kinds, longest, times)


def golden() -> list[dict[str, object]]:
    """Return short texts with their tokens by both encodings."""
    counts = {name: vocabulary.encoding(name).encode_ordinary for name in _MODELS}
    texts = [(name, path.read_text("utf-8")) for name, path in sorted(OWN_TEXTS.items())]
    texts += [
        (kind, generated(kind, number)[:_GOLDEN_CHARACTERS])
        for kind in GENERATED
        for number in (1, 2)
    ]
    return [
        {"kind": kind, "text": text, **{name: len(encode(text)) for name, encode in counts.items()}}
        for kind, text in texts
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--encoding", choices=sorted(_MODELS), default="o200k_base")
    parser.add_argument("--json", action="store_true", help="the figures for programs")
    parser.add_argument("--golden", type=Path, help="write the tests' table to this file instead")
    options = parser.parse_args(arguments)
    try:
        if options.golden:
            options.golden.write_text(
                json.dumps(golden(), ensure_ascii=False, indent=1) + "\n", "utf-8"
            )
            return 0
        measured = measure(options.encoding)
    except CounterUnavailable as error:
        print(error, file=sys.stderr)
        return 2
    print(
        msgspec.json.encode(measured).decode()
        if options.json
        else f"{measured}\n\n{report(measured.goals)}"
    )
    if len(measured.kinds) < _LEAST_KINDS:
        print(
            f"only {len(measured.kinds)} kinds of text are installed: `uv sync` installs them",
            file=sys.stderr,
        )
        return 2
    return int(any_failed(measured.goals))


if __name__ == "__main__":
    sys.exit(main())
