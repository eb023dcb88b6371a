"""Models, their limits and prices by name; plugins are called first, once for each name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from memman.counting.limits import ASSUMED, assumed_limits, limits_of
from memman.counting.models import binds_thoughts, family_of, model_ref
from memman.errors import InvalidInput
from memman.plugins import Plugins
from memman.protocols import ModelInfo, ModelRef, Prices

if TYPE_CHECKING:
    from memman.counting.overflow import Overflow

logger = logging.getLogger("memman.counting")
T = TypeVar("T")
SMALLEST_WINDOW = 1_024  # tokens; no model of today has a smaller one
SHORTER = 0.75  # share of a refused request that the next one has if the provider named no limit


class Models:
    """Models, their limits and prices by name. Any thread may use it.

    `plugins` returns the plugins when they are needed. A plugin that raises or returns another type is
    logged, and the next one answers. Limits learned from a provider's refusal precede all others.
    """

    def __init__(
        self,
        plugins: Callable[[], Plugins],
        learned: Mapping[tuple[str | None, str], ModelInfo] | None = None,
    ) -> None:
        self._plugins = plugins
        self._learned = dict(learned or {})
        self.ref = cache(self._ref)
        self.info = cache(self._info)
        self.prices = cache(self._prices)

    def binds(self, model: str) -> bool:
        """Return whether a model binds its thoughts to what preceded them."""
        info = self.info(model)
        known = None if info is None else info.binds
        return binds_thoughts(self.ref(model).name) if known is None else known

    def taught(self, model: str, overflow: Overflow, date: str) -> ModelInfo | None:
        """Return a model's limits after a refusal, None if the provider named no number."""
        if overflow.limit is None:
            return None
        known = self.info(model)
        return _corrected(known, overflow.limit, overflow.bounds, "the provider's error", date)

    def within(self, model: str, window: int, date: str) -> ModelInfo | None:
        """Return a model's limits in a window of so many tokens; None if it had no larger one."""
        known = self.info(model)
        if known is not None and known.context <= window:
            return None
        return _corrected(known, window, "context", "the caller's window", date)

    def shortened(self, model: str, refused: int, reserve: int | None, date: str) -> ModelInfo:
        """Return a model's limits after it refused so many tokens without a number that would help.

        `reserve` is the setting `reserve_output`, which must be left beside the input.
        """
        known, most = self.info(model), max(1, int(SHORTER * refused))
        context = max(refused, most + (reserve or 0))
        if known is not None:
            most, context = min(most, known.max_input), max(context, known.context)
        reply = max(1, refused - most) if known is None else known.max_output
        return _with_source(known, context, most, reply, "a refusal without a limit", date)

    def with_limits(self, model: str, info: ModelInfo) -> Models:
        """Return a copy with these limits for a model, in any spelling of its name."""
        ref = self.ref(model)
        return Models(self._plugins, {**self._learned, (ref.provider, ref.name): info})

    def _ref(self, model: str) -> ModelRef:
        """Return the model of a name, from a plugin or by its spelling."""
        if not model:  # of requests without a model
            return model_ref(model)
        answer = self._answer("memman_resolve_model", model, ModelRef)
        if answer is None:
            return model_ref(model)
        return msgspec.structs.replace(
            answer, given=answer.given or model, family=answer.family or family_of(answer.name)
        )

    def _info(self, model: str) -> ModelInfo | None:
        """Return a model's limits, None if they are unknown.

        They are learned, or from a plugin, the table and your file, or those of similar models.
        """
        ref = self.ref(model)
        learned = self._learned.get((ref.provider, ref.name))
        if learned is not None or not model:
            return learned
        answer = self._answer("memman_model_info", ref, ModelInfo, sound_limits)
        return answer or limits_of(ref) or assumed_limits(ref)

    def _prices(self, model: str) -> Prices | None:
        """Return a model's prices: those of its limits, or a plugin's; None if unknown."""
        info = self.info(model)
        known = None if info is None else info.prices
        return known or self._answer("memman_prices", self.ref(model), Prices)

    def _answer(
        self, hook: str, model: Any, kind: type[T], is_sound: Callable[[T], bool] | None = None
    ) -> T | None:
        """Return the plugins' answer if it is valid.

        None if two differ, since a session must stay readable.
        """
        answer: Any = None
        try:
            answer = self._plugins().answer(hook, model=model)
        except InvalidInput as error:
            logger.warning("%s", error)
        if isinstance(answer, kind) and (is_sound is None or is_sound(answer)):
            return answer
        if answer is not None:
            logger.warning("a plugin returned an invalid answer to %s: %r", hook, answer)
        return None


def sound_limits(info: ModelInfo) -> bool:
    """Return whether all limits are positive numbers, and the prices are `Prices` if there are any."""
    sound = all(type(number) is int and number > 0 for number in info.limits)
    return sound and (info.prices is None or isinstance(info.prices, Prices))


def _corrected(
    known: ModelInfo | None, limit: int, bounds: str, source: str, date: str
) -> ModelInfo:
    """Return known limits with one of them corrected.

    If nothing was known, no separate limit of the reply is assumed.
    """
    if known is not None and known.source.startswith(ASSUMED):
        known = None
    context, most, reply = limit, limit, limit
    if known is not None and bounds == "input":
        context, reply = max(known.context, limit), known.max_output
        if known.max_input == known.context:  # the input had no limit of its own
            context = limit
    elif known is not None:
        reply = known.max_output
        if known.max_input < known.context:
            most = min(known.max_input, limit)
    return _with_source(known, context, most, min(reply, context), source, date)


def _with_source(
    known: ModelInfo | None, context: int, most: int, reply: int, source: str, date: str
) -> ModelInfo:
    """Return limits with the prices that were known."""
    found = ModelInfo(context, most, reply, source, date)
    if known is None:
        return found
    return msgspec.structs.replace(found, prices=known.prices, binds=known.binds)
