"""The learned difference between a provider's counts and ours."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from memman.counting.calibration import learn, predicted
from memman.counting.models import model_key
from memman.entries import TokenCount
from memman.records import Learned, UsageReported


class ProviderCount(msgspec.Struct, frozen=True):
    """A provider's count of the request that was built at `head` and `epoch`."""

    model: str | None
    head: int
    epoch: int
    system: str | None
    tools: bytes | None
    count: TokenCount
    learned: Learned

    def is_at(self, head: int, epoch: int) -> bool:
        """Whether the log has not changed since."""
        return (self.head, self.epoch) == (head, epoch)


class Calibration:
    """The reports and counts of providers in one session, by model."""

    __slots__ = ("_learned", "_points", "confirmed")

    def __init__(self) -> None:
        self._learned: Mapping[str, Learned] = {}
        # The last report of each model, with the window's epoch then.
        self._points: Mapping[str, tuple[int, UsageReported]] = {}
        self.confirmed: ProviderCount | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was reported or counted yet."""
        return not self._learned and self.confirmed is None

    def knows(self, model: str | None) -> bool:
        """Whether usage of this model was reported."""
        return model_key(model) in self._learned

    def load(self, learned: Mapping[str, Learned]) -> None:
        """Take the values of the stored session."""
        self._learned = {model_key(model): known for model, known in learned.items()}

    def add(self, report: UsageReported, epoch: int) -> None:
        """Learn about a model from a report of its usage."""
        if report.learned is not None:
            key = model_key(report.model)
            self._learned = {**self._learned, key: report.learned}
            self._points = {**self._points, key: (epoch, report)}

    def confirm(self, count: ProviderCount) -> None:
        """Take a provider's own count of a request."""
        self.confirmed = count

    def _last(self, key: str, epoch: int) -> UsageReported | None:
        """Return a model's last report, unless the window has changed its shape since."""
        at, report = self._points.get(key, (None, None))
        return report if at == epoch else None

    def forget(self) -> None:
        """Start again, after the session was deleted."""
        self._learned, self._points, self.confirmed = {}, {}, None

    def taught_by(self, report: UsageReported, counted: int, epoch: int) -> Learned | None:
        """Return the values of the report's model after `report`."""
        key = model_key(report.model)
        last = self._last(key, epoch)
        step = None if last is None else (last.input_tokens, last.counted)
        return learn(self._learned.get(key), report.input_tokens, counted, step)

    def correction(
        self, model: str | None, counted: int, reserved: int, headroom: int, epoch: int
    ) -> int:
        """Return the tokens that a provider will count in addition to our own `counted`.

        `reserved` are the tokens kept free for text that memman never sees. Reports include those. A
        provider's own count does not, and may also be below ours. A report adds at most `headroom`, and
        takes away what the provider cleared of the request, until the window changes its shape.
        """
        key = model_key(model)
        known = self._learned.get(key)
        if known is not None:
            last = self._last(key, epoch)
            reported = predicted(known, counted, anchored=last is not None)
            cleared = 0 if last is None else last.cleared_tokens
            return max(reserved - cleared, min(reported - counted, headroom))
        confirmed = self.confirmed
        if confirmed is None or confirmed.epoch != epoch or confirmed.model != model:
            return reserved
        return reserved + predicted(confirmed.learned, counted, anchored=True) - counted
