"""Runs with the SDK's own tools, of a real client, against a provider that judges each request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    AsyncComputer,
    ComputerTool,
    HostedMCPTool,
    LocalShellTool,
    ModelSettings,
    RunConfig,
    Runner,
    RunState,
    ShellTool,
    function_tool,
    set_tracing_disabled,
)
from agents.models.openai_responses import OpenAIResponsesModel
from memman_openai_agents import MemmanSession
from openai import APIStatusError, AsyncOpenAI

from benchmarks.validity import validators
from memman import MemoryConfig, MemoryManager
from memman.events import CompressionResult, ContextTrimmed
from memman.formats.rules import check
from memman.testing import Answer
from memman.testing.loopback import Received, loopback
from tests.examples import examples
from tests.formats.wire_samples import PNG
from tests.judges import ResponsesJudge

set_tracing_disabled(True)
TURNS = 60
BUSY = "the stone bridge of the river " * 15
TOOLS = ("shell", "apply_patch", "computer", "safety check", "approval", "find")
STOPS = ("cancelled", "immediate", "after_turn", "status 500", "approved", "abandoned", "opened")
RESPONSE = {
    "id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}  # fmt: skip
VALIDATE = validators()["openai-responses"]


class Provider(ResponsesJudge):
    """A judge that may stream its answer, and may lose it on the way."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.bodies: list[dict[str, Any]] = []
        self._luck = Random(seed)

    def answer_to(self, request: Received) -> Answer:
        """Return the judge's answer to a request."""
        self.bodies.append(request.body)
        answer = super().answer_to(request)
        if answer.status == 200 and self._luck.random() < 0.05:
            return Answer(500, {"error": {"message": "overloaded", "type": "server_error"}})
        if answer.status != 200 or not request.body.get("stream"):
            return answer
        event = {"type": "response.completed", "sequence_number": 0, "response": answer.body}
        data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        return Answer(200, data.encode(), {"content-type": "text/event-stream"})


