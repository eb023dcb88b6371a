"""A request has the keys that its provider takes; the log has those that came."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
import wire_types

from memman import MemoryConfig, MemoryManager
from memman.formats.rules import check
from tests.formats.wire_samples import SAMPLES, messages_of, saying

TYPES = [
    (form, kind)
    for form, samples in SAMPLES.items()
    for kind in samples
    if not kind.startswith("quantum")  # a type that no SDK has
]
OF_LOGS = {"ts": 1, "modelInfo": {"modelId": "m"}, "created_by": "a", "_type": "x"}
SWE_AGENT = {"agent": "main", "message_type": "action", "thought": "Look.", "action": "ls"}


def memory_of(format: str) -> MemoryManager:
    return MemoryManager(config=MemoryConfig(max_tokens=100_000), counter="chars4", format=format)


def with_keys(form: str, value: Any, depth: int = 0) -> Any:
    """Return a message with keys of a log in itself, its blocks, and the parts inside these."""
    if isinstance(value, list):
        return [with_keys(form, item, depth) for item in value]
    if not isinstance(value, dict) or not ({"type", "role"} & value.keys()):
        return value
    inside = {key: with_keys(form, value[key], depth + 1) for key in ("content",) if key in value}
    return {**value, **inside, **OF_LOGS}


def requests_of(form: str, kind: str, *, marked: bool) -> tuple[list[Any], list[Any], list[Any]]:
    memory = memory_of(form)
    turns = [saying(form, "user", "Look."), *messages_of(form, SAMPLES[form][kind](1))]
    added = [message for turn in [*turns, saying(form, "user", "Why?")] for message in turn]
    added = with_keys(form, added) if marked else added
    memory.add_messages("s", added, form)
    fitted = memory.fit_messages(added, format=form).messages
    return memory.build_context("s").messages, fitted, memory.get_messages("s", format=form)


@pytest.mark.parametrize(("form", "kind"), TYPES)
def test_keys_of_a_log_are_kept_and_not_sent(form, kind):
    plain, _, added = requests_of(form, kind, marked=False)
    sent, fitted, kept = requests_of(form, kind, marked=True)
    assert kept == with_keys(form, added)
    assert sent == plain
    assert fitted == plain
    assert check(plain, form) == []


@pytest.mark.parametrize("form", wire_types.REQUESTS)
def test_every_key_of_the_sdks_has_an_entry(form):
    module, _ = wire_types.SDKS[form]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    stored = json.loads(wire_types.KEYS.read_text(encoding="utf-8"))
    walked = wire_types.keys_of(form)
    assert walked["classes"]
    assert wire_types.lacking_keys(form, walked, stored) == []
    without = {form: {"classes": dict(list(stored[form]["classes"].items())[1:])}}
    assert wire_types.lacking_keys(form, walked, without)


def test_unknown_type_is_sent_with_all_its_keys():
    memory = memory_of("openai-responses")
    call = {"type": "quantum_call", "call_id": "c", "program": "leap", "depth": {"ts": 1}}
    answer = {"type": "quantum_call_output", "call_id": "c", "output": "done", "shots": 3}
    memory.add_messages("s", [*saying("openai-responses", "user", "Leap."), call, answer])
    assert memory.build_context("s").messages[1:] == [call, answer]


@pytest.mark.parametrize("form", ["openai-chat", "mistral"])
def test_keys_of_compatible_servers_are_sent(form):
    """They are in no SDK, and servers behind the format rely on them."""
    block = {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}
    answer = {"role": "assistant", "content": "Red.", "reasoning_content": "I look."}
    answer |= {"reasoning_details": [{"type": "reasoning.text", "text": "I look.", "ts": 1}]}
    question = {"role": "user", "content": [block | {"_type": "x"}], **SWE_AGENT, "ts": 1}
    memory = memory_of(form)
    memory.add_messages("s", [question, answer, {"role": "user", "content": "Why?"}], form)
    sent = memory.build_context("s").messages
    assert sent[:2] == [{"role": "user", "content": [block]}, answer]
    assert memory.get_messages("s", format=form)[0] == question


def test_sdk_objects_are_dumped_by_the_names_of_the_wire():
    types = pytest.importorskip("openai.types.responses")
    call = types.ResponseFunctionToolCall.model_validate(
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "async": True}
    )
    memory = memory_of("openai-responses")
    memory.add_messages("s", [*saying("openai-responses", "user", "Go."), call])
    assert memory.build_context("s").messages[1]["async"] is True


def test_model_of_a_fallback_is_sent_by_its_wire_name():
    types = pytest.importorskip("anthropic.types.beta")
    block = {
        "type": "fallback",
        "from": {"model": "a"},
        "to": {"model": "b"},
        "trigger": {"type": "refusal", "category": None},
    }
    message = types.BetaMessage.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "b", "stop_reason": "end_turn",
         "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
         "content": [block, {"type": "text", "text": "Red."}]}
    )  # fmt: skip
    memory = memory_of("anthropic")
    memory.add_messages("s", saying("anthropic", "user", "Look."))
    memory.add_messages("s", message)
    memory.add_messages("s", saying("anthropic", "user", "Why?"))
    sent = memory.build_context("s").messages[1]["content"][0]
    assert sent["from"] == {"model": "a"}
    assert "from_" not in sent
