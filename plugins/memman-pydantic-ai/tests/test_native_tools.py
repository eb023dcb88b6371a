"""Long conversations with a provider's own tools, against a provider that judges each request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from memman_pydantic_ai import MemmanHistory
from pydantic_ai import Agent, capabilities
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from memman import MemoryConfig, MemoryManager
from memman.events import CompressionResult, ContextTrimmed
from memman.formats.rules import check
from memman.testing import Answer
from memman.testing.loopback import Received
from tests.examples import examples
from tests.judges import AnthropicJudge

native_tools = pytest.importorskip("pydantic_ai.native_tools", reason="an older pydantic-ai")
TURNS = 40
BUSY = "the stone bridge of the river " * 15
DELTAS = {"thinking": "thinking_delta", "text": "text_delta"}


def streamed(reply: dict[str, Any]) -> bytes:
    """Return a reply as server-sent events: pydantic-ai requests it so."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**reply, "content": []}}]
    for index, block in enumerate(reply["content"]):
        kind = block["type"]
        changes: list[dict[str, Any]] = []
        if kind in DELTAS:
            changes.append({"type": DELTAS[kind], kind: block[kind]})
            block = {**block, kind: ""}
        elif "input" in block:
            changes.append({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
            block = {**block, "input": {}}
        if kind == "thinking":
            changes.append({"type": "signature_delta", "signature": block["signature"]})
            block["signature"] = ""
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in changes]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


class Claude(AnthropicJudge):
    """A judge that streams its answers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.bodies: list[dict[str, Any]] = []
        self.luck = Random(seed)
        self.pauses = 0

    def answer_to(self, request: Received) -> Answer:
        """Return the judge's answer to a request."""
        self.bodies.append(request.body)
        messages = request.body["messages"]
        paused = messages[-1]["role"] == "assistant"
        self.pauses += paused
        if paused and self.luck.random() < 0.3:
            return Answer(
                500, {"type": "error", "error": {"type": "api_error", "message": "sorry"}}
            )
        answer = super().answer_to(request)
        if answer.status != 200 or not request.body.get("stream"):
            return answer
        return Answer(200, streamed(answer.body), {"content-type": "text/event-stream"})


@pytest.mark.parametrize("seed", range(examples(4, by_default=1)))
def test_paused_searches_are_whole_in_each_request(seed: int, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    luck = Random(seed)

    async def play(provider: Claude) -> None:
        client = AsyncAnthropic(api_key="none", base_url=provider.url, max_retries=0)
        model = AnthropicModel(
            "claude-opus-4-1", provider=AnthropicProvider(anthropic_client=client)
        )

        def opened() -> tuple[MemoryManager, Agent[Any, Any]]:
            memory = MemoryManager(
                tmp_path / "s.db", config=MemoryConfig(max_tokens=4_000), counter="chars4"
            )

            def changed(event: Any) -> None:
                seen[type(event).__name__] += 1
                provider.forget()

            memory.on(CompressionResult, changed)
            memory.on(ContextTrimmed, changed)
            given = [
                MemmanHistory(memory, "s"),
                capabilities.NativeTool(native_tools.WebSearchTool()),
            ]
            agent = Agent(model, instructions="Be brief.", capabilities=given)

            @agent.tool_plain
            async def find(q: Any = None) -> str:
                """Find a word."""
                if luck.random() < 0.15:
                    raise asyncio.CancelledError
                return BUSY

            return memory, agent

        memory, agent = opened()
        history: list[ModelMessage] = []
        for number in range(TURNS):
            if luck.random() < 0.2:
                memory.close()
                memory, agent = opened()
                seen["opened"] += 1
            text = f"Question {number} " + "about the north " * luck.randint(1, 20)
            async with agent.iter(text, message_history=history) as run:
                try:
                    async for _ in run:
                        pass
                except (asyncio.CancelledError, ModelHTTPError) as error:
                    seen[type(error).__name__] += 1
            history = run.all_messages()
        memory.close()
        await model.client.close()

    with Claude(seed).running() as provider:
        asyncio.run(play(provider))
    assert provider.refused == []
    found = [
        check(body["messages"], "anthropic", system=body.get("system")) for body in provider.bodies
    ]
    assert found == [[]] * len(found)
    assert provider.kept_prefix > 0.8 * provider.accepted
    assert provider.pauses > 5
    assert min(seen["CompressionResult"], seen["opened"], len(seen) - 1) >= 2


def test_suspended_response_is_resumed_within_the_budget() -> None:
    requests: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(messages)
        return ModelResponse([TextPart("done")])

    memory = MemoryManager(config=MemoryConfig(max_tokens=4_000), counter="chars4")
    agent = Agent(FunctionModel(answer), capabilities=[MemmanHistory(memory, "s")])
    history: list[ModelMessage] = []
    for number in range(30):
        text = f"Question {number} " + "about the north " * 60
        history = agent.run_sync(text, message_history=history).all_messages()
    suspended = ModelResponse([TextPart("I search.")], state="suspended")
    history += [ModelRequest([UserPromptPart("Search it.")]), suspended]
    agent.run_sync(message_history=history)
    assert requests[-1][-1] == suspended
    assert len(requests[-1]) < len(history) / 2
    assert [entry.text for entry in memory.get_entries("s")[-2:]] == [
        "Search it.",
        "I search.\ndone",
    ]