class Desk(AsyncComputer):
    """The user's machine, whose tools may be stopped at a call, with the whole run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.run: asyncio.Task[Any] | None = None
        self.used: Counter[str] = Counter()

    def chance(self, call_id: object) -> float:
        return Random(f"{self.seed} {call_id}").random()

    async def work(self, tool: str, call_id: object) -> str:
        """Return a tool's text, unless the user stops the run at this moment."""
        self.used[tool] += 1
        if self.run and self.chance(call_id) < 0.15:
            self.run.cancel()
            await asyncio.sleep(5)
        return BUSY

    async def shell(self, request: Any) -> str:
        return await self.work("shell", request.data.call_id)

    async def shell_is_risky(self, _: Any, action: Any, call_id: str) -> bool:
        return self.chance(call_id) > 0.6

    async def delete_file(self, operation: Any) -> str:
        return await self.work("apply_patch", operation.path)

    create_file = update_file = delete_file

    async def screenshot(self) -> str:
        await self.work("computer", self.used["computer"])
        return PNG

    async def click(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    double_click = scroll = type = wait = move = keypress = drag = click

    async def safe(self, data: Any) -> bool:
        self.used["safety check"] += 1
        return True

    async def approve(self, request: Any) -> Any:
        await self.work("approval", request.data.id)
        return {"approve": self.chance(request.data.id) < 0.8, "reason": "as the user said"}


class Loop:
    """A user with an agent, whose session is in a file."""

    def __init__(self, store: Path, provider: Provider, client: AsyncOpenAI, seed: int) -> None:
        self.random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.provider = provider
        self._store = store
        self._model = OpenAIResponsesModel("gpt-5", client)
        self.desk = Desk(seed)
        self._begins_anew = self._elsewhere = False
        self.open()

    def open(self) -> None:
        """Open the session, as another process would."""
        self.memory = MemoryManager(
            self._store, config=MemoryConfig(max_tokens=4_000), counter="chars4"
        )
        self.memory.on(CompressionResult, self._changed)
        self.memory.on(ContextTrimmed, self._changed)
        self.session = MemmanSession("s", self.memory)
        self.seen["opened"] += 1

    def _changed(self, event: Any) -> None:
        self.seen[type(event).__name__] += 1
        self._begins_anew = True

    async def fit(self, data: Any) -> Any:
        """Return what the session makes of the model's input."""
        fitted = await self.session.fit(data)
        if self._begins_anew:  # here: the SDK adds items while a request is on its way
            self.provider.forget()
            self._begins_anew = self._elsewhere
        return fitted

    def agent(self, asks: bool) -> Agent[Any]:
        desk = self.desk

        @function_tool
        async def find(query: str) -> str:
            """Find a word."""
            return await desk.work("find", f"{query} {desk.used['find']}")

        bank = {
            "type": "mcp", "server_label": "bank", "server_url": "https://bank.example",
            "require_approval": "always",
        }  # fmt: skip
        return Agent(
            name="clerk",
            instructions="Be brief.",
            model=self._model,
            model_settings=ModelSettings(
                store=False, response_include=["reasoning.encrypted_content"]
            ),
            tools=[
                ShellTool(desk.shell, needs_approval=desk.shell_is_risky),
                ApplyPatchTool(desk),
                ComputerTool(desk, on_safety_check=desk.safe),
                HostedMCPTool(bank, on_approval_request=None if asks else desk.approve),
                find,
            ],
        )

    async def turn(self, number: int) -> None:
        """Let the user say something, and the agent run, until it is done or stopped."""
        self._elsewhere = False
        self._maybe_reopen()
        asks = self.random.random() < 0.5
        agent = self.agent(asks)
        given: Any = f"Question {number} " + "about the north " * self.random.randint(1, 20)
        while given is not None:
            self.desk.run = asyncio.create_task(self.run(agent, given))
            try:
                result = await self.desk.run
            except asyncio.CancelledError:
                self.seen["cancelled"] += 1
                return
            except APIStatusError as error:
                self.seen[f"status {error.status_code}"] += 1
                return
            given = await self.answered(agent, result)
            if given is not None and self._maybe_reopen():
                self._elsewhere = self._begins_anew = True  # such a list is fitted by itself

    def _maybe_reopen(self) -> bool:
        reopens = self.random.random() < 0.15
        if reopens:
            self.memory.close()
            self.open()
        return reopens

    async def run(self, agent: Agent[Any], given: Any) -> Any:
        config = RunConfig(call_model_input_filter=self.fit)
        options: dict[str, Any] = {
            "session": self.session,
            "run_config": config,
            "hooks": self.session.hooks,
        }
        if self.random.random() < 0.6:
            return await Runner.run(agent, given, **options)
        result = Runner.run_streamed(agent, given, **options)
        stop, mode = self.random.random() < 0.3, self.random.choice(("immediate", "after_turn"))
        async for event in result.stream_events():
            if stop and event.type == "run_item_stream_event":
                self.seen[mode] += 1
                result.cancel(mode)
                stop = False
        return result

    async def answered(self, agent: Agent[Any], result: Any) -> Any:
        """Return the state to go on with, after the user's answers; None if nothing is open."""
        if not result.interruptions:
            return None
        if self.random.random() < 0.3:
            self.seen["abandoned"] += 1
            return None
        state = await RunState.from_string(agent, result.to_state().to_string())
        for item in state.get_interruptions():
            approved = self.random.random() < 0.8
            self.seen["approved" if approved else "rejected"] += 1
            (state.approve if approved else state.reject)(item)
        return state


@pytest.mark.parametrize("seed", range(examples(6, by_default=1)))
def test_long_run_with_the_sdks_tools_is_never_refused(seed: int, tmp_path: Path) -> None:
    async def play(provider: Provider) -> Loop:
        async with AsyncOpenAI(api_key="none", base_url=provider.url, max_retries=0) as client:
            loop = Loop(tmp_path / "loop.db", provider, client, seed)
            for number in range(TURNS):
                await loop.turn(number)
            loop.memory.close()
            return loop

    with Provider(seed).running() as provider:
        loop = asyncio.run(play(provider))
    assert provider.refused == []
    requests = [body["input"] for body in provider.bodies]
    assert [check(items, "openai-responses") for items in requests] == [[]] * len(requests)
    assert [VALIDATE(items) for items in requests] == [""] * len(requests)
    assert provider.accepted > TURNS
    assert provider.kept_prefix > 0.8 * provider.accepted
    assert loop.seen["CompressionResult"] >= 2
    assert sum(loop.seen[kind] > 0 for kind in STOPS) > 4
    assert sum(loop.desk.used[tool] > 0 for tool in TOOLS) > 4


def test_local_shell_has_the_output_that_the_sdk_made(tmp_path: Path) -> None:
    run = {"type": "exec", "command": ["ls"], "env": {}}
    call = {
        "type": "local_shell_call", "id": "l", "call_id": "c", "status": "completed", "action": run,
    }  # fmt: skip
    replies = [Answer(200, {**RESPONSE, "output": [call]}), Answer(200, {**RESPONSE, "output": []})]
    with loopback("/responses", *replies) as server, MemoryManager(tmp_path / "s.db") as memory:
        session = MemmanSession("s", memory)

        async def play() -> None:
            async with AsyncOpenAI(api_key="none", base_url=server.url) as client:
                model = OpenAIResponsesModel("codex-mini-latest", client)
                agent = Agent(name="a", model=model, tools=[LocalShellTool(lambda _: "a.py")])
                config = RunConfig(call_model_input_filter=session.fit)
                for text in ("Look.", "Why?"):
                    await Runner.run(agent, text, session=session, run_config=config)

        asyncio.run(play())
    output = {"type": "local_shell_call_output", "call_id": "c", "output": "a.py"}
    said = {"role": "user", "content": "Why?"}
    requests = [request.body["input"] for request in server.received]
    assert requests[1][1:] == [call, output]
    assert requests[2][1:] == [call, output, said]
