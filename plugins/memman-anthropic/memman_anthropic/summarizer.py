"""Asking a Claude model for a summary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from memman.counting.clients import Clients
from memman.ports import SummaryReply, SummaryRequest
from memman.summarizers import (
    SYSTEM,
    billed,
    persistently,
    read_reply,
    refuse_async,
    reply_limit,
    require_sdk,
)
from memman_anthropic.clients import of_anthropic

# No connection is kept between two summaries, which may be hours apart.
_HEADERS: Final = {"connection": "close"}
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")


class AnthropicSummarizer:
    """A `Summarizer` by `messages.create`; as a name, `anthropic:MODEL`.

        MemoryManager(summarizer=AnthropicSummarizer("claude-haiku-4-5"))

    What may pass (a limit, a failure of the server) is tried again within the request's time-out.

    Args:
        model: as the provider knows it.
        client: an `Anthropic` or `AnthropicVertex` of your own; else one is made when first needed, of
            `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL`.
        system: the system prompt.
        options: more arguments of `messages.create`, which go before ours.

    Raises:
        SummarizerUnavailable: the SDK is missing; when asked, also: a key is.
        AsyncPortRefused: `client` is an async one.
    """

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        system: str = SYSTEM,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        require_sdk("anthropic", "memman-anthropic")
        refuse_async(client)
        self.model = f"anthropic/{model}"
        self._name = model
        self._clients = of_anthropic() if client is None else Clients.given(client, None)
        self._system = system
        self._options = dict(options or {})

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The model's summary; raises what the SDK raises, within the request's time-out."""
        return persistently(partial(self._once, request), request.timeout)

    def _once(self, request: SummaryRequest, seconds: float) -> SummaryReply:
        asked = {
            "model": self._name,
            "system": self._system,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": reply_limit(request.target_tokens, self.model),
            **self._options,
        }
        create = self._clients.sync().messages.create
        return read_reply(create(**asked, timeout=seconds, extra_headers=_HEADERS), _reply)


def _reply(answer: Any) -> SummaryReply:
    texts = [block.text for block in answer.content or () if block.type == "text"]
    return SummaryReply(
        text="".join(texts),
        model=answer.model,
        usage=billed(answer.usage),
        truncated=answer.stop_reason in _CUT_OFF,
        refused=answer.stop_reason == "refusal",
    )
