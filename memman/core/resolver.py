"""Resolution of the names in settings: counters, formats, and the limits of models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from memman.config import UNKNOWN_MODEL_TOKENS, MemoryConfig
from memman.counting.builtin import builtin_specs
from memman.counting.counter import CallableCounter, TokenCounter
from memman.counting.estimator import estimator_for
from memman.counting.limits import ASSUMED, known_limits
from memman.counting.lookup import Models
from memman.counting.models import model_ref
from memman.counting.resolution import resolve, resolve_remote
from memman.counting.validation import fingerprint_of, valid_specs
from memman.display import did_you_mean, warn_once
from memman.entries import Accuracy, NewEntry
from memman.errors import AsyncPortRefused, FormatError, InvalidInput, PluginNotFound
from memman.formats import builtin_format, builtin_formats, candidates, detect_format
from memman.formats import format_named as named
from memman.formats.lenient import PlainMessage, parsed_messages
from memman.plugins import Plugins, shared_plugins
from memman.protocols import CounterSpec, Format, ModelRef
from memman.runtime.base import is_async_callable, refuse_async_port
from memman.session.shared import Remote

if TYPE_CHECKING:
    from memman.runtime.circuit_breaker import CircuitBreaker

logger = logging.getLogger("memman")
DEFAULT_FORMAT = "openai-chat"


class Resolver:
    """Finds the counters, formats and models that one manager's settings name; each is resolved once.

    `counter` is the manager's argument: None, a name, a `str -> int`, or a counter. `models` are the known
    models; assign another value to change their limits.
    """

    def __init__(
        self, counter: Any = None, plugins: Callable[[], Plugins] = shared_plugins
    ) -> None:
        self._counter = _accepted(counter)
        self._plugins = plugins
        self.models = Models(plugins)
        self._counters: dict[tuple[str | None, bool], TokenCounter] = {}
        self._remote_of = cache(self._resolved_remote)
        # By fingerprint: an endpoint's models share one.
        self._breakers: dict[str, CircuitBreaker] = {}
        self._formats: dict[str, Format] = {}  # filled on first use
        self._checked: set[tuple[str, bool]] = set()  # looked up by `warn_unknown`

    def use_models(self, models: Models) -> None:
        """Replace the known models and their limits."""
        self.models = models

    def counter(self, config: MemoryConfig) -> TokenCounter:
        """Return the counter for a model and a counting policy."""
        key = (config.model, config.count_policy == "estimate")
        found = self._counters.get(key)
        if found is None:
            model = None if config.model is None else self.models.ref(config.model)
            counter, accuracy = self._resolved(config, model)
            found = self._counters[key] = TokenCounter(counter, accuracy, model=model)
        return found

    def _resolved(self, config: MemoryConfig, model: ModelRef | None) -> tuple[Any, Accuracy]:
        given = self._counter
        if given is None and (model is None or config.count_policy == "estimate"):
            return estimator_for(model), "low"
        if given is not None and not isinstance(given, str):
            return given, "high"
        found = resolve(model or model_ref(""), known_counters(self._plugins()), given)
        for candidate in takewhile(lambda one: not one.chosen, found.candidates):
            if candidate.match > 0:
                warn_once(
                    "memman.counting",
                    f"counter {candidate.name} is for {found.model.given!r} and cannot work here: "
                    f"{candidate.reason}. {found.spec.name} counts instead",
                )
        return found.counter, found.spec.accuracy

    def remote(self, config: MemoryConfig) -> Remote | None:
        """Return the remote counter of a model if the policy uses one."""
        if config.count_policy != "confirm" or config.model is None:
            return None
        return self._remote_of(config.model)

    def _resolved_remote(self, name: str) -> Remote | None:
        model = self.models.ref(name)
        found = resolve_remote(model, known_counters(self._plugins()))
        if found is None:
            return None
        spec, counter = found
        try:
            form = self.format_named(spec.format or DEFAULT_FORMAT).name
        except PluginNotFound as error:  # a count never makes a context fail
            logger.warning("remote counter %s is not used: %s", spec.name, error)
            return None
        from memman.counting.remote import RemoteTokenCounter, endpoint_breaker

        breaker = self._breakers.setdefault(fingerprint_of(counter), endpoint_breaker())
        pricing = RemoteTokenCounter(counter, model, accuracy=spec.accuracy, breaker=breaker)
        return Remote(pricing, form)

    def limits(self, model: str | None) -> tuple[int, int, int] | None:
        """Return (context, max_input, max_output) of a model in tokens; None if they are unknown.

        Those of requests without a model may have been learned from a refusal.
        """
        info = self.models.info(model or "")
        return None if info is None else info.limits

    def warn_unknown(self, config: MemoryConfig) -> None:
        """Warn once about a model with unknown limits if none are set or it seems misspelt.

        Limits of its family or of a local server's default are unknown, too.
        """
        model, unlimited = config.model, config.max_tokens is None
        if model is None or (model, unlimited) in self._checked:
            return
        self._checked.add((model, unlimited))
        info = self.models.info(model)
        if info is not None and not (unlimited and info.source.startswith(ASSUMED)):
            return
        ref = self.models.ref(model)
        hint = "" if ref.family else did_you_mean(ref.name, model_names())
        if hint or unlimited:
            tokens, why = (
                (info.max_input, info.source) if info else (UNKNOWN_MODEL_TOKENS, "assumed")
            )
            assumed = f" {tokens:,} tokens are {why};" if unlimited else ""
            warn_once(
                "memman",
                f"no limits are known for model {model!r}{hint or ':'}{assumed} if the name is right, "
                "write MemoryManager(config=MemoryConfig(max_tokens=...)) or give model_info=",
            )

    def format_named(self, name: str) -> Format:
        """Return the message format of a name. Raises `PluginNotFound`."""
        form = builtin_format(name) if isinstance(name, str) else None
        return form or named(name, self._every_format())

    def detected(self, messages: Sequence[Any]) -> Format:
        """Return the format of plain messages. Raises `FormatError`."""
        return detect_format(messages, self._every_format())

    def parsed(
        self, messages: Sequence[PlainMessage], format: str, *, keep: bool, default: str
    ) -> list[NewEntry]:
        """Return the entries of messages in a format, "auto" to detect it.

        With `keep`, a message that the format cannot parse is kept whole. If no format is detected, the one
        of the readable messages is taken, or the default.

        Raises `FormatError` without `keep`.
        """
        if format != "auto":
            form = self.format_named(format)
        else:
            plain = [each.message for each in messages]
            form = self.format_named(default)
            if default == DEFAULT_FORMAT or not form.detect(plain):  # else it is the manager's own
                form = self.most_likely(plain, default) if keep else self.detected(plain)
        return parsed_messages(form, messages, keep=keep)

    def most_likely(self, messages: Sequence[Any], default: str) -> Format:
        """Return the format of the messages, or of those that have one; the default if that may be it."""
        form, known = self.format_named(default), self._every_format()
        readable = [each for each in messages if candidates([each], known)[0]]
        for chosen in (messages, readable):
            if form in candidates(chosen, known)[1]:
                return form
            with suppress(FormatError):
                return self.detected(chosen)
        return form

    def readers(self, own: str) -> list[Format]:
        """Return all formats, the one of this name first."""
        return sorted(self._every_format(), key=lambda form: form.name != own)

    def _every_format(self) -> list[Format]:
        self._formats = self._formats or known_formats(self._plugins())
        return list(self._formats.values())


def model_names() -> list[str]:
    """Return the names of the models with known limits, without their providers."""
    return list(dict.fromkeys(name.rpartition("/")[2] for name, _ in known_limits()))


def known_counters(plugins: Plugins | None = None) -> list[CounterSpec]:
    """Return the counters of plugins, by default those of the process, then the built-in ones."""
    listed = (plugins or shared_plugins()).listed("memman_token_counters")
    return [*valid_specs(listed), *builtin_specs()]


def known_formats(plugins: Plugins | None = None) -> dict[str, Format]:
    """Return the message formats by name: the built-in ones, then those of plugins."""
    known: dict[str, Format] = {form.name: form for form in builtin_formats()}
    for _, form in (plugins or shared_plugins()).listed("memman_formats"):
        known.setdefault(form.name, form)
    return known


def _accepted(counter: Any) -> Any:
    """Return the counter or its name. Raises `InvalidInput`, or `AsyncPortRefused` if it is async."""
    if counter is None or isinstance(counter, str):
        return counter
    if isinstance(counter, type):
        raise InvalidInput(f"{counter.__name__} is a class: pass {counter.__name__}(...)")
    if hasattr(counter, "count_texts"):
        refuse_async_port(counter, ("count_texts",), None, "counter")
        return counter
    if callable(counter):
        if is_async_callable(counter):
            raise AsyncPortRefused(
                "the counter is async: `add` never waits for a count, so a counter must be a plain "
                "function or have a plain count_texts()"
            )
        return CallableCounter(counter)
    raise InvalidInput(
        f"a counter must be a name, a `str -> int` or have count_texts(), not {type(counter).__name__}"
    )
