"""The data of a report agrees with the fold and with the comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memman_cli.explain import compare
from memman_cli.report.data import Report, ShownEntry, report_of
from memman_cli.report.steps import splices
from report_sessions import SESSION, eventful

from memman import MemoryManager, SessionNotFound
from memman.archive.document import records_of
from memman.entries import FilePart, ImagePart
from memman.explain.history import LogHistory
from memman.log import History


@pytest.fixture(scope="module")
def memory() -> MemoryManager:
    return eventful()


@pytest.fixture(scope="module")
def log(memory: MemoryManager) -> LogHistory:
    return LogHistory(list(enumerate(records_of(memory.export_session(SESSION)), 1)))


@pytest.fixture(scope="module")
def report(memory: MemoryManager) -> Report:
    return report_of(memory, SESSION)


def windows(report: Report) -> Iterator[list[ShownEntry]]:
    """Return the window after each record, from splices as on the page."""
    added = {entry.seq: number for number, entry in enumerate(report.entries) if entry.step is None}
    steps = {step.seq: step for step in report.steps}
    items: list[int] = []
    for seq in range(1, report.head + 1):
        if seq in added:
            items.append(added[seq])
        else:
            for at, gone, come in reversed(steps[seq].splices):
                items[at : at + gone] = come
        yield [report.entries[number] for number in items]


def test_window_of_every_moment_equals_the_fold(report: Report, log: LogHistory) -> None:
    history = History()
    for (seq, record), window in zip(log.records, windows(report), strict=True):
        history.apply(seq, record)
        items = history.items
        assert [entry.id for entry in window] == [item.entry.id for item in items]
        assert sum(entry.tokens for entry in window) == sum(item.tokens for item in items)


def test_session_has_every_kind_of_step(report: Report) -> None:
    kinds = {step.kind for step in report.steps}
    assert kinds == {
        "opened", "compressed", "retracted", "undone", "pinned", "deleted", "cleared", "configured",
        "described", "usage",
    }  # fmt: skip
    states = {step.state for step in report.steps if step.kind == "compressed"}
    assert states >= {"in force", "undone"}


def test_step_has_the_figures_after_it(report: Report) -> None:
    after = dict(enumerate(windows(report), 1))
    for step in report.steps:
        block = report.blocks[step.block[0]].tokens if step.block else 0
        assert step.active == sum(entry.tokens for entry in after[step.seq]) + block
        assert step.entries == len(after[step.seq])


def test_outline_of_each_step_equals_the_fold(report: Report, log: LogHistory) -> None:
    history = History()
    steps = {step.seq: step for step in report.steps}
    for seq, record in log.records:
        history.apply(seq, record)
        block = history.state.window.state
        if seq not in steps:
            continue
        shown = steps[seq].block
        if block is None or not block.state.text:
            assert shown is None
            continue
        assert shown is not None
        assert report.blocks[shown[0]].text == block.state.text
        kinds = [item.entry.type for item in history.items[: shown[1]]]
        assert set(kinds) <= {"summary", "message"}
    assert len({block.text for block in report.blocks}) > 2


def test_retraction_is_a_step_of_its_own(report: Report) -> None:
    first, second = [step for step in report.steps if step.kind == "retracted"]
    assert (first.state, first.reason) == ("undone", "retracted: by mistake")
    assert second.state == "cleared"
    assert first.touches == second.touches
    [undone] = [step for step in report.steps if step.undoes == report.steps.index(first)]
    assert undone.kind == "undone"
    texts = [entry.text for entry in report.entries if entry.id == "edited"]
    assert texts == ["And where is my own order?", "And where is the order of my sister?"]


def judged(report: Report, place: int) -> list[dict[str, str]]:
    """Return the values of each replacement of a step and their places, as the page reads them."""
    found = []
    for item in report.steps[place].replacements:
        numbers = [n for first, last in item.originals for n in range(first, last + 1)]
        where = {value: "lost" for n in numbers for value in report.entries[n].values}
        where |= {value: kept for kept, values in item.kept.items() for value in values}
        found.append({report.values[value]: kept for value, kept in where.items()})
    return found


def test_kept_values_equal_those_of_compare(report: Report, log: LogHistory) -> None:
    number = 0
    for place, step in enumerate(report.steps):
        if step.kind != "compressed":
            continue
        number += 1
        compared = compare(log, step.id)
        found = [
            {each.value: each.kept or "lost" for each in item.values}
            for item in compared.replacements
        ]
        assert judged(report, place) == found
        assert (step.value_count, step.values_kept) == (compared.values, compared.values_kept)
    retractions = sum(step.kind == "retracted" for step in report.steps)
    assert number + retractions == len(log.compressions) > 3


def test_originals_equal_those_of_compare(report: Report, log: LogHistory) -> None:
    for step in report.steps:
        if step.kind != "compressed":
            continue
        for item, compared in zip(
            step.replacements, compare(log, step.id).replacements, strict=True
        ):
            numbers = [n for first, last in item.originals for n in range(first, last + 1)]
            ids = [entry.id for entry in compared.originals]
            assert [report.entries[n].id for n in numbers] == ids
            assert (item.before, item.after) == (compared.tokens_before, compared.tokens_after)


def test_report_has_every_original_word_for_word(report: Report, memory: MemoryManager) -> None:
    shown = {entry.id: entry for entry in report.entries}
    for entry in memory.get_entries(SESSION):
        assert shown[entry.id].text == entry.text
        assert shown[entry.id].tokens == entry.token_count.tokens


def test_deleted_entry_is_marked_without_its_text(report: Report) -> None:
    [gone] = [entry for entry in report.entries if entry.deleted]
    assert gone.text == ""


def test_unknown_session_is_refused(memory: MemoryManager) -> None:
    with pytest.raises(SessionNotFound):
        report_of(memory, "nobody")


def test_images_and_files_show_only_type_and_size() -> None:
    memory = MemoryManager()
    memory.add_user_message(
        "s",
        (
            ImagePart(url="data:image/png;base64," + "AAAA" * 100),
            ImagePart(data="AAAA" * 10, media_type="image/jpeg", alt="a cat"),
            FilePart(url="https://files.example/a.pdf", name="a.pdf"),
        ),
    )
    [entry] = report_of(memory, "s").entries
    found = [(part.kind, part.media_type, part.size, part.link) for part in entry.parts]
    assert found == [
        ("image", "image/png", 300, None),
        ("image", "image/jpeg", 30, None),
        ("file", None, None, "https://files.example/a.pdf"),
    ]


LISTS = st.lists(st.integers(0, 30), unique=True).map(sorted)


@given(before=LISTS, after=LISTS)
def test_splices_turn_one_list_into_the_other(before: list[int], after: list[int]) -> None:
    made = list(before)
    for at, gone, come in reversed(splices(before, after)):
        made[at : at + gone] = come
    assert made == after
