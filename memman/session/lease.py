"""The right to pay for a summary, in a store that several workers share.

It saves money and nothing else: a compression commits only on the window that it was made of, whoever holds
the lease.
"""

from __future__ import annotations

import logging

from memman.errors import StoreError
from memman.ids import new_id
from memman.session.shared import Shared

logger = logging.getLogger("memman")

_MARGIN = 10.0  # seconds beyond a call's time-out: planning, the commit, and clocks that differ
_WITHOUT_TIMEOUT = 600.0  # seconds that a call without a time-out is given


class LeaseHeld(Exception):
    """Another worker is summarising this session. Never leaves the compression."""


class WindowMoved(Exception):
    """The window changed shape before anything was paid. Never leaves the compression."""


class Lease:
    """One compression's hold on its session: taken when somebody is to be asked, given back at the end."""

    def __init__(self, shared: Shared, session_id: str) -> None:
        self._shared = shared
        self._session_id = session_id
        self._holder = ""

    async def take(self, epoch: int, call_seconds: float | None) -> None:
        """Takes it for one call of so many seconds at most (None: no limit), or prolongs it for another.

        Raises `LeaseHeld` where another worker has it, `WindowMoved` where `epoch` is over by the time it
        is ours: what was planned may have been summarised already.
        """
        shared = self._shared
        if shared.exclusive:
            return
        seconds = (call_seconds or _WITHOUT_TIMEOUT) + _MARGIN
        first = not self._holder
        self._holder = self._holder or new_id()
        # To its end: one that was cancelled might be taken after it was given back.
        ours = await shared.runtime.complete(
            shared.store.lease(self._session_id, self._holder, seconds)
        )
        if not first:
            return  # one that ran out in the middle: what was paid already is worth the rest
        if not ours:
            self._holder = ""
            raise LeaseHeld
        state = await shared.store.state(self._session_id)
        if state is None or state[1] != epoch:
            raise WindowMoved

    async def give_back(self) -> None:
        """Release the lease, if it was taken. One that cannot be released expires."""
        holder, self._holder = self._holder, ""
        shared = self._shared
        if not holder:
            return
        try:
            await shared.runtime.complete(shared.store.lease(self._session_id, holder, 0))
        except StoreError as error:
            if not shared.closed:
                logger.warning(
                    "a lease of session %s runs out by itself: %s", self._session_id, error
                )
