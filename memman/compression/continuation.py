"""A request for a summary that continues the session's last request, whose input the provider has cached.

The conversation is the provider's own messages, unquoted. The instruction behind them names the part to
summarize, and quotes the texts of that part that they lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.compression.prompt import instruction, instruction_tokens, material_tokens
from memman.entries import Entry
from memman.protocols import RequestPrefix, SummaryRequest
from memman.window import WindowItem

_LEAST_RATIO: Final = 9  # of the prefix to the text behind it, so that 90 % of the input are cached
_DISCOUNT: Final = 10  # a cached token costs about a tenth of another


class LivePrefix(msgspec.Struct, frozen=True):
    """The last request of a session, and how much more its model takes.

    `head` is the newest seq in it, `tokens` its price, and `room` the most input of the model in tokens,
    None if that is unknown.
    """

    request: RequestPrefix
    head: int
    tokens: int
    room: int | None = None


class Continuation(msgspec.Struct, frozen=True):
    """A prefix, the entries at the end of the part to summarize and behind it, and the texts it lacks."""

    prefix: RequestPrefix
    last: Entry
    following: Entry | None
    lost: tuple[Entry, ...]

    def of(self, request: SummaryRequest, problem: str, kept: str) -> SummaryRequest:
        """Return the request with the prefix, and the instruction behind it."""
        cap, focus = request.target_tokens, request.focus
        text = instruction(self.last, self.following, self.lost, cap, focus, problem, kept)
        return msgspec.structs.replace(request, prefix=self.prefix, instruction=text)


def continuation(
    live: LivePrefix,
    items: Sequence[WindowItem],
    following: WindowItem | None,
    originals: Sequence[Entry],
    most: int,
    focus: str | None,
    kept: str,
) -> Continuation | None:
    """Return the continuation for a summary; None if it does not fit, or if the ordinary prompt is cheaper.

    Args:
        live: the last request.
        items: the items to summarize, as they are in the window.
        following: the item of the window behind them.
        originals: the entries to summarize, in full.
        most: the largest number of tokens of the summary.
        focus: a topic for the summary to emphasize.
        kept: the text that stays with the summary.
    """
    shown = [item.entry for item in items if item.position <= live.head]
    if not shown:
        return None
    known = set(map(id, shown))
    lost = tuple(entry for entry in originals if id(entry) not in known)
    behind = instruction_tokens(None, focus, kept) + material_tokens(lost)
    if behind * _LEAST_RATIO > live.tokens:
        return None
    if live.room is not None and live.tokens + behind + most > live.room:
        return None
    if live.tokens // _DISCOUNT + behind > material_tokens(originals):
        return None
    stays = following is not None and following.position <= live.head
    return Continuation(
        live.request, shown[-1], following.entry if following and stays else None, lost
    )
