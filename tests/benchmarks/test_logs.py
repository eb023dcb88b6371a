"""`benchmarks.logs` measures the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import logs


def test_each_step_is_measured_in_a_process_of_its_own() -> None:
    megabytes, steps = logs.measure(200, "words")
    assert megabytes > 0
    assert set(steps) == {"detect", "import"}
    assert all(step.cpu > 0 for step in steps.values())


def test_failed_import_is_not_a_measurement(tmp_path: Path) -> None:
    bad = tmp_path / "log.jsonl"
    bad.write_text(json.dumps({"role": "user", "content": "x"}) + "\n{\n")
    with pytest.raises(RuntimeError, match="line 2"):
        logs._command(str(bad), "-o", str(tmp_path / "s.json"))
