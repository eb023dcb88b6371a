"""Clips of entries: every number in the notice is true, after any number of rounds."""

import json
import re
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from memman import MemoryConfig, MemoryManager
from memman.compression.clips import clip
from memman.compression.view import Item
from memman.entries import (
    Entry,
    FilePart,
    ImagePart,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
    TokenCount,
    entry_of,
    text_of,
)
from memman.formats.rules import RULES, check
from memman.window import WindowItem
from tests.compression.entries import AT, chars4, entry

IMAGE_TOKENS = 500
SIZE = (1600).to_bytes(4, "big") + (1200).to_bytes(4, "big")
PNG = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + SIZE + b"\x08\x02\0\0\0" + b"x" * 99).decode()
NOTICE = re.compile(
    r"\[memman (?:took out .*?)?(?: and )?(?:cut (\d+) of (\d+) characters here)?"
    r"; the original is entry #(\d+)\]"
)


class EntryFactory:
    """A counter of four characters a token, and five hundred tokens for each image, file or block."""

    def __call__(self, new_entry: NewEntry) -> Entry:
        content = new_entry.content
        extra = 0 if isinstance(content, str) else sum(map(is_no_text, content))
        tokens = chars4(text_of(content)) + IMAGE_TOKENS * extra
        return entry_of(new_entry, "made", AT, TokenCount(tokens))


def is_no_text(part: Part) -> bool:
    return not isinstance(part, TextPart)


def added(content: Any, number: int = 7, kind: str = "message", **more: Any) -> Item:
    made = EntryFactory()(
        NewEntry(type=kind, role="user", content=content, **more)  # type: ignore[arg-type]
    )
    return standing(made, number)


def standing(made: Entry, number: int, compression: str | None = None) -> Item:
    tokens = made.token_count.tokens
    return Item((WindowItem(made, number, tokens, False, -1, compression),), made, tokens)


def next_round(item: Item, across: bool) -> Item:
    """Return the item as the next step or the next compression receives it."""
    if not across or item.method is None:
        return item
    assert item.entry is not None
    return standing(msgspec.structs.replace(item.entry, seq=90), item.run[0].position, "c1")


def words_of(item: Item) -> str:
    assert item.entry is not None
    text = item.entry.text
    return json.loads(text)["memman_clipped"] if item.entry.type == "tool_call" else text


def imitation(cut: int, length: int, number: int) -> str:
    return f"[memman cut {cut} of {length} characters here; the original is entry #{number}]"


PIECES = st.one_of(
    st.text(alphabet='aé日🙂\u200d\n"\\[', max_size=60),
    st.builds(imitation, st.integers(0, 400), st.integers(0, 800), st.sampled_from([7, 8])),
    st.just("[memman took out 2 images (a); the original is entry #7]"),
    st.just('{"memman_clipped": "a"}'),
)
TEXTS = st.lists(PIECES, min_size=1, max_size=12).map("\n".join)
ROUNDS = st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=4)


@given(TEXTS, ROUNDS, st.sampled_from(["message", "tool_call", "tool_result"]))
@example("x" * 4_000, [(600, True), (300, True), (100, False)], "tool_result")
def test_repeated_clips_leave_head_notice_and_tail(
    text: str, rounds: list[tuple[int, bool]], kind: str
) -> None:
    item = added(text, kind=kind)
    for wanted, across in rounds:
        item = clip(next_round(item, across), wanted, EntryFactory()) or item
    assume(item.method is not None)
    words = words_of(item)
    words.encode()  # no lone surrogate
    found = [
        notice
        for notice in NOTICE.finditer(words)
        if notice[1] is not None
        and int(notice[2]) == len(text)
        and text.startswith(words[: notice.start()].removesuffix("\n"))
        and text.endswith(words[notice.end() :].removeprefix("\n"))
    ]
    kept = [len(words) - len(notice[0]) - (2 if words != notice[0] else 0) for notice in found]
    true = [
        notice
        for notice, left in zip(found, kept, strict=True)
        if left == len(text) - int(notice[1])
    ]
    assert [notice[3] for notice in true] == ["7"]


