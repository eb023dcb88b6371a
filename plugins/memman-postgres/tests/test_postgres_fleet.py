"""A small fleet of workers that are killed; the long run is `python -m benchmarks.fleet`."""

from __future__ import annotations

import postgres_servers as servers
import pytest

from benchmarks import fleet

pytestmark = pytest.mark.service


def test_fleet_of_killed_workers_loses_nothing() -> None:
    outcome = fleet.measure(servers.server_url(), fleet.QUICK)
    assert outcome.failed == []
    assert outcome.kills >= fleet.QUICK.workers
    assert outcome.findings.acknowledged > 50
    assert outcome.findings.faults == 0
