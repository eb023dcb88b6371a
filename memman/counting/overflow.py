"""Context limits in providers' refusals of too long requests.

Providers refuse such a request with a text of their own, and most name the limit. Each wording below was
published by its author or quoted in a public issue. Refusals for rate, quota or credit also mention
tokens and are not overflows, and neither is that of a thought that is bound to another prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

_LONGEST = 20_000  # characters of a message that are read
_DEEPEST = 4  # causes behind an error


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was longer than its model's window.

    Args:
        limit: tokens; of the whole context if `bounds` is "context", of the input alone if it is "input".
            None if the provider did not name it.
        requested: tokens of the request that count against that limit, None if unknown.
        output: the tokens among them that were reserved for the reply, if the provider separates them.
        bounds: the part that `limit` bounds.
        message: the provider's text.
    """

    limit: int | None
    requested: int | None
    output: int | None = None
    bounds: Literal["context", "input"] = "context"
    message: str = ""


def parse_overflow(error: BaseException | str) -> Overflow | None:
    """Return the overflow in an SDK's error or its text.

    Returns None for anything else: rate limits, quotas, credit, too many tokens requested for the reply
    alone. Reads the message, the response's body, and the errors that caused it, of any SDK.
    """
    for said, status in _sayings(error):
        text = said[:_LONGEST]
        if status in _NOT_STATUSES or _pattern(_OTHER_LIMIT).search(text):
            return None
        found = _read(text)
        if found is not None:
            return found
    return None


def refuses_thought(error: BaseException | str) -> bool:
    """Return whether an SDK's error or its text refuses a thought, since what preceded it has changed."""
    return any(_pattern(_BOUND).search(said[:_LONGEST]) for said, _ in _sayings(error))


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    """A wording, compiled when first needed.

    `<limit>`, `<requested>`, `<input>` and `<output>` match numbers.
    """
    for name in ("limit", "requested", "input", "output"):
        text = text.replace(f"<{name}>", rf"(?P<{name}>\d[\d,_]{{0,19}}(?!\d))")
    return re.compile(text, re.IGNORECASE | re.DOTALL)


# At most so many characters separate two numbers of one message.
_TO = r".{0,160}?"

# The first match decides. `input` plus `output` is what was requested.
_CONTEXT: Final = (
    # OpenAI, Azure, DeepSeek, OpenRouter and vLLM
    rf"maximum context length is <limit>{_TO}requested (?:a total of |about )?<requested> tokens"
    rf"{_TO}<output> (?:in|for) the (?:completion|output)",
    rf"maximum context length (?:is|of) <limit>{_TO}(?:a total of |requested |requested about "
    r"|resulted in )<requested> tokens",
    r"maximum context length is <limit> tokens and your request has <input> input tokens "
    r"\(<output> >",
    r"maximum context length is <limit> tokens.{0,20}?requested <output> output tokens and your "
    r"prompt contains (?:at least )?<input> input tokens",
    r"passed <input> input tokens and requested <output> output tokens.{0,40}?context length is "
    r"only <limit> tokens",
    # Anthropic
    r"input length and `?max_tokens`? exceed context limit: <input> \+ <output> > <limit>",
    # llama.cpp, llama-cpp-python, LM Studio
    r"request \(<requested> tokens\) exceeds the available context size \(<limit> tokens\)",
    r"requested tokens \(<requested>\) exceed context window of <limit>",
    r"\(total length <requested>\) is too long to fit into the model \(context length <limit>\)",
    r"keep the first <requested> tokens.{0,120}?context length of only <limit> tokens",
    # Mistral
    r"prompt contains <requested> tokens.{0,60}?too large for model with <limit> maximum context",
    # Together and text-generation-inference
    r"max_new_tokens`? must be <= <limit>\. given: <input> `?inputs`? tokens and <output>",
    # Fireworks, Cerebras, SGLang, vLLM
    r"prompt is too long: <requested>, model maximum context length: <limit>",
    r"current length is <requested> while limit is <limit>",
    r"input \(<requested> tokens\) is longer than the model's context length \(<limit> tokens\)",
    r"input length \(<requested>\) exceeds (?:the )?model'?s maximum context length \(<limit>\)",
    r"prompt \(length <requested>\) is longer than the maximum model length of <limit>",
    # Cohere
    r"tokens \(prompt and prediction\) cannot exceed <limit> - received <requested>",
    # Moonshot
    r"exceeded model token limit: <limit> \(requested: <requested>\)",
    r"exceeded model token limit: <limit>",
    r"maximum context length (?:is|of) <limit>",
)
_INPUT: Final = (
    # Anthropic, and Bedrock's word for it
    r"prompt is too long: <requested> tokens > <limit> maximum",
    # Gemini on both its services
    r"input token count \(<requested>\) exceeds the maximum number of tokens allowed \(<limit>\)",
    r"input token count exceeds the maximum number of tokens allowed \(?<limit>",
    r"input token count is <requested> but (?:the )?model only supports up to <limit>",
    # OpenAI
    r"input tokens exceed the configured limit of <limit> tokens.{0,40}?resulted in <requested>",
    r"input tokens exceed the configured limit of <limit>",
    # xAI
    r"maximum prompt length is <limit> but the request contains <requested> tokens",
    # Bedrock
    r"max input tokens: <limit>, request input token count: <requested>",
    # Cohere
    r"tokens in the prompt cannot exceed <limit> - received <requested>",
    r"too many tokens: size limit exceeded by.{0,200}?limit for this model is <limit> tokens",
    # GitHub Models and Copilot, vLLM, text-generation-inference, Qwen
    r"request body too large for .{1,60}? model\. max size: <limit> tokens",
    r"prompt \(<requested> tokens\) is too long and exceeds limit of <limit>",
    r"prompt token count of <requested> exceeds the limit of <limit>",
    r"`?inputs`? must have less than <limit> tokens\. given: <requested>",
    r"range of input length should be \[\d+, ?<limit>\]",
)
# Without a number. The codes are those of OpenAI, litellm, llama.cpp and LangChain.
_WORDLESS: Final = (
    r"context[ _]?length[ _]?exceeded|contextwindowexceeded|contextoverflow|exceed_context_size_error"
    r"|exceeds? the (?:model'?s |available )?context (?:window|size|length)"
    r"|exceeds? (?:the )?(?:model'?s )?maximum context length"
    r"|(?:greater|longer) than the (?:model'?s )?context (?:window|length)"
    r"|context window exceeds limit|exceed(?:s|ed)? (?:the )?max(?:imum)? context length"
    r"|prompt is too long|prompt too long; exceeded|prompt exceeds max length"
    r"|input is too long for (?:the )?requested model"
    r"|input token count exceeds the maximum|please reduce the length of the (?:messages|prompt)"
)
# Anthropic
_BOUND: Final = (
    r"block is bound to a different conversation|block_binding\.prefix_mismatch_behavior"
)
# Not an overflow, whatever else the text contains.
_OTHER_LIMIT: Final = (
    r"tokens?[ -]per[ -](?:minute|min|day|hour|second)|requests?[ -]per[ -]|\b[it]pm\b|\btpd\b"
    r"|rate[ _-]?limit|quota|throttl|insufficient_(?:quota|credits|balance)|credits?\b|can only afford"
    r"|too many tokens, please wait|too many requests|billing"
)
_NOT_STATUSES: Final = frozenset({401, 402, 403, 404, 429})


