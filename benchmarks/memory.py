"""What an agent's context still has after compressions without a model: all measures in one command.

    python -m benchmarks.memory [--quick] [--half tune|test] [--parts agreement,needed] [--without NAME|all]

- agreement: the sentences of 44 summaries that a frontier model wrote, and the user's messages
  (`benchmarks.compactions`); after one compression, and after ten.
- statements: what a user states in recorded conversations of several repositories, and how much of the
  target each compression uses (`benchmarks.surroundings`)
- instructions: COMPINT's 15, at four places of three sessions (`benchmarks.instructions`)
- findings: a loop of 200 turns, asked 20 times for what it found earlier (`benchmarks.findings`)
- needed: values of later calls; old ones, and the first uses among them (`benchmarks.needed`)
- facts: facts of recorded and generated conversations (`benchmarks.facts`)
- kits: two public kits, with LoCoMo (`benchmarks.kits`)

The recorded conversations are divided in two halves by a hash of their ids: what is chosen on one is
reported on the other. `--without` switches one heuristic of the outline off, or each in turn, and
prints what that loses (`benchmarks.ablations`).

Exit codes: 0 all goals met or held, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

from benchmarks import (
    ablations,
    compactions,
    facts,
    findings,
    instructions,
    kits,
    needed,
    surroundings,
)
from benchmarks.ablations import ABLATIONS, EVERYTHING, Data
from benchmarks.compactions import Figures, means
from benchmarks.goals import Goal, any_failed, report
from benchmarks.real import JOBS
from benchmarks.tables import table
from benchmarks.trajectories import DATA, HALVES

Part = tuple[str, list[Goal]]
"""The text of a part, and its goals."""

AGREEMENT = (0.68, 0.63), (0.50, 0.42)  # the aims, and the least that passes until they are reached
WORDLESS, SHORT_WHOLE, STATEMENTS, FINDINGS = 0.03, 0.99, 0.90, 0.40
TEN_TIMES = 0.03  # the most that ten compressions may have less than one
_HELD_SHORT = 0.02
_HELD_STATEMENTS = 0.35
_HELD_FINDINGS = 0.75
_TIMES = 10
_SEEDS, _QUICK_SEEDS = 8, 1
_QUICK_CASES = 4  # every so manieth case is compressed ten times
_QUICK_NEEDED = 18  # every so manieth conversation
_QUICK_FACTS = 32
_NO_DATA = 2


def agreement(data: Data) -> Part:
    """Measure the recorded compactions."""
    cases = list(compactions.cases(data.sessions))
    some = cases[:: _QUICK_CASES if data.quick else 1]
    once = [compactions.measured(case) for case in cases]
    often = [compactions.measured(case, _TIMES) for case in some]
    one, ten = means(once), means(often)
    same = means(once[:: _QUICK_CASES if data.quick else 1])
    rows: list[list[object]] = [["one compression", len(once), *one.values()]]
    if data.quick:
        rows.append(["one, of the same cases", len(some), *same.values()])
    rows.append([f"{_TIMES} compressions", len(often), *ten.values()])
    headers = ("agreement", "cases", *Figures.__struct_fields__)
    goals = [
        Goal(f"{name} lost", 1 - one[name], 1 - aim, held=1 - least)
        for name, (aim, least) in zip(("agreement", "sentences"), AGREEMENT, strict=True)
    ]
    goals += [
        Goal("lines without words", one["wordless"], WORDLESS),
        Goal("short messages lost", 1 - one["short"], 1 - SHORT_WHOLE, held=_HELD_SHORT),
        *(
            Goal(f"{name}, {_TIMES} compressions below one", same[name] - ten[name], TEN_TIMES)
            for name in ("agreement", "sentences")
        ),
    ]
    note = _repositories(data, [case.session for case in cases], "compactions")
    return f"{table(headers, rows)}\n{note}", goals


def statements(data: Data) -> Part:
    """Measure the statements in recorded conversations."""
    around = surroundings.surroundings(data.sessions, data.folder, data.half)
    seeds = range(_QUICK_SEEDS if data.quick else _SEEDS)
    found = [surroundings.played(one, seed) for one in around for seed in seeds]
    rows: list[list[object]] = []
    for name in (*dict.fromkeys(one.repository for one in found), EVERYTHING):
        chosen = [one for one in found if name in (one.repository, EVERYTHING)]
        kinds = [_kept(chosen, (kind,)) for kind in surroundings.KINDS]
        used = [share for one in chosen for share in one.used]
        total = sum(len(one.kept) for one in chosen)
        rows.append([name, total, *kinds, _kept(chosen, surroundings.KINDS), mean(used)])
    headers = ("statements in", "number", *surroundings.KINDS, "all", "target used")
    lost = 1 - _kept(found, surroundings.KINDS)
    goal = Goal("statements lost", lost, 1 - STATEMENTS, held=_HELD_STATEMENTS)
    return table(headers, rows), [goal]


def _kept(found: Iterable[surroundings.Played], kinds: Sequence[str]) -> float:
    each = [there for one in found for kind, there in one.kept if kind in kinds]
    return mean(each) if each else 0.0


def compint(data: Data) -> Part:
    """Measure COMPINT's instructions."""
    try:
        given = instructions.instructions()
    except ImportError as error:
        return f"note: the instructions are skipped: {error}; `uv sync --group bench-kits`", []
    sessions = instructions.sessions(data.sessions)[: 1 if data.quick else None]
    rows: list[list[object]] = []
    lost = 0
    for place in instructions.PLACES:
        found = [instructions.is_kept(session, place, one) for session in sessions for one in given]
        lost += len(found) - sum(found)
        rows.append([place, len(sessions), sum(found), len(found)])
    headers = ("instructions", "sessions", "kept", "of")
    return table(headers, rows), [Goal("instructions lost", lost, 0)]


