"""Plugins: finding and loading them, and the distributions of memman itself.

A plugin that cannot be loaded is one log line, a row in `memman plugins`, and an error only for a caller
that names it. `MEMMAN_PLUGINS` and the managers' `plugins=` restrict which are loaded, by distribution.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import pluggy

from memman import hookspecs
from memman.display import error_kind, format_error, safe_repr
from memman.errors import InvalidInput, MemmanError
from memman.runtime.forks import renew_in_child

logger = logging.getLogger("memman.plugins")
DISTRIBUTION = "memman-core"
VERSION = "0.1.0"
CREATED_BY = f"{DISTRIBUTION} {VERSION}"
_OWN_PLUGINS = frozenset(
    f"memman-{name}"
    for name in (
        "adk",
        "agent-framework",
        "anthropic",
        "bedrock",
        "claude-agent-sdk",
        "cli",
        "google",
        "hermes",
        "langchain",
        "litellm",
        "llama-index",
        "mistral",
        "openai",
        "openai-agents",
        "otel",
        "postgres",
        "prices",
        "pydantic-ai",
        "strands",
        "tiktoken",
        "tokenizers",
    )
)


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `memman plugins`; `error` is None if the plugin works."""

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    error: str | None = None


class Plugins:
    """The plugins of a process. `hook` calls them; `found` lists them, with the broken ones."""

    def __init__(self, manager: pluggy.PluginManager, found: Iterable[PluginInfo]) -> None:
        self._manager = manager
        self.hook: Any = manager.hook  # pluggy's relay: `plugins.hook.memman_store(url=...)`
        self._by_hand: set[str] = set()
        self._logged: set[tuple[str, str]] = set()
        self.found = tuple(found)

    def register(self, plugin: object, name: str | None = None) -> None:
        """Add a plugin by hand: a module or an object with hook implementations.

        The program itself vouches for it, so it may answer for any name.
        """
        self._by_hand.add(self._manager.register(plugin, name) or "")
        self._manager.check_pending()

    def listed(self, hook: str) -> list[tuple[str, Any]]:
        """Return the results of a list hook with plugin names; errors of plugins are logged."""
        answers: list[tuple[str, Any]] = []
        for each in getattr(self.hook, hook).get_hookimpls():
            try:
                answers += [(each.plugin_name, item) for item in each.function()]
            except Exception as error:  # noqa: BLE001 - a third party's code; `_failed` logs it
                self._failed(each.plugin_name, hook, error)
        return answers

    def answer(
        self,
        hook: str,
        *,
        point: str | None = None,
        raises: tuple[type[Exception], ...] = (),
        **arguments: Any,
    ) -> Any:
        """Return the result of a hook that is not None; a plugin that raises is logged and skipped.

        Args:
            hook: the hook's name.
            point: call only the plugin of this entry point, and those registered by hand; None for all.
            raises: errors of a plugin that are meant for a caller that names it, so they are raised.
            arguments: the arguments of the hook.

        Raises:
            InvalidInput: two plugins return different results; the message names both.
        """
        answers: list[tuple[str, Any]] = []
        for implementation in getattr(self.hook, hook).get_hookimpls():
            name = implementation.plugin_name
            if point not in (None, name) and name not in self._by_hand:
                continue
            wanted = {word: arguments[word] for word in implementation.argnames}
            try:
                answer = implementation.function(**wanted)
            except raises:
                raise
            except Exception as error:  # noqa: BLE001 - likewise
                self._failed(name, hook, error)
                continue
            if answer is not None:
                answers.append((name, answer))
        return _agreed(hook, answers)

    def _failed(self, name: str, hook: str, error: Exception) -> None:
        """Log a failure in one line, once for a plugin and a hook."""
        logger.debug("plugin %s failed in %s", name, hook, exc_info=error)
        if (name, hook) not in self._logged:
            self._logged.add((name, hook))
            # A message of memman's own is for people; another may quote a secret.
            said = format_error(error) if isinstance(error, MemmanError) else error_kind(error)
            logger.warning("plugin %s failed in %s: %s", name, hook, said)


def _agreed(hook: str, answers: Sequence[tuple[str, Any]]) -> Any:
    if not answers:
        return None
    name, first = answers[0]
    for other, answer in answers[1:]:
        if answer != first:
            raise InvalidInput(
                f"the plugins {name} and {other} both answer {hook}: uninstall one, or name those to load "
                "by plugins= or MEMMAN_PLUGINS"
            )
    return first


