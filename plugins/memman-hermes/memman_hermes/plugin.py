"""The plugin `memman` of Hermes Agent, which `config.yaml` enables.

plugins: {enabled: [memman]}
context: {engine: memman}
memman: {store: memman.db, max_tokens: 100000, recall: true}  # all optional
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_cli.config import load_config  # type: ignore[import-untyped]
from hermes_constants import get_hermes_home  # type: ignore[import-untyped]

from memman import MemoryConfig, MemoryManager
from memman_hermes.conversation import Message
from memman_hermes.engine import MemmanEngine

_AMPLE = 2_000_000  # tokens: the model's context length is the limit


def register(ctx: Any) -> None:
    """Register the engine and its hooks with Hermes' `PluginContext`."""
    own = load_config().get("memman") or {}
    limit = own.get("max_tokens")
    memory = MemoryManager(
        get_hermes_home() / (own.get("store") or "memman.db"),
        config=MemoryConfig(
            max_tokens=limit or _AMPLE, max_entries=None, summarizer=own.get("summarizer")
        ),
    )
    register_engine(ctx, MemmanEngine(memory, recall=own.get("recall", True)))


def register_engine(ctx: Any, engine: MemmanEngine) -> None:
    """Register an engine of your own with Hermes' `PluginContext`, and hooks that log every message."""

    def before_request(
        session_id: str = "",
        conversation_history: Sequence[Message] = (),
        request: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if (running := engine.running(session_id)) is not None:
            running.log(conversation_history)
            running.price((request or {}).get("body") or {})

    def after_turn(
        session_id: str = "", conversation_history: Sequence[Message] = (), **_: Any
    ) -> None:
        if (running := engine.running(session_id)) is not None:
            running.log(conversation_history)

    ctx.register_context_engine(engine)
    ctx.register_hook("pre_api_request", before_request)
    ctx.register_hook("post_llm_call", after_turn)