def own_findings(data: Data) -> Part:
    """Measure how many of its own findings an agent still has in its context."""
    scores = [findings.play(seed) for seed in range(1 if data.quick else _SEEDS)]
    asked, there = sum(one.asked for one in scores), sum(one.there for one in scores)
    row = [len(scores), asked, there, mean(one.tokens for one in scores)]
    headers = ("findings of the agent", "asked", "there", "tokens")
    goal = Goal("findings lost", 1 - there / asked, 1 - FINDINGS, held=_HELD_FINDINGS)
    return table(headers, [row]), [goal]


def needed_values(data: Data) -> Part:
    """Measure the values that later calls need."""
    sessions = data.sessions[:: _QUICK_NEEDED if data.quick else 1]
    budgets = needed.BUDGETS[: 2 if data.quick else None]
    shown, goals = needed.measure(sessions, budgets, [needed.OURS], 1 if data.quick else JOBS)
    long = [one for one in sessions if needed.is_long(one, min(budgets))]
    return f"{shown}\n{_repositories(data, [one.id for one in long], 'conversations')}", goals


def known_facts(data: Data) -> Part:
    """Measure the facts of recorded and generated conversations."""
    every = _QUICK_FACTS if data.quick else 1
    shown, goals = facts.measure(data.folder, every, data.half, alone=True)
    made, more = facts.measure_planted(1 if data.quick else facts.SEEDS, alone=True)
    return f"{shown}\n\n{made}", [*goals, *more]


def public_kits(data: Data) -> Part:
    """Measure the public kits. Their statements are generated, so no half of them is left out."""
    try:
        return kits.measure(data.folder / "locomo.public.jsonl.gz", data.quick, alone=True)
    except ImportError as error:
        return f"note: the kits are skipped: {error}; `uv sync --group bench-kits`", []


def _repositories(data: Data, names: Sequence[str], what: str) -> str:
    """Return how many of these things each repository has, as text."""
    of = {one.id: one.repository for one in data.sessions}
    counted = Counter(of[name] for name in names).most_common()
    if len(counted) == 1:
        return f"note: all {len(names)} {what} are of {counted[0][0]}: the halves are other sessions of it"
    return f"note: {what} by repository: " + ", ".join(f"{name} {n}" for name, n in counted)


PARTS: dict[str, Callable[[Data], Part]] = {
    "facts": known_facts,
    "kits": public_kits,
    "needed": needed_values,
    "agreement": agreement,
    "instructions": compint,
    "statements": statements,
    "findings": own_findings,
}


def _measured(name: str, data: Data) -> Part:
    logging.getLogger("memman").addHandler(logging.NullHandler())
    return PARTS[name](data)


def run(names: Sequence[str], data: Data, jobs: int) -> list[Part]:
    """Measure these parts: small ones beside each other."""
    if jobs == 1 or not data.quick:  # larger ones divide their own work
        return [_measured(name, data) for name in names]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(_measured, names, [data] * len(names)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    data = Data(options.folder, options.half, options.quick)
    if not (data.folder / "trajectories.jsonl.gz").is_file():
        print(f"no recorded conversations in {data.folder}", file=sys.stderr)
        return _NO_DATA
    if options.without:
        names = [*ABLATIONS] if options.without == EVERYTHING else [options.without]
        shown, useless = ablations.run(names, data, options.jobs)
        print(shown)
        print(f"lose nothing: {', '.join(useless) or 'none'}")
        return 0
    goals = []
    for shown, aims in run(options.parts, data, options.jobs):
        print(f"{shown}\n")
        goals += aims
    print(report(goals))
    return int(any_failed(goals))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=DATA, help="folder of the conversations")
    parser.add_argument("--quick", action="store_true", help="samples, in less than a minute")
    parser.add_argument("--half", choices=("both", *HALVES), default="both")
    parser.add_argument("--parts", type=_parts, default=[*PARTS], help=", ".join(PARTS))
    parser.add_argument("--without", choices=(EVERYTHING, *ABLATIONS), metavar="NAME",
                        help=f"{EVERYTHING}, or one of: {'; '.join(ABLATIONS)}")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=JOBS)
    return parser


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := {*names} - {*PARTS}:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}")
    return names


if __name__ == "__main__":
    sys.exit(main())
