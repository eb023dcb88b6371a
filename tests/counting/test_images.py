"""Image tokens: the examples of the providers' documentation, and sizes read from headers."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.request_prices import price_request
from memman import MemoryManager
from memman.counting.images import DEFAULT_SIZE, dimensions, image_tokens, size_of
from memman.counting.models import model_ref
from memman.errors import InvalidInput

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02"
GIF = b"GIF89a" + struct.pack("<HH", 320, 200) + b"\x00\x00\x00"
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 800) + b"\x03\x01\x22\x00"
)
WEBP_VP8X = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + bytes(
    (99, 1, 0, 43, 1, 0)
)
WEBP_VP8L = b"RIFF\x00\x00\x00\x00WEBPVP8L\x0a\x00\x00\x00\x2f" + struct.pack("<I", 399 | 299 << 14)
WEBP_VP8 = (
    b"RIFF\x00\x00\x00\x00WEBPVP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a"
    + struct.pack("<HH", 400, 300)
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "tokens"),
    [
        ("gpt-4o", 1024, 1024, "high", 765),
        ("gpt-4o", 2048, 4096, "high", 1105),
        ("gpt-4o", 4096, 8192, "low", 85),
        ("gpt-4o-mini", 4096, 8192, "low", 2833),
        ("gpt-4.1-mini", 1024, 1024, "auto", 1659),  # 1,024 patches x 1.62
        ("gpt-4.1-mini", 1800, 2400, "auto", 2353),  # shrunk to 1,452 patches x 1.62
        ("gpt-5", 1024, 1024, "high", 630),  # 70 and four tiles of 140
        ("gpt-5.1", 1024, 1024, "high", 630),
        ("gpt-5.2", 1024, 1024, "high", 1229),  # 1,024 patches x 1.2
        ("gpt-5.4-2026-03-05", 8000, 8000, "auto", 1826),  # shrunk to 39 x 39 patches x 1.2
        ("gpt-5.4-mini", 1024, 1024, "auto", 1659),
        ("claude-sonnet-4-5", 200, 200, "auto", 54),
        ("claude-sonnet-4-5", 1000, 1000, "auto", 1334),
        ("claude-sonnet-4-5", 8000, 8000, "auto", 1600),
        ("gemini-2.5-flash", 384, 384, "auto", 258),
        ("gemini-2.5-flash", 960, 540, "auto", 1548),  # six tiles
        ("gemini-3-pro-preview", 384, 384, "auto", 1120),
        ("gemini-3.5-flash", 4000, 3000, "auto", 1120),
    ],
)
def test_the_documented_examples(model, width, height, detail, tokens):
    assert image_tokens(model_ref(model), width, height, detail) == tokens


SIGNS = (
    PNG + bytes(range(248, 256)) * 3
)  # in base64 with `+` and `/`, and with `-` and `_` for URLs
LINK = "data:image/png;base64," + base64.b64encode(SIGNS).decode()
LARGE = "data:image/png;base64," + base64.b64encode(PNG + b"\x00" * 300_000).decode()
SHAPES = {
    "of the Responses API": {"type": "input_image", "image_url": LINK},
    "of an uploaded image": {"type": "input_image", "file_id": "file-1"},
    "of Mistral": {"type": "image_url", "image_url": LINK},
    "of Anthropic's files": {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
    "of LangChain": {"type": "image", "base64": LINK.partition(",")[2], "mime_type": "image/png"},
    "of an older LangChain": {
        "type": "image",
        "source_type": "base64",
        "data": LINK.partition(",")[2],
        "mime_type": "image/png",
    },
    "of LangChain, linked": {"type": "image", "url": "https://example.com/a.png"},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"])
def test_image_is_priced_by_its_pixels_in_every_spelling(shape, model):
    message = {"role": "user", "content": [SHAPES[shape]]}
    [entry] = MemoryManager(model=model).add_messages("s", [message])
    pixels = (640, 480) if "base64" in str(SHAPES[shape]) else DEFAULT_SIZE
    assert entry.token_count.tokens == image_tokens(model_ref(model), *pixels)


SCREEN = [
    {"role": "user", "content": "Click it."},
    {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "screenshot"},
     "pending_safety_checks": [], "status": "completed"},
    {"type": "computer_call_output", "call_id": "c1",
     "output": {"type": "computer_screenshot", "image_url": LARGE}},
]  # fmt: skip
DRAWN = [
    {"role": "user", "content": "Draw it."},
    {"role": "assistant", "content": "Here.",
     "images": [{"type": "image_url", "image_url": {"url": LARGE}}]},
]  # fmt: skip


@pytest.mark.parametrize("messages", [SCREEN, DRAWN], ids=["computer use", "a drawing"])
def test_an_image_in_what_only_its_provider_reads_is_no_text(messages):
    entries = MemoryManager(model="gpt-4o").add_messages("s", messages)
    around = entries[-1].token_count.tokens - image_tokens(model_ref("gpt-4o"), 640, 480)
    assert 0 <= around < 100  # a screenshot has no text
    count = price_request(
        {"input": messages}, model_ref("gpt-4o"), lambda texts: [len(t) for t in texts]
    )
    assert count < 1_000


def test_responses_image_without_detail_round_trips():
    items = [{"role": "user", "content": [SHAPES["of the Responses API"]]}]
    memory = MemoryManager(model="gpt-4o")
    memory.add_messages("s", items, format="openai-responses")
    assert memory.build_context("s", format="openai-responses").messages == items
    [message] = memory.build_context("s", format="anthropic").messages
    assert message["content"][0]["type"] == "image"


def test_base64_as_it_stands_in_urls_is_looked_into():
    text = base64.urlsafe_b64encode(SIGNS).decode()
    assert "-" in text
    assert "_" in text
    assert dimensions(text) == dimensions(f"data:image/png;base64,{text}") == (640, 480)


@pytest.mark.parametrize(
    ("data", "size"),
    [(PNG, (640, 480)), (GIF, (320, 200)), (JPEG, (800, 480)), (WEBP_VP8X, (356, 300)),
     (WEBP_VP8L, (400, 300)), (WEBP_VP8, (400, 300))],
)  # fmt: skip
def test_image_size_is_read_from_the_header(data, size):
    text = base64.b64encode(data + b"\x00" * 1_000).decode()
    assert dimensions(data) == size
    assert dimensions(text) == size
    assert dimensions(f"data:image/any;base64,{text}") == size


@pytest.mark.parametrize(
    "source", [None, "", b"", "no base64!", "data:text/plain,hi", b"BM....", "https://x.y/z.png"]
)
def test_unreadable_image_has_the_default_size(source):
    assert size_of(source) == DEFAULT_SIZE


@given(
    st.sampled_from([PNG, GIF, JPEG, WEBP_VP8X, WEBP_VP8L, WEBP_VP8]),
    st.integers(0, 40),
    st.binary(max_size=8),
)
def test_damaged_headers_never_raise(data, cut, tail):
    width, height = size_of(data[:cut] + tail)
    assert width > 0
    assert height > 0


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (-1, 5)])
def test_an_image_without_pixels_is_refused(width, height):
    with pytest.raises(InvalidInput, match="at least 1 x 1"):
        image_tokens(model_ref("gpt-4o"), width, height)


@given(
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.sampled_from(["gpt-4o", "gpt-4.1-nano", "claude-opus-4", "gemini-2.5-pro", "x"]),
)
def test_every_size_has_a_positive_price(width, height, model):
    assert image_tokens(model_ref(model), width, height) > 0


def test_image_in_a_request_is_priced_by_pixels_not_base64():
    url = "data:image/png;base64," + base64.b64encode(PNG + b"\x00" * 100_000).decode()
    sent = {
        "chat": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}],
        "messages": [
            {"type": "image", "source": {"type": "base64", "data": url.partition(",")[2]}}
        ],
        "responses": [{"type": "input_image", "image_url": url, "detail": "low"}],
    }
    for content in sent.values():
        request = {"messages": [{"role": "user", "content": content}]}
        assert (
            price_request(request, model_ref("gpt-4o"), lambda texts: [len(t) for t in texts])
            <= 3 + 4 + 425
        )
    request = {"messages": [{"role": "user", "content": sent["chat"]}]}
    assert (
        price_request(request, model_ref("gpt-4o"), lambda texts: [len(t) for t in texts])
        == 3 + 4 + 85
    )


def test_newer_claude_models_see_more_of_a_large_image() -> None:
    assert image_tokens(model_ref("claude-opus-4-5"), 4_000, 3_000) == 1_600
    assert image_tokens(model_ref("claude-opus-4-7"), 4_000, 3_000) == 4_784
    assert image_tokens(model_ref("claude-opus-4-8"), 1_000, 1_000) == 1_334
