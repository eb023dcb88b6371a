"""The proof of exactness passes, and finds a backend that is off by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from memman_tiktoken import backends

from benchmarks import exactness
from tests.conftest import SHARED
from tests.examples import examples


@pytest.mark.package("quicktok")
def test_every_backend_is_exact_on_demo_and_seeded_strings(tmp_path: Path) -> None:
    texts = [*exactness.recorded(tmp_path), *exactness.fuzz(examples(400))]
    outcomes = exactness.compare(texts)
    assert [each.failure for each in outcomes] == [""] * 6
    assert [each.mismatches for each in outcomes] == [[]] * 6
    assert {each.texts for each in outcomes} == {len(texts)}


@pytest.mark.shared
def test_best_backend_is_exact_on_recorded_texts() -> None:
    texts = exactness.recorded(SHARED)[::3]
    assert len(texts) > 1_000
    outcomes = exactness.compare(texts, ("o200k_base",), ("tiktoken", ""))
    assert [(each.failure, each.mismatches) for each in outcomes] == [("", [])] * 2


def test_seeded_strings_are_the_same_each_time_and_are_hard() -> None:
    strings = list(exactness.fuzz(300))
    assert strings == list(exactness.fuzz(300))
    assert sum(not text.isascii() for text in strings) > 200
    assert any("\ud83d" in text for text in strings)
    assert any("<|endoftext|>" in text for text in strings)


def test_a_backend_that_is_off_by_one_at_one_mark_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def off_by_one(encoding: str) -> Any:
        right = backends._toktok(encoding)
        return lambda text: right(text) + ("\u20dd\u20dd" in text)

    monkeypatch.setattr(backends, "_found", {})
    monkeypatch.setitem(backends._MAKERS, "toktok", off_by_one)
    monkeypatch.setattr(exactness, "fuzz", lambda _number: iter(["k\u20dd\u20dd"]))
    assert exactness.main(["--quick", "--data", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "o200k_base, toktok: 6, not 5: 'k\u20dd\u20dd'" in printed


def test_a_backend_that_cannot_count_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_encoding: str) -> Any:
        raise ModuleNotFoundError("no", name="quicktok")

    monkeypatch.setattr(backends, "_found", {})
    monkeypatch.setitem(backends._MAKERS, "quicktok", missing)
    monkeypatch.setattr(exactness, "fuzz", lambda _number: iter(["text"]))
    assert exactness.main(["--data", str(tmp_path)]) == 1
    assert "quicktok is not installed" in capsys.readouterr().out
