"""Facts: how much of the information that is needed later a compression without a model keeps.

    uv run [--group bench-peers] python -m benchmarks.facts [--folder ../shared/data] [--quick]

Three kinds of recorded conversation are cut in two. A fact occurs in the old part, is needed later, and
is not in the newest messages, which stay anyway. The figure is the share of facts that a context of 10 %
or 30 % of the old part's tokens still has.

- tau-bench: the scalar arguments of later tool calls.
- coding agent: paths, identifiers and numbers in later tool calls.
- LoCoMo: words that questions and answers share with the turns that are their evidence.

In generated conversations (`benchmarks.planted`) a user states constraints and preferences, and tools
return values; at 20 % of the tokens. The values are identifiers, paths, numbers, three plain words, quoted
sentences, or in another script than the talk. Set B is held out: it is reported and has no goal.

- memman: the product. The old part is added to a session and compressed to the tokens; the context
  counts with outline and stubs.
- head truncation, and sumy's extracts; without sumy, a note replaces them.

Exit codes: 0 all goals met or held, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import msgspec

from benchmarks import planted
from benchmarks.goals import Goal, any_failed, report
from benchmarks.needed import text_of
from benchmarks.peers import sumy
from benchmarks.tables import table
from benchmarks.tokens import o200k
from benchmarks.trajectories import Message, is_in, read_trajectories
from memman import MemoryConfig, MemoryManager
from memman.compression.words import words_of
from memman.entries import Entry, TokenCount, entry_of, transcript_line
from memman.formats import format_named

SHARES = (0.1, 0.3)
GOALS = {"tau-bench": (0.72, 0.98), "coding agent": (0.85, 0.99), "LoCoMo": (0.41, 0.82)}
PLANTED_SHARE = 0.2
# The least shares of planted values in plain words. Those of results are reported: a sentence of a result
# is carried if the assistant repeats it.
PLANTED_GOALS = {"constraint": 0.90, "preference": 0.80}
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_LARGE = 1_000_000
_NEWEST = "Go on."
_TRIES, _NEAR, _CLOSE = 4, 0.98, 0.94
_DELIMITERS = ("[memman ", "[end of memman ")
_RECENT = 10  # the newest messages stay in the window, so their facts are not lost
_CUTS = (0.6, 0.8)
_SHORTEST_FACT = 4
_SESSIONS = 4  # sessions of a dialogue in one old part
_QUICK, _QUICK_OTHERS = 16, 2
SEEDS = 4  # of generated conversations, for each language and shape
# The least shares that pass until the goals are reached.
_HELD = {"tau-bench": (0.35, 0.86), "coding agent": (0.55, 0.78), "LoCoMo": (0.135, 0.46)}

_encode = o200k()


class Case(msgspec.Struct, frozen=True):
    """The old part of a conversation, and its facts that are needed later."""

    messages: tuple[Message, ...]
    facts: frozenset[str]
    words: bool = False  # whether facts are words, found anywhere, rather than exact strings

    @property
    def old(self) -> tuple[Entry, ...]:
        """Return the entries of the old part."""
        return _entries(self.messages)

    @property
    def text(self) -> str:
        """Return the old part as a transcript."""
        return _text_of(self.old)


Summarize = Callable[[Case, int], str]
"""`(case, most tokens) -> the remaining text of the old part`."""


def tokens(text: str) -> int:
    """Count tokens of o200k_base."""
    return len(_encode(text))


# ---------------------------------------------------------------- cases


def tau_cases(folder: Path, half: str = "both") -> Iterator[Case]:
    """Customer service with tools: the scalar arguments of later calls."""
    yield from _agent_cases(folder, "tau-", half, _scalars)


def coding_cases(folder: Path, half: str = "both") -> Iterator[Case]:
    """A coding agent: paths, identifiers and numbers in later calls."""
    yield from _agent_cases(folder, "claude-code-", half, _names)


def _agent_cases(
    folder: Path, prefix: str, half: str, facts_of: Callable[[str], Iterator[str]]
) -> Iterator[Case]:
    for trajectory in read_trajectories(folder / "trajectories.jsonl.gz"):
        messages = trajectory.messages
        is_of = trajectory.id.startswith(prefix) and is_in(half, trajectory.id)
        if not is_of or len(messages) < 24:
            continue
        for share in _CUTS:
            cut = int(len(messages) * share)
            old, recent = messages[1 : cut - _RECENT], messages[cut - _RECENT : cut]
            if len(old) < 5:
                continue
            then, near = _flat(old), _flat(recent)
            facts = {
                fact
                for arguments in _later_arguments(messages[cut:])
                for fact in facts_of(arguments)
                if len(fact) >= _SHORTEST_FACT and fact in then and fact not in near
            }
            if facts:
                yield Case(tuple(old), frozenset(facts))


def _later_arguments(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call["function"]["arguments"]


def _scalars(arguments: str) -> Iterator[str]:
    """The scalar values in a call's arguments."""
    try:
        waiting: list[Any] = [json.loads(arguments)]
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif value is not None and not isinstance(value, bool):
            yield str(value)


