"""A rendered request as the arguments of google-genai's `count_tokens`.

Vertex AI counts system instructions and tools. The Developer API's `count_tokens` takes neither (the SDK
raises `ValueError`), so they are sent as leading user text: their words are counted, the service's
framing is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memman.errors import InvalidInput
from memman.providers import read_tools, safe_repr

if TYPE_CHECKING:
    from google.genai.types import Content, CountTokensConfig, HttpOptions, Tool

# Connections are closed after each request: they would outlive their event loop.
_HEADERS: Final = {"connection": "close"}
# Keys of another provider's spelling of a tool.
_OF_OTHERS: Final = ("type", "name", "function", "toolSpec", "input_schema")


def contents_of(rendered: Mapping[str, Any], *, vertex: bool) -> list[Content]:
    """Return the request's contents; for the Developer API with system and tools as text before them.

    Raises `InvalidInput` for a request that the SDK does not take.
    """
    messages = list(rendered["messages"])
    if not vertex:
        messages = [*_as_text(rendered), *messages]
    if not messages:
        raise InvalidInput(
            "a request without messages cannot be counted: Gemini needs one at least"
        )
    from google.genai.types import Content

    return [_valid(Content, message) for message in messages]


def config_of(rendered: Mapping[str, Any], timeout: float, *, vertex: bool) -> CountTokensConfig:
    """Return the deadline, without retries; for Vertex AI also system instruction and tools."""
    from google.genai.types import CountTokensConfig, Tool

    options = http_options(timeout)
    if not vertex:
        return CountTokensConfig(http_options=options)
    tools: list[Tool] = [_valid(Tool, tool) for tool in gemini_tools(rendered.get("tools") or ())]
    return CountTokensConfig(
        http_options=options,
        system_instruction=rendered.get("system") or None,
        tools=tools or None,
    )


def http_options(timeout: float) -> HttpOptions:
    """Return a deadline for each phase of a request, without retries."""
    from google.genai.types import HttpOptions, HttpRetryOptions

    return HttpOptions(
        timeout=max(1, round(timeout * 1_000)),  # milliseconds
        retry_options=HttpRetryOptions(attempts=1),
        headers=_HEADERS,
    )


def gemini_tools(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return tools of any provider in Gemini's shape.

    Raises `InvalidInput` for another provider's own tool, such as its web search.
    """
    if not isinstance(tools, list | tuple):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}")
    return [tool if _is_gemini(tool) else _declared(tool) for tool in tools]


def _is_gemini(tool: Any) -> bool:
    """Return whether a tool has Gemini's spelling: declared functions, or one such as `googleSearch`."""
    return isinstance(tool, Mapping) and not any(key in tool for key in _OF_OTHERS)


def _declared(tool: Any) -> Mapping[str, Any]:
    declarations = []
    for each in read_tools([tool]):
        if each.name is None:
            raise InvalidInput(f"Gemini has no tool such as {safe_repr(dict(each.given), 80)}")
        described = {"description": each.description} if each.description else {}
        schema = {"parametersJsonSchema": dict(each.schema)}
        declarations.append({"name": each.name, **described, **schema})
    return {"functionDeclarations": declarations}


def _as_text(rendered: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = gemini_tools(rendered.get("tools") or ())
    texts = (
        rendered.get("system"),
        msgspec.json.encode(tools).decode() if tools else None,
    )
    return [{"role": "user", "parts": [{"text": text}]} for text in texts if text]


def _valid(shape: Any, value: Any) -> Any:
    """Return `value` as the SDK's type; its bytes are base64 on both sides."""
    from pydantic import ValidationError

    try:
        return shape.model_validate(value)
    except ValidationError as error:
        # Place and reason, without the value, which is part of the conversation.
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        raise InvalidInput(
            f"google-genai does not take a message or tool as {shape.__name__}: {place} {first['msg']}"
        ) from None
