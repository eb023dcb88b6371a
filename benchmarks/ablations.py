"""Each heuristic of an outline, switched off: what the measures of `benchmarks.memory` lose.

A figure is a mean over sessions. It *loses* if the paired differences have a mean of more than two of their
standard errors, and of more than a thousandth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import msgspec

from benchmarks import (
    compactions,
    facts,
    findings,
    instructions,
    kits,
    needed,
    planted,
    surroundings,
)
from benchmarks.needed import OURS
from benchmarks.statements import found_in, sessions
from benchmarks.tables import table
from benchmarks.trajectories import Message, Trajectory, is_in, read_trajectories
from memman.compression import (
    outline,
    state_choice,
    state_fold,
    user_messages,
    working_set,
)
from memman.compression.state_items import ENDING, LONG, SHORT, Found
from memman.compression.view import View
from memman.session import compressor

_WEIGHTS = ("USED", "COMMAND", "PROSE", "INSIDE")
_NEVER = re.compile(r"(?!)")
_FLAT = 1e12  # so large that a length added to it makes no difference
_KIT_SHARE = 0.2
_KIT_SEEDS = range(1, 13)
_PLANTED_SEEDS = 2
_EVERY = 5  # coding session, of needed values
_BUDGETS = (4_000, 8_000)
_FACTS_SHARE = 0.3
_PASTED = 1_500  # characters on either side of a constraint
_TIMES = 10
_SOME = 3  # compaction that is compressed ten times
_OUTLINE = "[memman outline"
_NO_NAME = re.compile(r"[\d.,:%-]+[a-zA-Z]{0,3}|[0-9a-f-]{12,}|\d{4}-\d\d-\d\d.*")
_LEAST = 0.001
_ERRORS = 2  # standard errors

Patch = tuple[object, str, Any]
"""`(module or class, attribute, what takes its place)`."""


class _NewestFirst(outline.Cover):
    """The short messages of the user, the newest first; other lines by coverage."""

    def __init__(self, items: Sequence[Found], words: Sequence[frozenset[str]]) -> None:
        super().__init__(items, words)
        are_short = all(item.score == SHORT for item in items)
        self._newest = items[::-1] if are_short else None

    def order(self, taken: Any) -> Iterator[Found]:
        """Yield the lines."""
        return super().order(taken) if self._newest is None else iter(self._newest)


def _no(*_: object) -> bool:
    return False


def _yes(*_: object) -> bool:
    return True


def _no_text(*_: object) -> str:
    return ""


def _no_words(_name: str) -> frozenset[str]:
    return frozenset()


def _no_second_look(_before: View, after: View, *_: object) -> View:
    return after


def _in_their_order(cover: outline.Cover) -> list[Found]:
    return [
        item for item in reversed(cover.items) if item.section == "said" and item.score == ENDING
    ]


ABLATIONS: dict[str, tuple[Patch, ...]] = {
    "rules of the user": ((state_fold, "is_firm", _no),),
    "words of habits": ((user_messages, "_words_in", _no_words),),
    "KEY: value replaces": ((state_fold, "exact_label", _no_text),),
    "statements first": (
        (state_choice, "ASKED", ()),
        (state_choice, "label_of", _no_text),
        (state_choice, "_VALUED", _NEVER),
    ),
    "repeated messages last": ((state_choice.Choice, "_is_repeated", _no),),
    "coverage of short messages": ((state_choice, "Cover", _NewestFirst),),
    "share of short messages": ((state_choice, "_SHORT_MESSAGES", 0.0),),
    "share of long messages": ((state_choice, "_LONG_MESSAGES", 0.0),),
    "share of rules in long messages": ((state_choice, "_RULE_PIECES", 0.0),),
    "both ends of long messages": ((state_fold, "_EDGE", 0),),
    "share of tasks": ((state_choice, "_TASKS", 0.0),),
    "share of endings": ((state_choice, "_ENDINGS", 0.0),),
    "share of steps": ((state_choice, "_STEPS", 0.0),),
    "no times among other values": ((state_fold, "is_time", _no),),
    "first sentences of endings first": ((outline.Cover, "endings", _in_their_order),),
    "share of values": ((state_choice, "_VALUES", 0.0),),
    "most of the values": ((state_choice, "_MOST_VALUES", _FLAT),),
    "lines that tell": ((state_choice, "_tells", _yes),),
    "shown things left out": ((state_choice.Shown, "has", _no),),
    "memory of twice the room": ((state_choice, "_MEMORY", 1.0),),
    "length of values": ((state_choice, "_LENGTH", _FLAT),),
    "no times and hashes among values": ((working_set, "is_noise", _no),),
    "weights of values": tuple((working_set, name, (1.0, 1.0)) for name in _WEIGHTS)
    + tuple((state_fold, name, (1.0, 1.0)) for name in ("NAMED", "LISTED")),
    "worth of calls": ((outline, "_CALL", 1.0),),
    "newer lines first": ((outline, "_OLDEST", _FLAT),),
    "programs' texts last": ((outline, "PASTED", None), (state_fold, "PASTED", LONG)),
    "second look at the plan": ((compressor, "withdrawn", _no_second_look),),
}
"""What switches each heuristic off."""

EVERYTHING = "all"


class Data(msgspec.Struct, frozen=True):
    """Where the recorded data is, which half of it counts, and whether a sample is enough."""

    folder: Path
    half: str
    quick: bool

    @property
    def sessions(self) -> list[Trajectory]:
        """Return the recorded conversations."""
        recorded = _recorded(self.folder / "trajectories.jsonl.gz")
        return [one for one in recorded if is_in(self.half, one.id)]


@cache
def _recorded(path: Path) -> list[Trajectory]:
    return read_trajectories(path)


Units = dict[str, list[float]]
"""The figures of each session by name, more being better."""


def _agreement(data: Data) -> Units:
    cases = list(compactions.cases(data.sessions))[:: 2 if data.quick else 1]
    found = [compactions.measured(case) for case in cases]
    return {
        "agreement": [one.agreement for one in found],
        "sentences": [one.sentences for one in found],
        "conclusions": [one.conclusions for one in found if one.conclusions is not None],
        "words": [1 - one.wordless for one in found],
        "steps": [one.steps for one in found if one.steps is not None],
    }


def _again(data: Data) -> Units:
    cases = list(compactions.cases(data.sessions))[:: _SOME * (2 if data.quick else 1)]
    found = [compactions.measured(case, _TIMES) for case in cases]
    return {
        "agreement, 10 times": [one.agreement for one in found],
        "sentences, 10 times": [one.sentences for one in found],
    }


def _statements(data: Data) -> Units:
    around = surroundings.surroundings(data.sessions, data.folder, data.half)
    seeds = range(2 if data.quick else 6)
    found = [surroundings.played(one, seed) for one in around for seed in seeds]
    return {
        "statements": [one.share for one in found],
        "target used": [mean(one.used) for one in found],
    }


def _facts(data: Data) -> Units:
    units: Units = {}
    for name, cases_of in facts.KINDS.items():
        cases = list(cases_of(data.folder, data.half))[:: 8 if data.quick else 2]
        units[name] = [facts.recall([one], facts.carried, _FACTS_SHARE).kept for one in cases]
    return units


def _upkeep(data: Data) -> Units:
    """Open tasks and the last of a key's values, in conversations with other statements."""
    units: Units = {"tasks": [], "new values of keys": []}
    for language in planted.LANGUAGES:
        for seed in range(1 if data.quick else 4):
            made = planted.conversation("a", language, "plain words", seed)
            draw, of = Random(f"{language} {seed}"), planted.wordings("a")[language]
            task = planted.SHAPES["plain words"](draw, of)
            old, new = (planted.SHAPES["identifier"](draw, of) for _ in range(2))
            todos = {"todos": [{"content": task, "status": "pending"}]}
            beginning = [
                {"role": "user", "content": f"Server: {old}"},
                *_run("write_todos", todos, "ok"),
                {"role": "user", "content": f"Server: {new}"},
            ]
            case = facts.Case((*beginning, *made.messages), frozenset((task,)))
            text = facts.carried(case, int(_KIT_SHARE * facts.tokens(case.text)))
            units["tasks"].append(float(task in text))
            units["new values of keys"].append(float(new in text and old not in text))
    return units