_PATH = r"(?:[\w.~-]+/|/)[\w./-]*\w"
_IDENTIFIER = r"[A-Za-z]\w*(?:_\w+|\d\w*|(?<=[a-z])[A-Z]\w*)"
_NAME = re.compile(rf"{_PATH}|{_IDENTIFIER}|\d{{3,}}")


def _names(arguments: str) -> Iterator[str]:
    """Yield paths, identifiers and numbers of a call's short arguments, which name its targets."""
    for value in _scalars(arguments):
        if len(value) <= 200 and "\n" not in value:
            yield from _NAME.findall(value)


def locomo_cases(folder: Path, half: str = "both") -> Iterator[Case]:
    """Long dialogues: words that questions and answers share with the turns of their evidence."""
    with gzip.open(folder / "locomo.public.jsonl.gz", "rb") as lines:
        for line in lines:
            dialogue = json.loads(line)
            if is_in(half, dialogue["id"]):
                yield from _dialogue_cases(dialogue)


def _dialogue_cases(dialogue: dict[str, Any]) -> Iterator[Case]:
    names = {name.lower() for name in dialogue["speakers"]}
    evidence: dict[str, frozenset[str]] = {}
    for question in dialogue["questions"]:
        terms = words_of(f"{question['question']} {question['answer']}")
        for turn in question["evidence"] or ():
            evidence[turn] = evidence.get(turn, frozenset()) | terms
    last = max(turn["session"] for turn in dialogue["turns"])
    for first in range(1, last - _SESSIONS + 2, _SESSIONS):
        turns = [t for t in dialogue["turns"] if first <= t["session"] < first + _SESSIONS]
        words = {
            word
            for turn in turns
            for word in evidence.get(turn["id"], frozenset()) & words_of(turn["text"])
            if len(word) >= _SHORTEST_FACT and word not in names
        }
        if words:
            speakers = dialogue["speakers"]
            messages = [
                {
                    "role": "user" if turn["speaker"] == speakers[0] else "assistant",
                    "content": f"{turn['speaker']}: {turn['text']}",
                }
                for turn in turns
            ]
            yield Case(tuple(messages), frozenset(words), words=True)


KINDS: dict[str, Callable[[Path, str], Iterator[Case]]] = {
    "tau-bench": tau_cases,
    "coding agent": coding_cases,
    "LoCoMo": locomo_cases,
}


def _plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _entries(messages: Sequence[Message]) -> tuple[Entry, ...]:
    new_entries = format_named("openai-chat").parse(messages)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return tuple(
        msgspec.structs.replace(entry_of(new_entry, f"e{seq}", at, TokenCount(0)), seq=seq)
        for seq, new_entry in enumerate(new_entries, 1)
    )


def _flat(messages: Sequence[Message]) -> str:
    return _text_of(_entries(messages))


def _text_of(entries: Sequence[Entry]) -> str:
    return "\n".join(transcript_line(entry, entry.text) for entry in entries)


