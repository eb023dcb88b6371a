"""Runs the laws of counters and summarizers on those of an installed plugin, without pytest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from memman.counting.models import model_ref
from memman.display import format_error
from memman.errors import MemmanError, PluginNotFound
from memman.plugins import PluginInfo, shared_plugins
from memman.protocols import CounterSpec, Summarizer
from memman.testing import (
    CounterConformance,
    CounterSpecConformance,
    SummarizerConformance,
    law_results,
)
from memman.testing.laws import LawResult, laws_of
from memman_cli.answers import CheckedCounter, CheckedSummarizer, Law
from memman_cli.errors import FindingError, UnusableError

# The names to find a counter's model by, if none is given.
_MODELS: Final = (
    "gpt-4o", "gpt-5", "gpt-4", "o3", "gpt-6", "claude-sonnet-4-5", "claude-opus-4-7", "gemini-2.5-pro",
    "glm-4.6", "kimi-k2", "mistral-large-latest", "ministral-8b-latest", "deepseek-chat", "qwen3-coder",
    "grok-4", "command-r", "llama-3.3-70b", "nova-pro",
)  # fmt: skip
# memman's own dependencies, which are cheap to import.
_LIGHT: Final = frozenset(
    ("memman-core", "blinker", "cachetools", "msgspec", "pluggy", "typing-extensions")
)


def check_summarizer(name: str, summarizer: str) -> CheckedSummarizer:
    """Run every law on the plugin's summarizer of that name; most laws call it.

    Raises `PluginNotFound` for an absent plugin, `FindingError` for a broken one, and `UnusableError` if
    it has no such summarizer or cannot make it here.
    """
    info = _installed(name)
    made = _summarizer(info, summarizer)
    if not isinstance(made, Summarizer):
        fault = f"a {type(made).__name__} has no summarize()"
        return CheckedSummarizer(summarizer, (Law("it is a summarizer", "failed", fault),))
    kit = type("Kit", (SummarizerConformance,), {"make_summarizer": lambda _kit: made})
    return CheckedSummarizer(summarizer, tuple(_run_laws(kit, remote=True)))


def _summarizer(info: PluginInfo, name: str) -> Any:
    for implementation in shared_plugins().hook.memman_summarizer.get_hookimpls():
        if implementation.plugin_name != info.name:
            continue
        try:
            made = implementation.function(*([name] * len(implementation.argnames)))
        except MemmanError as error:
            raise UnusableError(f"plugin {info.name} cannot make {name!r} here: {error}") from error
        except Exception as error:
            raise FindingError(
                f"memman_summarizer of plugin {info.name} fails for {name!r}: {format_error(error)}"
            ) from error
        if made is not None:
            return made
    raise UnusableError(
        f"plugin {info.name} has no summarizer {name!r}; it has {_hooks(info)}. "
        f"As a rule their names are {info.name}:MODEL"
    )


def _hooks(info: PluginInfo) -> str:
    return ", ".join(info.hooks) or "nothing"


def check_counters(name: str, models: Sequence[str]) -> Iterator[CheckedCounter]:
    """Run every law on each counter of the plugin, one after the other.

    `models` are models of the counters; without any, known names are tried. Raises `PluginNotFound` for an
    absent plugin, `FindingError` for a broken one, and `UnusableError` for one without counters.
    """
    info = _installed(name)
    specs = _specs(info)
    if not specs:
        raise UnusableError(
            f"plugin {info.name} offers no token counter; it has {_hooks(info)}. A summarizer is checked "
            f"with --summarizer {info.name}:MODEL, which calls it"
        )
    module, dependencies = _imports(info)
    return (_check(spec, models, info, module, dependencies) for spec in specs)


def _installed(name: str) -> PluginInfo:
    found = shared_plugins().found
    for info in found:
        if name in (info.name, info.distribution):
            if info.error is not None:
                raise FindingError(f"plugin {info.name} cannot be loaded: {info.error}")
            return info
    known = ", ".join(info.name for info in found) or "none"
    raise PluginNotFound(
        f"no plugin called {name!r} is loaded; there are: {known}. Install it into this environment "
        "(pip install -e FOLDER), and see that MEMMAN_PLUGINS allows it"
    )


def _specs(info: PluginInfo) -> list[Any]:
    for implementation in shared_plugins().hook.memman_token_counters.get_hookimpls():
        if implementation.plugin_name == info.name:
            try:
                return list(implementation.function())
            except Exception as error:
                raise FindingError(
                    f"memman_token_counters of plugin {info.name} fails: {format_error(error)}"
                ) from error
    return []


def _imports(info: PluginInfo) -> tuple[str, tuple[str, ...]]:
    """Return the plugin's module, and the modules of its distribution's dependencies."""
    from importlib.metadata import entry_points, packages_distributions

    point = next(one for one in entry_points(group="memman") if one.name == info.name)
    required = {_project(line) for line in (point.dist.requires if point.dist else None) or ()}
    heavy = required - _LIGHT
    modules = packages_distributions().items()
    owned = sorted(name for name, owners in modules if heavy & {_project(one) for one in owners})
    return point.module, tuple(owned)


def _project(requirement: str) -> str:
    """Return the normalized name in a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _check(
    spec: Any, models: Sequence[str], info: PluginInfo, module: str, dependencies: tuple[str, ...]
) -> CheckedCounter:
    if not isinstance(spec, CounterSpec):
        fault = f"a {type(spec).__name__} is not a CounterSpec"
        law = Law("its spec is sound", "failed", fault)
        return CheckedCounter(repr(spec)[:60], False, None, (law,))
    known = tuple(models) or _known_model(spec, info)
    model = model_ref(known[0] if known else spec.name)
    attributes = {
        "spec": spec,
        "models": known,
        "module": module,
        "sdk": dependencies,
        "make_counter": lambda _kit: spec.factory(model),
    }
    base = CounterSpecConformance if spec.remote else CounterConformance
    laws = tuple(_run_laws(type("Kit", (base,), attributes), remote=spec.remote))
    return CheckedCounter(str(spec.name), bool(spec.remote), known[0] if known else None, laws)


def _known_model(spec: CounterSpec, info: PluginInfo) -> tuple[str, ...]:
    """Return a model that the counter knows, if it is one of the usual names."""
    for name in (f"{spec.name}-1", f"{info.name}-1", str(spec.name), info.name, *_MODELS):
        try:
            if spec.match(model_ref(name)) > 0:
                return (name,)
        except Exception:  # noqa: BLE001 - a law of the kit reports it
            return ()
    return ()


def _run_laws(kit: type, *, remote: bool) -> Iterator[Law]:
    """Yield the outcomes; after a law that hangs, the rest are not run."""
    names = laws_of(kit)
    for number, result in enumerate(law_results(kit), 1):
        yield _law(result, remote)
        if result.overdue:
            for name in names[number:]:
                yield Law(_words(name), "not run", "an earlier call did not return")
            return


def _law(result: LawResult, remote: bool) -> Law:
    law = _words(result.law)
    if not result.problem:
        return Law(law, "ok")
    if result.unavailable:
        # A remote counter may need a key that is not here; a local one must work.
        return Law(law, "not run" if remote else "failed", f"unavailable here: {result.problem}")
    return Law(law, "failed", result.problem)


def _words(law: str) -> str:
    return law.removeprefix("test_").replace("_", " ")
