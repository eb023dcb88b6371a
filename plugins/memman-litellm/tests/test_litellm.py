"""What `MemmanLogger` does in LiteLLM, beyond the laws of every adapter."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest
from litellm import Router
from memman_litellm import session_of

from memman import MemoryConfig, MemoryManager
from memman.records import UsageReported
from memman.testing import FakeModel

from .chats import MODELS, TOOL, ask, logger_of

BUDGET = 2_500


def memory_of(budget: int | None = BUDGET) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(model=FakeModel.name, config=config)


def named(memory: MemoryManager, session_id: str = "s") -> dict[str, Any]:
    """Return the metadata of a request."""
    logger_of(memory)
    return {"session_id": session_id, "memory": str(id(memory))}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(turns: int) -> list[Any]:
    """Return a conversation, from a user's first to a user's last message."""
    messages = [user("Is part 0 sound?" + " x" * 100)]
    for turn in range(1, turns):
        messages += [
            {"role": "assistant", "content": f"Part {turn - 1} is sound."},
            user(f"Is part {turn} sound?" + " x" * 100),
        ]
    return messages


def usage_in(memory: MemoryManager, session_id: str = "s") -> list[UsageReported]:
    log = memory.export_session(session_id).log
    return [record for record in log if isinstance(record, UsageReported)]


def texts(memory: MemoryManager, session_id: str = "s") -> list[str]:
    return [entry.text for entry in memory.get_entries(session_id)]


# ---------------------------------------------------------------- sessions


def test_request_without_a_session_passes_unaltered():
    memory = memory_of(500)
    model, messages = FakeModel(memory, steps=0), chat(40)
    logger_of(memory)
    asyncio.run(ask(model, messages, metadata={"memory": str(id(memory))}))
    assert model.requests[0].messages == messages
    assert memory.list_sessions() == []


def test_session_belongs_to_the_key_of_the_proxy():
    one, two = ({"session_id": "s", "user_api_key_hash": hash_} for hash_ in ("aa", "bb"))
    assert session_of({"metadata": one}) != session_of({"metadata": two})
    assert session_of({"metadata": {"session_id": 7}}) == "7"


def test_name_that_litellm_made_up_is_no_session():
    made_up = {"session_id": "5c1e", "litellm_session_id_generated": True}
    assert session_of({"metadata": made_up}) is None
    assert session_of({"metadata": None}) is None


def test_requests_at_the_same_time_get_their_own_messages():
    memory = memory_of()
    model = FakeModel(memory, steps=0)

    async def both() -> None:
        lists = [[user("one"), user(f"branch {n}")] for n in range(5)]
        await asyncio.gather(*(ask(model, each, metadata=named(memory)) for each in lists))

    asyncio.run(both())
    sent = sorted(str(request.messages[-1]["content"]) for request in model.requests)
    assert sent == [f"branch {n}" for n in range(5)]
    assert all(len(request.messages) == 2 for request in model.requests)


# ---------------------------------------------------------------- what is sent


def test_marks_for_a_prompt_cache_are_sent_and_move():
    memory = memory_of()
    model, messages = FakeModel(memory, steps=0), chat(3)
    prompt = {"type": "text", "text": "You review code.", "cache_control": {"type": "ephemeral"}}
    for turn in range(3):
        part = {"type": "text", "text": f"And {turn}?", "cache_control": {"type": "ephemeral"}}
        marked = {"role": "user", "content": [part]}
        request = [{"role": "system", "content": [prompt]}, *messages, marked]
        reply = asyncio.run(ask(model, request, metadata=named(memory)))
        assert model.requests[-1].messages == request
        messages += [user(f"And {turn}?"), {"role": "assistant", "content": reply.content}]
    assert len(texts(memory)) == len(messages)
    assert "retracted" not in memory.export_session("s").to_json()


def test_reply_that_comes_back_with_other_keys_is_logged_once():
    memory = memory_of()
    model = FakeModel(memory, steps=0)
    reply = asyncio.run(ask(model, chat(1), metadata=named(memory)))
    assert len(texts(memory)) == 2
    sent_back = {"role": "assistant", "content": reply.content, "refusal": None, "annotations": []}
    asyncio.run(ask(model, [*chat(1), sent_back, user("Sure?")], metadata=named(memory)))
    assert len(texts(memory)) == 4
    assert "retracted" not in memory.export_session("s").to_json()


def test_answer_that_is_asked_for_again_replaces_the_first():
    memory = memory_of()
    model = FakeModel(memory, steps=0)
    for _ in range(2):
        last = asyncio.run(ask(model, chat(1), metadata=named(memory)))
    assert texts(memory)[1:] == [last.content]
    assert len(model.requests[-1].messages) == 1


def test_equal_replies_are_all_logged():
    memory = memory_of()
    logger_of(memory)
    messages: list[Any] = []
    for _ in range(3):
        messages.append(user("ping"))
        response = asyncio.run(
            litellm.acompletion(
                model="gpt-4o", messages=messages, mock_response="pong", metadata=named(memory)
            )
        )
        messages.append(response.choices[0].message)
    assert texts(memory) == ["ping", "pong"] * 3


# ---------------------------------------------------------------- models


def test_window_of_an_unknown_model_is_litellms():
    model_info = {"max_input_tokens": 2_000, "litellm_provider": "house", "mode": "chat"}
    litellm.register_model({"house-of-2k": model_info})
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_entries=None))
    model = FakeModel(memory, steps=0, name="house-of-2k")
    asyncio.run(ask(model, chat(60), metadata=named(memory)))
    assert model.requests[0].tokens < 2_000


def test_window_of_a_deployment_precedes():
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_entries=None))
    model = FakeModel(memory, steps=0, name="gpt-4o")
    info = {"max_input_tokens": 2_000, "base_model": "gpt-4o"}
    asyncio.run(ask(model, chat(60), metadata=named(memory), model_info=info))
    assert model.requests[0].tokens < 2_000


def test_fallback_is_fitted_for_its_own_model():
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_entries=None))
    first = FakeModel(memory, steps=0, fails=[1], name="house-first")
    second = FakeModel(memory, steps=0, name="house-second", limit=3_000)
    MODELS["memory:second"] = second
    info = {"max_input_tokens": 2_000}
    fallback = {
        "model": second.name,
        "custom_llm_provider": "house",
        "api_base": "memory:second",
        "model_info": info,
    }
    asyncio.run(ask(first, chat(60), metadata=named(memory), fallbacks=[fallback]))
    assert first.requests[0].tokens > 2_000 > second.requests[0].tokens
    assert [each.model for each in usage_in(memory)] == ["house-second"]


def test_usage_of_streams_is_recorded_in_order():
    memory = memory_of()
    model, messages = FakeModel(memory, steps=0), chat(1)

    async def play() -> None:
        for turn in range(4):
            messages.append(await ask(model, messages, stream=True, metadata=named(memory)))
            messages.append(user(f"and {turn}?"))

    asyncio.run(play())
    assert [each.input_tokens for each in usage_in(memory)] == [
        request.billed for request in model.requests
    ]
    drift = memory.get_stats("s").drift
    assert drift is not None
    assert abs(drift) < 0.04


def test_two_memories_in_a_process_log_their_own_streams():
    one, two = memory_of(), memory_of()
    model = FakeModel(one, steps=0)
    for memory in (one, two):
        asyncio.run(ask(model, chat(1), stream=True, metadata=named(memory)))
    assert len(texts(one)) == len(texts(two)) == 2


# ---------------------------------------------------------------- failures


def router_of(model: FakeModel, **settings: Any) -> Router:
    MODELS["memory:router"] = model
    deployment = {"model": f"house/{model.name}", "api_base": "memory:router"}
    return Router(
        model_list=[{"model_name": "house", "litellm_params": deployment}],
        retry_after=0,
        **settings,
    )


def test_router_sends_a_refused_request_again_shorter():
    memory = memory_of()
    model = FakeModel(memory, steps=0, limit=900)
    router = router_of(model, retry_policy={"BadRequestErrorRetries": 3})
    request = router.acompletion(
        model="house", messages=chat(30), metadata=named(memory), tools=[TOOL]
    )
    asyncio.run(request)
    assert model.overflows == 1
    assert model.requests[-1].tokens <= 900
    assert len(usage_in(memory)) == 1


def test_refused_request_makes_the_next_one_shorter():
    memory = memory_of()
    model = FakeModel(memory, steps=0, limit=900)
    with pytest.raises(litellm.exceptions.ContextWindowExceededError):
        asyncio.run(ask(model, chat(30), metadata=named(memory)))
    asyncio.run(ask(model, chat(30), metadata=named(memory)))
    assert model.overflows == 1


def test_request_that_memman_cannot_fit_is_sent_as_it_came(caplog: pytest.LogCaptureFixture):
    memory = memory_of()
    model = FakeModel(memory, steps=0)
    messages = [{"role": "system", "content": "A rule. " * 5_000}, *chat(2)]
    asyncio.run(ask(model, messages, metadata=named(memory)))
    assert model.requests[0].messages == messages
    assert "sent as it came" in caplog.text


def test_messages_without_their_name_are_sent_as_they_came(caplog: pytest.LogCaptureFixture):
    memory = memory_of()
    request = litellm.acompletion("gpt-4o", chat(2), mock_response="ok", metadata=named(memory))
    asyncio.run(request)
    assert "sent as it came" in caplog.text


def test_failure_to_log_a_reply_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    memory = memory_of()

    async def fail(*_: Any, **__: Any) -> None:
        raise OSError("no disk")

    model = FakeModel(memory, steps=0)
    monkeypatch.setattr("memman_litellm.history.ClientHistory.add_reply", fail)
    reply = asyncio.run(ask(model, chat(1), metadata=named(memory)))
    assert reply.content
    assert "a response of LiteLLM is not logged" in caplog.text