# ---------------------------------------------------------------- methods


def carried(case: Case, most: int) -> str:
    """Return memman's context for the old part, in at most so many tokens without delimiters."""
    config = MemoryConfig(
        max_tokens=_LARGE,
        max_entries=None,
        auto_compress=False,
        recent_window=1,
        compression_ratio=1.0,
        max_summary_ratio=0.9,
    )
    best, target = "", most
    with MemoryManager(counter=tokens, config=config) as memory:
        memory.add_messages("s", case.messages, format="openai-chat")
        memory.add_user_message("s", _NEWEST)
        # A target includes framing, so the rest is more or less than allowed: the best of a few.
        for _ in range(_TRIES):
            text = _compressed(memory, min(_LARGE, target + tokens(_NEWEST)))
            used = tokens(text)
            if tokens(best) < used <= most:
                best = text
            if _CLOSE * most <= used <= most:
                break
            target = int(_NEAR * target * most / max(1, used))
    return best or _cut(text, most)


def _compressed(memory: MemoryManager, target: int) -> str:
    """Return the old part's text after a compression, without delimiters. Undo the compression."""
    done = memory.compress("s", target_tokens=target, summarize=False)
    messages = memory.build_context("s", format="openai-chat").messages[:-1]
    if done.compression_id:
        memory.undo_compression("s", done.compression_id)
    lines = "\n".join(map(text_of, messages)).splitlines()
    return "\n".join(line for line in lines if not line.startswith(_DELIMITERS))


def _head(case: Case, most: int) -> str:
    return _cut(case.text, most)


def _cut(text: str, most: int) -> str:
    cut = text[: most * 6]
    while (cost := tokens(cut)) > most:
        cut = cut[: int(len(cut) * most / cost)]
    return cut


OURS = "memman"
METHODS: dict[str, Summarize] = {
    OURS: carried,
    "head truncation": _head,
}
# Its time grows with the square of the number of sentences: minutes for a coding agent's session.
_NOT_FOR_LONG = "SumBasic"


def methods(long: bool = False) -> dict[str, Summarize]:
    """Return the methods to compare: memman, truncation, and sumy's extracts if installed."""
    try:
        extracts = sumy.load()
    except ImportError:
        return METHODS
    named = f"sumy {version('sumy')}"
    return METHODS | {
        f"{named} {name}": _extracted_by(extract)
        for name, extract in extracts.items()
        if not (long and name == _NOT_FOR_LONG)
    }


def _extracted_by(extract: sumy.Extract) -> Summarize:
    return lambda case, most: extract(case.text, most, tokens)


def left_out() -> str:
    """Return why a method is missing from the table, or from a part of it."""
    try:
        sumy.load()
    except ImportError as error:
        return f"note: sumy is skipped: {error}"
    return f"note: {_NOT_FOR_LONG} of the coding agent is skipped: minutes for a case"


class Recall(msgspec.Struct, frozen=True):
    """The share of facts kept over all cases, the share of the allowed tokens used, and the time."""

    kept: float
    used: float
    milliseconds: float


def recall(cases: Sequence[Case], method: Summarize, share: float) -> Recall:
    """Measure the share of facts that a method keeps in `share` of the old part's tokens."""
    hits = facts = 0
    used = 0.0
    seconds = 0.0
    for case in cases:
        most = int(share * tokens(case.text))
        began = process_time()
        text = method(case, most)
        seconds += process_time() - began
        spent = tokens(text)
        if method is carried and spent > most:
            raise AssertionError(f"{spent} tokens are more than the allowed {most}")
        used += spent / most
        found = set(_plain_words(text)) if case.words else text
        hits += sum(fact in found for fact in case.facts)
        facts += len(case.facts)
    return Recall(hits / facts, used / len(cases), 1_000 * seconds / len(cases))