def _run(tool: str, arguments: object, result: str) -> list[Message]:
    """Return a call of a tool and its result."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": tool, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": tool, "content": result},
    ]


def _pasted(data: Data) -> Units:
    """Rules in the middle of long messages, and wishes at their end."""
    units: Units = {"pasted": [], "behind a paste": []}
    for kind, case in facts.planted_cases("a", "plain words", 1 if data.quick else 2):
        if kind != "tool":
            inside = kind == "constraint"
            messages = tuple(_in_a_paste(message, inside) for message in case.messages)
            one = msgspec.structs.replace(case, messages=messages)
            kept = facts.recall([one], facts.carried, _KIT_SHARE).kept
            units["pasted" if inside else "behind a paste"].append(kept)
    return units


def _kit(data: Data) -> Units:
    """Statements of a public kit that the contexts of each seed have."""
    try:
        made = kits.strategies(quick=True)[OURS]
    except ImportError:
        return {}
    seeds = range(1, 4 if data.quick else 13)
    found = [kits.kit_entries({OURS: made}, [seed])[-1] for seed in seeds]
    return {"kit": [one["randomized"]["overall_final_survival"] for one in found]}


def _in_a_paste(message: Message, inside: bool) -> Message:
    """Return a message of the user behind many lines of program text, or between them."""
    if message["role"] != "user":
        return message
    paste = "\n".join(f"    at frame_{n}(worker.py:{n})" for n in range(_PASTED // 32))
    behind = f"\n{paste}" if inside else ""
    return {**message, "content": f"{paste}\n{message['content']}{behind}"}


def _doubled(data: Data) -> Units:
    """The values of an outline that the rest of the context lacks, and those that are names.

    A time, a hash or a plain number has little use without the words around it.
    """
    shares, names = list[float](), list[float]()
    found = surroundings.surroundings(data.sessions, data.folder, data.half)
    for around, seed in product(found, range(1 if data.quick else 6)):
        messages, _ = surroundings.conversation(around, seed)
        context, _ = surroundings.played_at(messages, surroundings.BUDGET)
        outlines = [text for text in context if text.startswith(_OUTLINE)]
        rest = "\n".join(text for text in context if not text.startswith(_OUTLINE))
        lines = [line for text in outlines for line in text.splitlines() if line.startswith("- ")]
        values = [value for line in lines for value in line[2:].split() if "{" not in value]
        if values:
            shares.append(mean(value not in rest for value in values))
            names.append(mean(_NO_NAME.fullmatch(value) is None for value in values))
    return {"not doubled": shares, "names": names}


def _findings(data: Data) -> Units:
    scores = [findings.play(seed) for seed in range(3 if data.quick else 8)]
    return {"findings": [one.there / one.asked for one in scores]}


def _instructions(data: Data) -> Units:
    try:
        given = instructions.instructions()
    except ImportError:
        return {}
    around = instructions.sessions(data.sessions)[: 1 if data.quick else None]
    places = instructions.PLACES[3:] if data.quick else instructions.PLACES
    found = [
        instructions.is_kept(session, place, one)
        for session in around
        for place in places
        for one in given
    ]
    return {"instructions": list(map(float, found))}


def _values(data: Data) -> Units:
    coding = [one for one in data.sessions if needed.kind_of(one) == "coding"]
    chosen = coding[:: 4 * _EVERY if data.quick else _EVERY]
    units: Units = {f"old, {budget:,}": [] for budget in _BUDGETS}
    units |= {f"first, {budget:,}": [] for budget in _BUDGETS}
    for one in needed.run(chosen, _BUDGETS, [OURS], 1):
        for (budget, _), score in one.scores.items():
            if score.old:
                units[f"old, {budget:,}"].append(score.old_kept / score.old)
            if score.first:
                units[f"first, {budget:,}"].append(score.first_kept / score.first)
    return units


def _plain_words(data: Data) -> Units:
    cases = facts.planted_cases("a", "plain words", 1 if data.quick else _PLANTED_SEEDS)
    each = len(planted.KINDS)
    found = [
        facts.kept_of_each(cases[at : at + each], facts.carried)
        for at in range(0, len(cases), each)
    ]
    return {f"words, {kind}": [one[kind] for one in found] for kind in planted.KINDS}


def _labelled(data: Data) -> Units:
    found = []
    for one in sessions("A", _KIT_SEEDS[: 3 if data.quick else None]):
        most = int(_KIT_SHARE * sum(len(said.text) for said in one.said))
        found.append(found_in(kits.compressed(one.said, most), one))
    return {
        "labelled": [one.kept / one.values for one in found],
        "not stale": [1 - one.stale / one.updates for one in found],
    }


MEASURES: tuple[Callable[[Data], Units], ...] = (
    _agreement, _again, _statements, _doubled, _findings, _instructions, _values, _facts, _plain_words,
    _upkeep, _pasted, _labelled, _kit,
)  # fmt: skip


def units_of(name: str, number: int, data: Data) -> Units:
    """Return a measure without one heuristic; "" is with all of them."""
    with ExitStack() as without:
        for target, attribute, other in ABLATIONS.get(name, ()):
            without.enter_context(patch.object(target, attribute, other))
        return MEASURES[number](data)


class Difference(msgspec.Struct, frozen=True):
    """How much a figure falls without a heuristic, and the standard error of that."""

    before: float
    after: float
    error: float

    @property
    def loses(self) -> bool:
        """Return whether the fall is more than noise."""
        return self.before - self.after > max(_LEAST, _ERRORS * self.error)

    @property
    def gains(self) -> bool:
        """Return whether the figure rises by more than noise."""
        return self.after - self.before > max(_LEAST, _ERRORS * self.error)

    def __str__(self) -> str:
        change = f"{self.after - self.before:+.3f}"
        return f"{change}{'*' if self.loses else '+' if self.gains else ' '}"


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Return the difference of a figure over the same sessions."""
    each = [one - other for one, other in zip(before, after, strict=True)]
    error = stdev(each) / sqrt(len(each)) if len(each) > 1 else 0.0
    return Difference(mean(before), mean(after), error)


def run(names: Sequence[str], data: Data, jobs: int) -> tuple[str, list[str]]:
    """Return the table of these heuristics, and the names of those without which no figure falls."""
    tasks = [(name, number) for number in range(len(MEASURES)) for name in ("", *names)]
    given = [name for name, _ in tasks], [number for _, number in tasks], [data] * len(tasks)
    if jobs == 1:
        found = list(map(units_of, *given))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            found = list(pool.map(units_of, *given))
    units: dict[str, Units] = {}
    for (name, _), each in zip(tasks, found, strict=True):
        units.setdefault(name, {}).update(each)
    return _shown(names, units)


def _shown(names: Sequence[str], units: Mapping[str, Units]) -> tuple[str, list[str]]:
    whole = {figure: values for figure, values in units[""].items() if values}
    rows: list[list[object]] = [["with all", "", *map(mean, whole.values())]]
    useless = []
    for name in names:
        found = {one: difference(values, units[name][one]) for one, values in whole.items()}
        losing = [one for one, change in found.items() if change.loses]
        if not losing:
            useless.append(name)
        rows.append([f"without: {name}", len(losing), *map(str, found.values())])
    shown = table(("", "lose", *whole), rows)
    return f"{shown}\n* falls, + rises by more than two standard errors", useless