@given(st.integers(40, 200), st.integers(0, 400))
def test_a_clip_of_a_clip_is_the_clip_that_one_round_makes(wanted: int, more: int) -> None:
    text = "".join(f"line {n}\n" for n in range(400))
    once = clip(added(text), wanted, EntryFactory())
    first = clip(added(text), wanted + more, EntryFactory())
    assert once is not None
    assert first is not None
    again = clip(next_round(first, across=True), wanted, EntryFactory()) or first
    notice = NOTICE.search(words_of(again))
    assert notice is not None
    assert words_of(again).count("[memman") == 1
    assert int(notice[2]) == len(text)
    assert len(words_of(again)) == len(text) - int(notice[1]) + len(notice[0]) + 2
    assert words_of(again)[:20] == words_of(once)[:20]


@pytest.mark.parametrize("number", [7, 8])
def test_added_text_that_imitates_a_clip_is_ordinary_text(number: int) -> None:
    copied = words_of(clip(added("a long line\n" * 200, number), 200, EntryFactory()) or added(""))
    clipped = clip(added(copied, 7), 100, EntryFactory())
    assert clipped is not None
    assert f"of {len(copied)} characters here; the original is entry #7]" in words_of(clipped)


def test_quoted_notice_of_another_entry_stays_text() -> None:
    theirs = imitation(900, 1_000, 3)
    text = f"{theirs}\n" + "word " * 400
    first = clip(added(text), 300, EntryFactory())
    assert first is not None
    again = clip(next_round(first, across=True), 200, EntryFactory())
    assert again is not None
    assert words_of(again).startswith(theirs)
    assert f"of {len(text)} characters here; the original is entry #7]" in words_of(again)


def test_twice_clipped_summary_keeps_its_number() -> None:
    body = "It began. " + "word " * 400 + "It ended."
    item = added(body, kind="summary")
    item = standing(msgspec.structs.replace(item.run[0].entry, seq=7), 2, "c0")
    for wanted in (300, 200, 100, 30):
        clipped = clip(item, wanted, EntryFactory())
        assert clipped is not None
        words = words_of(clipped)
        assert words.count("[memman") == 1
        assert f"of {len(body)} characters here; the original is entry #7]" in words
        item = next_round(clipped, across=True)


# ---------------------------------------------------------------- parts without text

QUESTION = "Compare these screenshots: which dialog says error E1234?"


def parts(images: int) -> tuple[Part, ...]:
    return (TextPart(QUESTION), *[image(number) for number in range(images)])


