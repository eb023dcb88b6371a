"""Objects of the SDKs, alone and inside messages: memman stores the form that the SDK sends."""

from __future__ import annotations

import pytest

from memman import MemoryConfig, MemoryManager
from memman.testing import Answer, loopback

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
QUESTION = {"role": "user", "content": "Look."}


def test_every_anthropic_block_is_stored_as_the_sdk_sends_it():
    blocks = [
        anthropic.types.beta.BetaTextBlock(type="text", text="I look.", citations=None),
        anthropic.types.beta.BetaToolUseBlock(
            type="tool_use", id="a", name="read", input={"path": "a.py", "limit": None}
        ),
        anthropic.types.beta.BetaFallbackBlock.model_validate(
            {
                "type": "fallback",
                "from": {"model": "x"},
                "to": {"model": "y"},
                "trigger": {"type": "refusal"},
            }
        ),
    ]
    messages = [QUESTION, {"role": "assistant", "content": blocks}]

    reply = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "x"}
    reply["usage"] = {"input_tokens": 1, "output_tokens": 1}
    with (
        loopback("/v1/messages", Answer(200, reply)) as server,
        anthropic.Anthropic(api_key="x", base_url=server.url) as client,
    ):
        client.beta.messages.create(model="x", max_tokens=1, messages=messages)
    memory = MemoryManager(
        config=MemoryConfig(max_tokens=10_000), counter="chars4", format="anthropic"
    )
    memory.add_messages("s", messages)
    question, reply = server.received[0].body["messages"]
    reply["content"][0].pop("citations", None)  # a response's null; a request may leave it out
    assert memory.get_messages("s", format="anthropic") == [question, reply]


def test_openai_item_has_the_keys_of_the_api():
    call = {
        "type": "function_call",
        "call_id": "c",
        "name": "read",
        "arguments": "{}",
        "async": True,
    }
    item = openai.types.responses.ResponseFunctionToolCall.model_validate(call)
    memory = MemoryManager(counter="chars4", format="openai-responses")
    memory.add_messages("s", [QUESTION, item])
    assert memory.get_messages("s", format="openai-responses") == [QUESTION, call]


def test_object_that_is_no_json_is_named_with_its_place():
    memory = MemoryManager(counter="chars4")
    with pytest.raises(ValueError, match=r"message 1 .*content\[0\].* object"):
        memory.add_messages("s", [QUESTION, {"role": "assistant", "content": [object()]}])
    assert memory.list_sessions() == []


def test_contents_without_roles_are_no_conversation():
    """The speaker may be elsewhere in another program's messages; it is never guessed"""
    memory = MemoryManager(counter="chars4")
    said = [{"info": {"role": role}, "parts": [{"text": "Yes."}]} for role in ("user", "assistant")]
    with pytest.raises(ValueError, match="a file of opencode"):
        memory.add_messages("s", said)
    assert memory.add_messages("s", [{"parts": [{"text": "Yes."}]}])[0].role == "user"


@pytest.mark.parametrize("form", ["openai-responses", "openai-chat"])
def test_transcript_of_sound_is_its_text(form):
    said = {"role": "user", "content": [{"type": "input_audio", "transcript": "Rename the port."}]}
    [entry] = MemoryManager(counter="chars4", format=form).add_messages("s", [said])
    assert entry.text == "Rename the port."
