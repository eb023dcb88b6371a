"""Facts: how much of the information that is needed later a compression without a model keeps.

    uv run [--group bench-peers] python -m benchmarks.facts [--folder ../shared/data] [--quick]

Three kinds of conversation are cut in two. A fact occurs in the old part, is needed later, and is
not in the newest messages, which stay anyway. The figure is the share of facts that a summary of 10 %
or 30 % of the old part's tokens still contains.

- tau-bench: the scalar arguments of later tool calls.
- coding agent: paths, identifiers and numbers in later tool calls.
- LoCoMo: words that questions and answers share with the turns that are their evidence.

The digest is compared with the beginning of the old part, a text of counts and first lines, and sumy's
extracts. Without sumy, a note replaces them.

Exit codes: 0 all goals met, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import msgspec

from benchmarks.goals import Goal, any_failed, report
from benchmarks.peers import sumy
from benchmarks.tables import table
from benchmarks.tokens import o200k
from benchmarks.trajectories import Message, read_trajectories
from memman.compression import digest, heuristic_summary
from memman.compression.words import words_of
from memman.entries import Entry, TokenCount, entry_of, transcript_line
from memman.formats import format_named

SHARES = (0.1, 0.3)
GOALS = {"tau-bench": (0.72, 0.96), "coding agent": (0.75, 0.92), "LoCoMo": (0.40, 0.78)}
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_RECENT = 10  # the newest messages stay in the window, so their facts are not lost
_CUTS = (0.6, 0.8)
_SHORTEST_FACT = 4
_SESSIONS = 4  # sessions of a dialogue in one old part
_QUICK = 8

Summarize = Callable[[Sequence[Entry], int], str]
_encode = o200k()


class Case(msgspec.Struct, frozen=True):
    """The old part of a conversation, and its facts that are needed later."""

    old: tuple[Entry, ...]
    facts: frozenset[str]
    words: bool = False  # whether facts are words, found anywhere, rather than exact strings


def tokens(text: str) -> int:
    """Count tokens of o200k_base."""
    return len(_encode(text))


# ---------------------------------------------------------------- cases


def tau_cases(folder: Path) -> Iterator[Case]:
    """Customer service with tools: the scalar arguments of later calls."""
    yield from _agent_cases(folder, "tau-", _scalars)


def coding_cases(folder: Path) -> Iterator[Case]:
    """A coding agent: paths, identifiers and numbers in later calls."""
    yield from _agent_cases(folder, "claude-code-", _names)


def _agent_cases(
    folder: Path, prefix: str, facts_of: Callable[[str], Iterator[str]]
) -> Iterator[Case]:
    for trajectory in read_trajectories(folder / "trajectories.jsonl.gz"):
        messages = trajectory.messages
        if not trajectory.id.startswith(prefix) or len(messages) < 24:
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
                yield Case(_entries(old), frozenset(facts))


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


def locomo_cases(folder: Path) -> Iterator[Case]:
    """Long dialogues: words that questions and answers share with the turns of their evidence."""
    with gzip.open(folder / "locomo.public.jsonl.gz", "rb") as lines:
        for line in lines:
            yield from _dialogue_cases(json.loads(line))


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
            yield Case(_entries(messages), frozenset(words), words=True)


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


def _digest(old: Sequence[Entry], most: int) -> str:
    return digest(old, most, tokens)


def _head(old: Sequence[Entry], most: int) -> str:
    text = _text_of(old)
    cut = text[: most * 6]
    while (cost := tokens(cut)) > most:
        cut = cut[: int(len(cut) * most / cost)]
    return cut


def _heuristic(old: Sequence[Entry], _most: int) -> str:
    return heuristic_summary(old)


METHODS: dict[str, Summarize] = {
    "digest": _digest,
    "head truncation": _head,
    "heuristic text": _heuristic,
}
# Its time grows with the square of the number of sentences: minutes for a coding agent's session.
_NOT_FOR_LONG = "SumBasic"


def methods(long: bool = False) -> dict[str, Summarize]:
    """Return the methods to compare: the digest, two simple ones, and sumy's extracts if installed."""
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
    return lambda old, most: extract(_text_of(old), most, tokens)


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
        most = int(share * tokens(_text_of(case.old)))
        began = process_time()
        text = method(case.old, most)
        seconds += process_time() - began
        spent = tokens(text)
        if method is _digest and spent > most:
            raise AssertionError(f"the digest has {spent} tokens, more than the allowed {most}")
        used += spent / most
        found = set(_plain_words(text)) if case.words else text
        hits += sum(fact in found for fact in case.facts)
        facts += len(case.facts)
    return Recall(hits / facts, used / len(cases), 1_000 * seconds / len(cases))


def measure(folder: Path, every: int = 1) -> tuple[str, list[Goal]]:
    """Return the table of all methods on all conversations, and the digest's goals."""
    makers = {"tau-bench": tau_cases, "coding agent": coding_cases, "LoCoMo": locomo_cases}
    rows: list[list[object]] = []
    goals: list[Goal] = []
    for kind, cases_of in makers.items():
        cases = list(cases_of(folder))[:: every if kind == "coding agent" else 1]
        facts = sum(len(case.facts) for case in cases)
        for name, method in methods(long=kind == "coding agent").items():
            found = [recall(cases, method, share) for share in SHARES]
            rows.append(
                [f"{kind}: {name}", len(cases), facts]
                + [figure for one in found for figure in (one.kept, one.used, one.milliseconds)]
            )
            if method is _digest:
                goals += [
                    Goal(f"{kind}: facts lost at {share:.0%}", 1 - one.kept, 1 - goal)
                    for share, one, goal in zip(SHARES, found, GOALS[kind], strict=True)
                ]
    headers = ("", "cases", "facts", "at 10 %", "used", "ms", "at 30 %", "used", "ms")
    return table(headers, rows), goals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.facts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=_DATA, help="folder of the conversations")
    parser.add_argument(
        "--quick", action="store_true", help=f"every {_QUICK}th of the coding agent's cases"
    )
    options = parser.parse_args(arguments)
    if not (options.folder / "trajectories.jsonl.gz").is_file():
        print(f"no recorded conversations in {options.folder}", file=sys.stderr)
        return 2
    shown, goals = measure(options.folder, _QUICK if options.quick else 1)
    print(f"{shown}\n{left_out()}\n\n{report(goals)}")
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
