"""The comparison with peers lists each one that it skips."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.peers import durable
from benchmarks.peers.__main__ import ASKING, PEERS, installed
from benchmarks.shapes import Open
from benchmarks.subjects import Reference
from benchmarks.workload import items

ROOT = Path(__file__).resolve().parents[2]


def test_missing_peer_is_named_with_the_reason(
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
    packages = {package for package, _, _ in (*PEERS, *ASKING, *durable.PEERS)} | {"sumy"}
    packages |= {"aiosqlite"}  # the storage of llama-index-core's memory
    assert packages == set(groups["bench-peers"])
    assert not packages & {*groups["dev"], *project["project"]["dependencies"]}


def test_durable_appends_are_measured_and_found_by_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = durable.measure(durable.OURS, items(40), cap=10.0)
    assert [(row[0], row[1], row[-1]) for row in rows] == [(name, 40, 40) for name in durable.OURS]
    capped = durable.measure(durable.OURS, items(40), cap=0.0)
    assert [row[1] for row in capped] == [10, 10]
