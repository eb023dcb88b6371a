"""Fit the framing of the families without a published formula, and write `framing.json`.

    python -m benchmarks.fit_framing [--dry-run]

It reads the fitting half of the recorded requests (`usage.py`). For each row of the table it fits the
figures named in `fit`: none below zero, with the least sum of relative errors (iteratively reweighted
least squares). Every repository is weighted by the root of its records so that none decides alone. If a row
names `rendering`, each rendering of the tools is tried and the best is kept.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from memman_tiktoken.models import encoding_of
from memman_tiktoken.vocabulary import encoding

from benchmarks.request_prices import conversation_texts, tool_forms
from benchmarks.usage import FULL, SHARED, Sample, read_samples
from memman.counting import framing
from memman.counting.framing import Billing, Rendering, Row
from memman.counting.tool_prices import render_tools

_TABLE: Final = Path(framing.__file__).with_name(framing.TABLE)
_FEWEST: Final = 12  # records; a row with fewer is not changed
_ROUNDS: Final = 60
_FLOOR: Final = 0.003  # the least relative error that affects a weight
_FIGURES: Final = (
    "text", "tools", "request", "message", "call", "result", "tool", "preamble", "forced", "named",
    "headed",
)  # fmt: skip
_DATE: Final = "2026-11-21"


@cache
def _tokens(name: str, text: str) -> int:
    return len(encoding(name).encode_ordinary(text))


def counted(sample: Sample, text: str) -> int:
    """Count a text by the vocabulary of OpenAI's own models, o200k_base for all others."""
    known = encoding_of(sample.ref.name)
    return _tokens(known.encoding if known else "o200k_base", text)


def features(sample: Sample, rendering: Rendering) -> dict[str, float]:
    """Return the factor of each figure for a request."""
    body = sample.body
    tools = counted(sample, render_tools(body.tools, rendering)) if body.tools else 0
    return {
        "text": sum(counted(sample, text) for text in conversation_texts(body, sample.ref)),
        "tools": tools,
        "request": 1,
        "message": len(body.messages),
        "call": sum(len(message.calls) for message in body.messages),
        "result": sum(message.results for message in body.messages),
        "tool": len(body.tools),
        **tool_forms(body),
    }


def fitted(row: Row, samples: Sequence[Sample]) -> Row:
    """Return the row with fitted figures."""
    names = [name for name in _FIGURES if name in row.fit]
    if len(samples) < _FEWEST or not names:
        return row
    counts = Counter(sample.repository for sample in samples)
    weights = [counts[sample.repository] ** -0.5 for sample in samples]
    tried: tuple[Rendering, ...] = (
        get_args(Rendering) if "rendering" in row.fit else (row.billing.rendering,)
    )
    best: tuple[float, Billing] | None = None
    for rendering in tried:
        rows = [features(sample, rendering) for sample in samples]
        loss, billing = _fit(row.billing, rendering, names, rows, samples, weights)
        if best is None or loss < best[0]:
            best = loss, billing
    if best is None:
        return row
    return msgspec.structs.replace(row, billing=best[1])


def _fit(
    billing: Billing,
    rendering: Rendering,
    names: Sequence[str],
    rows: list[dict[str, float]],
    samples: Sequence[Sample],
    weights: list[float],
) -> tuple[float, Billing]:
    fixed = {name: getattr(billing, name) for name in _FIGURES if name not in names}
    if "text" in names:
        fixed.pop("tools", None)
    known = [sum(value * row[name] for name, value in fixed.items()) for row in rows]
    reported = [sample.reported for sample in samples]
    wanted = [all_ - part for all_, part in zip(reported, known, strict=True)]
    table = [[row[name] for name in names] for row in rows]
    found = _least(table, wanted, reported, weights)
    guesses = [sum(a * b for a, b in zip(found, line, strict=True)) for line in table]
    pairs = zip(guesses, wanted, reported, weights, strict=True)
    loss = sum(weight * abs(guess - want) / all_ for guess, want, all_, weight in pairs)
    figures = dict(zip(names, found, strict=True))
    if "tools" in figures:
        figures["tools"] /= figures.get("text") or billing.text
    rounded = {
        name: round(value, 3 if name in ("text", "tools") else 1) for name, value in figures.items()
    }
    changes: dict[str, Any] = {**rounded, "rendering": rendering, "date": _DATE}
    if "request" in names:
        repositories = len({sample.repository for sample in samples})
        changes["source"] = (
            f"fitted to {len(samples)} recorded requests of {repositories} public test suites"
        )
    return loss, msgspec.structs.replace(billing, **changes)


def _least(
    table: list[list[float]], wanted: list[float], reported: list[int], weights: list[float]
) -> list[float]:
    """Find non-negative coefficients with the least weighted sum of |error| / reported."""
    active = list(range(len(table[0])))
    while True:
        found = _reweighted(table, wanted, reported, weights, active)
        negative = [at for at in active if found[at] < 0]
        if not negative:
            return found
        active.remove(min(negative, key=found.__getitem__))


def _reweighted(
    table: list[list[float]],
    wanted: list[float],
    reported: list[int],
    weights: list[float],
    active: list[int],
) -> list[float]:
    found = [0.0] * len(table[0])
    pull = [1.0] * len(table)
    for _ in range(_ROUNDS):
        size = len(active)
        matrix = [[1e-6 if i == j else 0.0 for j in range(size)] for i in range(size)]
        vector = [0.0] * size
        for line, want, all_, weight, own in zip(
            table, wanted, reported, weights, pull, strict=True
        ):
            factor = weight * own / all_**2
            chosen = [line[at] for at in active]
            for i, value in enumerate(chosen):
                if value:
                    scaled = value * factor
                    vector[i] += scaled * want
                    for j, other in enumerate(chosen):
                        matrix[i][j] += scaled * other
        for at, value in zip(active, _solved(matrix, vector), strict=True):
            found[at] = value
        pull = [
            1 / max(abs(sum(a * b for a, b in zip(found, line, strict=True)) - want) / all_, _FLOOR)
            for line, want, all_ in zip(table, wanted, reported, strict=True)
        ]
    return [value if at in active else 0.0 for at, value in enumerate(found)]


def _solved(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Solve by Gauss-Jordan elimination with the largest pivot."""
    size = len(vector)
    rows = [[*row, right] for row, right in zip(matrix, vector, strict=True)]
    for i in range(size):
        best = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for k in range(size):
            factor = rows[k][i] / rows[i][i] if k != i else 0.0
            if factor:
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 without data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_framing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--dry-run", action="store_true", help="print the table, write nothing")
    options = parser.parse_args(arguments)
    paths = [SHARED / name for name in FULL]
    if not all(path.is_file() for path in paths):
        print(f"{SHARED} does not exist: recorded requests are not part of the project")
        return 2
    table = framing.rows()
    divided: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in read_samples(paths):
        if not sample.evaluates:
            row = next(row for row in table if row.answers(sample.ref, sample.body.api))
            divided[row.billing.key].append(sample)
    found = [fitted(row, divided[row.billing.key]) for row in table]
    for row in found:
        figures = {name: getattr(row.billing, name) for name in _FIGURES}
        print(f"{row.billing.key:18} {len(divided[row.billing.key]):5} {row.billing.rendering:10}",
              *(f"{name}={value:g}" for name, value in figures.items() if value))  # fmt: skip
    if not options.dry_run:
        lines = msgspec.json.format(msgspec.json.encode(found, order="deterministic"), indent=1)
        _TABLE.write_bytes(lines + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
