"""The side-by-side run: what is not installed is skipped aloud."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import ASKING, PEERS, installed
from benchmarks.shapes import Open
from benchmarks.subjects import Reference

ROOT = Path(__file__).resolve().parents[2]


def test_a_peer_that_is_missing_is_named_with_the_reason_and_the_others_with_their_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing() -> Open:
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    found = installed((("nowhere", "its memory", missing), ("msgspec", "here", lambda: Reference)))
    assert found == {f"msgspec {version('msgspec')}, here": Reference}
    assert capsys.readouterr().err == "skipped: nowhere, its memory: No module named 'nowhere'\n"


def test_peers_are_in_a_group_of_their_own_and_nowhere_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    packages = {package for package, _, _ in (*PEERS, *ASKING)} | {"sumy"}
    assert packages == set(groups["bench-peers"])
    assert not packages & {*groups["dev"], *project["project"]["dependencies"]}
