"""Read a request's body, in the shape of any provider, into the parts that cost tokens.

Chat completions, Responses, Anthropic messages, Gemini generateContent and Bedrock Converse differ in
spelling but carry the same parts: messages of texts, calls and images, and tools. A block is
recognised by its `type`, or without one (Gemini, Bedrock) by its key, so one table reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.counting.images import images_inside
from memman.counting.tools import Tool, compact, split_tools, uncached
from memman.display import safe_repr
from memman.errors import FormatError


class Image(msgspec.Struct, frozen=True):
    """An image as it was sent: `source` is bytes, base64 or a data URL, None for a link."""

    source: bytes | str | None
    detail: str = "auto"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message or item: its parts that cost tokens, in their order.

    `thoughts` are reasoning texts; `results` is the number of tool results.
    """

    role: str
    texts: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    images: tuple[Image, ...] = ()
    thoughts: tuple[str, ...] = ()
    name: str = ""
    results: int = 0


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. `api` is its shape: "chat", "responses", "messages", "gemini" or "converse".

    `choice` is the tool choice: "", "auto", "none", "any", or a tool's name. `hosted` are tools that the
    provider runs itself, as compact JSON; `schema` is that of a requested structured answer.
    """

    api: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    hosted: tuple[str, ...] = ()
    choice: str = ""
    schema: Mapping[str, Any] | None = None


def read_body(request: Mapping[str, Any]) -> Body:
    """Read a request into its parts. Raises `FormatError` if it has none of the five shapes."""
    if not isinstance(request, Mapping):
        raise FormatError(f"a request is a JSON object, not {type(request).__name__}")
    inner = request.get("generateContentRequest")
    if isinstance(inner, Mapping):  # as Gemini's countTokens takes it
        request = inner
    items = next((request[key] for key in _ITEMS if request.get(key) is not None), None)
    if items is None:
        raise FormatError(
            "a request has `messages`, `input` or `contents`; this one has "
            f"{', '.join(sorted(map(str, request))) or 'nothing'}"
        )
    config = request.get("toolConfig") or {}
    tools, hosted = split_tools(request.get("tools") or config.get("tools") or ())
    return Body(
        api=_api(request),
        messages=(*_heads(request), *_messages(items)),
        tools=tools,
        hosted=hosted,
        choice=_choice(request),
        schema=_schema(request),
    )


_ITEMS: Final = ("messages", "input", "contents")
_HEADS: Final = ("system", "instructions", "systemInstruction", "system_instruction")


def _api(request: Mapping[str, Any]) -> str:
    if request.get("contents") is not None:
        return "gemini"
    if request.get("messages") is None:
        return "responses"
    if "inferenceConfig" in request or "toolConfig" in request or _of_bedrock(request["messages"]):
        return "converse"
    return "messages" if _of_anthropic(request) else "chat"


def _of_bedrock(messages: Any) -> bool:
    first = messages[0] if isinstance(messages, Sequence) and messages else None
    content = first.get("content") if isinstance(first, Mapping) else None
    block = content[0] if isinstance(content, Sequence) and content else None
    return isinstance(block, Mapping) and "type" not in block


def _of_anthropic(request: Mapping[str, Any]) -> bool:
    tools = request.get("tools")
    first = tools[0] if isinstance(tools, Sequence) and tools else None
    if isinstance(first, Mapping):
        return "input_schema" in first or "function" not in first
    return "system" in request or "anthropic_version" in request


def _heads(request: Mapping[str, Any]) -> Iterable[Message]:
    for key in _HEADS:
        head = request.get(key)
        if not head:
            continue
        blocks = head.get("parts") if isinstance(head, Mapping) else head
        yield _message({"role": "system", "content": blocks})


def _messages(items: Any) -> Iterable[Message]:
    if isinstance(items, str):
        return [Message(role="user", texts=(items,))]
    if not isinstance(items, Sequence):
        raise FormatError(f"messages are a list, not {type(items).__name__}")
    return [_message(item) for item in items]


def _message(item: Any) -> Message:
    if isinstance(item, str):
        return Message(role="user", texts=(item,))
    if not isinstance(item, Mapping):
        raise FormatError(f"a message is a JSON object, not {type(item).__name__}")
    read = _Read()
    if "role" not in item and "content" not in item and "parts" not in item:
        read.block(item)  # an item of the Responses API
        return read.message("assistant" if read.calls or read.thoughts else "tool", "")
    for key in ("reasoning_content", "reasoning"):
        if isinstance(item.get(key), str) and not read.thoughts:
            read.thoughts.append(item[key])
    read.content(item.get("content", item.get("parts")))
    if isinstance(item.get("refusal"), str):
        read.texts.append(item["refusal"])
    for call in item.get("tool_calls") or ():
        read.block(call)
    if isinstance(item.get("function_call"), Mapping):
        read.call(item["function_call"], "arguments")
    role = str(item.get("role") or "user")
    if role in ("tool", "function"):
        read.results += 1
    return read.message(role, str(item.get("name") or ""))


class _Read:
    """The parts of one message that have been read so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.images: list[Image] = []
        self.thoughts: list[str] = []
        self.results = 0

    def message(self, role: str, name: str) -> Message:
        return Message(
            role=role,
            texts=tuple(self.texts),
            calls=tuple(self.calls),
            images=tuple(self.images),
            thoughts=tuple(self.thoughts),
            name=name,
            results=self.results,
        )

    def content(self, content: Any) -> None:
        if isinstance(content, str):
            self.texts.append(content)
        elif isinstance(content, Mapping):
            self.block(content)
        elif isinstance(content, Sequence):
            for block in content:
                self.content(block)
        elif content is not None:
            raise FormatError(f"content is a text or a list of blocks, not {safe_repr(content)}")

    def block(self, block: Mapping[str, Any]) -> None:
        kind = block.get("type")
        if kind is None:
            kind = next((key for key in _BLOCKS if block.get(key) is not None), None)
        read = _BLOCKS.get(str(kind))
        if block.get("thought") is True:
            read = _thought
        if read is None:
            found = images_inside(block)
            self.images += [Image(source) for source in found]
            if not found:
                self.texts.append(compact(uncached(block)))
        else:
            read(self, block)

    def call(self, call: Mapping[str, Any], key: str) -> None:
        self.calls.append((str(call.get("name") or ""), _as_text(call.get(key))))


