"""Models, their limits and prices by name; plugins are called first, once for each name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from memman.counting.limits import limits_of
from memman.counting.models import binds_thoughts, family_of, model_ref
from memman.errors import InvalidInput
from memman.plugins import Plugins
from memman.protocols import ModelInfo, ModelRef, Prices

if TYPE_CHECKING:
    from memman.counting.overflow import Overflow

logger = logging.getLogger("memman.counting")
T = TypeVar("T")


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
        self._refs: dict[str, ModelRef] = {}
        self._infos: dict[str, ModelInfo | None] = {}
        self._prices: dict[str, Prices | None] = {}
        self._learned = dict(learned or {})

    def ref(self, model: str) -> ModelRef:
        """Return the model of a name, from a plugin or by its spelling."""
        found = self._refs.get(model)
        if found is None:
            found = self._refs[model] = self._resolved(model)
        return found

    def info(self, model: str) -> ModelInfo | None:
        """Return a model's limits: learned, from a plugin, or from the table; None if unknown."""
        if model not in self._infos:
            self._infos[model] = self._found(model)
        return self._infos[model]

    def prices(self, model: str) -> Prices | None:
        """Return a model's prices: those of its limits, or a plugin's; None if unknown."""
        if model not in self._prices:
            self._prices[model] = self._priced(model)
        return self._prices[model]

    def binds(self, model: str) -> bool:
        """Return whether a model binds its thoughts to what preceded them."""
        info = self.info(model)
        known = None if info is None else info.binds
        return binds_thoughts(self.ref(model).name) if known is None else known

    def taught(self, model: str, overflow: Overflow, date: str) -> ModelInfo | None:
        """Return a model's limits after a refusal, None if the provider named no number."""
        if overflow.limit is None:
            return None
        return _corrected(self.info(model), overflow.limit, overflow.bounds, date)

    def with_limits(self, model: str, info: ModelInfo) -> Models:
        """Return a copy with these limits for a model, in any spelling of its name."""
        ref = self.ref(model)
        return Models(self._plugins, {**self._learned, (ref.provider, ref.name): info})

    def _resolved(self, model: str) -> ModelRef:
        answer = self._answer("memman_resolve_model", model, ModelRef)
        if answer is None:
            return model_ref(model)
        return msgspec.structs.replace(
            answer, given=answer.given or model, family=answer.family or family_of(answer.name)
        )

    def _found(self, model: str) -> ModelInfo | None:
        ref = self.ref(model)
        learned = self._learned.get((ref.provider, ref.name))
        if learned is not None:
            return learned
        return self._answer("memman_model_info", ref, ModelInfo, sound_limits) or limits_of(ref)

    def _priced(self, model: str) -> Prices | None:
        info = self.info(model)
        if info is not None and info.prices is not None:
            return info.prices
        return self._answer("memman_prices", self.ref(model), Prices)

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
    numbers = (info.context, info.max_input, info.max_output)
    sound = all(type(number) is int and number > 0 for number in numbers)
    return sound and (info.prices is None or isinstance(info.prices, Prices))


def _corrected(known: ModelInfo | None, limit: int, bounds: str, date: str) -> ModelInfo:
    """Return known limits with one of them corrected by the provider.

    If nothing was known, no separate limit of the reply is assumed.
    """
    context, most, reply = limit, limit, limit
    if known is not None and bounds == "input":
        context, reply = max(known.context, limit), known.max_output
        if known.max_input == known.context:  # the input had no limit of its own
            context = limit
    elif known is not None:
        reply = known.max_output
        if known.max_input < known.context:
            most = min(known.max_input, limit)
    corrected = ModelInfo(context, most, min(reply, context), "the provider's error", date)
    if known is None:
        return corrected
    return msgspec.structs.replace(corrected, prices=known.prices, binds=known.binds)