def load_plugins(
    environ: Mapping[str, str] | None = None, only: Iterable[str] | None = None
) -> Plugins:
    """Load every installed plugin that `MEMMAN_PLUGINS` and `only` allow.

    Each names distributions: `memman-openai`, or `memman-openai:openai` for one of its entry points.
    """
    # importlib.metadata costs more than all four dependencies together, so it waits until needed.
    from importlib.metadata import entry_points

    listed = (os.environ if environ is None else environ).get("MEMMAN_PLUGINS")
    wanted = None if listed is None else _names(listed.split(","))
    chosen = None if only is None else _names(only)
    points = sorted(entry_points(group=hookspecs.PROJECT), key=_order)
    for names, where in ((wanted, "MEMMAN_PLUGINS"), (chosen, "plugins=")):
        _check_installed(names, points, where)
        points = [point for point in points if names is None or names & _names_of(point)]
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return Plugins(manager, [_load(manager, point, points) for point in points])


def _order(point: Any) -> tuple[str, str]:
    return point.name, point.dist.name if point.dist else ""


def _names(listed: Iterable[str]) -> frozenset[str]:
    return frozenset(_normal(name) for name in listed if name.strip())


def _normal(name: str) -> str:
    """Return a distribution's name in normalized form; `:POINT` stays unchanged."""
    distribution, colon, point = name.strip().partition(":")
    return re.sub(r"[-_.]+", "-", distribution).lower() + colon + point


def _names_of(point: Any) -> frozenset[str]:
    """Return the names by which an entry point may be allowed."""
    distribution = _normal(point.dist.name) if point.dist else "?"
    return frozenset((distribution, f"{distribution}:{point.name}"))


def _check_installed(names: frozenset[str] | None, points: Sequence[Any], where: str) -> None:
    """Log the names without an installed plugin."""
    found = {name for point in points for name in _names_of(point)}
    for name in sorted((names or frozenset()) - found):
        meant = [f"{point.dist.name}" for point in points if point.dist and point.name == name]
        hint = f"; write the distribution's name, {meant[0]}" if meant else ""
        logger.warning(
            "%s names %s, which is no installed plugin%s", where, safe_repr(name, 60), hint
        )


def _load(manager: pluggy.PluginManager, point: Any, points: Sequence[Any]) -> PluginInfo:
    distribution = point.dist.name if point.dist else "?"
    version = point.dist.version if point.dist else "?"
    info = PluginInfo(name=point.name, distribution=distribution, version=version)
    rivals = [one for one in points if one.name == point.name]
    if len(rivals) > 1:
        both = " and ".join(str(one.dist and one.dist.name) for one in rivals)
        reason = (
            f"{both} both have the entry point {point.name}, so neither is loaded: uninstall one, or name "
            "the other by plugins= or MEMMAN_PLUGINS"
        )
        logger.warning("plugin %s of %s is not loaded: %s", point.name, distribution, reason)
        return msgspec.structs.replace(info, error=reason)
    try:
        plugin = point.load()
        manager.register(plugin, name=point.name)
        manager.check_pending()
    except Exception as error:
        logger.warning("plugin %s of %s could not be loaded", point.name, distribution)
        logger.debug("plugin %s could not be loaded", point.name, exc_info=True)
        if manager.has_plugin(point.name):
            manager.unregister(name=point.name)
        return msgspec.structs.replace(info, error=format_error(error))
    hooks = tuple(sorted(caller.name for caller in manager.get_hookcallers(plugin) or ()))
    return msgspec.structs.replace(info, hooks=hooks)


_lock = threading.Lock()
_shared: Plugins | None = None


def _renew_lock() -> None:
    """Begin with a free lock."""
    global _lock
    _lock = threading.Lock()


renew_in_child(_renew_lock)


def shared_plugins() -> Plugins:
    """Return the plugins of this process, loaded on first use."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = load_plugins()
        return _shared


def chosen_plugins(only: Iterable[str] | None) -> Callable[[], Plugins]:
    """Return a loader of these distributions' plugins; None means those of the process.

    Raises `InvalidInput` for anything but names.
    """
    if only is None:
        return shared_plugins
    listed = isinstance(only, Iterable) and not isinstance(only, str)
    names = tuple(only) if listed else ()
    if not listed or not all(isinstance(name, str) for name in names):
        raise InvalidInput(
            f"plugins must be a list of distributions, such as ['memman-openai'], not {safe_repr(only, 60)}"
        )
    return cache(partial(load_plugins, only=names))


def how_to_install(requirement: str) -> str:
    """Return how to install a requirement such as `memman-openai` or `memman-core[zstd]`.

    memman's own distributions are not on a package index yet: packages with these names are unrelated.
    """
    name, bracket, extras = requirement.partition("[")
    if name != DISTRIBUTION and name not in _OWN_PLUGINS:
        return f"pip install {requirement}"
    path = f"{'.' if name == DISTRIBUTION else f'./plugins/{name}'}{bracket}{extras}"
    return f"install {requirement} from a clone of memman: pip install '{path}'"
