"""Summarizers of a manager: a callable, a `Summarizer`, or a name.

A name is `cmd:PROGRAM ARGS`, a plugin's such as `anthropic:MODEL`, or `outline` for no summarizer at all.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, get_type_hints

import msgspec

from memman.config import usable_input
from memman.counting.models import model_ref
from memman.display import safe_repr
from memman.entries import MOST_TOKENS, is_encodable
from memman.errors import (
    AsyncPortRefused,
    InvalidInput,
    MemmanError,
    PluginNotFound,
    SummarizerUnavailable,
)
from memman.plugins import Plugins, how_to_install
from memman.protocols import Summarizer, SummaryReply, SummaryRequest, SummaryUsage
from memman.runtime.base import USE_ASYNC, Runtime, close_awaitable, is_async_callable

OUTLINE: Final = "outline"
COMMAND: Final = "cmd:"
# Known names; each has the distribution memman-NAME.
_PROVIDERS: Final = ("anthropic", "bedrock", "google", "openai")
_CLOUDS: Final = ("anthropic", "azure", "bedrock", "gemini", "openai", "vertex_ai")
_KNOWN: Final = ", ".join(("cmd:PROGRAM ARGS", *(f"{name}:MODEL" for name in _PROVIDERS)))
_NOT_BY_A_SESSION: Final = (
    "a session's own settings may not name a command to run; name it where the manager is made: "
    "summarizer=, set_summarize_callback() or the manager's config"
)

_FIELDS: Final = get_type_hints(SummaryReply)

Limits = Callable[[str | None], tuple[int, int, int] | None]


class Asker:
    """A summarizer in any form, called in one way, with its replies checked.

    `max_input_tokens` is the most that it takes in one call, None if unknown.
    """

    def __init__(self, given: Any, runtime: Runtime, limits: Limits) -> None:
        self.port = given
        self._limits = limits
        self.is_object = isinstance(given, Summarizer)
        self._ask = given.summarize if self.is_object else given
        self._own_limit = _own_limit(given) if self.is_object else None
        self.is_async = is_async_callable(self._ask)
        if self.is_async and not runtime.async_ports:
            raise AsyncPortRefused(f"the summarizer is async: {USE_ASYNC}, or a plain function")

    @property
    def model(self) -> str | None:
        """The model that it names, if it does."""
        model = getattr(self.port, "model", None) if self.is_object else None
        return model if isinstance(model, str) else None

    @property
    def max_input_tokens(self) -> int | None:
        """Its own limit, else that of the model that it names, as known now."""
        if self._own_limit is not None or self.model is None:
            return self._own_limit
        limits = self._limits(self.model)
        return None if limits is None else usable_input(limits)

    def continues(self, form: str, model: str | None) -> bool:
        """Return whether it can continue requests in this format to this model, at the same provider.

        A model without a provider is its vendor's or a cloud's, never another server's.
        """
        formats = getattr(self.port, "prefix_formats", ())
        if self.model is None or model is None or form not in formats:
            return False
        mine, other = model_ref(self.model), model_ref(model)
        providers = _CLOUDS if other.provider is None else (other.provider,)
        return (mine.name, mine.region) == (other.name, other.region) and mine.provider in providers

    def summarize(self, request: SummaryRequest) -> SummaryReply | Awaitable[SummaryReply]:
        """Return the reply, or an awaitable of it. Raises `TypeError` for another type."""
        answer = self._ask(request if self.is_object else request.prompt)
        read = _sound if self.is_object else _of_text
        return _Later(answer, read) if hasattr(answer, "__await__") else read(answer)


class _Later:
    """An awaitable reply; closing it closes the summarizer's own awaitable."""

    def __init__(self, answer: Any, read: Callable[[Any], SummaryReply]) -> None:
        self._answer = answer
        self._read = read

    def __await__(self) -> Generator[Any, Any, SummaryReply]:
        answer = yield from self._answer.__await__()
        return self._read(answer)

    def close(self) -> None:
        close_awaitable(self._answer)


