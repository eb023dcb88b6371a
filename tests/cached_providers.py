"""Four providers on the loopback interface, with a prompt cache, for their real SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

import msgspec
import pytest

from benchmarks.cache_server import ANTHROPIC, GEMINI, OPENAI, Charge, PromptCache, Rules, pieces_of
from benchmarks.tokens import chars4
from memman import Context, MemoryConfig, MemoryManager
from memman.formats.bedrock import sdk_messages
from memman.testing import Answer
from memman.testing.loopback import LoopbackServer, Received

S = "s"
SYSTEM = "You review code. " * 60
REPLY = "They looked at forty files; each defines a function."
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
_OUTPUT = 12  # tokens


class CachedProvider(LoopbackServer):
    """A provider whose answers bill what its cache makes of each request.

    It calls a tool in the next `tool_calls` answers.
    """

    def __init__(self, provider: Provider) -> None:
        super().__init__("", [])
        self.charges: list[Charge] = []
        self.tool_calls = 0
        self.reply = REPLY
        self._provider = provider
        self._cache = PromptCache(provider.rules)

    def answer_to(self, request: Received) -> Answer:
        """Return an answer with a text, or with a call of a tool."""
        body = request.body
        flat = {**body, "tools": self._provider.tools_of(body)}
        charge = self._cache.charge(pieces_of(flat, chars4), monotonic())
        self.received.append(request)
        self.charges.append(charge)
        calls, self.tool_calls = self.tool_calls > 0, max(0, self.tool_calls - 1)
        return Answer(body=self._provider.answer(None if calls else self.reply, charge))

    @property
    def bodies(self) -> list[Any]:
        """The bodies of all requests, in order."""
        return [each.body for each in self.received]


class Provider(msgspec.Struct, frozen=True):
    """A provider: its form of requests and answers, and its SDK.

    `answer` takes a text, or None for a call of a tool. `send` sends a context as an agent does.
    `summarizer` returns the plugin's summarizer of a model.
    """

    format: str
    model: str
    other: str
    rules: Rules
    tool: Mapping[str, Any]
    messages: str  # the field of a request with its messages
    answer: Callable[[str | None, Charge], Any]
    send: Callable[[str, Context], Any]
    summarizer: Callable[[str, str], Any]

    def tools_of(self, body: Any) -> Any:
        """Return the tools of a request."""
        return (body.get("toolConfig") or body).get("tools")

    def head_of(self, body: Any) -> str:
        """Return what comes before a request's messages, as the bytes that were sent."""
        names = ("system", "systemInstruction", "prompt_cache_key")
        return json.dumps([self.tools_of(body), *(body.get(name) for name in names)])

    def messages_of(self, body: Any) -> list[Any]:
        """Return a request's messages."""
        found: list[Any] = body[self.messages]
        return found

    def split(self, body: Any) -> tuple[str, str]:
        """Return the messages of a continued request without the instruction, as sent, and that."""
        *before, last = self.messages_of(body)
        name = "parts" if self.format == "gemini" else "content"
        blocks = last[name]
        if isinstance(blocks, str):
            return json.dumps(before), blocks
        shown = [*before, {**last, name: blocks[:-1]}] if len(blocks) > 1 else before
        return json.dumps(shown), blocks[-1]["text"]


# ---------------------------------------------------------------- answers


def _of_anthropic(text: str | None, charge: Charge) -> Any:
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "x"}}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
        "content": [call if text is None else {"type": "text", "text": text}],
        "stop_reason": "tool_use" if text is None else "end_turn", "stop_sequence": None,
        "usage": {
            "input_tokens": int(charge.input), "output_tokens": _OUTPUT,
            "cache_read_input_tokens": int(charge.read),
            "cache_creation_input_tokens": int(charge.written),
        },
    }  # fmt: skip


def _of_openai(text: str | None, charge: Charge) -> Any:
    function = {"name": "read", "arguments": "{}"}
    calls = [{"id": "t1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": text, "refusal": None}
    total = int(charge.total)
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_750_000_000, "model": "gpt-5",
        "choices": [{
            "index": 0, "logprobs": None,
            "message": message if text is not None else {**message, "tool_calls": calls},
            "finish_reason": "tool_calls" if text is None else "stop",
        }],
        "usage": {
            "prompt_tokens": total, "completion_tokens": _OUTPUT, "total_tokens": total + _OUTPUT,
            "prompt_tokens_details": {"cached_tokens": int(charge.read)},
        },
    }  # fmt: skip


def _of_gemini(text: str | None, charge: Charge) -> Any:
    call = {"functionCall": {"name": "read", "args": {}}}
    content = {"role": "model", "parts": [call if text is None else {"text": text}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": int(charge.total),
            "candidatesTokenCount": _OUTPUT,
            "cachedContentTokenCount": int(charge.read),
        },
        "modelVersion": "gemini-2.5-flash",
    }


def _of_bedrock(text: str | None, charge: Charge) -> Any:
    call = {"toolUse": {"toolUseId": "t1", "name": "read", "input": {}}}
    content = [call if text is None else {"text": text}]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if text is None else "end_turn",
        "usage": {
            "inputTokens": int(charge.input),
            "outputTokens": _OUTPUT,
            "totalTokens": int(charge.total) + _OUTPUT,
            "cacheReadInputTokens": int(charge.read),
            "cacheWriteInputTokens": int(charge.written),
        },
        "metrics": {"latencyMs": 1},
    }


