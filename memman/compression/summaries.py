"""Summaries: what is asked, what answers are refused, and the text for when nobody can be asked.

`summarise` is a generator: it yields requests and problems, and the session that drives it does the
waiting. Nothing changes until a valid summary is in hand.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec

from memman.compression.covering import summary_draft
from memman.compression.digest import digest
from memman.compression.view import Craft, Goal, View
from memman.entries import (
    Entry,
    TokenCount,
    is_encodable,
    transcript_line,
)
from memman.errors import MemmanError
from memman.ports import SummaryReply, SummaryRequest
from memman.records import ReplacementMethod
from memman.window import Slot

_SMALLEST_SUMMARY = 16  # tokens: with less room than this a summary says nothing
_RESULT_CHARS_SHOWN = 2_000  # of a tool result in the prompt: its beginning and end tell most

PROMPT = """\
Summarize the following conversation between a user and an agent. Keep:
1. the key topics discussed,
2. the decisions made and their reasons,
3. the tools used and what came out,
4. errors and problems met,
5. whatever is needed to continue: names, paths, numbers and standing instructions word for word.
Write at most about {words} words, plain text, nothing but the summary.{focus}

{previous}{content}"""
_STRICTER = (
    "The last attempt was refused because {problem}. Write a plain-text summary of at most {words} "
    "words.\n\n"
)


class SummaryFailed(MemmanError):
    """No valid summary and, by `on_failure`, no substitute: the plan is given up."""


class SummaryProblem(msgspec.Struct, frozen=True):
    """Why a summarizer's answer was not taken, and what happens instead."""

    reason: str
    fallback: str


class SummaryFailure(msgspec.Struct, frozen=True):
    """What the driver sends instead of a reply when the summarizer raised or was too slow."""

    reason: str


class SummaryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `summarise` may work: `ask` a summarizer, else `write` the text itself, else not at all.

    A `dry_run` does neither and puts a stand-in where the summary would be.
    """

    ask: bool = False
    write: bool = True
    on_failure: str = "fallback"
    focus: str | None = None
    dry_run: bool = False


class OriginalsWanted(msgspec.Struct, frozen=True):
    """Asks for what stubs and clipped entries stand for, so that a summary can tell of it.

    The answer has the entries of each slot, in the order asked; an empty tuple where they are gone.
    """

    slots: tuple[Slot, ...]


Request = SummaryRequest | SummaryProblem | OriginalsWanted
Answer = SummaryReply | SummaryFailure | Sequence[tuple[Entry, ...]] | None
Asking = Generator[Request, Answer, View | None]


def summarise(view: View, goal: Goal, craft: Craft, options: SummaryOptions) -> Asking:
    """Replaces the old part by one summary; the previous summary folds in.

    As many of the oldest exchanges as low water asks for; fewer entries than
    `min_entries_to_compress` are left to the other stages. Where a fixed exchange splits the old
    part, the summary stands at its beginning and speaks for all pieces.
    """
    if not (options.ask or options.write):
        return None
    chosen = _oldest(view, goal)
    run = [slot for number in chosen for slot in view.groups[number].slots]
    # What it replaces is the run as it was, before an earlier stage cleared something in it.
    replaced = sum([slot.tokens for slot in run])
    cap = min(int(goal.budget.compression_ratio * replaced), goal.budget.summary_tokens)
    entries = sum([view.groups[number].entries for number in chosen])
    if entries < goal.budget.min_entries or cap < _SMALLEST_SUMMARY:
        return None
    if options.dry_run:
        originals = [slot.entry for slot in run]
        summary, method = _planned(originals, cap, craft), _method(options.ask)
    else:
        originals = yield from _in_full(run)
        summary, method = yield from _written(originals, cap, craft, options)
    return view.with_summary(chosen, summary, method)


def _oldest(view: View, goal: Goal) -> list[int]:
    """The oldest groups that must go so that the rest and a summary are at low water.

    At least `min_entries_to_compress` entries where so many are old: a few large ones are better
    summarised with their neighbours than dropped.
    """
    chosen: list[int] = []
    tokens = view.tokens + goal.budget.summary_tokens
    entries = view.entries + 1
    for number, group in enumerate(view.groups):
        if group.standing != "old":
            continue
        enough = tokens <= goal.tokens and (goal.entries is None or entries <= goal.entries)
        if enough and view.entries + 1 - entries >= goal.budget.min_entries:
            break
        chosen.append(number)
        tokens -= group.tokens
        entries -= group.entries
    return chosen


def _in_full(run: Sequence[Slot]) -> Generator[Request, Answer, list[Entry]]:
    """The entries of a run with what stubs and clips stand for in their place."""
    cut = [s for s in run if s.compression is not None and s.entry.type != "summary"]
    answer = (yield OriginalsWanted(tuple(cut))) if cut else ()
    found = dict(zip(cut, answer, strict=True)) if isinstance(answer, Sequence) else {}
    return [entry for slot in run for entry in found.get(slot) or (slot.entry,)]


def _written(
    originals: Sequence[Entry],
    cap: int,
    craft: Craft,
    options: SummaryOptions,
) -> Generator[Request, Answer, tuple[Entry, ReplacementMethod]]:
    """A summary of at most `cap` tokens: asked for, asked once more strictly, then made here."""
    problem = ""
    for _ in range(2 if options.ask else 0):
        reply = yield summary_request(originals, cap, options.focus, problem)
        if isinstance(reply, SummaryReply):
            candidate, problem = _checked(reply, originals, cap, craft)
            if candidate is not None:
                return candidate, "summary"
        else:
            # A summarizer that raised or hung is not asked again: its time is the agent's time.
            problem = reply.reason if isinstance(reply, SummaryFailure) else "it gave no reply"
            break
    if problem:
        falls_back = options.on_failure == "fallback"
        yield SummaryProblem(problem, "digest" if falls_back else "nothing was changed")
        if not falls_back:
            raise SummaryFailed(problem)
    return _digest(originals, cap, craft), "digest"


def _checked(
    reply: SummaryReply, originals: Sequence[Entry], cap: int, craft: Craft
) -> tuple[Entry | None, str]:
    """The summary as an entry, or what is wrong with the reply."""
    text = reply.text.strip()
    if reply.refused:
        return None, "the summarizer refused"
    if not text:
        return None, "the summary was empty"
    if not is_encodable(text):
        return None, "the summary held a lone surrogate"
    if reply.truncated:
        return None, "the summary was cut off by the provider"
    summary = craft(summary_draft(text, originals))
    if summary.token_count.tokens > cap:
        return None, f"the summary had {summary.token_count.tokens} tokens, and {cap} is the most"
    return summary, ""


def summary_request(
    originals: Sequence[Entry], cap: int, focus: str | None, problem: str = ""
) -> SummaryRequest:
    """The request for a summary of these entries; the newest earlier summary goes in as such."""
    previous = _earlier(originals)
    content = "\n".join([_shown(entry) for entry in originals if entry.type != "summary"])
    words = max(10, cap * 2 // 3)
    prompt = PROMPT.format(
        words=words,
        focus=f" Pay special attention to: {focus}." if focus else "",
        previous=f"The summary so far, to be carried on:\n{previous}\n\n" if previous else "",
        content=content,
    )
    if problem:
        prompt = _STRICTER.format(problem=problem, words=words // 2) + prompt
    return SummaryRequest(
        prompt=prompt,
        entries=tuple(originals),
        previous_summary=previous,
        target_tokens=cap,
        focus=focus,
    )


def _shown(entry: Entry) -> str:
    text = entry.text
    if len(text) <= _RESULT_CHARS_SHOWN or entry.type not in ("tool_result", "context"):
        return transcript_line(entry, text)
    half = _RESULT_CHARS_SHOWN // 2
    left_out = f"[... {len(text) - 2 * half} characters left out ...]"
    return transcript_line(entry, f"{text[:half]}\n{left_out}\n{text[-half:]}")


def _earlier(entries: Sequence[Entry]) -> str | None:
    """What earlier summaries said, all of them: a new one carries them on."""
    return "\n\n".join(entry.text for entry in entries if entry.type == "summary") or None


def _digest(originals: Sequence[Entry], cap: int, craft: Craft) -> Entry:
    """What can be said without a model, in at most `cap` tokens."""

    def made(text: str) -> Entry:
        return craft(summary_draft(text, originals))

    text = digest(originals, cap, lambda text: made(text).token_count.tokens)
    return made(text or f"[{len(originals)} earlier entries]")


def _planned(originals: Sequence[Entry], cap: int, craft: Craft) -> Entry:
    """A stand-in for the summary that a real run would write: as large as it may be."""
    stand_in = craft(summary_draft("(the summary)", originals))
    return msgspec.structs.replace(
        stand_in, token_count=TokenCount(cap, "estimation", "low", "planned")
    )


def _method(asked: bool) -> ReplacementMethod:
    return "summary" if asked else "digest"