class Summarizers:
    """The summarizers of one manager: the given one, and those that settings name.

    `limits` returns (context, max_input, max_output) of a model, None if unknown.
    """

    def __init__(self, runtime: Runtime, plugins: Callable[[], Plugins], limits: Limits) -> None:
        self._runtime = runtime
        self._plugins = plugins
        self._limits = limits
        self._named: dict[str, Asker | None] = {OUTLINE: None}
        self._given: Asker | None = None
        self._is_given = False
        self._refusing = self._accepted(_refusal(_NOT_BY_A_SESSION))
        self._missing: dict[str, Asker] = {}

    def give(self, summarizer: Any) -> None:
        """Set the summarizer that precedes all that settings name; None removes it.

        Raises `InvalidInput` or `PluginNotFound`, and `SummarizerUnavailable` if an SDK or a program is
        missing; the previous one then stays.
        """
        if isinstance(summarizer, str):
            given = self.named(summarizer)
        else:
            given = None if summarizer is None else self._accepted(summarizer)
        self._given, self._is_given = given, summarizer is not None

    def check(self, name: str | None, managers: str | None) -> None:
        """Raise the error of a setting; `managers` is the manager's own setting.

        There is none while a summarizer was given: a session can be read without the summarizer that its
        settings name.
        """
        if name is None or self._is_given:
            return
        if _is_strangers_command(name, managers):
            raise InvalidInput(_NOT_BY_A_SESSION)
        self.named(name)

    def chosen(self, name: str | None, managers: str | None) -> Asker | None:
        """Return the summarizer of a session's setting, None for none.

        A log may come from elsewhere, so a program that it names must not run, and a plugin may be
        missing. The returned summarizer then fails with that reason.
        """
        if self._is_given:
            return self._given
        if name is None:
            return None
        if _is_strangers_command(name, managers):
            return self._refusing
        if name in self._named or name not in self._missing:
            try:
                return self.named(name)
            except MemmanError as error:
                self._missing[name] = self._accepted(_refusal(str(error)))
        return self._missing[name]

    def named(self, name: str) -> Asker | None:
        """Return the summarizer of a name, made once."""
        if name not in self._named:
            if name.startswith(COMMAND):
                from memman.summarizers.command import CommandSummarizer

                found: Any = CommandSummarizer.of_line(name.removeprefix(COMMAND))
            else:
                found = self._of_plugin(name)
            self._named[name] = self._accepted(found)
        return self._named[name]

    def _of_plugin(self, name: str) -> Any:
        found = self._plugins().answer(
            "memman_summarizer", point=name.partition(":")[0], raises=(MemmanError,), name=name
        )
        if found is None:
            raise PluginNotFound(_not_found(name, self._plugins()))
        if not isinstance(found, Summarizer):
            raise InvalidInput(
                f"a plugin answers to {name!r} with a {type(found).__name__}, which has no summarize()"
            )
        return found

    def _accepted(self, summarizer: Any) -> Asker:
        if isinstance(summarizer, type) and hasattr(summarizer, "summarize"):
            raise InvalidInput(f"{summarizer.__name__} is a class: pass {summarizer.__name__}(...)")
        if not isinstance(summarizer, Summarizer) and not callable(summarizer):
            raise InvalidInput(
                f"a summarizer is a callable, a name or has summarize(), not {type(summarizer).__name__}"
            )
        return Asker(summarizer, self._runtime, self._limits)


def _refusal(why: str) -> Callable[[str], str]:
    """Return a summarizer that always fails."""

    def refuse(_prompt: str) -> str:
        raise SummarizerUnavailable(why)

    return refuse


def _is_strangers_command(name: str, managers: str | None) -> bool:
    return name.startswith(COMMAND) and name != managers


def _own_limit(summarizer: Any) -> int | None:
    limit = getattr(summarizer, "max_input_tokens", None)
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInput(
            f"max_input_tokens of {type(summarizer).__name__} must be a number of tokens above 0 or "
            f"None, not {safe_repr(limit, 60)}"
        )
    return limit


def _of_text(answer: Any) -> SummaryReply:
    if not isinstance(answer, str):
        raise TypeError(f"a summarizer must return text, not {type(answer).__name__}")
    return SummaryReply(text=_plain(answer))


def _sound(reply: Any) -> SummaryReply:
    """Return a summarizer's reply after checking the types of its fields."""
    if not isinstance(reply, SummaryReply):
        raise TypeError(f"summarize() returned {type(reply).__name__}, not a SummaryReply")
    for name, kinds in _FIELDS.items():
        value = getattr(reply, name)
        if not isinstance(value, kinds):
            raise TypeError(f"a SummaryReply's {name} cannot be a {type(value).__name__}")
    if reply.model is not None and not is_encodable(_plain(reply.model)):
        raise TypeError("a SummaryReply's model cannot hold a lone surrogate")
    usage = reply.usage
    if usage is not None and not _is_usage(usage):
        raise TypeError(f"a SummaryReply's usage is in whole tokens, not {safe_repr(usage, 80)}")
    model = None if reply.model is None else _plain(reply.model)
    return msgspec.structs.replace(reply, text=_plain(reply.text), model=model)


def _plain(text: str) -> str:
    """Return an instance of a subclass of `str` as a plain string."""
    return text if type(text) is str else str.__str__(text)


def _is_usage(usage: SummaryUsage) -> bool:
    counts = msgspec.structs.astuple(usage)
    sound = all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts)
    cached = usage.cached_tokens, usage.cache_written_tokens, usage.cache_written_1h_tokens
    return sound and cached[0] + cached[1] <= usage.input_tokens and cached[2] <= cached[1]


def _not_found(name: str, plugins: Plugins) -> str:
    """Return why a name has no summarizer, and the fix."""
    head, colon, _ = name.partition(":")
    if head not in _PROVIDERS:
        return f"no installed plugin has a summarizer for {name!r}; known names are {_KNOWN}, {OUTLINE}"
    if not colon:
        return f"{name!r} names no model; write {head}:MODEL"
    distribution = f"memman-{head}"
    faults = [info.error for info in plugins.found if info.distribution == distribution]
    if not faults:
        limited = (
            " (MEMMAN_PLUGINS says which are loaded)" if "MEMMAN_PLUGINS" in os.environ else ""
        )
        return f"the summarizer {name!r} needs a plugin{limited}: {how_to_install(distribution)}"
    why = faults[0] or "it does not answer; install its newest version"
    return f"the plugin {distribution} has no summarizer for {name!r}: {why}"