# ---------------------------------------------------------------- SDKs


def _anthropic(url: str) -> Any:
    return pytest.importorskip("anthropic").Anthropic(base_url=url, api_key="key")


def _openai(url: str) -> Any:
    return pytest.importorskip("openai").OpenAI(base_url=f"{url}/v1", api_key="key")


def _google(url: str) -> Any:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=url)
    return genai.Client(api_key="key", vertexai=False, http_options=options)


def _boto(url: str) -> Any:
    return pytest.importorskip("boto3").Session().client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=url,
        aws_access_key_id="a", aws_secret_access_key="b",  # noqa: S106 - not real ones
    )  # fmt: skip


def _send_anthropic(url: str, context: Context) -> None:
    _anthropic(url).messages.create(
        model="claude-haiku-4-5", max_tokens=100, system=context.system, tools=context.tools,
        messages=context.messages,
    )  # fmt: skip


def _send_openai(url: str, context: Context) -> None:
    _openai(url).chat.completions.create(
        model="gpt-5", messages=context.messages, tools=context.tools,
        prompt_cache_key=context.prompt_cache_key,
    )  # fmt: skip


def _send_google(url: str, context: Context) -> None:
    client = _google(url)  # it closes its connections when it is collected
    client.models.generate_content(
        model="gemini-2.5-flash",
        contents=context.messages,
        config={"system_instruction": context.system, "tools": context.tools},
    )


def _send_bedrock(url: str, context: Context) -> None:
    _boto(url).converse(
        modelId=_ON_BEDROCK, system=context.system, toolConfig={"tools": context.tools},
        messages=sdk_messages(context.messages),
    )  # fmt: skip


def _by_anthropic(url: str, model: str) -> Any:
    plugin = pytest.importorskip("memman_anthropic")
    return plugin.AnthropicSummarizer(model, client=_anthropic(url))


def _by_openai(url: str, model: str) -> Any:
    return pytest.importorskip("memman_openai").OpenAISummarizer(model, client=_openai(url))


def _by_google(url: str, model: str) -> Any:
    return pytest.importorskip("memman_google").GoogleSummarizer(model, client=_google(url))


def _by_bedrock(url: str, model: str) -> Any:
    return pytest.importorskip("memman_bedrock").BedrockSummarizer(model, client=_boto(url))


_ON_BEDROCK = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
_FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": _SCHEMA}
_SPEC = {"name": "read", "description": "Reads a file.", "inputSchema": {"json": _SCHEMA}}
PROVIDERS = (
    Provider(
        "anthropic", "claude-haiku-4-5", "claude-opus-4-6", ANTHROPIC,
        {"name": "read", "description": "Reads a file.", "input_schema": _SCHEMA},
        "messages", _of_anthropic, _send_anthropic, _by_anthropic,
    ),
    Provider(
        "openai-chat", "gpt-5", "gpt-5-mini", OPENAI, {"type": "function", "function": _FUNCTION},
        "messages", _of_openai, _send_openai, _by_openai,
    ),
    Provider(
        "gemini", "gemini-2.5-flash", "gemini-2.5-pro", GEMINI,
        {"functionDeclarations": [_FUNCTION]},
        "contents", _of_gemini, _send_google, _by_google,
    ),
    Provider(
        "bedrock", _ON_BEDROCK, "us.anthropic.claude-haiku-4-5-20251001-v1:0", ANTHROPIC,
        {"toolSpec": _SPEC}, "messages", _of_bedrock, _send_bedrock, _by_bedrock,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- an agent


def serving(provider: Provider) -> AbstractContextManager[CachedProvider]:
    """Run the provider for the length of the block."""
    return CachedProvider(provider).running()


def agent_of(
    provider: Provider, url: str, *, other: bool = False, redact: Any = None, **settings: Any
) -> MemoryManager:
    """Return a manager of the model that summarizes; with `other` another one summarizes."""
    own = provider.summarizer(url, provider.model)
    summarizer = provider.summarizer(url, provider.other) if other else own
    config = MemoryConfig(max_tokens=30_000, auto_compress=False, **settings)
    return MemoryManager(model=own.model, summarizer=summarizer, config=config, redact=redact)


def work(memory: MemoryManager, turns: int = 40) -> None:
    """Add turns with calls of a tool."""
    for number in range(turns):
        memory.add_user_message(S, f"Look at file {number}, please.")
        memory.add_tool_call(S, "read", {"path": f"src/{number}.py"}, call_id=f"c{number}")
        memory.add_tool_result(S, "read", f"def f{number}(): pass\n" * 30, call_id=f"c{number}")
        memory.add_assistant_message(S, f"File {number} defines a function. " * 6)


def answered(memory: MemoryManager, provider: Provider, url: str, question: str) -> None:
    """Send the session with a question as an agent does, and add the answer."""
    memory.add_user_message(S, question)
    context = memory.build_context(
        S, format=provider.format, system=SYSTEM, tools=[dict(provider.tool)], cache="auto"
    )
    provider.send(url, context)
    memory.add_assistant_message(S, "It is fine.")
