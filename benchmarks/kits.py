"""Two public kits that measure forgetting by compressions, with memman and the kits' own strategies.

    uv run --group bench-kits python -m benchmarks.kits [--quick] [--folder ../shared/data]

- compaction-conformance-kit: statements such as "SAFETY RULE: ..." in sessions from seeds, compressed to
  10, 20 and 30 % of the characters. *survival*: statements still there; *updates*: reworded statements
  with the new value there and the old one gone; *stale*: old values that are still there; *pairs*:
  near-duplicates that are both there. With the kit's seeds (1 to 4), and with others.
- the kit's rotating corpus, and `benchmarks.statements`: the same with other labels and wordings, in two
  sets. Set B is held out: it is reported, and memman is not changed for it.
- retainkit: the public LoCoMo dialogues at 1,024, 2,048 and 4,096 tokens. *recall*: questions all of whose
  evidence is in the context, as a turn or a whole sentence of it.

memman is measured as a product: messages are added to a session, `compress` runs, and the text of the
context counts. The kits count characters, so memman counts them too.

Exit codes: 0 all goals met or held, 1 a goal missed, 2 a kit is not installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks.goals import Goal, any_failed, report
from benchmarks.statements import SETS, Found, Session, found_in, sessions
from benchmarks.tables import table
from benchmarks.trajectories import DATA
from memman import MemoryConfig, MemoryManager

SHARES = (0.1, 0.2, 0.3)
KIT_SEEDS, OTHER_SEEDS = (1, 2, 3, 4), tuple(range(101, 109))
LOCOMO_BUDGETS = (1_024, 2_048, 4_096)
# The least survival at each share, and the least pairs at 30 %. Stale values are shown without a goal: an
# old statement stays above its update, since likeness removes none.
SURVIVAL, PAIRS = {0.1: 0.45, 0.2: 0.85, 0.3: 1.0}, 0.9
RECALL = {1_024: 0.14, 2_048: 0.18, 4_096: 0.27}
# The worst shares that pass until the goals are reached.
_HELD_SURVIVAL: dict[float, float | None] = {0.1: 0.87, 0.2: 0.55, 0.3: 0.20}
_HELD_RECALL = {1_024: 0.96, 2_048: 0.93, 4_096: 0.93}
_STATEMENT_SEEDS = tuple(range(1, 13))
_ROUNDS = 5
_LARGE = 10_000_000
# Shares of the allowed characters that are tried in turn: framing is not part of a target.
_TRIED = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
OURS = "memman"


class Turn(Protocol):
    """A message as the kit has it."""

    @property
    def role(self) -> str: ...
    @property
    def text(self) -> str: ...


def compressed(turns: Sequence[Turn], most: int, times: int = 1) -> str:
    """Return the context of a session with these messages, in at most so many characters.

    The messages are added in as many parts as there are compressions.
    """
    config = MemoryConfig(
        max_tokens=_LARGE,
        max_entries=None,
        auto_compress=False,
        compression_ratio=1.0,
        max_summary_ratio=0.9,
    )
    with MemoryManager(counter=len, config=config) as memory:
        each = -(-len(turns) // times)
        for start in range(0, len(turns), each):
            for turn in turns[start : start + each]:
                add = memory.add_user_message
                if turn.role == "assistant":
                    add = memory.add_assistant_message
                add("s", turn.text)
            text = _fitted(memory, most)
        return text


def _fitted(memory: MemoryManager, most: int) -> str:
    for share in _TRIED:
        done = memory.compress("s", target_tokens=max(50, int(most * share)))
        text = memory.get_context_for_llm("s")
        if len(text) <= most:
            return text
        if done.compression_id:
            memory.undo_compression("s", done.compression_id)
    return text[:most]


def compactor(times: int = 1) -> Any:
    """Return memman as a strategy of compaction-conformance-kit."""
    made = import_module("compaction_kit.compacted").CompactedContext

    class Memman:
        name = OURS if times == 1 else f"{OURS}, {times} compressions"

        def compact(
            self, turns: list[Any], round_num: int = 1, budget_chars: int | None = None
        ) -> Any:
            most = budget_chars or sum(len(turn.text) for turn in turns) // 3
            if len(turns) == 1 and len(turns[0].text) <= most:
                return made(turns[0].text, self.name, round_num)
            return made(compressed(turns, most, times), self.name, round_num)

    return Memman


Strategies = Mapping[str, Callable[[], Any]]


def strategies(quick: bool) -> dict[str, Callable[[], Any]]:
    """Return memman and the kit's strategies. Raises `ImportError` if the kit is not installed."""
    theirs = import_module("compaction_kit.cli").COMPACTORS
    best = ("semantic-checklist", "update-aware-checklist", "summary-plus-tail")
    ours = {OURS: compactor(), f"{OURS}, {_ROUNDS} compressions": compactor(_ROUNDS)}
    return ours | {name: made for name, made in theirs.items() if not quick or name in best}


