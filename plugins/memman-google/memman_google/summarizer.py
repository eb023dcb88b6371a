"""Asking a Gemini model for a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memman.protocols import SummaryReply
from memman.providers import SYSTEM, ProviderSummarizer, billed
from memman_google.clients import Clients
from memman_google.endpoints import wants_vertex
from memman_google.request import http_options

if TYPE_CHECKING:
    from google.genai import Client

_REFUSALS: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "LANGUAGE",
)  # fmt: skip


class GoogleSummarizer(ProviderSummarizer):
    """A `Summarizer` by `models.generate_content`; as a name, `google:MODEL`.

        MemoryManager(summarizer=GoogleSummarizer("gemini-2.5-flash"))

    What may pass (a limit, a failure of the server) is tried again within the request's time-out.

    Args:
        model: as Google knows it.
        client: a `google.genai.Client` of your own; else one is made when first needed, of the SDK's
            environment variables, which also choose the Developer API or Vertex AI.
        system: the system instruction.
        options: more fields of the `GenerateContentConfig`, which go before ours.

    Raises:
        SummarizerUnavailable: the SDK is missing; when asked, also: a key is.
        AsyncPortRefused: `client` is an async one.
    """

    needs = ("google.genai", "memman-google")

    def __init__(
        self,
        model: str,
        *,
        client: Client | None = None,
        system: str = SYSTEM,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, client, system, options)
        vertex = wants_vertex() if client is None else bool(client.vertexai)
        self.model = f"{'vertex_ai' if vertex else 'gemini'}/{model}"
        self._clients = Clients(vertex=vertex, client=client)

    def call(self, prompt: str, most: int, seconds: float) -> Any:
        """A response of `models.generate_content`."""
        from google.genai.types import GenerateContentConfig

        fields = {
            "system_instruction": self._system,
            "max_output_tokens": most,
            "http_options": http_options(seconds),
            **self._options,
        }
        config = GenerateContentConfig(**fields)
        with self._clients.told():
            generate = self._clients.ready().models.generate_content
            return generate(model=self._name, contents=prompt, config=config)

    def read(self, answer: Any) -> SummaryReply:
        """What the response says, without what the model thought."""
        candidates = answer.candidates or ()
        content = candidates[0].content if candidates else None
        parts = (content.parts if content else None) or ()
        texts = [part.text for part in parts if part.text and not part.thought]
        ended = _name_of(candidates[0].finish_reason) if candidates else ""
        blocked = answer.prompt_feedback and answer.prompt_feedback.block_reason
        return SummaryReply(
            text="".join(texts),
            model=answer.model_version or None,
            usage=billed(answer.usage_metadata),
            truncated=ended == "MAX_TOKENS",
            refused=bool(blocked) or ended in _REFUSALS,
        )


def _name_of(reason: Any) -> str:
    """A finish reason's name; the SDK makes an enum of it, also of one that it does not know."""
    return str(getattr(reason, "value", reason) or "")
