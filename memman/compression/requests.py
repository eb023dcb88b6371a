"""Asking a summarizer: in pieces where it cannot take all at once, once more where a reply is no summary.

Generators of requests, which the session drives: nothing here waits for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from cachetools import LRUCache

from memman.compression.checks import answer_of, fault_of
from memman.compression.chunks import chunked
from memman.compression.composition import Composer
from memman.compression.prompts import NoSummary, SummaryPrompt, instructions, summary_request
from memman.entries import Entry
from memman.errors import MemmanError
from memman.protocols import SummaryReply, SummaryRequest
from memman.window import WindowItem

UNKNOWN_WINDOW: Final = 50_000
_REPLY_SHARE: Final = 0.25  # of a summarizer's window is for its reply
_PART_SHARE: Final = 0.08  # of the room for material: at least eight parts merge in one call
# Of a run, of its parts, of theirs: the depth is bounded, and beyond so many calls a digest costs nothing.
_MOST_PIECES: Final = (64, 16, 1)
_LEAST_ROOM: Final = 64
_ATTEMPTS: Final = 2


class SummaryFailed(MemmanError):
    """No valid summary and, by `on_failure`, no substitute: the plan is given up."""


class SummaryProblem(msgspec.Struct, frozen=True):
    """Why a summarizer's answer was not taken as it is, and what happens instead.

    `failed` is False where the summarizer did give a summary, which was too long if it was `clipped`, and
    where it was not even asked.
    """

    reason: str
    fallback: str
    failed: bool = True
    clipped: bool = False
    unasked: bool = False


class SummaryFailure(msgspec.Struct, frozen=True):
    """What the driver sends instead of a reply when the summarizer raised or was too slow.

    `unasked` where it could not even be called.
    """

    reason: str
    unasked: bool = False


_NO_REPLY: Final = SummaryFailure("it gave no reply")


class OriginalsWanted(msgspec.Struct, frozen=True):
    """Asks for what stubs and clipped entries stand for, so that a summary can tell of it.

    The answer has the entries of each slot, in the order asked; an empty tuple where they are gone.
    """

    window_items: tuple[WindowItem, ...]


class FinishedParts:
    """Summaries of parts of a run whose summary came to nothing: paid for once, asked for once.

    Each is known by all that was asked, so by its entries word for word. The oldest make room for others.
    """

    def __init__(self) -> None:
        self._texts: LRUCache[bytes, str] = LRUCache(_MOST_PIECES[0])

    def get(self, request: SummaryRequest) -> str | None:
        """The summary that this request was answered with."""
        text: str | None = self._texts.get(_digest_of(request))
        return text

    def keep(self, request: SummaryRequest, text: str) -> None:
        """Keeps an answer that was taken."""
        self._texts[_digest_of(request)] = text

    def clear(self) -> None:
        """Lets go of all of them."""
        self._texts.clear()


def _digest_of(request: SummaryRequest) -> bytes:
    return sha256(request.prompt.encode(errors="surrogatepass")).digest()


class SummaryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `summarise` may work: `ask` a summarizer, else `write` the text itself, else not at all.

    A `dry_run` does neither and puts a stand-in where the summary would be. `window` is how many tokens the
    summarizer takes in one call, `prompt` the caller's own, and `redact` is applied to every entry first.
    A compression `by_hand` also takes entries that are too few for a summarizer, without asking it unless
    the caller does `insist`. A `wordy` summarizer has lately not kept to the length when asked again: it is
    clipped at once. `parts` are those that an earlier attempt has paid for.
    """

    ask: bool = False
    write: bool = True
    on_failure: str = "fallback"
    focus: str | None = None
    dry_run: bool = False
    by_hand: bool = False
    insist: bool = False
    window: int = UNKNOWN_WINDOW
    prompt: SummaryPrompt = None
    redact: Callable[[Entry], Entry] | None = None
    wordy: bool = False
    parts: FinishedParts | None = None


Request = SummaryRequest | SummaryProblem | OriginalsWanted
Answer = SummaryReply | SummaryFailure | Sequence[tuple[Entry, ...]] | None


def asked(
    exchanges: Sequence[Sequence[Entry]],
    cap: int,
    options: SummaryOptions,
    composer: Composer,
) -> Generator[Request, Answer, Entry]:
    """The summary that `composer` makes of a run, of at most `cap` tokens: of pieces first where it is too
    long for one call, and then of their summaries, which stand in their places. Raises `NoSummary`.
    """
    most = min(cap, int(_REPLY_SHARE * options.window))
    around = instructions(options.prompt, options.focus)
    room = max(_LEAST_ROOM, options.window - most - around)
    for most_pieces in _MOST_PIECES:
        pieces = chunked(exchanges, room)
        if len(pieces) == 1:
            return (yield from _one(pieces[0], most, options, composer))
        if len(pieces) > most_pieces:
            break
        exchanges = yield from _parts(pieces, min(most, int(_PART_SHARE * room)), options, composer)
    raise NoSummary(
        f"so much text takes too many calls of a summarizer with a window of {options.window} tokens",
        unasked=most_pieces == _MOST_PIECES[0],
    )


def _parts(
    pieces: Sequence[Sequence[Entry]],
    most: int,
    options: SummaryOptions,
    composer: Composer,
) -> Generator[Request, Answer, list[tuple[Entry]]]:
    """A summary of each piece, with nothing below it; what they tell of constraints is carried on."""
    made: list[tuple[Entry]] = []
    for piece in pieces:
        part = yield from _part(piece, most, options, composer.of_part(piece))
        composer.hear(part.text)
        made.append((part,))
    return made


def _part(
    piece: Sequence[Entry], most: int, options: SummaryOptions, composer: Composer
) -> Generator[Request, Answer, Entry]:
    """The summary of a part: an earlier attempt's, where that asked for the same."""
    if options.parts is None:
        return (yield from _one(piece, most, options, composer))
    request = summary_request(piece, most, options.focus, "", options.prompt)
    text = options.parts.get(request)
    if text is not None:
        return composer.entry(text)
    part = yield from _one(piece, most, options, composer)
    options.parts.keep(request, part.text)
    return part


def _one(
    piece: Sequence[Entry], most: int, options: SummaryOptions, composer: Composer
) -> Generator[Request, Answer, Entry]:
    """One summary: asked for, asked for once more strictly, clipped where it is only too long."""
    problem, long = "", ""
    for _ in range(_ATTEMPTS):
        request = summary_request(piece, most, options.focus, problem, options.prompt)
        reply = yield request
        if not isinstance(reply, SummaryReply):
            # One that raised or hung is not asked again: its time is the agent's time.
            failure = reply if isinstance(reply, SummaryFailure) else _NO_REPLY
            raise NoSummary(failure.reason, unasked=failure.unasked)
        reply = msgspec.structs.replace(reply, text=answer_of(reply.text))
        problem = fault_of(reply, request)
        if problem:
            continue
        made = composer.fitted(reply.text, most)
        if isinstance(made, Entry):
            return made
        problem = f"the summary had {made} tokens, and {most} is the most"
        long = reply.text if made < composer.replaced else long
        if long and options.wordy:
            break
    if not long:
        raise NoSummary(problem)
    yield SummaryProblem(problem, "it was clipped", failed=False, clipped=True)
    return composer.clipped(long, most)
