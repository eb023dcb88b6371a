"""The stage that replaces the old part of a window by a model's summary, or leaves it to the outline.

`summarise` is a generator: it yields requests and problems, and the session that drives it does the
waiting. Nothing changes until a valid summary exists. A run that is too long for one call is summarized
in pieces; a reply that is not a summary is requested once more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from cachetools import LRUCache

from memman.compression.composer import SMALLEST_SUMMARY, Composer
from memman.compression.continuation import Continuation, LivePrefix, continuation
from memman.compression.prompt import (
    SHOWN_CHARS,
    NoSummary,
    SummaryPrompt,
    chunked,
    instruction_tokens,
    shown_in,
    summary_request,
)
from memman.compression.reply import answer_of, fault_of
from memman.compression.view import EntryFactory, Goal, View
from memman.entries import Entry, TokenCount, is_of_tool
from memman.errors import MemmanError
from memman.protocols import SummaryReply, SummaryRequest
from memman.window import WindowItem

UNKNOWN_WINDOW: Final = 50_000
_REPLY_SHARE: Final = 0.25  # of a summarizer's window, for its reply
# Of the room for material, so that at least eight parts merge in one call.
_PART_SHARE: Final = 0.08
# The most pieces of a run, of their summaries, and of those: the number of calls is bounded.
MOST_PIECES: Final = (64, 16, 1)
_LEAST_OUTLINED: Final = 64  # tokens of the entries that an outline is worth
_LEAST_ROOM: Final = 64
_ATTEMPTS: Final = 2


class SummaryFailed(MemmanError):
    """No valid summary and, by `on_failure`, no substitute: the plan is abandoned."""


class SummaryProblem(msgspec.Struct, frozen=True):
    """Why a summarizer's reply was not used as it is, and its substitute.

    Args:
        reason: the fault of the reply.
        fallback: the substitute.
        failed: the summarizer failed; False if its summary was too long, or if it was not called.
        clipped: its summary was too long and is clipped.
        unasked: the summarizer was not called.
    """

    reason: str
    fallback: str
    failed: bool = True
    clipped: bool = False
    unasked: bool = False


class SummaryFailure(msgspec.Struct, frozen=True):
    """The driver's answer if the summarizer raised, was too slow, or (`unasked`) was not called."""

    reason: str
    unasked: bool = False


_NO_REPLY: Final = SummaryFailure("it gave no reply")


class OriginalsWanted(msgspec.Struct, frozen=True):
    """A request for the originals of stubs and clipped entries, so that a summary can include them.

    The answer has the entries of each item in this order; an empty tuple if they are deleted.
    """

    window_items: tuple[WindowItem, ...]


Request = SummaryRequest | SummaryProblem | OriginalsWanted
Parts = LRUCache[bytes, str]
"""Summaries of parts of a run whose own summary failed, so that the next attempt does not pay again.

The key is the hash of the whole prompt, which has the entries verbatim.
"""
Answer = SummaryReply | SummaryFailure | Sequence[tuple[Entry, ...]] | None


class SummaryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `summarise` works.

    Args:
        ask: call a summarizer.
        write: leave the entries to the outline if there is no summarizer or it fails.
        on_failure: the setting of this name.
        focus: a topic for the summary to emphasize.
        keep: texts that stand in the summary, word for word.
        dry_run: only put a stand-in in place of the summary.
        by_hand: leave entries to the outline that are too few for a summarizer.
        insist: call the summarizer for these too.
        window: the tokens that the summarizer takes in one call.
        prompt: the caller's own prompt.
        redact: applied to every entry first.
        truncates: the summarizer recently ignored the length twice; clip its first reply.
        parts: the parts that an earlier attempt has paid for.
        prefix: the session's last request, if the summarizer may continue it.
        outline: returns the outline that stays with the summary of a view.
        kept: its text.
        so_far: the turns of the outline so far, which the summary replaces, as a summary to be carried on.
    """

    ask: bool = False
    write: bool = True
    on_failure: str = "fallback"
    focus: str | None = None
    keep: tuple[str, ...] = ()
    dry_run: bool = False
    by_hand: bool = False
    insist: bool = False
    window: int = UNKNOWN_WINDOW
    prompt: SummaryPrompt = None
    redact: Callable[[Entry], Entry] | None = None
    truncates: bool = False
    parts: Parts | None = None
    prefix: LivePrefix | None = None
    outline: Callable[[View], str] | None = None
    kept: str = ""
    so_far: Entry | None = None


def summarise(
    view: View, goal: Goal, make_entry: EntryFactory, options: SummaryOptions
) -> Generator[Request, Answer, View | None]:
    """Replace as many of the oldest exchanges as the target needs by one summary, or by the outline alone.

    An earlier summary is merged into the new one; the outline leaves it alone. If these exchanges have
    fewer entries than `min_entries_to_compress`, an automatic compression leaves them to the other
    stages, and one by hand to the outline. If a protected exchange splits the old part, the summary is at
    its beginning and covers all pieces.

    Raises:
        SummaryFailed: there is no valid summary, and `on_failure` does not allow to do without.
    """
    if not (options.ask or options.write):
        return None
    chosen = _oldest(view, goal)
    few = _are_few(view, chosen, goal)
    if not options.ask or (options.by_hand and few and not options.insist):
        return _outlined(view, chosen, goal, options)
    exchanges = [view.groups[number].window_items for number in chosen]
    # The cap depends on the originals, even if an earlier stage cleared some of them.
    replaced = sum(item.tokens for items in exchanges for item in items)
    staying = view.tokens - sum(view.groups[number].tokens for number in chosen)
    most = goal.budget.summary_tokens
    if goal.state_tokens:  # an outline follows
        most = min(most, max(most // 2, goal.tokens - staying))
    cap = min(int(goal.budget.compression_ratio * replaced), most)
    if options.by_hand and options.insist and replaced > SMALLEST_SUMMARY:
        cap = max(cap, SMALLEST_SUMMARY)
    nothing = all(view.groups[number].is_summary for number in chosen) if options.by_hand else few
    if nothing or cap < SMALLEST_SUMMARY:
        return None
    # Text that the agent recalled is known from its originals; all of it stays if there is nothing else.
    others = [[i for i in items if not is_of_tool(i.entry, goal.recall)] for items in exchanges]
    exchanges = list(filter(None, others)) or exchanges
    items = [item for items in exchanges for item in items]
    # In place of the summary of a real run, at its largest possible size.
    stand_in = Composer([item.entry for item in items], make_entry).entry("(the summary)")
    size = TokenCount(cap, "estimation", "low", "planned")
    planned = view.with_summary(chosen, msgspec.structs.replace(stand_in, token_count=size))
    if options.dry_run:
        return planned
    kept = "" if options.outline is None else options.outline(planned)
    options = msgspec.structs.replace(options, kept=kept)
    full = yield from _in_full(exchanges, options.redact)
    originals = [entry for entries in full for entry in entries]
    composer = Composer(originals, make_entry, goal.recall, options.keep)
    live = None
    if options.prefix is not None:
        behind = (item for group in view.groups[chosen[-1] + 1 :] for item in group.window_items)
        following = next(behind, None)
        live = continuation(options.prefix, items, following, originals, cap, options.focus, kept)
    if options.so_far is not None:
        full = [[options.so_far], *full]
    summary = yield from _written(full, cap, options, composer, live)
    if summary is None:
        return _outlined(view, chosen, goal, options)
    return view.with_summary(chosen, summary)


def _outlined(
    view: View, chosen: Sequence[int], goal: Goal, options: SummaryOptions
) -> View | None:
    """Return the view without these exchanges, which the outline covers; None if it has no room.

    Earlier summaries stay.
    """
    chosen = [number for number in chosen if not view.groups[number].is_summary]
    few = not options.by_hand and _are_few(view, chosen, goal)
    tokens = sum(view.groups[number].tokens for number in chosen)
    crowded = goal.entries is not None and view.entries > goal.entries
    worth = crowded or tokens >= _LEAST_OUTLINED
    if few or not chosen or not worth or not goal.outline_tokens:
        return None
    return view.without(chosen, "outline")


def _are_few(view: View, chosen: Sequence[int], goal: Goal) -> bool:
    """Return True if these groups have too few entries for a summarizer."""
    return sum(view.groups[number].entries for number in chosen) < goal.budget.min_entries


def _oldest(view: View, goal: Goal) -> list[int]:
    """Return the oldest groups whose removal brings the rest and a summary to the target.

    All old groups if the goal is thorough. At least `min_entries_to_compress` entries if so many are old:
    it is better to summarize a few large ones with their neighbours than to drop them.
    """
    chosen: list[int] = []
    tokens = view.tokens + goal.budget.summary_tokens
    entries = view.entries + 1
    for number, group in enumerate(view.groups):
        if group.status != "old":
            continue
        enough = goal.holds(tokens, entries) and not goal.thorough
        if enough and view.entries + 1 - entries >= goal.budget.min_entries:
            break
        chosen.append(number)
        tokens -= group.tokens
        entries -= group.entries
    return chosen


def _in_full(
    exchanges: Sequence[Sequence[WindowItem]], redact: Callable[[Entry], Entry] | None
) -> Generator[Request, Answer, list[list[Entry]]]:
    """Return the entries of exchanges, redacted, with the originals of stubs and clips."""
    every = [item for items in exchanges for item in items]
    cut = [item for item in every if item.compression is not None and item.entry.type != "summary"]
    answer = (yield OriginalsWanted(tuple(cut))) if cut else ()
    found = dict(zip(cut, answer, strict=True)) if isinstance(answer, Sequence) else {}
    full = [
        [entry for item in items for entry in found.get(item) or (item.entry,)]
        for items in exchanges
    ]
    return full if redact is None else [list(map(redact, entries)) for entries in full]


def _written(
    exchanges: Sequence[Sequence[Entry]],
    cap: int,
    options: SummaryOptions,
    composer: Composer,
    live: Continuation | None,
) -> Generator[Request, Answer, Entry | None]:
    """Return a model's summary of at most `cap` tokens; None if the outline takes its place.

    A request that continues the last one is followed by the ordinary prompt if it fails.
    """
    if live is not None:
        try:
            entries = [entry for exchange in exchanges for entry in exchange]
            return (yield from _one(entries, cap, options, composer, live))
        except NoSummary as error:
            instead = "the ordinary prompt is sent"
            yield SummaryProblem(str(error), instead, failed=False, unasked=error.unasked)
    try:
        return (yield from _in_pieces(exchanges, cap, options, composer))
    except NoSummary as error:
        falls_back = options.on_failure == "fallback"
        instead = "outline" if falls_back else "nothing was changed"
        yield SummaryProblem(str(error), instead, failed=not error.unasked, unasked=error.unasked)
        if not falls_back:
            raise SummaryFailed(str(error)) from error
        return None


# ---------------------------------------------------------------- calls of the summarizer


def _in_pieces(
    exchanges: Sequence[Sequence[Entry]], cap: int, options: SummaryOptions, composer: Composer
) -> Generator[Request, Answer, Entry]:
    """Return the summary of a run in at most `cap` tokens.

    A run that is too long for one call is summarized in pieces, and then their summaries.

    Raises:
        NoSummary: the summarizer failed, or too many calls would be needed.
    """
    most = min(cap, int(_REPLY_SHARE * options.window))
    instructions = instruction_tokens(options.prompt, options.focus, options.kept)
    room = max(_LEAST_ROOM, options.window - most - instructions)
    shown = shown_in([entry for exchange in exchanges for entry in exchange], room)
    for most_pieces in MOST_PIECES:
        pieces = chunked(exchanges, room, shown)
        if len(pieces) == 1:
            return (yield from _one(pieces[0], most, options, composer, shown=shown))
        if len(pieces) > most_pieces:
            break
        exchanges = yield from _parts(pieces, min(most, int(_PART_SHARE * room)), options, composer)
    raise NoSummary(
        f"this much text needs too many calls of a summarizer with a window of {options.window} tokens",
        unasked=most_pieces == MOST_PIECES[0],
    )


def _parts(
    pieces: Sequence[Sequence[Entry]], most: int, options: SummaryOptions, composer: Composer
) -> Generator[Request, Answer, list[tuple[Entry]]]:
    """Return a summary of each piece, from an earlier attempt if that sent the same request."""
    known = Parts(len(pieces)) if options.parts is None else options.parts
    made: list[tuple[Entry]] = []
    for piece in pieces:
        request = summary_request(piece, most, options.focus, "", options.prompt, options.kept)
        key = sha256(request.prompt.encode(errors="surrogatepass")).digest()
        part_composer = composer.of_part(piece)
        if key in known:
            part = part_composer.entry(known[key])
        else:
            part = yield from _one(piece, most, options, part_composer)
            known[key] = part.text
        made.append((part,))
    return made


def _one(
    piece: Sequence[Entry],
    most: int,
    options: SummaryOptions,
    composer: Composer,
    live: Continuation | None = None,
    shown: int = SHOWN_CHARS,
) -> Generator[Request, Answer, Entry]:
    """Return one summary: request it, request it once more strictly, clip it if it is only too long.

    With `live`, only a summary that is too long is requested once more.
    """
    problem, long = "", ""
    for _ in range(_ATTEMPTS):
        request = summary_request(
            piece, most, options.focus, problem, options.prompt, options.kept, shown
        )
        if live is not None:
            request = live.of(request, problem, options.kept)
        reply = yield request
        if not isinstance(reply, SummaryReply):
            # After an exception or a timeout there is no second call: it would cost the agent's time.
            failure = reply if isinstance(reply, SummaryFailure) else _NO_REPLY
            raise NoSummary(failure.reason, unasked=failure.unasked)
        reply = msgspec.structs.replace(reply, text=answer_of(reply.text))
        problem = fault_of(reply, request)
        if problem and live is not None:
            break
        if problem:
            continue
        made = composer.entry(reply.text)
        tokens = made.token_count.tokens
        if tokens <= most:
            return made
        problem = f"the summary had {tokens} tokens, and {most} is the most"
        long = reply.text if tokens < composer.replaced else long
        if long and options.truncates:
            break
    if not long:
        raise NoSummary(problem)
    yield SummaryProblem(problem, "it was clipped", failed=False, clipped=True)
    return composer.clipped(long, most)