def _read(text: str) -> Overflow | None:
    bounds: Literal["context", "input"]
    for bounds, wordings in (("context", _CONTEXT), ("input", _INPUT)):
        for wording in wordings:
            if (found := _pattern(wording).search(text)) is not None:
                return _overflow(found.groupdict(), bounds, text)
    if _pattern(_WORDLESS).search(text) is None:
        return None
    return Overflow(limit=None, requested=None, message=text)


def _overflow(
    said: Mapping[str, str | None], bounds: Literal["context", "input"], text: str
) -> Overflow:
    numbers = {
        name: int(value.replace(",", "").replace("_", "")) for name, value in said.items() if value
    }
    limit, output = numbers.get("limit"), numbers.get("output")
    requested, given = numbers.get("requested"), numbers.get("input")
    if requested is None and given is not None:
        requested = given + (output or 0)
    return Overflow(
        limit=limit or None, requested=requested, output=output, bounds=bounds, message=text
    )


def _sayings(error: BaseException | str) -> Iterator[tuple[str, int | None]]:
    """Yield the texts of an error and of its causes, each with its status."""
    if isinstance(error, str):
        yield error, None
        return
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen and len(seen) < _DEEPEST:
        seen.append(current)
        body = _body(current)
        numbers = _llama_cpp(body)
        # The body's code belongs to its message: either may be the one that identifies an overflow.
        yield " ".join(dict.fromkeys((*_strings(body), str(current), *numbers))), _status(current)
        current = current.__cause__  # an error that was handled at the time is unrelated


def _body(error: BaseException) -> Any:
    """Return the response's body as the SDK keeps it: plain data in one of several attributes."""
    for name in ("body", "details", "response"):
        value = getattr(error, name, None)
        if isinstance(value, Mapping | str):
            return value
    return None


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each, depth + 1)


def _llama_cpp(body: Any) -> Iterator[str]:
    """Return the numbers that llama.cpp gives next to its message, in its newer wording."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(inner, Mapping):
        limit, requested = inner.get("n_ctx"), inner.get("n_prompt_tokens")
        if isinstance(limit, int) and isinstance(requested, int):
            yield f"request ({requested} tokens) exceeds the available context size ({limit} tokens)"


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "status", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
            return value
    return None
