"""Summaries by models on Amazon Bedrock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from memman.formats.bedrock import sdk_messages
from memman.protocols import RequestPrefix, SummaryReply
from memman.providers import SYSTEM, ProviderSummarizer, billed, model_ref
from memman_bedrock.clients import Clients, mapped_errors
from memman_bedrock.models import bedrock_model, region_of

_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")
_REFUSALS: Final = ("guardrail_intervened", "content_filtered", "refusal")


class BedrockSummarizer(ProviderSummarizer):
    """A `Summarizer` by `converse`; its name is `bedrock:MODEL`.

        MemoryManager(summarizer=BedrockSummarizer("us.anthropic.claude-haiku-4-5-20251001-v1:0"))

    Failures that may pass (a rate limit, a server failure) are retried within the request's time-out.

    Args:
        model: the id of a model or of an inference profile, or an ARN.
        client: a boto3 client of the `bedrock-runtime`, with its own time-outs; by default one is made when
            needed, from AWS's settings.
        system: the system prompt.
        options: further arguments of `converse`, which override ours.

    Raises:
        SummarizerUnavailable: the SDK is missing, or credentials or a region when it is called.
        AsyncPortRefused: `client` is async.
    """

    needs = ("boto3", "memman-bedrock")
    prefix_formats = ("bedrock",)

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        system: str = SYSTEM,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, client, system, options)
        self.model = f"bedrock/{model}"
        known = bedrock_model(model_ref(self.model))
        region = (known.region if known else None) or region_of(os.environ)
        self._clients = Clients(region, client)

    def call(self, prompt: str, most: int, seconds: float) -> Any:
        """Return a response of `converse`."""
        head = {"system": [{"text": self._system}]}
        return self._converse(
            [{"role": "user", "content": [{"text": prompt}]}], head, most, seconds
        )

    def call_on(self, prefix: RequestPrefix, instruction: str, most: int, seconds: float) -> Any:
        """Return a response of `converse` behind the session's last request.

        The instruction joins a last message of the user, for Converse wants the roles in turn.
        """
        messages, block = sdk_messages(prefix.messages), {"text": instruction}
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] = [*messages[-1]["content"], block]
        else:
            messages.append({"role": "user", "content": [block]})
        head: dict[str, Any] = {}
        if prefix.system:
            text = isinstance(prefix.system, str)
            head["system"] = [{"text": prefix.system}] if text else prefix.system
        if prefix.tools:
            head["toolConfig"] = {"tools": prefix.tools}
        return self._converse(messages, head, most, seconds)

    def _converse(
        self, messages: list[Any], head: Mapping[str, Any], most: int, seconds: float
    ) -> Any:
        asked = {
            "modelId": self._name,
            **head,
            "messages": messages,
            "inferenceConfig": {"maxTokens": most},
            **self._options,
        }
        with mapped_errors():
            # In tenths of a second, so that one client serves all first attempts.
            client = self._clients.ready(max(0.1, round(seconds, 1)))
            return client.converse(**asked)

    def read(self, answer: Any) -> SummaryReply:
        """Return the reply in the response."""
        message = (answer.get("output") or {}).get("message") or {}
        ended = answer.get("stopReason")
        return SummaryReply(
            text="".join(block["text"] for block in message.get("content", ()) if "text" in block),
            model=self._name,  # a response does not contain it
            usage=billed(answer.get("usage")),
            truncated=ended in _CUT_OFF,
            refused=ended in _REFUSALS,
            calls_tool=any("toolUse" in block for block in message.get("content", ())),
        )
