"""LangChain's chat models as memman's summarizers, and memman's counts for LangChain."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import MessageLikeRepresentation, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.constants import TAG_NOSTREAM

from memman import MemoryManager, Summarizer, SummaryReply, SummaryRequest
from memman.providers import billed

_ENDS = ("finish_reason", "stop_reason", "done_reason")


def chat_model_summarizer(model: BaseChatModel) -> Summarizer:
    """Return a summarizer by a chat model, whose tokens stay out of the agent's own streams.

        MemoryManager("chat.db", summarizer=chat_model_summarizer(cheap_model))

    Its traces are those of the agent's run. `model.profile["max_input_tokens"]` limits one call.
    """
    return _ChatModelSummarizer(model)


def token_counter(
    memory: MemoryManager, *, model: str | None = None
) -> Callable[[Iterable[MessageLikeRepresentation]], int]:
    """Return memman's count of messages, for `token_counter=` of LangChain.

    Args:
        memory: counts by its model, if `model` names no other.
        model: the name of the model whose tokens are counted.
    """

    def count(messages: Iterable[MessageLikeRepresentation]) -> int:
        given = convert_to_messages(list(messages))
        return memory.count_tokens(given, model=model).tokens if given else 0

    return count


def model_name(model: object) -> str | None:
    """Return the name of a chat model as its provider knows it, or None."""
    names = (getattr(model, attribute, None) for attribute in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str) and name), None)


class _ChatModelSummarizer:
    """Writes summaries with a chat model, outside the streams of the run."""

    def __init__(self, model: BaseChatModel) -> None:
        self._model = model
        profile = getattr(model, "profile", None) or {}
        self.max_input_tokens: int | None = profile.get("max_input_tokens")

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the model's summary, with its usage and whether it was cut off."""
        metadata = {"lc_source": "summarization", **internal_call_metadata()}
        config: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": metadata}
        reply = self._model.invoke(request.prompt, config)
        said, usage = reply.response_metadata, reply.usage_metadata
        end = next((said[key] for key in _ENDS if said.get(key)), "")
        refusal = reply.additional_kwargs.get("refusal")
        return SummaryReply(
            text=str(reply.text),
            model=said.get("model_name") or model_name(self._model),
            usage=billed(usage) if usage else None,
            truncated=end in ("length", "max_tokens", "MAX_TOKENS"),
            refused=bool(refusal) or end in ("content_filter", "refusal", "SAFETY"),
        )
