"""Requests whose beginning the provider keeps in its prompt cache, by LangChain's own means."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from langchain.agents.middleware import ModelRequest

from memman import Context
from memman.display import warn_once

_HOUR = 3_600  # seconds


def cached(request: ModelRequest[Any], context: Context) -> ModelRequest[Any]:
    """Return a request with what its provider needs to cache it; itself if it needs nothing.

    Anthropic and Bedrock need marks, which the middleware of their packages places: behind the tools, the
    system prompt and the last message. OpenAI gets a key, so that requests of a session reach one cache.
    """
    model = request.model
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    ttl: Literal["5m", "1h"] = "1h" if (context.cache_ttl or 0) >= _HOUR else "5m"
    if context.cache_ttl is None:
        return request
    if "langchain_openai" in packages and not getattr(model, "openai_api_base", None):
        settings = {"prompt_cache_key": context.prompt_cache_key, **request.model_settings}
        return request.override(model_settings=settings)
    if not packages & {"langchain_anthropic", "langchain_aws"}:
        return request
    try:
        marking = _middleware("langchain_anthropic" in packages, ttl)
    except ImportError:
        warn_once(
            "memman", "cache='auto' needs newer releases of langchain-anthropic or langchain-aws"
        )
        return request
    marked: Any = marking.wrap_model_call(request, lambda marked: marked)
    return marked  # type: ignore[no-any-return]  # the request, since the handler returns it


def _middleware(anthropic: bool, ttl: Literal["5m", "1h"]) -> Any:
    if anthropic:
        from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

        return AnthropicPromptCachingMiddleware(ttl=ttl)
    # By name: langchain-aws asks for older releases of langchain-core than the types are checked with.
    bedrock = import_module("langchain_aws.middleware.prompt_caching")
    return bedrock.BedrockPromptCachingMiddleware(ttl=ttl, unsupported_model_behavior="ignore")