def _text(read: _Read, block: Mapping[str, Any]) -> None:
    text = block.get("text", block.get("refusal"))
    if text is not None:
        read.texts.append(_as_text(text))


def _thought(read: _Read, block: Mapping[str, Any]) -> None:
    inner = block.get("reasoningContent")
    if isinstance(inner, Mapping):
        block = inner.get("reasoningText") or {}
    text = block.get("thinking", block.get("text"))
    if isinstance(text, str):
        read.thoughts.append(text)


def _result(key: str) -> Callable[[_Read, Mapping[str, Any]], None]:
    def read_result(read: _Read, block: Mapping[str, Any]) -> None:
        read.results += 1
        inner = block.get("toolResult")
        content = (inner if isinstance(inner, Mapping) else block).get(key)
        if isinstance(content, Sequence):
            read.content(content)
        elif content is not None:
            read.texts.append(_as_text(content))

    return read_result


def _call(outer: str, key: str, inside: str = "") -> Callable[[_Read, Mapping[str, Any]], None]:
    """Return a reader of a call at the key `outer` of a block, or of the block itself."""

    def read_call(read: _Read, block: Mapping[str, Any]) -> None:
        inner = block.get(outer)
        if isinstance(inner, Mapping):
            read.call(inner, inside or key)
        else:
            read.call(block, key)

    return read_call


def _response(read: _Read, block: Mapping[str, Any]) -> None:
    read.results += 1
    answer = block.get("functionResponse") or block["function_response"]
    read.texts.append(f"{answer.get('name') or ''}{_as_text(answer.get('response'))}")


def _json(read: _Read, block: Mapping[str, Any]) -> None:
    read.texts.append(_as_text(block.get("json")))


def _image(read: _Read, block: Mapping[str, Any]) -> None:
    link = block.get("image_url")
    if isinstance(link, Mapping):
        read.images.append(_linked(link.get("url"), link.get("detail")))
    elif isinstance(link, str):
        read.images.append(_linked(link, block.get("detail")))
    else:
        source = block.get("source") or block.get("inlineData") or block.get("inline_data")
        if source is None and isinstance(block.get("image"), Mapping):
            source = block["image"].get("source")
        read.images.append(_sourced(source))


def _sourced(source: Any) -> Image:
    """Return an image of Anthropic, Gemini or Bedrock: its data, or no data for a link or an id."""
    data = None
    if isinstance(source, Mapping):
        data = source.get("data", source.get("bytes"))
    return Image(data if isinstance(data, str | bytes) else None)


def _linked(url: Any, detail: Any) -> Image:
    inline = isinstance(url, str) and url.startswith("data:")
    return Image(url if inline else None, str(detail or "auto"))


def _nothing(_read: _Read, _block: Mapping[str, Any]) -> None:
    """Reads nothing: a mark for the provider's cache costs no token."""


_BLOCKS: Final[dict[str, Callable[[_Read, Mapping[str, Any]], None]]] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": _text,
    "thinking": _thought,
    "redacted_thinking": _thought,
    "reasoning": _thought,
    "reasoningContent": _thought,
    "tool_use": _call("", "input"),
    "toolUse": _call("toolUse", "input"),
    "functionCall": _call("functionCall", "args"),
    "function": _call("function", "arguments"),
    "function_call": _call("function_call", "arguments", inside="args"),  # OpenAI's, or Google's
    "tool_result": _result("content"),
    "toolResult": _result("content"),
    "function_call_output": _result("output"),
    "functionResponse": _response,
    "function_response": _response,
    "json": _json,
    "image": _image,
    "image_url": _image,
    "input_image": _image,
    "inlineData": _image,
    "inline_data": _image,
    "cachePoint": _nothing,
}


def _choice(request: Mapping[str, Any]) -> str:
    config = request.get("toolConfig") or {}
    choice = request.get("tool_choice") or config.get("toolChoice")
    if choice is None:
        calling = config.get("functionCallingConfig") or {}
        choice = calling.get("mode")
    if isinstance(choice, str):
        return {"required": "any"}.get(choice.lower(), choice.lower())
    if not isinstance(choice, Mapping):
        return ""
    inner = choice.get("function") or choice.get("tool") or choice
    named = inner.get("name") if isinstance(inner, Mapping) else None
    return str(named or choice.get("type") or next(iter(choice), ""))


def _schema(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    text = request.get("text")
    output = request.get("output_config")
    generation = request.get("generationConfig") or {}
    wanted = (
        request.get("response_format")
        or (text.get("format") if isinstance(text, Mapping) else None)
        or (output.get("format") if isinstance(output, Mapping) else None)
        or request.get("output_format")
    )
    if isinstance(wanted, Mapping):
        inner = wanted.get("json_schema") or wanted
        return inner if isinstance(inner, Mapping) and "schema" in inner else None
    schema = generation.get("responseSchema") or generation.get("responseJsonSchema")
    return {"schema": schema} if isinstance(schema, Mapping) else None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else compact(value)
