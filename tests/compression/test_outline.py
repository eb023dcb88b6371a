"""The lines of an outline: sentences, calls, outcomes, and their order of worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.compression.outline import Cover, call_line, outcome_of, sentences_of
from memman.compression.state_items import ENDING, PASTED, SAID, SHORT, Found
from memman.compression.words import words_of
from memman.entries import Entry, TokenCount
from tests.compression.entries import entry, result


def cover(items: Sequence[Found]) -> Cover:
    """Return the cover of lines by their words."""
    return Cover(items, [words_of(item.text) for item in items])


def call(name: str | None = "tool", **arguments: Any) -> Entry:
    """Return a call with these arguments."""
    return entry(1, json.dumps(arguments), type="tool_call", role="assistant", name=name)


def said(seq: int, text: str, score: float = SAID, section: str = "said", part: int = 1) -> Found:
    """Return a line of an outline."""
    return Found(section, "", text, (f"e{seq}",), seq, score, part)


# ---------------------------------------------------------------- sentences


def test_sentences_have_their_numbers() -> None:
    text = "I read the file. Ok. It has two nasty bugs!\nShall I fix both bugs?"
    assert list(sentences_of(text)) == [
        (1, "I read the file."),
        (3, "It has two nasty bugs!"),
        (4, "Shall I fix both bugs?"),
    ]


def test_code_blocks_are_no_sentences() -> None:
    text = (
        "The loop has two parts:\n```python\nprint('a long line of code')\n```\nIt prints one line."
    )
    told = ["The loop has two parts:", "It prints one line."]
    assert [line for _, line in sentences_of(text)] == told


def test_open_code_block_ends_with_the_text() -> None:
    told = [
        line for _, line in sentences_of("The code is short.\n~~~\nalpha = beta\ngamma = delta")
    ]
    assert told == ["The code is short."]


@pytest.mark.parametrize("mark", ["- ", "* ", "1. ", "12) ", "> ", "### ", "\u2022 ", "  - "])
def test_marks_of_lists_and_headings_are_left_out(mark: str) -> None:
    assert [line for _, line in sentences_of(f"{mark}**The parser** is fixed")] == [
        "The parser is fixed"
    ]


def test_one_word_is_no_sentence() -> None:
    assert list(sentences_of("Done.\n\n---\n\nNow the tests run.")) == [(3, "Now the tests run.")]


def test_a_long_sentence_is_cut() -> None:
    [(_, line)] = sentences_of("some orders and invoices " * 500)
    assert len(line) <= 500


def test_chinese_sentences_end_without_a_blank() -> None:
    assert [line for _, line in sentences_of("数据库已备份。测试全部通过。")] == [
        "数据库已备份。",
        "测试全部通过。",
    ]


@given(st.text())
def test_sentences_are_single_lines(text: str) -> None:
    numbers = []
    for number, line in sentences_of(text):
        numbers.append(number)
        assert len(line.splitlines()) == 1
        assert line == line.strip()
    assert numbers == sorted(set(numbers))


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "tool"),
        ({"command": "go test ./..."}, "tool go test ./..."),
        ({"timeout": "9", "command": "ls"}, "tool ls"),
        ({"old": "a", "file_path": "src/app/main.py"}, "tool main.py"),
        ({"path": "src/app/"}, "tool src/app/"),
        ({"note": "first", "other": "second"}, "tool first"),
        ({"count": 7, "on": True, "text": " "}, "tool"),
        ({"command": "one\ntwo"}, "tool one two"),
    ],
)
def test_call_is_its_tool_and_main_argument(arguments: dict[str, Any], expected: str) -> None:
    assert call_line(call(**arguments)) == expected


def test_call_without_a_name_or_an_object_is_a_tool() -> None:
    assert call_line(call(None)) == "tool"
    broken = entry(1, "[not json", type="tool_call", role="assistant", name="sh")
    assert call_line(broken) == "sh"


@given(st.text(), st.text(min_size=1))
def test_call_is_one_short_line(argument: str, name: str) -> None:
    line = call_line(call(name, command=argument))
    assert len(line.splitlines()) <= 1
    assert len(line) <= 40 + 1 + 90


# ---------------------------------------------------------------- outcomes


def sized(text: str, tokens: int = 1_234, **given: Any) -> str:
    """Return the outcome of a result with so many tokens."""
    return outcome_of(result(7, text, token_count=TokenCount(tokens), **given))


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("", 10, "no output"),
        (" \n", 1_234, "no output"),
        ("3 passed", 10, "3 passed (#7)"),
        ("compiled\nbuild failed\n", 10, "build failed (#7)"),
        (
            "compiled\n===== 1 failed, 3 passed in 0.12s =====",
            10,
            "1 failed, 3 passed in 0.12s (#7)",
        ),
        ("a\nx = [1];", 10, "(#7)"),
        ("a\nIt was sent.", 1_234, "(#7, 1,234 tokens)"),
    ],
)
def test_outcome_is_the_last_line_or_the_size(text: str, tokens: int, expected: str) -> None:
    assert sized(text, tokens) == expected


def test_failed_result_shows_its_last_line_whatever_its_size() -> None:
    text = "Traceback (most recent call last):\n  File x\nKeyError: 'a'\nException: gone"
    assert sized(text, is_error=True) == "Exception: gone (#7, 1,234 tokens)"
    assert sized("permission denied", 5, is_error=True) == "permission denied (#7)"


@given(st.text(), st.booleans(), st.integers(0, 10_000))
def test_outcome_is_one_short_line(text: str, failed: bool, tokens: int) -> None:
    line = sized(text, tokens, is_error=failed)
    assert len(line.splitlines()) == 1
    assert len(line) <= 100 + len(" (#7, 10,000 tokens)")


# ---------------------------------------------------------------- the order


def test_lines_with_new_words_come_first() -> None:
    lines = [
        said(1, "the parser reads one file"),
        said(2, "the parser reads one file"),
        said(3, "invoices are sent at night"),
    ]
    order = list(cover(lines).order(()))
    assert {id(each) for each in order} == {id(lines[1]), id(lines[2])}


def test_taken_lines_are_not_yielded_again() -> None:
    lines = [said(1, "the parser reads one file"), said(2, "invoices are sent at night")]
    assert list(cover(lines).order(lines[:1])) == lines[1:]
    assert list(cover(lines).order(lines)) == []


def test_said_and_typed_lines_outrank_calls_and_programs_texts() -> None:
    lines = [
        said(1, "alpha beta gamma", 1.0, "did"),
        said(1, "delta epsilon zeta", PASTED, "user"),
        said(1, "eta theta iotax", SAID),
        said(1, "kappa lambda omi", SHORT, "user"),
    ]
    assert {id(each) for each in list(cover(lines).order(()))[:2]} == set(map(id, lines[2:]))


def test_newer_lines_outrank_older_ones() -> None:
    lines = [said(1, "alpha beta gamma"), said(50, "delta epsilon zetaa")]
    assert next(cover(lines).order(())) is lines[1]


def test_endings_are_the_first_and_last_sentences_of_turns() -> None:
    lines = [
        said(1, "The parser reads invoices again.", ENDING, part=1),
        said(1, "Its forty tests pass.", ENDING, part=3),
        said(2, "I look at the file.", SAID),
        said(3, "Done now.", ENDING, part=1),  # too few words
        said(3, "The gateway sends invoices twice.", ENDING, part=2),
        said(4, "Show invoices, orders and tables.", ENDING, "user"),
    ]
    assert cover(lines).endings() == [lines[4], lines[0], lines[4], lines[1]]


@given(st.lists(st.text("abc de", min_size=1, max_size=30), max_size=12), st.randoms())
def test_order_has_each_word_and_no_line_twice(texts: list[str], random: Any) -> None:
    lines = [said(seq, text) for seq, text in enumerate(texts, 1)]
    taken = [each for each in lines if random.random() < 0.3]
    order = list(cover(lines).order(taken))
    assert len({id(each) for each in order}) == len(order)
    assert not {id(each) for each in order} & {id(each) for each in taken}
    assert order == list(cover(lines).order(taken))


def test_no_lines_have_no_order() -> None:
    assert list(cover(()).order(())) == []
    assert cover(()).endings() == []
