"""Contents given as a text, parts, or a provider's blocks, to every method that adds one entry."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Any

import pytest
from anthropic.types import TextBlock
from google.genai import types as genai
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import Entry, FilePart, ImagePart, InvalidInput, MemoryManager, OpaquePart, TextPart
from memman.formats.rules import check
from tests.examples import examples

S = "s"


def png(size: int) -> str:
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * (size + 1) * size)), (b"IEND", b"")]
    packed = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
              for kind, data in chunks]  # fmt: skip
    return b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(packed)).decode()


PNG = png(600)
IMAGE = ImagePart(data=PNG, media_type="image/png")
SOURCE = {"type": "base64", "media_type": "image/png", "data": PNG}
URL = f"data:image/png;base64,{PNG}"
BLOCKS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [{"type": "text", "text": "see"}, {"type": "image", "source": SOURCE}],
    "openai-chat": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": URL}}],
    "openai-responses": [{"type": "input_text", "text": "see"},
                         {"type": "input_image", "image_url": URL, "detail": "auto"}],
    "gemini": [{"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}],
    "bedrock": [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}],
    "mistral": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": URL}],
}  # fmt: skip
SEEN = ("anthropic", "openai-responses", "gemini", "bedrock")  # their results may have images
VERBS = {
    "user": lambda memory, content, **more: memory.add_user_message(S, content, **more),
    "assistant": lambda memory, content, **more: memory.add_assistant_message(S, content, **more),
    "system": lambda memory, content, **more: memory.add_system_message(S, content, **more),
    "result": lambda memory, content, **more: memory.add_tool_result(
        S, "shot", content, call_id="c", **more
    ),
    "context": lambda memory, content, **more: memory.add_context(S, content, "desk", **more),
}


def kinds(entry: Entry) -> list[type]:
    return [str] if isinstance(entry.content, str) else [type(part) for part in entry.content]


@pytest.mark.parametrize("own", BLOCKS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", BLOCKS)
def test_blocks_of_a_provider_become_parts(form: str, verb: str, own: str) -> None:
    memory = MemoryManager(format=own)
    entry = VERBS[verb](memory, BLOCKS[form])
    assert kinds(entry) == [TextPart, ImagePart]
    assert entry.text == "see"
    assert memory.get_entry(S, entry.id) == entry


@pytest.mark.parametrize("target", SEEN)
@pytest.mark.parametrize("form", [form for form in BLOCKS if form != "bedrock"])
def test_image_of_a_tool_reaches_the_provider(form: str, target: str) -> None:
    memory = MemoryManager(format=target)
    memory.add_user_message(S, "What is on the screen?")
    memory.add_tool_call(S, "shot", {}, call_id="c")
    memory.add_tool_result(S, "shot", BLOCKS[form], call_id="c")
    context = memory.build_context(S)
    assert PNG in str(context.messages)
    assert check(context.messages, target) == []
    assert int(context.tokens) < 2_000


PARTS: dict[str, Any] = {
    "a part": IMAGE,
    "a list of parts": [TextPart("see"), IMAGE],
    "a tuple of parts": (TextPart("see"), FilePart(data="JVBERg==", media_type="application/pdf")),
    "objects of an SDK": [TextBlock(type="text", text="see")],
    "Google's parts": [
        genai.Part(text="see"),
        genai.Part.from_bytes(data=b"x", mime_type="image/png"),
    ],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", PARTS)
def test_parts_are_taken_alone_and_in_lists(kind: str, verb: str) -> None:
    entry = VERBS[verb](MemoryManager(), PARTS[kind])
    assert set(kinds(entry)) <= {TextPart, ImagePart, FilePart, str}
    if kind != "a part":
        assert entry.text == "see"


OWNED = {
    "anthropic": {"type": "search_result", "source": "u", "title": "t",
                  "content": [{"type": "text", "text": "found"}]},
    "openai-chat": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "bedrock": {"video": {"format": "mp4", "source": {"bytes": b"x"}}},
    "gemini": {"fileData": {"fileUri": "https://youtu.be/x"}, "videoMetadata": {"fps": 1}},
}  # fmt: skip


@pytest.mark.parametrize("own", BLOCKS)
@pytest.mark.parametrize("form", OWNED)
def test_block_of_one_provider_is_its_own_part(form: str, own: str) -> None:
    entry = MemoryManager(format=own).add_tool_result(S, "find", [OWNED[form]], call_id="c")
    [part] = entry.content
    assert isinstance(part, FilePart) or (isinstance(part, OpaquePart) and part.format == form)


def test_keys_besides_a_block_come_back() -> None:
    memory = MemoryManager(format="anthropic")
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    document = {
        "type": "document",
        "title": "Terms",
        "citations": {"enabled": True},
        "source": source,
    }
    memory.add_user_message(S, [document, {"type": "text", "text": "?"}])
    assert memory.build_context(S).messages[0]["content"][0] == document


REFUSED = {
    "rows": ([{"id": 1}], "json.dumps"),
    "rows with text": ([{"text": "a", "score": 1}], "json.dumps"),
    "data": ({"rows": 3}, "json.dumps"),
    "a block alone": (BLOCKS["anthropic"][1], "a block goes into a list"),
    "a call": ([{"type": "tool_use", "id": "c", "name": "f", "input": {}}], "add_messages"),
    "unknown": ([{"type": "hologram", "data": "x"}], "add_messages"),
    "a surrogate": ([{"type": "text", "text": "a\ud800"}], "lone surrogate"),
    "nothing": (None, "not NoneType"),
    "texts": (["a", "b"], "a part of type str"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", REFUSED)
def test_content_without_a_reader_is_refused_or_kept(kind: str, verb: str) -> None:
    content, said = REFUSED[kind]
    memory = MemoryManager()
    with pytest.raises(InvalidInput, match=said) as raised:
        VERBS[verb](memory, content)
    assert memory.list_sessions() == []
    entry = VERBS[verb](memory, content, unknown="keep")
    assert entry.metadata["memman"]["altered"] == str(raised.value)
    assert entry == memory.get_entry(S, entry.id)


def test_error_for_an_image_never_advises_json() -> None:
    broken = [BLOCKS["anthropic"][1], {"type": "hologram"}]
    with pytest.raises(InvalidInput) as raised:
        MemoryManager().add_tool_result(S, "shot", broken)
    assert "json.dumps" not in str(raised.value)


LEAVES = (
    st.text(st.characters(exclude_categories=()), max_size=6) | st.floats() | st.binary(max_size=3)
)
PART = st.builds(TextPart, LEAVES) | st.just(IMAGE) | st.builds(ImagePart, url=LEAVES)
BLOCK = st.sampled_from(
    [block for blocks in BLOCKS.values() for block in blocks]
) | st.dictionaries(
    st.sampled_from(["type", "text", "image", "source"]) | LEAVES,
    LEAVES | st.just("text"),
    max_size=3,
)
ANY = LEAVES | PART | BLOCK | st.none() | st.integers() | st.builds(object)
CONTENT = ANY | st.lists(ANY, max_size=3)


@given(st.sampled_from(sorted(VERBS)), CONTENT, st.none() | LEAVES, st.sampled_from(SEEN))
@settings(max_examples=examples(300), deadline=None)
def test_any_content_is_kept_and_sent_validly(
    verb: str, content: Any, label: Any, own: str
) -> None:
    memory = MemoryManager(format=own)
    memory.add_user_message(S, "q")
    entry = VERBS[verb](memory, content, message_id=label, unknown="keep")
    assert memory.get_entries(S)[1:] == [entry]
    assert check(memory.build_context(S).messages, own) == []
    assert MemoryManager().import_session(memory.export_session(S).to_json())


@given(
    name=LEAVES | st.none(),
    call_id=LEAVES | st.none(),
    arguments=ANY | st.dictionaries(LEAVES, ANY),
)
@settings(max_examples=examples(300), deadline=None)
def test_any_call_and_its_result_are_kept_as_a_pair(
    name: Any, call_id: Any, arguments: Any
) -> None:
    memory = MemoryManager(format="openai-chat")
    memory.add_user_message(S, "q")
    call = memory.add_tool_call(S, name, arguments, call_id=call_id, unknown="keep")
    result = memory.add_tool_result(S, name or call.name, "done", call_id=call_id, unknown="keep")
    assert call.call_id == result.call_id
    messages = memory.build_context(S).messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert check(messages, "openai-chat") == []


def test_blocks_among_parts_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a part of type dict"):
        MemoryManager().add_user_message(S, [TextPart("see"), BLOCKS["anthropic"][1]])
