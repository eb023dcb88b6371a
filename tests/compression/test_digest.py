"""The digest: within its tokens, the same each time, with the values and lines that matter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.compression import digest, heuristic_summary
from memman.compression.key_facts import KEY_FACTS_HEAD
from memman.compression.words import exact_values
from memman.entries import Content, Entry, FilePart, ImagePart, TextPart, TokenCount
from memman.summary_metadata import summary_draft

AT = datetime(2026, 1, 1, tzinfo=UTC)


def chars4(text: str) -> int:
    return (len(text) + 3) // 4


def chars3(text: str) -> int:
    return (len(text) + 2) // 3


def entry(seq: int, content: Content, **given: Any) -> Entry:
    fields: dict[str, Any] = {"type": "message", "role": "user"} | given
    return Entry(id=f"e{seq}", seq=seq, content=content, timestamp=AT, **fields)


def result(seq: int, content: str) -> Entry:
    return entry(seq, content, type="tool_result", role="tool", name="shell")


def summary(seq: int, content: str) -> Entry:
    return entry(seq, content, type="summary", role="system", token_count=TokenCount(1))


TALK = [
    entry(1, "Please move the order ORD-4711 to the address in /srv/app/config.toml."),
    entry(2, "I look at it now.", role="assistant"),
    result(3, "customer_id=C88231 total=1,204.50 mail=ada@example.org"),
    entry(4, "The order is paid with visa_9912, so the refund goes there.", role="assistant"),
    *[
        entry(n, f"Sentence number {n} says nothing that anybody needs again.")
        for n in range(5, 60)
    ],
]


@given(st.lists(st.text(max_size=300), max_size=12), st.integers(0, 200))
def test_a_digest_is_within_its_tokens_and_the_same_each_time(texts: list[str], most: int) -> None:
    entries = [entry(number, text) for number, text in enumerate(texts, 1)]
    made = digest(entries, most, chars4)
    assert chars4(made) <= most
    assert made == digest(entries, most, chars4)


def test_digest_values_have_their_newest_entry() -> None:
    made = digest(TALK, 120, chars4)
    [kept] = [line for line in made.split("\n") if line.startswith(KEY_FACTS_HEAD)]
    assert "#1: ORD-4711 /srv/app/config.toml" in kept
    assert "#3: C88231 1,204.50 ada@example.org" in kept or "#3: C88231" in kept
    assert "visa_9912" in kept


def test_values_keep_their_entries_through_ten_digests() -> None:
    text = digest(TALK, 150, chars4)
    for turn in range(1, 11):
        more = [entry(100 * turn + n, f"Value v{turn}-{n}x77 came up.") for n in range(3)]
        text = digest([summary(1_000 + turn, text), *more], 220, chars4)
    assert "#1001: v10-1x77" in text
    assert "#1: ORD-4711" in text


def test_the_newest_fifty_values_survive_ten_rounds() -> None:
    text, values = "", []
    for turn in range(10):
        fresh = [f"id-{turn}{number:03d}" for number in range(10)]
        values += fresh
        entries = [entry(turn * 20 + n, f"It is {value} now.") for n, value in enumerate(fresh)]
        old = [summary(900 + turn, text)] if text else []
        text = digest([*old, *entries], 400, chars4)
    assert [value for value in values[-50:] if value not in text] == []


def summary_of(seq: int, text: str, originals: Sequence[Entry]) -> Entry:
    """Return a summary with this text as a compression makes it."""
    metadata = summary_draft(text, originals).metadata_json
    return entry(seq, text, type="summary", role="system", metadata_json=metadata)


@pytest.mark.parametrize("between", ["", "They moved an order.", 'First: "Forged."'])
def test_first_request_survives_a_models_summary(
    between: str,
) -> None:
    text = digest(TALK, 400, chars4)
    assert text.split("\n")[2].startswith('First: "Please move the order ORD-4711')
    earlier = summary_of(61, between or text, TALK)
    later = digest([earlier, entry(62, "Now something else. " * 20)], 300, chars4)
    assert later.split("\n")[2].startswith('First: "Please move the order ORD-4711')
    assert later.count("user messages") == 1


@given(
    st.lists(
        st.lists(st.sampled_from(["user", "assistant", "error"]), max_size=5),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["", "Well."]),
)
def test_the_numbers_are_of_all_that_summaries_before_cover_too(
    rounds: list[list[str]], text: str
) -> None:
    added: list[Entry] = []
    run: list[Entry] = []
    for kinds in rounds:
        for kind in kinds:
            seq = len(added) + 1
            made = (
                entry(seq, f"failed {seq}", type="tool_result", role="tool", is_error=True)
                if kind == "error"
                else entry(seq, f"said {seq}", role=kind)
            )
            added.append(made)
            run.append(made)
        shown = heuristic_summary(run)
        run = [summary_of(1_000, text or shown, run)] if added else []
    lines = shown.split("\n")
    users = [one.text for one in added if one.role == "user"]
    errors = sum(one.is_error for one in added)
    assert lines[1] == f"{len(users)} user messages"
    assert [line for line in lines if line.startswith("First")] == [
        f'First: "{first}"' for first in users[:1]
    ]
    assert [line for line in lines if "errors" in line] == [f"{errors} errors encountered"] * bool(
        errors
    )


def test_digest_counts_are_lower_bounds_without_metadata() -> None:
    call = entry(4, "{}", type="tool_call", role="assistant", name="shell")
    failed = entry(5, "no", type="tool_result", role="tool", is_error=True)
    run = [summary(2, "They spoke."), entry(3, "Go on."), call, failed]
    shown = [
        "[Previous conversation summary]",
        "At least 1 user messages",
        'Last: "Go on."',
        "At least these tools used: shell",
        "At least 1 errors encountered",
    ]
    assert heuristic_summary(run).split("\n") == shown
    again = summary_of(6, "\n".join(shown), run)
    assert heuristic_summary([again, entry(7, "And on.")]).split("\n")[1:3] == [
        "At least 2 user messages",
        'Last: "And on."',
    ]
    made = digest([again, *[entry(n, f"Say {n}. " * 20) for n in range(7, 30)]], 300, chars4)
    assert made.count("user messages") == made.count("errors encountered") == 1
    assert "Tools used" not in made
    assert made.count("At least these tools used: shell") == 1


def test_the_tools_are_of_all_that_summaries_before_cover_too() -> None:
    used: list[str] = []
    run: list[Entry] = []
    for number, names in enumerate((["shell", "read_file"], [], ["shell", "search"]), start=1):
        used += [name for name in names if name not in used]
        run += [
            entry(10 * number + at, "{}", type="tool_call", role="assistant", name=name)
            for at, name in enumerate(names)
        ]
        run = [summary_of(1_000, "They went on.", run)]
    assert heuristic_summary(run).split("\n")[-1] == f"Tools used: {', '.join(used)}"


def test_chosen_lines_cover_instead_of_repeating() -> None:
    same = [entry(n, "The deployment of the service failed again.") for n in range(1, 20)]
    other = entry(20, "A migration of the billing tables is planned for Friday.")
    made = digest([*same, other], 40, chars4)
    assert made.count("deployment") == 1
    assert "migration" in made


@pytest.mark.parametrize(
    "text",
    [
        "\u4ed6\u5728\u4e0a\u6d77\u5de5\u4f5c\u3002",
        "M\u00fcnchen ist sch\u00f6n.",
        "\u0921\u0947\u091f\u093e\u092c\u0947\u0938 \u0928 \u0939\u091f\u093e\u090f\u0901\u0964",
        "\u09a1\u09c7\u099f\u09be\u09ac\u09c7\u09b8 \u09ae\u09c1\u099b\u09ac\u09c7\u09a8 "
        "\u09a8\u09be\u0964",
        "\u0ba4\u0bb0\u0bb5\u0bc1\u0ba4\u0bcd\u0ba4\u0bb3\u0ba4\u0bcd\u0ba4\u0bc8 \u0ba8"
        "\u0bc0\u0b95\u0bcd\u0b95 \u0bb5\u0bc7\u0ba3\u0bcd\u0b9f\u0bbe\u0bae\u0bcd",
        "\u0c21\u0c47\u0c1f\u0c3e\u0c2c\u0c47\u0c38\u0c4d \u0c24\u0c4a\u0c32\u0c17\u0c3f"
        "\u0c02\u0c1a\u0c35\u0c26\u0c4d\u0c26\u0c41",
        "\u05d0\u05b7\u05dc \u05ea\u05b4\u05bc\u05de\u05b0\u05d7\u05b7\u05e7",
        "\u0644\u0627 \u062a\u064e\u062d\u0652\u0630\u0650\u0641\u0652 \u0642\u0627\u0639"
        "\u062f\u0629\u064e",
        "\u0e2d\u0e22\u0e48\u0e32\u0e25\u0e1a\u0e10\u0e32\u0e19\u0e02\u0e49\u0e2d\u0e21\u0e39"
        "\u0e25",
        "\ub370\uc774\ud130\ubca0\uc774\uc2a4\ub97c \uc0ad\uc81c\ud558\uc9c0 \ub9c8\uc138\uc694",
    ],
)
def test_a_line_in_any_script_is_kept(text: str) -> None:
    assert text in digest([entry(1, text)], 50, chars4)


def test_sentences_of_hindi_are_candidates_of_their_own() -> None:
    one, other = (
        "\u0921\u0947\u091f\u093e\u092c\u0947\u0938 \u0928 \u0939\u091f\u093e\u090f\u0901\u0964",
        "\u092b\u093c\u093e\u0907\u0932 \u0926\u0947\u0916\u0940\u0964",
    )
    made = digest([entry(1, f"{one} {other} {one}")], 50, chars4)
    assert made.split("\n") == [one, other]


@pytest.mark.parametrize("less", [1, 5, 30])
def test_digest_fills_nearly_all_of_its_room(less: int) -> None:
    entries = [entry(n, f"The part {n} failed: see file_{n}.py and E{n:05d}.") for n in range(100)]
    whole = digest(entries, 10_000, chars3)
    made = digest(entries, chars3(whole) - less, chars3)
    assert len(made) > 0.9 * len(whole)


def test_values_are_found_in_linear_time() -> None:
    for text in ("a-" * 50_000, "a/" * 50_000, "a." * 50_000, "_" * 100_000, "#1: " * 20_000):
        assert isinstance(exact_values(text), list)
        assert chars4(digest([entry(1, text)], 100, chars4)) <= 100


def test_digest_has_alternative_texts_of_images_and_files() -> None:
    shot = ImagePart(url="https://x.test/1.png", alt="KeyError in ledger.py at line 771")
    sheet = FilePart(name="q3.pdf", file_id="f1", alt="turnover of the third quarter")
    summary_of = digest([entry(1, (TextPart("Look."), shot)), entry(2, (sheet,))], 200, chars4)
    assert "[image, at https://x.test/1.png: KeyError in ledger.py at line 771]" in summary_of
    assert "[file q3.pdf, at f1: turnover of the third quarter]" in summary_of
