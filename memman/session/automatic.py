"""Compressions that nobody asked for: after an add, in its call or beside it."""

from __future__ import annotations

import logging

from memman import events
from memman.display import format_error
from memman.errors import MemmanError, StoreError
from memman.session.asking import AUTOMATIC
from memman.session.backoff import Rest
from memman.session.compressing import Compressing

logger = logging.getLogger("memman")


class Automatic(Compressing):
    """Compresses where an add makes it due."""

    __slots__ = ()

    async def _compress_after_add(self) -> None:
        """An automatic compression: nothing that goes wrong in it reaches the caller of `add`."""
        if not self._config.background:
            await self._compress_quietly()
        elif not self._preparing:
            self._preparing = True
            if not self._shared.runtime.start(self._prepare):
                self._preparing = False

    async def _prepare(self) -> None:
        """Compresses in the background, and again where what came meanwhile asks for it."""
        while True:
            try:
                result = await self._compress_quietly()
            finally:
                self._preparing = False
            if result is None or result.compression_id is None:
                self.pace.tried_at = self._progress
                return
            # An add before this line left its compression to this run; one after it starts its own.
            if self._preparing or not self._due():
                return
            self._preparing = True

    async def _compress_quietly(self) -> events.CompressionResult | None:
        try:
            return await self.compress(AUTOMATIC)
        except Exception as error:
            if isinstance(error, MemmanError) and not isinstance(error, StoreError):
                logger.warning(
                    "the automatic compression of session %s failed with %s (see compression_failed)",
                    self.id,
                    type(error).__name__,
                )
                await self._tell_failure(str(error), "nothing was changed", self._stages_rest)
            else:  # of a store: it comes again at the next verb, to somebody who can act
                logger.exception("the automatic compression of session %s failed", self.id)
                reason = format_error(error)
                await self._tell_failure(reason, "the next verb reads the session's store again")
        return None

    async def _tell_failure(self, reason: str, fallback: str, rest: Rest | None = None) -> None:
        self.pace.last = reason
        await self.tell(
            events.CompressionFailedNotice(
                session_id=self.id,
                reason=reason,
                fallback=fallback,
                failures=rest.failures if rest else 0,
                retry_at=rest.until if rest else None,
            )
        )
