"""Summaries by Gemini models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memman.protocols import RequestPrefix, SummaryReply
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
    """A `Summarizer` by `models.generate_content`; its name is `google:MODEL`.

        MemoryManager(summarizer=GoogleSummarizer("gemini-2.5-flash"))

    Failures that may pass (a rate limit, a server failure) are retried within the request's time-out.

    Args:
        model: its name at Google.
        client: a `google.genai.Client` of the application; by default one is made when needed, from the
            SDK's environment variables, which also choose the Developer API or Vertex AI.
        system: the system instruction.
        options: further fields of the `GenerateContentConfig`, which override ours.

    Raises:
        SummarizerUnavailable: the SDK is missing, or a key when it is called.
        AsyncPortRefused: `client` is async.
    """

    needs = ("google.genai", "memman-google")
    prefix_formats = ("gemini",)

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
        """Return a response of `models.generate_content`."""
        return self._generated(prompt, {"system_instruction": self._system}, most, seconds)

    def call_on(self, prefix: RequestPrefix, instruction: str, most: int, seconds: float) -> Any:
        """Return a response behind the session's last request.

        The instruction joins a last content of the user, for Gemini wants the roles in turn.
        """
        head = {"system_instruction": prefix.system, "tools": prefix.tools}
        contents, part = prefix.messages, {"text": instruction}
        if contents and contents[-1]["role"] == "user":
            last = {**contents[-1], "parts": [*contents[-1]["parts"], part]}
            contents = [*contents[:-1], last]
        else:
            contents = [*contents, {"role": "user", "parts": [part]}]
        given = {name: value for name, value in head.items() if value}
        return self._generated(contents, given, most, seconds)

    def _generated(self, contents: Any, head: Mapping[str, Any], most: int, seconds: float) -> Any:
        from google.genai.types import GenerateContentConfig

        fields = {
            **head,
            "max_output_tokens": most,
            "http_options": http_options(seconds),
            **self._options,
        }
        config = GenerateContentConfig(**fields)
        with self._clients.mapped_errors():
            generate = self._clients.ready().models.generate_content
            return generate(model=self._name, contents=contents, config=config)

    def read(self, answer: Any) -> SummaryReply:
        """Return the reply in the response, without the model's thoughts."""
        candidates = answer.candidates or ()
        content = candidates[0].content if candidates else None
        parts = (content.parts if content else None) or ()
        texts = [part.text for part in parts if part.text and not part.thought]
        reason = candidates[0].finish_reason if candidates else None
        # The SDK makes an enum of a reason, even of an unknown one.
        ended = str(getattr(reason, "value", reason) or "")
        blocked = answer.prompt_feedback and answer.prompt_feedback.block_reason
        return SummaryReply(
            text="".join(texts),
            model=answer.model_version or None,
            usage=billed(answer.usage_metadata),
            truncated=ended == "MAX_TOKENS",
            refused=bool(blocked) or ended in _REFUSALS,
            calls_tool=any(part.function_call for part in parts),
        )