HEADERS = ("", "allowed", "survival", "updates", "stale", "of", "pairs", "used")


def kit_entries(made: Strategies, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return the kit's own benchmark of these strategies."""
    run = import_module("compaction_kit.benchmark").run_budget_benchmark
    entries: list[dict[str, Any]] = run(made, budgets=SHARES, seeds=seeds, rounds=_ROUNDS)[
        "entries"
    ]
    return sorted(
        entries, key=lambda entry: (entry["budget_fraction"], list(made).index(entry["compactor"]))
    )


def kit_rows(name: str, entries: Sequence[dict[str, Any]]) -> Iterator[list[object]]:
    """Yield a row for each strategy and share."""
    for entry in entries:
        semantic = entry["semantic"]
        yield [
            f"{name}: {entry['compactor']}", f"{entry['budget_fraction']:.0%}",
            entry["randomized"]["overall_final_survival"], semantic["resolved_rate"],
            semantic["conflicts"]["stale"], semantic["conflicts"]["n"],
            semantic["distinct_pair_rate"], entry["mean_final_output_ratio"],
        ]  # fmt: skip


def kit_goals(entries: Sequence[dict[str, Any]]) -> list[Goal]:
    """Return memman's goals with the kit's seeds."""
    made = []
    ours = [entry for entry in entries if entry["compactor"] == OURS]
    for entry in ours:
        share = entry["budget_fraction"]
        lost = 1 - entry["randomized"]["overall_final_survival"]
        made.append(
            Goal(
                f"kit, {share:.0%}: statements lost",
                lost,
                1 - SURVIVAL[share],
                held=_HELD_SURVIVAL[share],
            )
        )
    semantic = ours[-1]["semantic"]
    return [
        *made,
        Goal("kit, 30%: pairs lost", 1 - semantic["distinct_pair_rate"], 1 - PAIRS),
    ]


def rotating(seeds: Sequence[int]) -> list[tuple[list[Any], list[tuple[str, tuple[str, ...]]]]]:
    """Return the kit's rotating sessions: messages, and each value with those that it replaced."""
    build = import_module("compaction_kit.generated").build_generated_session
    made = []
    for seed in seeds:
        session, canaries = build(seed)
        values = [(one.required_tokens[0], one.superseded_tokens) for one in canaries]
        made.append((session.transcript(), values))
    return made


def rotating_rows(made: Strategies, seeds: Sequence[int]) -> Iterator[list[object]]:
    """Yield a row for each strategy and share on the kit's rotating sessions."""
    cases = rotating(seeds)
    for share in SHARES:
        for name, strategy in made.items():
            kept = resolved = stale = 0
            for turns, values in cases:
                text = compacted(strategy, turns, share).lower()
                there = [value.lower() in text for value, _ in values]
                old = [any(each.lower() in text for each in olds) for _, olds in values]
                kept += sum(there)
                stale += sum(old)
                resolved += sum(
                    new and not was and bool(olds)
                    for new, was, (_, olds) in zip(there, old, values, strict=True)
                )
            number = sum(len(values) for _, values in cases)
            updates = sum(bool(olds) for _, values in cases for _, olds in values)
            yield [
                f"rotating: {name}", f"{share:.0%}", kept / number, resolved / updates, stale, updates,
                "", "",
            ]  # fmt: skip


def compacted(strategy: Callable[[], Any], turns: Sequence[Any], share: float) -> str:
    """Return the text after one compaction to this share of the characters."""
    most = int(share * sum(len(turn.text) for turn in turns))
    text: str = strategy().compact(list(turns), round_num=1, budget_chars=most).text
    return text


def statement_rows(made: Strategies, seeds: Sequence[int]) -> Iterator[list[object]]:
    """Yield a row for each set of statements, strategy and share."""
    turn = import_module("compaction_kit.session").Turn

    def found(strategy: Callable[[], Any], one: Session, share: float) -> Found:
        turns = [turn(said.role, said.text) for said in one.said]
        return found_in(compacted(strategy, turns, share), one)

    for name in SETS:
        cases = sessions(name, seeds)
        for share in SHARES:
            for label, strategy in made.items():
                each = (found(strategy, one, share) for one in cases)
                total = reduce(Found.__add__, each, Found())
                yield [
                    f"statements {name}: {label}", f"{share:.0%}", total.kept / total.values,
                    total.resolved / total.updates, total.stale, total.updates,
                    total.both / total.pairs, "",
                ]  # fmt: skip


# ---------------------------------------------------------------- retainkit


def locomo(path: Path) -> list[Any]:
    """Return the dialogues as retainkit's cases: questions whose evidence is among the turns."""
    types, case = import_module("retainkit.types"), import_module("retainkit.evaluate").Case
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        dialogues = [json.loads(line) for line in lines]
    cases = []
    for dialogue in dialogues:
        turns = [
            types.Turn(t["id"], t["session"], t["speaker"], t["text"] or ".", t["date"])
            for t in dialogue["turns"]
        ]
        known = {turn.id for turn in turns}
        probes = []
        for number, question in enumerate(dialogue["questions"]):
            evidence = tuple(dict.fromkeys(e for e in question["evidence"] if e in known))
            kind = question["category_name"]
            if kind != "adversarial" and evidence:
                name = f"{dialogue['id']}-{number}"
                probes.append(types.Probe(name, question["question"], evidence, None, kind))
        cases.append(case(types.Transcript(dialogue["id"], tuple(turns)), tuple(probes)))
    return cases


class Window:
    """memman as a policy of retainkit: the turns that its context has whole, or a sentence of them."""

    query_aware = False

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self._settings = settings
        self._selected: dict[tuple[str, int], Any] = {}

    def select(self, transcript: Any, _probe: Any, budget: int, tokenizer: Any = None) -> Any:
        """Return the retained context, which does not depend on the question."""
        key = transcript.id, budget
        if key not in self._selected:
            base = import_module("retainkit.policies.base")
            text = self._text(transcript, budget)
            kept = [
                f for f in base.turn_fragments(transcript) if len(f.text) > 3 and f.text in text
            ]
            whole = {fragment.source_id for fragment in kept}
            kept += [
                fragment
                for fragment in base.sentence_fragments(transcript)
                if fragment.source_id not in whole
                and len(fragment.text) > 12
                and fragment.text in text
            ]
            self._selected[key] = base.package(self.name, budget, kept, tokenizer)
        return self._selected[key]

    def _text(self, transcript: Any, budget: int) -> str:
        config = MemoryConfig(max_tokens=budget, max_entries=None, **self._settings)
        with MemoryManager(counter=_quarter, config=config) as memory:
            for turn in transcript.turns:
                memory.add_user_message("s", turn.text, id=turn.id)
            messages = memory.build_context("s", format="openai-chat").messages
        return " \n".join(message["content"] for message in messages)


def _quarter(text: str) -> int:
    return max(1, len(text) // 4) if text else 0


def retained(path: Path, quick: bool) -> tuple[list[list[object]], list[Goal]]:
    """Return retainkit's rows and memman's goals. Raises `ImportError` if the kit is not installed."""
    evaluate = import_module("retainkit.evaluate")
    policies: list[Any] = [Window(OURS)]
    if not quick:
        policies += [Window("memman, token_buffer", strategy="token_buffer")]
        policies += evaluate.DEFAULT_POLICIES
    found = evaluate.run(locomo(path), policies, LOCOMO_BUDGETS)
    rows: list[list[object]] = [
        [
            row.policy,
            "yes" if row.query_aware else "no",
            f"{row.budget:,}",
            row.recall,
            round(row.tokens),
        ]
        for row in found.rows
    ]
    goals = [
        Goal(
            f"LoCoMo, {row.budget:,}: questions lost",
            1 - row.recall,
            1 - RECALL[row.budget],
            held=_HELD_RECALL[row.budget],
        )
        for row in found.rows
        if row.policy == OURS
    ]
    return rows, goals


def measure(path: Path, quick: bool, alone: bool = False) -> tuple[str, list[Goal]]:
    """Return the tables of both kits and memman's goals. Raises `ImportError` without them.

    With `alone`, the kits' own strategies are left out.
    """
    made = strategies(quick)
    if alone:
        made = {name: each for name, each in made.items() if name.startswith(OURS)}
    entries = kit_entries(made, KIT_SEEDS[:2] if quick else KIT_SEEDS)
    rows = [*kit_rows("kit", entries)]
    if not quick:
        rows += kit_rows("other seeds", kit_entries(made, OTHER_SEEDS))
        rows += rotating_rows(made, OTHER_SEEDS)
    rows += statement_rows(made, _STATEMENT_SEEDS[:3] if quick else _STATEMENT_SEEDS)
    shown = [table(HEADERS, rows)]
    goals = kit_goals(entries)
    if path.is_file():
        rows, more = retained(path, quick or alone)
        headers = ("LoCoMo", "sees the question", "tokens", "recall", "used")
        shown.append(table(headers, rows))
        goals += more
    else:
        shown.append(f"note: retainkit is skipped: no dialogues in {path.parent}")
    return "\n\n".join(shown), goals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=DATA, help="folder of the dialogues")
    parser.add_argument("--quick", action="store_true", help="few seeds and strategies")
    options = parser.parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    try:
        shown, goals = measure(options.folder / "locomo.public.jsonl.gz", options.quick)
    except ImportError as error:
        print(f"not installed: {error}; `uv sync --group bench-kits`", file=sys.stderr)
        return 2
    print(f"{shown}\n\n{report(goals)}")
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
