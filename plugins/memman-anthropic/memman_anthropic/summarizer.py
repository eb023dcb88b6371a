"""Summaries by Claude models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memman.protocols import RequestPrefix, SummaryReply
from memman.providers import SYSTEM, Clients, ProviderSummarizer, billed
from memman_anthropic.clients import of_anthropic

# No connection is kept between two summaries, which may be hours apart.
_HEADERS: Final = {"connection": "close"}
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")


class AnthropicSummarizer(ProviderSummarizer):
    """A `Summarizer` by `messages.create`; its name is `anthropic:MODEL`.

        MemoryManager(summarizer=AnthropicSummarizer("claude-haiku-4-5"))

    Failures that may pass (a rate limit, a server failure) are retried within the request's time-out.

    Args:
        model: its name at the provider.
        client: an `Anthropic` or `AnthropicVertex` of the application; by default one is made when
            needed, from `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL`.
        system: the system prompt.
        options: further arguments of `messages.create`, which override ours.

    Raises:
        SummarizerUnavailable: the SDK is missing, or a key when it is called.
        AsyncPortRefused: `client` is async.
    """

    needs = ("anthropic", "memman-anthropic")
    prefix_formats = ("anthropic",)

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        system: str = SYSTEM,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, client, system, options)
        self.model = f"anthropic/{model}"
        self._clients = of_anthropic() if client is None else Clients.given(client, None)

    def call(self, prompt: str, most: int, seconds: float) -> Any:
        """Return a message of `messages.create`."""
        said = [{"role": "user", "content": prompt}]
        return self._message({"system": self._system}, said, most, seconds)

    def call_on(self, prefix: RequestPrefix, instruction: str, most: int, seconds: float) -> Any:
        """Return a message of `messages.create` behind the session's last request.

        Another `tool_choice` than the agent's would lose the cached messages, so none is sent.
        """
        head = {"system": prefix.system, "tools": prefix.tools}
        said = [*prefix.messages, {"role": "user", "content": instruction}]
        return self._message({key: each for key, each in head.items() if each}, said, most, seconds)

    def _message(
        self, head: Mapping[str, Any], messages: list[Any], most: int, seconds: float
    ) -> Any:
        asked = {"model": self._name, **head, "messages": messages, "max_tokens": most}
        create = self._clients.sync().messages.create
        return create(**asked | self._options, timeout=seconds, extra_headers=_HEADERS)

    def read(self, answer: Any) -> SummaryReply:
        """Return the reply in the message."""
        texts = [block.text for block in answer.content or () if block.type == "text"]
        return SummaryReply(
            text="".join(texts),
            model=answer.model,
            usage=billed(answer.usage),
            truncated=answer.stop_reason in _CUT_OFF,
            refused=answer.stop_reason == "refusal",
            calls_tool=any(block.type == "tool_use" for block in answer.content or ()),
        )
