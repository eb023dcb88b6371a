"""Asking a model on Amazon Bedrock for a summary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from memman.counting import model_ref
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
from memman_bedrock.clients import Clients, told
from memman_bedrock.models import bedrock_model, region_of

_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")
_REFUSALS: Final = ("guardrail_intervened", "content_filtered", "refusal")


class BedrockSummarizer:
    """A `Summarizer` by Converse; as a name, `bedrock:MODEL`.

        MemoryManager(summarizer=BedrockSummarizer("us.anthropic.claude-haiku-4-5-20251001-v1:0"))

    What may pass (a limit, a failure of the server) is tried again within the request's time-out.

    Args:
        model: the id of a model or of an inference profile, or an ARN.
        client: a boto3 client of the `bedrock-runtime`, with its own time-outs; else one is made when
            first needed, of AWS's settings.
        system: the system prompt.
        options: more arguments of `converse`, which go before ours.

    Raises:
        SummarizerUnavailable: the SDK is missing; when asked, also: credentials or a region are.
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
        require_sdk("boto3", "memman-bedrock")
        refuse_async(client)
        self.model = f"bedrock/{model}"
        self._name = model
        known = bedrock_model(model_ref(self.model))
        region = (known.region if known else None) or region_of(os.environ)
        self._clients = Clients(region, client)
        self._system = system
        self._options = dict(options or {})

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The model's summary; raises what boto3 raises, within the request's time-out."""
        return persistently(partial(self._once, request), request.timeout)

    def _once(self, request: SummaryRequest, seconds: float) -> SummaryReply:
        asked = {
            "modelId": self._name,
            "system": [{"text": self._system}],
            "messages": [{"role": "user", "content": [{"text": request.prompt}]}],
            "inferenceConfig": {"maxTokens": reply_limit(request.target_tokens, self.model)},
            **self._options,
        }
        with told():
            # In tenths of a second, so that one client serves all first attempts.
            client = self._clients.ready(max(0.1, round(seconds, 1)))
            return read_reply(client.converse(**asked), self._reply)

    def _reply(self, answer: Mapping[str, Any]) -> SummaryReply:
        message = (answer.get("output") or {}).get("message") or {}
        ended = answer.get("stopReason")
        return SummaryReply(
            text="".join(block["text"] for block in message.get("content", ()) if "text" in block),
            model=self._name,  # a response does not say it
            usage=billed(answer.get("usage")),
            truncated=ended in _CUT_OFF,
            refused=ended in _REFUSALS,
        )
