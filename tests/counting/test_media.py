"""Files cost what providers bill for their pages and seconds, references a flat sum, ciphers by length."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from memman import FilePart, ImagePart, InvalidInput, MemoryManager, TextPart
from memman.counting.blocks import BlockPrices
from memman.counting.media import media_fault, media_type_of, units_in
from memman.counting.models import model_ref
from memman.entries import NewEntry

MODELS = {
    "anthropic": "claude-sonnet-4-5", "openai-chat": "gpt-4o", "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-flash", "bedrock": "bedrock/anthropic.claude-sonnet-4-5",
    "mistral": "mistral-large-latest",
}  # fmt: skip
Message = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pdf(pages: int, size: int = 0, tree: bytes = b"") -> bytes:
    """Return a PDF of page objects, filled with a stream up to a size."""
    objects = b"".join(b"<< /Type /Page /Parent 1 0 R >>\n" for _ in range(pages)) + tree
    filler = bytes(range(1, 256)) * (size // 255)
    return b"%PDF-1.7\n" + objects + b"stream\n" + filler + b"\nendstream\n%%EOF"


def wav(seconds: int, rate: int = 16_000) -> bytes:
    sound = b"\1\2" * rate * seconds
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + len(sound)) + b"WAVEfmt " + form
    return head + b"data" + struct.pack("<I", len(sound)) + sound


def mp4(seconds: int) -> bytes:
    mvhd = b"mvhd" + struct.pack(">IIIII", 0, 0, 0, 1_000, seconds * 1_000)
    return struct.pack(">I", 16) + b"ftypisom" + b"\0" * 4 + mvhd + b"\0" * 100_000


def tokens_of(form: str, message: Message) -> int:
    memory = MemoryManager(model=MODELS[form], format=form, counter="estimate")
    return sum(entry.token_count.tokens for entry in memory.add_messages("s", [message], form))


def said(*blocks: Message) -> Message:
    return {"role": "user", "content": list(blocks)}


def in_google(mime: str, data: bytes) -> Message:
    return {"role": "user", "parts": [{"inlineData": {"mimeType": mime, "data": encoded(data)}}]}


def document(data: bytes) -> Message:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf",
                                           "data": encoded(data)}}  # fmt: skip


def data_url(data: bytes) -> str:
    return f"data:application/pdf;base64,{encoded(data)}"


def named(data: bytes) -> Message:
    return {"filename": "a.pdf", "file_data": data_url(data)}


def in_chat(data: bytes) -> Message:
    return {"data": encoded(data), "format": "wav"}


def in_bedrock(form: str, data: bytes) -> Message:
    return {"format": form, "source": {"bytes": encoded(data)}}


PDFS: dict[str, Callable[[bytes], Message]] = {
    "anthropic": lambda data: said(document(data)),
    "openai-chat": lambda data: said({"type": "file", "file": named(data)}),
    "openai-responses": lambda data: said({"type": "input_file"} | named(data)),
    "gemini": lambda data: in_google("application/pdf", data),
    "bedrock": lambda data: said({"document": in_bedrock("pdf", data) | {"name": "a"}}),
    "mistral": lambda data: said({"type": "document_url", "document_url": data_url(data)}),
}  # fmt: skip


@pytest.mark.parametrize("form", PDFS)
def test_pdf_costs_its_pages_in_every_format(form):
    page = 258 if form == "gemini" else 2_000
    assert 3 * page <= tokens_of(form, PDFS[form](pdf(3, 500_000))) < 3 * page + 100
    assert 20 * page <= tokens_of(form, PDFS[form](pdf(20, 60_000))) < 20 * page + 100


def test_pdf_counts_at_most_its_limit_of_pages():
    assert 258_000 <= tokens_of("gemini", PDFS["gemini"](pdf(2_000))) < 258_100


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(1, tree=b"<< /Type /Pages /Kids [2 0 R] /Count 12 >>"), 12),
        (pdf(1, tree=b"<< /Count 12 /Kids [2 0 R] /Type /Pages >>"), 12),
        (pdf(1, tree=b"<< /Type /Outlines /Count 40 >>"), 1),
        (pdf(0, tree=b"<< /Type /ObjStm /N 2 /Filter /FlateDecode >>\nstream\n"
             + zlib.compress(b"<</Type/Pages/Count 7/Kids[1 0 R]>>")), 7),
        (pdf(0, 250_000), 3),
        (pdf(0), 1),
    ],
    ids=["stated", "stated first", "outline", "compressed", "by size", "tiny"],
)  # fmt: skip
def test_pages_are_read_from_the_pdf(data, pages):
    assert units_in(data, "pages") == pages


def test_pdf_in_a_tool_result_costs_its_pages():
    memory = MemoryManager(model="claude-sonnet-4-5", format="anthropic")
    memory.add_tool_call("s", "read", {}, call_id="c")
    entry = memory.add_tool_result("s", "read", [document(pdf(3, 500_000))], call_id="c")
    assert 6_000 <= entry.token_count.tokens < 6_100


SOUNDS: dict[str, Callable[[bytes], Message]] = {
    "openai-chat": lambda data: said({"type": "input_audio", "input_audio": in_chat(data)}),
    "gemini": lambda data: in_google("audio/wav", data),
    "mistral": lambda data: said({"type": "input_audio", "input_audio": encoded(data)}),
    "bedrock": lambda data: said({"audio": in_bedrock("wav", data)}),
}  # fmt: skip


@pytest.mark.parametrize("form", SOUNDS)
def test_sound_costs_its_seconds(form):
    assert 700 <= tokens_of(form, SOUNDS[form](wav(30))) < 1_000


def test_sound_without_a_header_costs_by_a_usual_rate():
    mp3 = b"ID3\4" + b"\0" * 480_000
    assert 900 < tokens_of("openai-chat", SOUNDS["openai-chat"](mp3)) < 1_000
    assert 900 < tokens_of("gemini", SOUNDS["gemini"](b"U" * 960_000)) < 1_000


@pytest.mark.parametrize("form", ["gemini", "bedrock"])
def test_video_costs_its_seconds(form):
    message = said({"video": in_bedrock("mp4", mp4(10))})
    if form == "gemini":
        message = in_google("video/mp4", mp4(10))
    assert 3_000 <= tokens_of(form, message) < 3_100


REFERENCES: list[tuple[str, Message]] = [
    ("anthropic", said({"type": "document", "source": {"type": "file", "file_id": "f"}})),
    ("anthropic", said({"type": "document", "source": {"type": "url", "url": "https://e.example/a.pdf"}})),
    ("openai-chat", said({"type": "file", "file": {"file_id": "f"}})),
    ("openai-responses", said({"type": "input_file", "file_id": "f"})),
    ("openai-responses", said({"type": "input_file", "file_url": "https://e.example/a.pdf"})),
    ("mistral", said({"type": "document_url", "document_url": "https://e.example/a.pdf"})),
    ("mistral", said({"type": "file", "file_id": "f"})),
    ("bedrock", said({"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://b/a"}}}})),
]  # fmt: skip


@pytest.mark.parametrize(("form", "message"), REFERENCES)
def test_reference_costs_a_flat_sum(form, message):
    assert 10_000 <= tokens_of(form, message) < 10_100


def test_our_file_costs_as_its_block():
    files = [
        (FilePart(data=encoded(pdf(3, 500_000)), media_type="application/pdf"), 6_000, 774),
        (FilePart(url=data_url(pdf(3, 500_000))), 6_000, 774),
        (FilePart(data=encoded(wav(30)), media_type="audio/wav"), 961, 961),
        (FilePart(data=encoded(b"Pay by Friday. " * 100), media_type="text/plain"), 401, 401),
        (FilePart(file_id="f"), 10_000, 2_580),
    ]
    for part, most_providers, google in files:
        for model, tokens in (("gpt-5", most_providers), ("gemini-2.5-pro", google)):
            memory = MemoryManager(model=model, counter="chars4")
            entry = memory.add_user_message("s", [part, TextPart("Read it.")])
            assert abs(entry.token_count.tokens - tokens) <= 30


@pytest.mark.parametrize("words", ["The port is 9443. ", "the port is open "])  # as in base64
def test_text_of_a_block_is_counted_once(words):
    words *= 400
    block = {"type": "document", "title": "Ports", "source": {"type": "text", "media_type": "text/plain",
                                                              "data": words}}  # fmt: skip
    plain = tokens_of("anthropic", said({"type": "text", "text": words}))
    assert plain <= tokens_of("anthropic", said(block)) < plain + 40
    tools = [
        {"name": f"tool_{n}", "description": "It looks up a value. " * 9, "input_schema": {}}
        for n in range(9)
    ]
    listing = {"type": "mcp_list_tools", "id": "m", "server_label": "desk", "tools": tools}
    listed = tokens_of("openai-responses", listing)
    as_text = tokens_of("openai-responses", {"role": "user", "content": str(tools)})
    assert as_text * 2 // 3 < listed <= as_text


CIPHERS = [  # with the tokens that were billed, or the table's rate
    (
        "openai-responses",
        {"type": "reasoning", "id": "r", "summary": []},
        "encrypted_content",
        1_572,
        128,
    ),
    (
        "openai-responses",
        {"type": "reasoning", "id": "r", "summary": []},
        "encrypted_content",
        1_380,
        64,
    ),
    ("openai-responses", {"type": "compaction", "id": "c"}, "encrypted_content", 41_491, 2_056),
    ("anthropic", {"type": "redacted_thinking"}, "data", 1_600, 100),
]


@pytest.mark.parametrize(("form", "block", "key", "length", "billed"), CIPHERS)
def test_cipher_costs_by_its_length(form, block, key, length, billed):
    block = {**block, key: "x" * length}
    message = {"role": "assistant", "content": [block]} if form == "anthropic" else block
    assert billed // 3 < tokens_of(form, message) < billed * 3


@pytest.mark.parametrize("data", [pdf(3), wav(1), mp4(1)])
@pytest.mark.parametrize("by", ["pages", "seconds", "frames"])
def test_damaged_file_has_a_finite_size(data, by):
    for cut in range(0, min(len(data), 400), 7):
        assert 0 <= units_in(data[:cut] + b"\xff" * 9, by) < 1_000


def test_media_type_is_read_from_the_first_bytes():
    kinds = [media_type_of(data) for data in (pdf(1), wav(1), mp4(1), b"GIF89a", b"words")]
    assert kinds == ["application/pdf", "audio/wav", "video/mp4", "image/gif", ""]


GIF = encoded(b"GIF89a" + b"\0" * 40)


def picture(mime: str, data: str) -> Message:
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


UNREADABLE: list[tuple[str, Message]] = [
    ("anthropic", said(picture("image/png", "@@"))),
    ("anthropic", said(picture("image/png", ""))),
    ("anthropic", said(picture("image/png", GIF))),
    ("anthropic", said(document(b"GIF89a"))),
    ("openai-chat", said({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@"}})),
    ("openai-chat", said({"type": "input_audio", "input_audio": {"data": "@@", "format": "wav"}})),
    (
        "openai-responses",
        said({"type": "input_image", "image_url": f"data:image/png;base64,{GIF}"}),
    ),
    ("openai-responses", said({"type": "input_file", "file_data": "data:application/pdf;base64,"})),
    ("gemini", {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": GIF}}]}),
    ("bedrock", said({"image": {"format": "png", "source": {"bytes": GIF}}})),
    ("mistral", said({"type": "document_url", "document_url": "data:application/pdf;base64,@@"})),
    ("mistral", said({"type": "input_audio", "input_audio": "@@"})),
    ("anthropic", said({"type": "image"})),
    ("anthropic", said({"type": "image", "source": {"type": "url", "url": ""}})),
    ("anthropic", said(picture("image/png", encoded(b"a text that nobody has drawn")))),
    ("openai-chat", said({"type": "image_url", "image_url": {}})),
    ("openai-responses", said({"type": "input_image", "image_url": ""})),
    ("gemini", {"role": "user", "parts": [{"inlineData": {}}]}),
    ("bedrock", said({"image": {"format": "png", "source": {}}})),
]


@pytest.mark.parametrize(("form", "message"), UNREADABLE)
def test_data_that_no_provider_reads_is_refused(form, message):
    memory = MemoryManager(format=form)
    memory.add_user_message("s", "Hello")
    with pytest.raises(InvalidInput, match=r"message 0: .*data"):
        memory.add_messages("s", [message], form)
    assert [entry.text for entry in memory.get_entries("s")] == ["Hello"]
    [entry] = memory.add_messages("s", [message], form, unknown="keep")
    assert len(memory.get_entries("s")) == 2
    assert "data" in entry.metadata["memman"]["altered"]
    request = str(memory.build_context("s", format=form).messages)  # a note is in its place
    assert "@@" not in request
    assert GIF not in request
    assert entry.text.startswith("[memman: ")
    fitted = memory.fit_messages([message], format=form).messages
    assert "[memman: " in str(fitted)


@pytest.mark.parametrize("part", [
    ImagePart(url="no data"), ImagePart(data="%%%"), ImagePart(data=""),
    ImagePart(data=GIF, media_type="image/png"), ImagePart(url="data:image/png;base64,@@"),
    FilePart(data="a", media_type="application/pdf"),
])  # fmt: skip
def test_part_that_no_provider_reads_is_refused(part):
    memory = MemoryManager()
    with pytest.raises(InvalidInput, match=r"data|scheme"):
        memory.add_user_message("s", [part])
    memory.add_user_message("s", [part], unknown="keep")


@pytest.mark.parametrize("part", [
    ImagePart(data=GIF, media_type="image/gif"), ImagePart(url="https://e.example/a"), ImagePart(data=GIF),
    FilePart(data=encoded(b"a,b"), name="a.csv"), FilePart(data="UklGRg"),
])  # fmt: skip
def test_readable_data_is_taken(part):
    assert MemoryManager().add_user_message("s", [part]).content == (part,)


@pytest.mark.parametrize("block", [
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a b"}},
    {"type": "redacted_thinking", "data": "@@"},
])  # fmt: skip
def test_other_data_than_files_is_taken(block):
    message = {"role": "assistant", "content": [block]}
    assert len(MemoryManager().add_messages("s", [message], "anthropic")) == 1


def test_text_is_not_searched_for_files():
    """It may have millions of characters, and every entry that is added comes here"""

    class Text(str):
        __slots__ = ()

        def __iter__(self):
            raise AssertionError("a text was read character by character")

    given = NewEntry(type="message", role="user", content=Text("Hello"), raw_json=Raw(b'{"a":1}'))
    assert media_fault(given.content) == ""
    assert BlockPrices(len, model_ref("gpt-5")).raw(given, 5) >= 0
