"""Requests of ADK's own model for Gemini, as its API receives them, with memman."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from memman_adk import MemmanPlugin

from memman import MemoryConfig, MemoryManager
from memman.records import UsageReported
from memman.testing import Answer, loopback

from .adk_agents import user

SIGNATURE = "AP9zaWc-Pj4_Pz8="  # bytes that the two alphabets of base64 spell differently
USAGE = {"promptTokenCount": 120, "cachedContentTokenCount": 100, "candidatesTokenCount": 7}
REFUSAL = {
    "error": {
        "code": 400,
        "status": "INVALID_ARGUMENT",
        "message": "The input token count (9000) exceeds the maximum number of tokens allowed (800).",
    }
}


def answer(*parts: Any) -> Answer:
    content = {"role": "model", "parts": list(parts)}
    candidates = [{"content": content, "finishReason": "STOP"}]
    return Answer(200, {"candidates": candidates, "usageMetadata": USAGE})


def read(path: str) -> str:
    """Read a file."""
    return "x = 1"


def converse(memory: MemoryManager, texts: Sequence[str], *answers: Answer) -> list[Any]:
    """Run a turn with each text, and return the bodies of the requests."""

    async def run(model: Gemini) -> None:
        agent = LlmAgent(name="reviewer", model=model, instruction="You review.", tools=[read])
        runner = Runner(
            app=App(name="tests", root_agent=agent, plugins=[MemmanPlugin(memory)]),
            session_service=InMemorySessionService(),
            auto_create_session=True,
        )
        for text in texts:
            events = runner.run_async(user_id="ada", session_id="s", new_message=user(text))
            assert [event async for event in events]
        await model.api_client.aio.aclose()
        model.api_client.close()

    with loopback(":generateContent", *answers) as server:
        asyncio.run(run(Gemini(model="gemini-2.5-flash", base_url=server.url)))
        return [each.body for each in server.received]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "none")


def test_signatures_are_sent_as_they_came() -> None:
    called = {
        "functionCall": {"name": "read", "args": {"path": "a"}},
        "thoughtSignature": SIGNATURE,
    }
    with MemoryManager(config=MemoryConfig(max_tokens=2_000)) as memory:
        memory.add_tool_call("s", "read", {"path": "b"}, call_id="call-1")
        memory.add_tool_result("s", "read", "y = 2", call_id="call-1")
        *_, last = converse(memory, ["Is a sound?"], answer(called), answer({"text": "Yes."}))
        [_, elsewhere, _, _, asked, answered] = last["contents"]
        assert asked["parts"] == [called]
        assert answered["parts"][0]["functionResponse"] == {
            "name": "read",
            "response": {"result": "x = 1"},
        }
        # The bytes that ADK sends for calls that Gemini has not made.
        mark = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
        assert elsewhere["parts"][0]["thoughtSignature"] == mark


def test_usage_has_the_cached_tokens() -> None:
    with MemoryManager(config=MemoryConfig(max_tokens=2_000)) as memory:
        converse(memory, ["Sure?"], answer({"text": "Yes."}))
        [report] = [
            record for record in memory.export_session("s").log if isinstance(record, UsageReported)
        ]
        assert (report.input_tokens, report.cached_tokens, report.output_tokens) == (120, 100, 7)


def test_request_that_gemini_refuses_is_sent_shorter() -> None:
    long = answer({"text": "word " * 500})
    answers = [long, long, Answer(400, REFUSAL), answer({"text": "Shorter."})]
    with MemoryManager(model="gemini-2.5-flash") as memory:
        sent = converse(memory, ["one", "two", "three"], *answers)
        assert len(sent) == 4
        assert len(str(sent[3])) < 0.7 * len(str(sent[2]))
        assert memory.get_entries("s")[-1].content == "Shorter."
