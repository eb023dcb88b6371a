"""The hooks that a plugin may implement. A plugin is one module with any of these functions:

    from memman import hookimpl, CounterSpec

    @hookimpl
    def memman_token_counters():
        return [CounterSpec(name="acme", match=..., factory=...)]

and one line in its pyproject: `[project.entry-points.memman]` `acme = "memman_acme"`.
A hook may grow arguments later: an implementation names only those that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from memman.protocols import CounterSpec, Format, ModelInfo, ModelRef, Store, Summarizer

PROJECT = "memman"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as an implementation of the hook that has its name: `@hookimpl`."""


@hookspec
def memman_token_counters() -> Iterable[CounterSpec]:
    """Token counters that exist here. Cheap: must not import a provider's SDK."""
    return ()


@hookspec(firstresult=True)
def memman_resolve_model(model: str) -> ModelRef | None:
    """The model behind an alias, a deployment or a fine-tune, or None to let others answer."""


@hookspec(firstresult=True)
def memman_model_info(model: ModelRef) -> ModelInfo | None:
    """The limits of a model, or None. Never a guess."""


@hookspec(firstresult=True)
def memman_summarizer(name: str) -> Summarizer | None:
    """The summarizer of a name such as `anthropic:claude-haiku-4-5`, or None where it is somebody else's.

    Only the plugin whose entry point is the part before the colon is asked, once for a name. Making one
    must not import an SDK. A `MemmanError` reaches the caller: raise `SummarizerUnavailable` with what to
    install if an SDK is missing. `memman.summarizers.model_named` takes it apart.
    """


@hookspec(firstresult=True)
def memman_store(url: str, create: bool) -> Store | None:
    """The store behind a URL, or None.

    Only the plugin whose entry point is the URL's scheme is asked: no other one sees the URL.

    With `create` False it must be there: raise `StoreError` where it is not. Leave the argument out if
    yours makes nothing.
    """


@hookspec
def memman_formats() -> Iterable[Format]:
    """Message formats that this plugin can parse and render."""
    return ()


@hookspec
def memman_cli_commands(group: Any) -> None:
    """Adds commands to the `memman` command: `group` is its click group."""
