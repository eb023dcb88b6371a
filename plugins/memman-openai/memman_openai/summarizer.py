"""Summaries by models of OpenAI, and of servers with its chat completions API."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from memman.protocols import RequestPrefix, SummaryReply, SummaryRequest
from memman.providers import SYSTEM, Clients, ProviderSummarizer, billed, host_of, status_of
from memman_openai.clients import API, of_openai

# No connection is kept between two summaries, which may be hours apart.
_HEADERS: Final = {"connection": "close"}
# OpenAI's newer models refuse the older one; most compatible servers know only that.
_NEWER, _OLDER = "max_completion_tokens", "max_tokens"
_UNWANTED: Final = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|extra (inputs|fields)|not permitted",
    re.IGNORECASE,
)


class OpenAISummarizer(ProviderSummarizer):
    """A `Summarizer` by `chat.completions`, which all compatible servers have; its name is `openai:MODEL`.

        MemoryManager(summarizer=OpenAISummarizer("gpt-5-mini"))
        MemoryManager(summarizer=OpenAISummarizer("qwen3:8b", base_url="http://localhost:11434/v1"))

    Failures that may pass (a rate limit, a server failure) are retried within the request's time-out. No
    temperature is sent: reasoning models refuse one.

    Args:
        model: its name at the server.
        base_url: the server's address; else `OPENAI_BASE_URL`, else OpenAI itself.
        api_key: its key; else `OPENAI_API_KEY`. Another server than OpenAI's may need none.
        client: an `OpenAI` or `AzureOpenAI` of your own in place of the two.
        max_input_tokens: the most input of one call; by default what memman knows of the model.
        system: the system prompt.
        options: more arguments of `chat.completions.create`, which go before ours.

    Raises:
        SummarizerUnavailable: the SDK is missing; when asked, also: a key is.
        AsyncPortRefused: `client` is an async one.
    """

    needs = ("openai", "memman-openai")
    prefix_formats = ("openai-chat",)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        max_input_tokens: int | None = None,
        system: str = SYSTEM,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, client, system, options)
        if client is None:
            url = base_url or os.environ.get("OPENAI_BASE_URL") or API
            self._clients = of_openai(base_url, api_key)
        else:
            url = str(client.base_url)
            self._clients = Clients.given(client, None)
        server = _server(url)
        self.model = f"{server}/{model}"
        self.max_input_tokens = max_input_tokens
        self._limit = _NEWER if server in ("openai", "azure") else _OLDER

    def once(self, request: SummaryRequest, seconds: float) -> SummaryReply:
        """Return the result of one attempt, repeated if the server has another name for the reply limit."""
        try:
            return super().once(request, seconds)
        except Exception as error:
            if getattr(error, "code", None) == "content_filter":  # of Azure, about the prompt
                return SummaryReply(text="", refused=True)
            said = str(error)
            refused = status_of(error) in (400, 422) and self._limit in said
            if not (refused and _UNWANTED.search(said)):  # another error than an unknown parameter
                raise
        self._limit = _OLDER if self._limit == _NEWER else _NEWER
        return super().once(request, seconds)

    def call(self, prompt: str, most: int, seconds: float) -> Any:
        """Return a completion of `chat.completions.create`."""
        system = {"role": "system", "content": self._system}
        return self._completion([system, _of_user(prompt)], {}, most, seconds)

    def call_on(self, prefix: RequestPrefix, instruction: str, most: int, seconds: float) -> Any:
        """Return a completion behind the session's last request; no tool may be called."""
        fields: dict[str, Any] = {}
        if prefix.tools:
            fields |= {"tools": prefix.tools, "tool_choice": "none"}
        if prefix.prompt_cache_key:
            fields["prompt_cache_key"] = prefix.prompt_cache_key
        return self._completion([*prefix.messages, _of_user(instruction)], fields, most, seconds)

    def _completion(
        self, messages: list[Any], fields: Mapping[str, Any], most: int, seconds: float
    ) -> Any:
        asked = {
            "model": self._name,
            "messages": messages,
            **fields,
            self._limit: most,
            **self._options,
        }
        create = self._clients.sync().chat.completions.create
        return create(**asked, timeout=seconds, extra_headers=_HEADERS)

    def read(self, answer: Any) -> SummaryReply:
        """Return the reply in the completion."""
        choices = answer.choices or ()
        message = choices[0].message if choices else None
        ended = choices[0].finish_reason if choices else None
        refusal = getattr(message, "refusal", None)
        return SummaryReply(
            text=getattr(message, "content", None) or "",
            model=answer.model or None,
            usage=billed(answer.usage),
            truncated=ended == "length",
            refused=ended == "content_filter" or bool(refusal),
            calls_tool=bool(getattr(message, "tool_calls", None)),
        )


def _of_user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _server(url: str) -> str:
    """Return the server of a model by its spelling; an unknown one by its address."""
    host = host_of(url)
    name = host.partition("/")[0].partition(":")[0]
    if name.endswith(".azure.com"):
        return "azure"
    return "openai" if name.endswith("api.openai.com") else host
