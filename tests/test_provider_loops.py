"""Loops of the real SDKs against providers that judge each request by code of their own.

Each loop has 60 turns. At random it is interrupted within a turn and resumed by another manager on the same
store. No request may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions

from memman import MemoryConfig, MemoryManager
from memman.events import CompressionResult
from tests.examples import examples
from tests.formats.wire_samples import PNG
from tests.judges import AnthropicJudge, GeminiJudge, Judge, ResponsesJudge

TURNS = 60
S = "s"
Ask = Callable[[Any, Any], Any]  # of an SDK's client and a context
Results = Callable[[Any], list[Any]]  # results for a response; none at the end of a turn
BUSY = "the stone bridge of the river " * 15


class Loop:
    """An agent of one provider, with its memory in a file."""

    def __init__(self, form: str, store: Path, judge: Judge, seed: int) -> None:
        self.form = form
        self.judge = judge
        self.random = Random(seed)
        self.resumed = self.interrupted = self.compressions = 0
        self._store = store
        self.memory = self._opened()

    def _opened(self) -> MemoryManager:
        config = MemoryConfig(max_tokens=4_000)
        memory = MemoryManager(self._store, config=config, counter="chars4", format=self.form)
        memory.on(CompressionResult, self._compressed)
        return memory

    def _compressed(self, event: CompressionResult) -> None:
        self.compressions += 1
        self.judge.forget()

    def run(self, client: Any, ask: Ask, results: Results) -> None:
        """Run all turns."""
        for number in range(TURNS):
            question = f"Question {number} " + "about the north " * self.random.randint(1, 20)
            self.memory.add_user_message(S, question)
            for _ in range(12):
                context = self.memory.build_context(S)
                if context.trimmed:
                    self.judge.forget()
                response = ask(client, context)
                self.memory.add_messages(S, response)
                self._maybe_resume()
                made, goes_on = results(response)
                if made and self.random.random() < 0.15:  # the user says something else first
                    made, goes_on = made[: len(made) // 2], False
                    self.interrupted += 1
                if made:
                    self.memory.add_messages(S, made, self.form)
                self._maybe_resume()
                if not goes_on:
                    break
        self.memory.close()

    def _maybe_resume(self) -> None:
        """Go on with another manager, as another process would."""
        if self.random.random() < 0.1:
            self.resumed += 1
            self.memory.close()
            self.memory = self._opened()


# ---------------------------------------------------------------- the SDKs


@contextmanager
def responses(url: str) -> Iterator[Any]:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        yield client


def ask_responses(client: Any, context: Any) -> Any:
    return client.responses.create(model="gpt-5", input=context.messages, store=False)


def outputs(response: Any) -> tuple[list[Any], bool]:
    made: list[dict[str, Any]] = []
    for item in response.output:
        match item.type:
            case "function_call":
                output: Any = BUSY
            case "shell_call":
                ended = {"type": "exit", "exit_code": 0}
                output = [{"stdout": BUSY, "stderr": "", "outcome": ended}]
            case "apply_patch_call":
                made.append({
                    "type": "apply_patch_call_output", "call_id": item.call_id, "status": "completed",
                    "output": "done",
                })  # fmt: skip
                continue
            case "computer_call":
                url = f"data:image/png;base64,{PNG}"
                made.append({
                    "type": "computer_call_output", "call_id": item.call_id,
                    "output": {"type": "computer_screenshot", "image_url": url},
                    "acknowledged_safety_checks": [
                        check.model_dump(mode="json") for check in item.pending_safety_checks
                    ],
                })  # fmt: skip
                continue
            case "mcp_approval_request":
                made.append(
                    {
                        "type": "mcp_approval_response",
                        "approval_request_id": item.id,
                        "approve": True,
                    }
                )
                continue
            case _:
                continue
        made.append({"type": f"{item.type}_output", "call_id": item.call_id, "output": output})
    return made, bool(made)


@contextmanager
def claude(url: str) -> Iterator[Any]:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        yield client


def ask_claude(client: Any, context: Any) -> Any:
    return client.messages.create(
        model="claude-opus-4-1", max_tokens=2_000, messages=context.messages,
        thinking={"type": "enabled", "budget_tokens": 1_024},
        tools=[
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "find", "input_schema": {"type": "object"}},
        ],
    )  # fmt: skip


def tool_results(response: Any) -> tuple[list[Any], bool]:
    blocks = [
        {"type": "tool_result", "tool_use_id": block.id, "content": BUSY}
        for block in response.content
        if block.type == "tool_use"
    ]
    made = [{"role": "user", "content": [block]} for block in blocks]
    return made, bool(made) or response.stop_reason == "pause_turn"


@contextmanager
def gemini(url: str) -> Iterator[Any]:
    options = HttpOptions(base_url=url, headers={"connection": "close"})
    with genai.Client(api_key="k", http_options=options) as client:
        yield client


def ask_gemini(client: Any, context: Any) -> Any:
    return client.models.generate_content(model="gemini-3", contents=context.messages)


def function_responses(response: Any) -> tuple[list[Any], bool]:
    answers = [
        {"functionResponse": {"id": call.id, "name": call.name, "response": {"output": BUSY}}}
        for call in response.function_calls or ()
    ]
    return [{"role": "user", "parts": [answer]} for answer in answers], bool(answers)


SDKS = {
    "openai-responses": (ResponsesJudge, responses, ask_responses, outputs),
    "anthropic": (AnthropicJudge, claude, ask_claude, tool_results),
    "gemini": (GeminiJudge, gemini, ask_gemini, function_responses),
}


@pytest.mark.parametrize("form", SDKS)
@pytest.mark.parametrize("seed", range(examples(4, by_default=1)))
def test_no_request_of_a_long_loop_is_refused(form: str, seed: int, tmp_path: Path) -> None:
    make, connected, ask, results = SDKS[form]
    with make(seed).running() as judge, connected(judge.url) as client:
        loop = Loop(form, tmp_path / "loop.db", judge, seed)
        loop.run(client, ask, results)
    assert judge.refused == []
    assert judge.accepted > 1.3 * TURNS
    assert judge.kept_prefix > judge.accepted // 2
    assert min(loop.compressions, loop.resumed, loop.interrupted) >= 1