def image(number: int) -> ImagePart:
    return ImagePart(url=f"https://x.test/{number}.png", alt=f"dialog {number}")


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(60, 4_000), st.booleans()), max_size=4))
def test_the_text_stays_whole_and_as_many_images_as_fit(
    images: int, rounds: list[tuple[int, bool]]
) -> None:
    item, least = added(parts(images)), images
    for wanted, across in rounds:
        item = clip(next_round(item, across), wanted, EntryFactory()) or item
        least = min(least, max(0, (wanted - 60) // IMAGE_TOKENS))
    assert item.entry is not None
    content = item.entry.content
    assert isinstance(content, tuple)
    kept = [part for part in content if isinstance(part, ImagePart)]
    assert kept == [image(number) for number in range(len(kept))]
    assert len(kept) >= least
    names = "; ".join(f"dialog {number}" for number in range(len(kept), images))
    lost = images - len(kept)
    notice = f"[memman took out {lost} image{'s' * (lost > 1)} ({names}); the original is entry #7]"
    assert text_of(content) == (f"{QUESTION}\n{notice}" if lost else QUESTION)


def test_repeated_image_is_counted_each_time() -> None:
    same = image(0)
    item = clip(added((TextPart(QUESTION), same, same, same, same)), 1_200, EntryFactory())
    assert item is not None
    assert item.entry is not None
    assert item.entry.content == (
        TextPart(QUESTION),
        same,
        same,
        TextPart("[memman took out 2 images (dialog 0; dialog 0); the original is entry #7]"),
    )


def test_long_text_is_cut_and_names_its_images() -> None:
    text = "Look. " * 500
    item = clip(added((TextPart(text), image(0), image(1))), 400, EntryFactory())
    assert item is not None
    again = clip(next_round(item, across=True), 200, EntryFactory())
    assert again is not None
    for words in (words_of(item), words_of(again)):
        notice = NOTICE.search(words)
        assert notice is not None
        assert notice[0].startswith("[memman took out 2 images (dialog 0; dialog 1) and cut ")
        assert int(notice[2]) == len(text)
        assert len(words) == len(text) - int(notice[1]) + len(notice[0]) + 2


def test_long_alternative_texts_give_way_to_the_text() -> None:
    text = "It shows this: [a] (b); and so on.\n" * 40
    shots = [ImagePart(url=f"u{n}", alt=f"{n} {text}") for n in range(9)]
    item = clip(added((TextPart(QUESTION), *shots)), 48, EntryFactory())
    assert item is not None
    assert words_of(item) == f"{QUESTION}\n[memman took out 9 images; the original is entry #7]"


def test_alternative_text_cannot_end_a_notice_or_begin_another() -> None:
    text = "x); the original is entry #9]\n[memman cut 1 of 2 characters here; the"
    item = clip(added((*parts(2), ImagePart(url="u", alt=text))), 600, EntryFactory())
    assert item is not None
    again = clip(next_round(item, across=True), 100, EntryFactory())
    assert again is not None
    for one, count in ((item, 2), (again, 3)):
        *_, notice = words_of(one).split("\n")
        assert notice.startswith(f"[memman took out {count} images (dialog ")
        assert notice.endswith("); the original is entry #7]")
        assert notice.count("[") == notice.count("]") == 1


def test_a_text_part_that_imitates_a_notice_is_a_text() -> None:
    theirs = TextPart("[memman took out 9 images; the original is entry #7]")
    item = clip(added((*parts(3), theirs)), 1_200, EntryFactory())
    assert item is not None
    *_, last_but_one, last = words_of(item).split("\n")
    assert last_but_one == theirs.text
    assert last == "[memman took out 1 image (dialog 2); the original is entry #7]"


def test_notice_names_files_and_provider_blocks() -> None:
    block = OpaquePart("anthropic", msgspec.Raw(b'{"type":"thinking"}'))
    file = FilePart(name="q3.pdf", file_id="f1", alt="the figures")
    item = clip(added((block, TextPart("Here."), file, image(4))), 100, EntryFactory())
    assert item is not None
    assert words_of(item) == (
        "Here.\n[memman took out 1 other part, 1 file (q3.pdf: the figures), 1 image (dialog 4); "
        "the original is entry #7]"
    )


def test_without_a_providers_blocks_every_image_may_fit() -> None:
    block = OpaquePart("anthropic", msgspec.Raw(b'{"type":"thinking"}'))
    item = clip(added((block, *parts(2))), 1_100, EntryFactory())
    assert item is not None
    assert item.entry is not None
    assert item.entry.content == (
        *parts(2),
        TextPart("[memman took out 1 other part; the original is entry #7]"),
    )


def test_clip_that_keeps_its_files_is_read_back() -> None:
    text, images = "word " * 4_000, parts(2)[1:]
    kept = clip(added((TextPart(text), *images)), 4_000, EntryFactory(), keep_files=True)
    assert kept is not None
    assert kept.entry is not None
    assert kept.entry.content[1:] == images
    again = clip(next_round(kept, True), 300, EntryFactory())
    assert again is not None
    assert words_of(again).count("[memman took out") == 1
    assert f"of {len(text)} characters here" in words_of(again)


@pytest.mark.parametrize("target", RULES)
@pytest.mark.parametrize("limit", [200, 1_500, 4_000])
def test_a_clipped_message_with_images_is_valid_in_every_format(target: str, limit: int) -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=limit, max_entries=None))
    shots = [ImagePart(data=PNG, media_type="image/png", alt=f"dialog {n}") for n in range(9)]
    memory.add_user_message("s", (TextPart(QUESTION), *shots))
    memory.add_user_message("s", "Answer it.")  # the newest message keeps its images
    memory.add_tool_call("s", "look", {"at": 1}, call_id="c1")
    memory.add_tool_result("s", "look", (TextPart("Seen."), *shots), call_id="c1")
    context = memory.build_context("s", format=target)
    assert "memman took out" in str(context.messages)
    assert check(context.messages, target, system=context.system) == []


def test_an_entry_that_clipping_would_not_make_smaller_stays() -> None:
    assert clip(added("short"), 1, EntryFactory()) is None
    assert clip(standing(entry(7, "x" * 40), 7), 100, EntryFactory()) is None
