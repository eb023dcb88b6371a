"""What is known of a model by its name: plugins are asked first, once for each name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from memman.counting.limits import limits_of
from memman.counting.models import family_of, model_ref
from memman.errors import InvalidInput
from memman.plugins import Plugins
from memman.protocols import ModelInfo, ModelRef

if TYPE_CHECKING:
    from memman.counting.overflow import Overflow

logger = logging.getLogger("memman.counting")


class Models:
    """Models by name: which they are, and their limits. Any thread may use it.

    `plugins` gives the plugins when they are needed. A plugin that raises or answers with something else is
    logged, and the next answers. Limits that a provider's refusal taught come before all others.
    """

    def __init__(
        self,
        plugins: Callable[[], Plugins],
        learned: Mapping[tuple[str | None, str], ModelInfo] | None = None,
    ) -> None:
        self._plugins = plugins
        self._refs: dict[str, ModelRef] = {}
        self._infos: dict[str, ModelInfo | None] = {}
        self._learned = dict(learned or {})

    def ref(self, model: str) -> ModelRef:
        """The model behind a name: as a plugin says, else by its spelling."""
        found = self._refs.get(model)
        if found is None:
            found = self._refs[model] = self._resolved(model)
        return found

    def info(self, model: str) -> ModelInfo | None:
        """A model's limits: as learned, else as a plugin says, else of the table; None if unknown."""
        if model not in self._infos:
            self._infos[model] = self._found(model)
        return self._infos[model]

    def taught(self, model: str, overflow: Overflow, date: str) -> ModelInfo | None:
        """The limits of a model after a refusal, None where the provider did not say a number."""
        if overflow.limit is None:
            return None
        return _corrected(self.info(model), overflow.limit, overflow.bounds, date)

    def with_limits(self, model: str, info: ModelInfo) -> Models:
        """The same, but these are the limits of a model, however it is spelled."""
        ref = self.ref(model)
        return Models(self._plugins, {**self._learned, (ref.provider, ref.name): info})

    def _resolved(self, model: str) -> ModelRef:
        answer = self._answer("memman_resolve_model", model)
        if not isinstance(answer, ModelRef):
            _refused("memman_resolve_model", answer)
            return model_ref(model)
        return msgspec.structs.replace(
            answer, given=answer.given or model, family=answer.family or family_of(answer.name)
        )

    def _found(self, model: str) -> ModelInfo | None:
        ref = self.ref(model)
        learned = self._learned.get((ref.provider, ref.name))
        if learned is not None:
            return learned
        answer = self._answer("memman_model_info", ref)
        if isinstance(answer, ModelInfo) and sound_limits(answer):
            return answer
        _refused("memman_model_info", answer)
        return limits_of(ref)

    def _answer(self, hook: str, model: Any) -> Any:
        """The plugins' answer; none if two differ, as a session must stay readable."""
        try:
            return self._plugins().answer(hook, model=model)
        except InvalidInput as error:
            logger.warning("%s", error)
            return None


def _refused(hook: str, answer: Any) -> None:
    if answer is not None:
        logger.warning("the answer of a plugin to %s is of no use: %r", hook, answer)


def sound_limits(info: ModelInfo) -> bool:
    """Whether all limits are positive numbers."""
    numbers = (info.context, info.max_input, info.max_output)
    return all(type(number) is int and number > 0 for number in numbers)


def _corrected(known: ModelInfo | None, limit: int, bounds: str, date: str) -> ModelInfo:
    """What was known, with the provider's own word for one of the limits.

    Where nothing was known of the reply, no bound of its own is assumed.
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
    return ModelInfo(context, most, min(reply, context), "the provider's error", date)
