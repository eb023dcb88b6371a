"""The hooks that a plugin may implement. A plugin is one module with any of these functions:

    from memman import hookimpl, CounterSpec

    @hookimpl
    def memman_token_counters():
        return [CounterSpec(name="acme", match=..., factory=...)]

and one line in its pyproject: `[project.entry-points.memman]` `acme = "memman_acme"`.
A hook may get more arguments later: an implementation names only those that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from memman.protocols import CounterSpec, Format, ModelInfo, ModelRef, Prices, Store, Summarizer

PROJECT = "memman"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as an implementation of the hook that has its name: `@hookimpl`."""


@hookspec
def memman_token_counters() -> Iterable[CounterSpec]:
    """Return the available token counters. It must be cheap and not import a provider's SDK."""
    return ()


@hookspec(firstresult=True)
def memman_resolve_model(model: str) -> ModelRef | None:
    """Return the model of an alias, a deployment or a fine-tune, or None if it is unknown here."""


@hookspec(firstresult=True)
def memman_model_info(model: ModelRef) -> ModelInfo | None:
    """Return the limits of a model, or None if they are unknown here; never a guess."""


@hookspec(firstresult=True)
def memman_prices(model: ModelRef) -> Prices | None:
    """Return the prices of a model, or None if they are unknown here; never a guess, never a request."""


@hookspec(firstresult=True)
def memman_summarizer(name: str) -> Summarizer | None:
    """Return the summarizer of a name such as `anthropic:claude-haiku-4-5`, or None.

    It is called once for a name, in the plugin whose entry point is the part before the colon. It must not
    import an SDK. A `MemmanError` reaches the caller: raise `SummarizerUnavailable` with the package to
    install if an SDK is missing. `memman.providers.model_named` parses the name.
    """


@hookspec(firstresult=True)
def memman_store(url: str, create: bool) -> Store | None:
    """Return the store of a URL, or None.

    It is called in the plugin whose entry point is the URL's scheme; no other plugin sees the URL. With
    `create` False, raise `StoreError` if the store does not exist. Omit the argument if your plugin
    creates nothing.
    """


@hookspec
def memman_formats() -> Iterable[Format]:
    """Return the message formats that this plugin parses and renders."""
    return ()


@hookspec
def memman_cli_commands(group: Any) -> None:
    """Add commands to the `memman` command; `group` is its click group."""
