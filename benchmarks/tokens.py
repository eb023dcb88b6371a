"""The independent recount: the tokens of a rendered request, by rules and not by memman's totals.

OpenAI: 3 + for each message 4 + tokens of its content + for each call tokens of its name and
arguments + 8. It is exact without calls for gpt-4o and gpt-4.1 (on recorded requests).
Anthropic has no published vocabulary, so its requests are priced by the same rule over their
blocks: 3 + 4 for the system text and each message + tokens of each block, 8 for each tool block
around its name and input as compact JSON, or its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memman_tiktoken import counter_in
from memman_tiktoken.vocabulary import encoding

from memman.errors import CounterUnavailable

Count = Callable[[str], int]
FAST = ("toktok", "quicktok")
_REQUEST, _MESSAGE, _TOOL = 3, 4, 8


def o200k() -> Callable[[str], Sequence[int]]:
    """Return the `text -> tokens` function of o200k_base (gpt-4o); special tokens are ordinary text."""
    return encoding("o200k_base").encode_ordinary


def o200k_counts() -> tuple[dict[str, Count], list[str]]:
    """Return the o200k_base counter of each backend, and why the missing backends are missing.

    All count the same (`benchmarks.exactness`); those of `FAST` do it faster, and memman takes the first
    of them that is installed.
    """
    counts: dict[str, Count] = {}
    missing = []
    for backend in ("tiktoken", *FAST):
        try:
            counter = counter_in("o200k_base", backend)
        except CounterUnavailable as error:
            missing.append(error.reason)
            continue
        counts[backend] = _alone(counter.count_texts)
    return counts, missing


def _alone(count_texts: Callable[[Sequence[str]], list[int]]) -> Count:
    return lambda text: count_texts((text,))[0]


def chars4(text: str) -> int:
    """The rule of thumb that four characters make a token: a counter without cost."""
    return (len(text) + 3) // 4


class Recount:
    """Prices rendered requests with one counter; the same text is counted once."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def openai_chat(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Count the tokens of a request in the format of chat completions."""
        return _REQUEST + sum(self._openai_message(message) for message in messages)

    def anthropic(self, messages: Sequence[Mapping[str, Any]], system: str | None) -> int:
        """Count the tokens of a request in Anthropic's format, its system text included."""
        head = _MESSAGE + self.text(system) if system else 0
        return _REQUEST + head + sum(self._anthropic_message(message) for message in messages)

    def more(self, messages: Sequence[Mapping[str, Any]], system: str | None) -> int:
        """Count the tokens of a request to Gemini, Converse or OpenAI Responses, by Anthropic's rule."""
        head = _MESSAGE + self.text(system) if system else 0
        return _REQUEST + head + sum(self._item(message) for message in messages)

    def langchain(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Count the tokens of LangChain's messages, by the rule of chat completions."""
        tokens = _REQUEST
        for message in messages:
            data = message["data"]
            tokens += _MESSAGE + self._content(data["content"])
            for call in data.get("tool_calls") or ():
                tokens += self.text(call["name"]) + self._json(call["args"]) + _TOOL
        return tokens

    def text(self, text: str) -> int:
        """Count the tokens of one text."""
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._known[text] = self._count(text)
        return tokens

    def _openai_message(self, message: Mapping[str, Any]) -> int:
        tokens = _MESSAGE + self._content(message.get("content"))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            tokens += self.text(function["name"]) + self.text(function["arguments"]) + _TOOL
        return tokens

    def _item(self, item: Mapping[str, Any]) -> int:
        """Count a message with its blocks or parts; in the Responses API a call or output is an item.

        They cost as much as in chat completions: a call like a part of a message, an output like a message.
        """
        if "role" not in item:
            if "arguments" in item:
                return self.text(item["name"]) + self.text(item["arguments"]) + _TOOL
            return self.text(item.get("output") or "") + _MESSAGE
        content = item.get("parts") or item["content"]
        if isinstance(content, str):
            return _MESSAGE + self.text(content)
        return _MESSAGE + sum(self._keyed(block) for block in content)

    def _keyed(self, block: Mapping[str, Any]) -> int:
        if "text" in block:
            return self.text(block["text"])
        [kind] = block.keys() - {"thoughtSignature"}
        body = block[kind]
        if kind in ("functionCall", "toolUse"):
            return self.text(body["name"]) + self._json(body.get("args", body.get("input"))) + _TOOL
        if kind == "functionResponse":
            said = sum(self.text(text) for text in body["response"].values())
            return self.text(body["name"]) + said + _TOOL
        return sum(self._keyed(inner) for inner in body["content"]) + _TOOL

    def _anthropic_message(self, message: Mapping[str, Any]) -> int:
        return _MESSAGE + self._content(message["content"])

    def _content(self, content: Any) -> int:
        if not content:
            return 0
        if isinstance(content, str):
            return self.text(content)
        return sum(self._block(block) for block in content)

    def _block(self, block: Mapping[str, Any]) -> int:
        match block["type"]:
            case "text":
                return self.text(block["text"])
            case "tool_use":
                return self.text(block["name"]) + self._json(block["input"]) + _TOOL
            case "tool_result":
                return self._content(block["content"]) + _TOOL
        return self._json(block)

    def _json(self, value: Any) -> int:
        return self.text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