def measure(
    folder: Path, every: int = 1, half: str = "both", alone: bool = False
) -> tuple[str, list[Goal]]:
    """Return the table of all methods, or of memman alone, on recorded conversations, and memman's goals.

    With `every`, only each so manieth case of the coding agent counts, and each second one of the others.
    """
    rows: list[list[object]] = []
    goals: list[Goal] = []
    for kind, cases_of in KINDS.items():
        step = every if kind == "coding agent" else min(every, _QUICK_OTHERS)
        cases = list(cases_of(folder, half))[::step]
        facts = sum(len(case.facts) for case in cases)
        compared = {OURS: carried} if alone else methods(long=kind == "coding agent")
        for name, method in compared.items():
            found = [recall(cases, method, share) for share in SHARES]
            rows.append(
                [f"{kind}: {name}", len(cases), facts]
                + [figure for one in found for figure in (one.kept, one.used, one.milliseconds)]
            )
            if name == OURS:
                goals += [
                    Goal(
                        f"{kind}: facts lost at {share:.0%}", 1 - one.kept, 1 - goal, held=1 - least
                    )
                    for share, one, goal, least in zip(
                        SHARES, found, GOALS[kind], _HELD[kind], strict=True
                    )
                ]
    headers = ("", "cases", "facts", "at 10 %", "used", "ms", "at 30 %", "used", "ms")
    return table(headers, rows), goals


def planted_cases(name: str, shape: str, seeds: int) -> list[tuple[str, Case]]:
    """Return the cases of a set and a shape: a kind of fact, and a conversation, in every language."""
    cases = []
    for language in planted.LANGUAGES:
        for seed in range(seeds):
            made = planted.conversation(name, language, shape, seed)
            for kind in planted.KINDS:
                values = frozenset(one.value for one in made.planted if one.kind == kind)
                cases.append((kind, Case(made.messages, values)))
    return cases


def measure_planted(seeds: int, alone: bool = False) -> tuple[str, list[Goal]]:
    """Return the table of planted values by set, shape and method, and memman's goals."""
    compared = {OURS: carried} if alone else METHODS
    rows: list[list[object]] = []
    goals: list[Goal] = []
    for name in planted.SETS:
        for shape in planted.SHAPES:
            cases = planted_cases(name, shape, seeds)
            for label, method in compared.items():
                kept = kept_of_each(cases, method)
                rows.append([f"set {name.upper()}, {shape}: {label}", len(cases), *kept.values()])
                if (name, shape, label) == (planted.SETS[0], "plain words", OURS):
                    goals += [
                        Goal(
                            f"plain words: {kind} values lost",
                            1 - kept[kind],
                            1 - least,
                        )
                        for kind, least in PLANTED_GOALS.items()
                    ]
    return table(("at 20 %", "cases", *planted.KINDS), rows), goals


def kept_of_each(cases: Sequence[tuple[str, Case]], method: Summarize) -> dict[str, float]:
    """Return the share of values that a method keeps, by kind.

    The cases of a conversation follow one another.
    """
    hits, facts = Counter[str](), Counter[str]()
    text = ""
    before: tuple[Message, ...] = ()
    for kind, case in cases:
        if case.messages is not before:
            text = method(case, int(PLANTED_SHARE * tokens(case.text)))
            before = case.messages
        hits[kind] += sum(fact in text for fact in case.facts)
        facts[kind] += len(case.facts)
    return {kind: hits[kind] / facts[kind] for kind in planted.KINDS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.facts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=_DATA, help="folder of the conversations")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"every {_QUICK}th of the coding agent's cases, every {_QUICK_OTHERS}nd of the others",
    )
    options = parser.parse_args(arguments)
    if not (options.folder / "trajectories.jsonl.gz").is_file():
        print(f"no recorded conversations in {options.folder}", file=sys.stderr)
        return 2
    shown, goals = measure(options.folder, _QUICK if options.quick else 1)
    print(f"{shown}\n{left_out()}\n")
    shown, more = measure_planted(1 if options.quick else SEEDS)
    print(f"{shown}\n\n{report([*goals, *more])}")
    return int(any_failed([*goals, *more]))


if __name__ == "__main__":
    sys.exit(main())
