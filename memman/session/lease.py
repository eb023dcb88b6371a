"""A lease of a session in a shared store, so that only one worker pays for a summary.

It saves money and nothing else: a compression commits only on the window that it was made of, with or
without a lease.
"""

from __future__ import annotations

import logging

from memman.errors import StoreError
from memman.ids import new_id
from memman.session.shared import Shared

logger = logging.getLogger("memman")

_MARGIN = 10.0  # seconds on top of a call's timeout: for planning, the commit and clock differences
_WITHOUT_TIMEOUT = 600.0  # seconds for a call without a timeout


class LeaseHeld(Exception):
    """Another worker is summarizing this session. Raised inside a compression only."""


class WindowMoved(Exception):
    """The window changed its shape before a call was paid. Raised inside a compression only."""


class Lease:
    """One compression's lease: taken before a call of the summarizer, given back at the end."""

    def __init__(self, shared: Shared, session_id: str) -> None:
        self._shared = shared
        self._session_id = session_id
        self._holder = ""

    async def take(self, epoch: int, call_seconds: float | None) -> None:
        """Take the lease for a call of at most `call_seconds` (None: no limit), or prolong it.

        Raises:
            LeaseHeld: another worker has it.
            WindowMoved: `epoch` is over: another worker may have summarized the same entries.
        """
        shared = self._shared
        if shared.exclusive:
            return
        seconds = (call_seconds or _WITHOUT_TIMEOUT) + _MARGIN
        first = not self._holder
        self._holder = self._holder or new_id()
        # Completed even if cancelled: it could be taken after it was given back.
        taken = shared.store.lease(self._session_id, self._holder, seconds)
        ours = await shared.runtime.complete(taken)
        if not first:
            return  # expired in the middle: use the summaries that were paid for
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
                    "a lease of session %s will expire by itself: %s", self._session_id, error
                )
