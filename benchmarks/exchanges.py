"""Random exchanges of an agent in the wire types of six formats, for `benchmarks.validity`.

An exchange is the assistant's messages and those that answer them. The types of Anthropic and of the
Responses API are those of the tests' samples.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.formats import wire_samples

Message = dict[str, Any]
Exchange = list[list[Message]]
"""The messages that are added one after another."""
Make = Callable[[Random, int], Exchange]

_PNG = wire_samples.PNG
_IMAGE = f"data:image/png;base64,{_PNG}"
_PDF = "JVBERi0xLjQKJSVFT0YK"
_WORDS = (
    "red", "green", "blue", "north", "south", "river", "stone", "paper", "light", "seven", "query",
)  # fmt: skip


def words(random: Random, most: int = 60) -> str:
    """Return a text of random words."""
    return " ".join(random.choices(_WORDS, k=random.randint(2, most)))


def _id(form: str, number: int, nth: int = 0) -> str:
    return f"{number:07}{nth:02}" if form == "mistral" else f"call_{number}_{nth}"


# ---------------------------------------------------------------- chat completions and Mistral


def _calls(form: str) -> Make:
    def made(random: Random, number: int) -> Exchange:
        ids = [_id(form, number, nth) for nth in range(random.choice((1, 1, 1, 2, 3)))]
        arguments = '{"query": "north"}'
        calls = [
            {"id": each, "type": "function", "function": {"name": "find", "arguments": arguments}}
            for each in ids
        ]
        asked = {
            "role": "assistant",
            "content": random.choice((words(random, 8), "")),
            "tool_calls": calls,
        }
        random.shuffle(ids)
        told = [
            {"role": "tool", "tool_call_id": each, "content": words(random, 200)} for each in ids
        ]
        return [[asked], told]

    return made


def _custom_call(_: Random, number: int) -> Exchange:
    call_id = _id("openai-chat", number)
    call = {"id": call_id, "type": "custom", "custom": {"name": "run", "input": "ls -l"}}
    told = {"role": "tool", "tool_call_id": call_id, "content": [{"type": "text", "text": "a b"}]}
    return [[{"role": "assistant", "content": None, "tool_calls": [call]}], [told]]


def _legacy_call(random: Random, _: int) -> Exchange:
    call = {"name": "find", "arguments": "{}"}
    told = {"role": "function", "name": "find", "content": words(random)}
    return [[{"role": "assistant", "content": None, "function_call": call}], [told]]


def _spoken(*parts: Message, content: Any = None, **more: Any) -> Make:
    given = list(parts) or content
    return lambda random, number: [[{"role": "assistant", "content": given, **more}]]


def _asked(*parts: Message, **more: Any) -> Make:
    return lambda random, number: [[{"role": "user", "content": list(parts), **more}]]


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


_CHAT: dict[str, Make] = {
    "tool_calls": _calls("openai-chat"),
    "custom": _custom_call,
    "function_call": _legacy_call,
    "refusal": _spoken({"type": "refusal", "refusal": "No."}),
    "audio": _spoken(audio={"id": "audio_1"}),
    "image_url": _asked(_text("See"), {"type": "image_url", "image_url": {"url": _IMAGE}}, name="Ann"),
    "input_audio": _asked(
        _text("Hear"), {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    ),
    "file": _asked(_text("Read"), {"type": "file", "file": {"file_id": "file-1"}}),
}  # fmt: skip
_MISTRAL: dict[str, Make] = {
    "tool_calls": _calls("mistral"),
    "thinking": _spoken({"type": "thinking", "thinking": [_text("hm")]}, _text("So it is.")),
    "reference": _spoken(_text("As written"), {"type": "reference", "reference_ids": [1]}),
    "image_url": _asked(_text("See"), {"type": "image_url", "image_url": _IMAGE}),
    "document_url": _asked(_text("Read"), {"type": "document_url", "document_url": "https://e.example/a.pdf"}),
}  # fmt: skip


# ---------------------------------------------------------------- Gemini


def _functions(random: Random, number: int) -> Exchange:
    ids = [_id("gemini", number, nth) for nth in range(random.choice((1, 1, 2, 3)))]
    named = [{"id": each} if random.random() < 0.7 else {} for each in ids]
    calls: list[Message] = [
        {"functionCall": {**name, "name": f"find{nth}", "args": {"q": "north"}}}
        for nth, name in enumerate(named)
    ]
    calls[0]["thoughtSignature"] = "RXV3"
    told = [
        {
            "functionResponse": {
                **name,
                "name": f"find{nth}",
                "response": {"output": words(random, 200)},
            }
        }
        for nth, name in enumerate(named)
    ]
    thought = [{"text": "hm", "thought": True}] if random.random() < 0.5 else []
    return [[{"role": "model", "parts": [*thought, *calls]}], [{"role": "user", "parts": told}]]


def _model(*parts: Message) -> Make:
    return lambda random, number: [[{"role": "model", "parts": list(parts)}]]


def _of_user(*parts: Message) -> Make:
    return lambda random, number: [[{"role": "user", "parts": list(parts)}]]


_CODE = {"executableCode": {"language": "PYTHON", "code": "print(7)"}}
_RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "7"}}
_GEMINI: dict[str, Make] = {
    "functionCall": _functions,
    "codeExecution": _model(_CODE, _RAN, {"text": "It is seven."}),
    "code alone": lambda random, number: [
        [{"role": "model", "parts": [_CODE]}],
        [{"role": "model", "parts": [_RAN, {"text": "Seven."}]}],
    ],
    "thought": _model({"text": "hm", "thought": True}, {"text": "So.", "thoughtSignature": "RXV3"}),
    "inlineData": _of_user({"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": _PNG}}),
    "fileData": _of_user({"text": "See"}, {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/a.mp4"}}),
}  # fmt: skip


# ---------------------------------------------------------------- Bedrock


def _uses(random: Random, number: int) -> Exchange:
    ids = [_id("bedrock", number, nth) for nth in range(random.choice((1, 1, 2)))]
    uses = [{"toolUse": {"toolUseId": each, "name": "find", "input": {"q": "n"}}} for each in ids]
    answers = ({"text": words(random, 200)}, {"json": {"a": 1}})
    told = [
        {"toolResult": {"toolUseId": each, "content": [random.choice(answers)]}} for each in ids
    ]
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "EuwD"}}}
    said = [thought] if random.random() < 0.4 else []
    return [[{"role": "assistant", "content": [*said, *uses]}], [{"role": "user", "content": told}]]


_BEDROCK: dict[str, Make] = {
    "toolUse": _uses,
    "image": _asked({"text": "See"}, {"image": {"format": "png", "source": {"bytes": _PNG}}}),
    "document": _asked(
        {"text": "Read"},
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": _PDF}}},
    ),
    "cachePoint": _asked({"text": "Keep"}, {"cachePoint": {"type": "default"}}),
    "reasoningContent": _spoken(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "EuwD"}}}, {"text": "So."}
    ),
}  # fmt: skip


# ---------------------------------------------------------------- all


def _sampled(form: str, kind: str) -> Make:
    def made(random: Random, number: int) -> Exchange:
        sample = wire_samples.SAMPLES[form][kind](number)
        if form == "anthropic" and random.random() < 0.3 and not sample.answered:
            # The turn was paused between the call and its result.
            halves = [[block] for block in sample.said]
            return [[{"role": "assistant", "content": half}] for half in halves]
        return wire_samples.messages_of(form, sample)

    return made


_OURS = {"openai-chat": _CHAT, "mistral": _MISTRAL, "gemini": _GEMINI, "bedrock": _BEDROCK}
EXCHANGES: dict[str, dict[str, Make]] = {
    **_OURS,
    **{
        form: {
            kind: _sampled(form, kind)
            for kind in wire_samples.SAMPLES[form]
            if not kind.startswith("quantum")  # a type that no SDK has
        }
        for form in ("anthropic", "openai-responses")
    },
}


def said(form: str, role: str, text: str) -> Message:
    """Return a message with a text."""
    match form:
        case "gemini":
            return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
        case "bedrock":
            return {"role": role, "content": [{"text": text}]}
        case "openai-responses":
            return {"type": "message", "role": role, "content": text}
    return {"role": role, "content": text}
