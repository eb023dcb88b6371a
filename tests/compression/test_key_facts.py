"""Key facts: exact values with their entries, kept from summary to summary."""

from __future__ import annotations

from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from memman.compression import key_facts
from memman.compression.key_facts import KEY_FACTS_HEAD, without_key_facts
from tests.compression.entries import entry, result, summary


def test_values_have_the_entry_of_their_last_appearance() -> None:
    entries = [
        entry(1, "ORD-4711, id_88, camelCase"),
        entry(2, "again ORD-4711"),
        result(3, "total=12.50"),
    ]
    assert key_facts(entries, 200) == f"{KEY_FACTS_HEAD}#1: id_88; #2: ORD-4711; #3: 12.50"


def test_values_of_earlier_key_facts_keep_their_entries() -> None:
    earlier = summary(9, f"They spoke.\n{KEY_FACTS_HEAD}#1: id_88; #2: ORD-4711")
    assert key_facts([earlier, entry(10, "Now C88231.")], 200) == (
        f"{KEY_FACTS_HEAD}#1: id_88; #2: ORD-4711; #10: C88231"
    )


def test_values_from_a_summarys_text_have_no_number() -> None:
    earlier = summary(64, f"The build on host-77 failed.\n{KEY_FACTS_HEAD}#2: OPS-4411")
    made = key_facts([earlier, entry(65, "Now C88231.")], 200)
    assert made == f"{KEY_FACTS_HEAD}#2: OPS-4411; #65: C88231; #?: host-77"
    again = key_facts([summary(80, f"Well.\n{made}"), entry(81, "Again OPS-4411.")], 200)
    assert again == f"{KEY_FACTS_HEAD}#65: C88231; #81: OPS-4411; #?: host-77"


def test_value_gets_a_number_once_an_entry_has_it() -> None:
    unplaced = summary(64, f"It was host-77.\n{KEY_FACTS_HEAD}#?: OPS-4411")
    earlier = summary(30, f"Well.\n{KEY_FACTS_HEAD}#2: host-77")
    made = key_facts([earlier, unplaced, entry(65, "Again OPS-4411.")], 200)
    assert made == f"{KEY_FACTS_HEAD}#2: host-77; #65: OPS-4411"


def test_values_with_an_entry_come_first() -> None:
    values = " ".join(f"id-{number:04d}" for number in range(20))
    earlier = summary(64, f"{values}\n{KEY_FACTS_HEAD}#2: OPS-4411")
    assert "#2: OPS-4411" in key_facts([earlier], len(KEY_FACTS_HEAD) + 32)


def test_values_right_above_are_not_repeated() -> None:
    entries = [entry(1, "Use port 7001 and ORD-4711."), entry(2, "Now C88231.")]
    made = key_facts(entries, 200, ["Never touch port 7001."])
    assert made == f"{KEY_FACTS_HEAD}#1: ORD-4711; #2: C88231"


_ROUNDS = st.lists(
    st.lists(st.sampled_from(["id-1", "id-22", "/srv/a.txt", "and so on"]), max_size=4),
    min_size=1,
    max_size=5,
)


@given(
    _ROUNDS, st.sampled_from(["", "Told: id-1 and id-22.", "See /srv/a.txt"]), st.integers(30, 90)
)
def test_numbers_are_those_of_entries_with_the_value(
    rounds: list[list[str]], words: str, most: int
) -> None:
    added: dict[int, str] = {}
    text, seq = "", 0
    for texts in rounds:
        run = [summary(seq, text)] if text else []
        for texts_of_round in texts:
            seq += 1
            added[seq] = texts_of_round
            run.append(entry(seq, texts_of_round))
        seq += 1  # the compression's record
        text = f"{words}\n{key_facts(run, most)}".strip()
        _, kept = without_key_facts(text)
        assert all(value in added.get(number, "") for value, number in kept if number is not None)


def test_frequent_values_precede_recent_ones() -> None:
    entries = [entry(n, "id-0001" if n % 2 else f"id-{n:04d}") for n in range(1, 20)]
    kept = key_facts(entries, len(KEY_FACTS_HEAD) + 32)
    assert "#19: id-0001" in kept
    assert "id-0018" in kept
    assert "id-0002" not in kept


@given(st.lists(st.text(max_size=200), max_size=8), st.integers(0, 300))
def test_key_facts_fit_their_room_in_one_line(texts: list[str], most: int) -> None:
    made = key_facts([entry(number, text) for number, text in enumerate(texts, 1)], most)
    assert len(made) <= most
    assert "\n" not in made
    assert without_key_facts(f"said\n{made}")[0] == ("said" if made else "said\n")


@given(st.lists(st.text("ab12 #:;[]=-_/.\n", max_size=60), max_size=8))
def test_no_value_breaks_out_of_the_key_facts(texts: list[str]) -> None:
    entries = [entry(number, text) for number, text in enumerate(texts, 1)]
    made = key_facts(entries, 10_000)
    _, kept = without_key_facts(f"x\n{made}")
    by_seq = {one.seq: one.text for one in entries}
    assert all(seq is not None and value in by_seq[seq] for value, seq in kept)
    assert "[" not in made


def test_only_the_last_line_of_a_summary_has_key_facts() -> None:
    text = f"He said:\n{KEY_FACTS_HEAD}#1: forged_1\nand more"
    assert without_key_facts(text) == (text, [])


def test_invalid_entry_number_is_ignored() -> None:
    forged = summary(9, f"x\n{KEY_FACTS_HEAD}#{'9' * 5_000}: forged_1; #2: ORD-4711")
    assert key_facts([forged], 200) == f"{KEY_FACTS_HEAD}#2: ORD-4711"


def test_text_read_is_bounded_by_the_room() -> None:
    def seconds(entries: int) -> float:
        entries_ = [result(n, f"line {n} of id-{n} " * 500) for n in range(entries)]
        began = process_time()
        key_facts(entries_, 300)
        return process_time() - began

    seconds(10)
    assert min(seconds(2_000) for _ in range(3)) < 20 * min(seconds(20) for _ in range(3)) + 0.005


def test_old_value_is_found_if_newer_entries_have_none() -> None:
    entries = [entry(1, "The order is ORD-4711."), *[entry(n, "Well, no.") for n in range(2, 500)]]
    assert key_facts(entries, 200) == f"{KEY_FACTS_HEAD}#1: ORD-4711"
