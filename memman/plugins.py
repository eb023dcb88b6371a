"""Finding third parties: each entry point is loaded in its own guard.

A plugin that cannot be loaded is one log line, a row in `memman plugins`, and an error only for who asks
for it by name. `MEMMAN_PLUGINS` restricts which are loaded: a comma list of names, empty for none.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pluggy

from memman import hookspecs
from memman.forks import renew_in_child
from memman.showing import told

logger = logging.getLogger("memman.plugins")


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `memman plugins`: `error` is None for one that works."""

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    error: str | None = None


class Plugins:
    """The plugins of a process. `hook` calls them; `found` lists them, the broken ones too."""

    def __init__(self, manager: pluggy.PluginManager, found: Iterable[PluginInfo]) -> None:
        self._manager = manager
        self.found = tuple(found)

    @property
    def hook(self) -> Any:
        """pluggy's relay: `plugins.hook.memman_store(url=...)`."""
        return self._manager.hook

    def register(self, plugin: object, name: str | None = None) -> None:
        """Adds a plugin by hand: a module or an object with hook implementations."""
        self._manager.register(plugin, name)
        self._manager.check_pending()

    def listed(self, hook: str) -> list[tuple[str, Any]]:
        """Each plugin's answer to a list hook, by plugin name; one that raises is logged and skipped."""
        answers: list[tuple[str, Any]] = []
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            try:
                answers += [
                    (implementation.plugin_name, item) for item in implementation.function()
                ]
            except Exception:
                logger.exception("plugin %s failed in %s", implementation.plugin_name, hook)
        return answers

    def first(
        self, hook: str, *, raises: tuple[type[Exception], ...] = (), **arguments: Any
    ) -> Any:
        """The first answer to a hook that is not None; a plugin that raises gives way to the next.

        Errors of `raises` are the plugin's answer to who asks for it by name, so they are raised.
        """
        # In pluggy's own order, but each in its guard: its call would end at the first that raises.
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            wanted = {name: arguments[name] for name in implementation.argnames}
            try:
                answer = implementation.function(**wanted)
            except raises:
                raise
            except Exception:
                logger.exception("plugin %s failed in %s", implementation.plugin_name, hook)
                continue
            if answer is not None:
                return answer
        return None


def load_plugins(environ: Mapping[str, str] | None = None) -> Plugins:
    """Loads every installed plugin that `MEMMAN_PLUGINS` allows."""
    # importlib.metadata costs more than all four dependencies together, so it waits until needed.
    from importlib.metadata import entry_points

    allowed = _allowed(os.environ if environ is None else environ)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    points = sorted(entry_points(group=hookspecs.PROJECT), key=lambda point: point.name)
    wanted = [point for point in points if allowed is None or point.name in allowed]
    return Plugins(manager, [_load(manager, point) for point in wanted])


def _allowed(environ: Mapping[str, str]) -> frozenset[str] | None:
    listed = environ.get("MEMMAN_PLUGINS")
    if listed is None:
        return None
    return frozenset(name.strip() for name in listed.split(",") if name.strip())


def _load(manager: pluggy.PluginManager, point: Any) -> PluginInfo:
    distribution = point.dist.name if point.dist else "?"
    version = point.dist.version if point.dist else "?"
    try:
        plugin = point.load()
        manager.register(plugin, name=point.name)
        manager.check_pending()
    except Exception as error:
        logger.warning(
            "plugin %s of %s could not be loaded", point.name, distribution, exc_info=True
        )
        if manager.has_plugin(point.name):
            manager.unregister(name=point.name)
        reason = told(error)
        return PluginInfo(name=point.name, distribution=distribution, version=version, error=reason)
    hooks = tuple(sorted(caller.name for caller in manager.get_hookcallers(plugin) or ()))
    return PluginInfo(name=point.name, distribution=distribution, version=version, hooks=hooks)


_lock = threading.Lock()
_shared: Plugins | None = None


def _renew_lock() -> None:
    """Begin with a lock that nobody holds."""
    global _lock
    _lock = threading.Lock()


renew_in_child(_renew_lock)


def shared_plugins() -> Plugins:
    """The plugins of this process, loaded at first use."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = load_plugins()
        return _shared
