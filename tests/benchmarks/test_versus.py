"""The comparison of two checkouts."""

from pathlib import Path

import pytest

from benchmarks import versus

HERE = Path(__file__).resolve().parents[2]


def test_checkout_is_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert versus.main([str(HERE), "--adds", "5", "--rounds", "1"]) == 0
    assert "add + context" in capsys.readouterr().out


def test_folder_without_memman_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no memman package"):
        versus.Checkout(tmp_path)
