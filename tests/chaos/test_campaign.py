"""A campaign continues after a broker that does not start again, and reports what was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.chaos import cli
from eos.chaos._campaign import Campaign, of_seeds, run_all
from eos.chaos._run import Result, ScheduleRun
from eos.chaos.cluster import target
from eos.chaos.planning import drawn
from eos.chaos.report.outcome import ScheduleOutcome
from eos.chaos.testing import ChaosCluster
from eos.chaos.workloads import OWN
from eos.errors import BrokerNotReady
from tests.chaos.broken_broker import BrokenBroker


@pytest.fixture
def used(monkeypatch) -> list[BrokenBroker]:
    """The broker of each run; the first run kills its own."""
    found: list[BrokenBroker] = []

    def go(self, result: Result) -> None:
        found.append(self._broker)
        if len(found) == 1:
            self._broker.kill()

    monkeypatch.setattr(target, "PulsarStandalone", BrokenBroker)
    monkeypatch.setattr(ScheduleRun, "_go", go)
    return found


def campaign(folder: Path) -> Campaign:
    return Campaign(OWN, list(of_seeds(range(1, 4), drawn(), 24)), folder, shrink=False)


def test_broker_that_does_not_start_again_fails_one_schedule(used, tmp_path):
    found: list[ScheduleOutcome] = []
    run_all(campaign(tmp_path), tell=lambda _: None, on_outcome=lambda one, _: found.append(one))
    failure = "ConfigurationError: The broker exited with code 1 during its start."
    assert found[0].failure.startswith(failure)
    assert found[0].failure.endswith(" / Address already in use")
    assert [one.failure for one in found[1:]] == ["", ""]
    (log,) = (tmp_path / "schedules").glob("*.broker.log")
    assert log.name == "seed-1.broker.log"
    assert log.read_text() == "No space left on device"
    assert used[0] is not used[1] is used[2]


def test_next_run_of_a_cluster_gets_a_new_broker(used, tmp_path):
    with ChaosCluster(tmp_path) as cluster:
        assert "exited with code 1" in cluster.run(seed=1).failure
        assert cluster.run(seed=2).is_good
        used[1].kill()  # as if a run was interrupted
        assert cluster.run(seed=3).is_good
    assert len({id(one) for one in used}) == 3


def test_campaign_that_breaks_off_reports_what_was_run(used, monkeypatch, tmp_path, capsys):
    real = BrokenBroker.start

    def start(self) -> BrokenBroker:
        if used:
            raise BrokerNotReady("The broker was not ready in time.")
        return real(self)

    monkeypatch.setattr(BrokenBroker, "start", start)
    with pytest.raises(BrokerNotReady, match="not ready in time"):
        cli._run_campaign(campaign(tmp_path), None, verbose=False)
    assert "exited with code 1" in (tmp_path / "report.json").read_text()
    assert 'errors="1"' in (tmp_path / "junit.xml").read_text()
    assert "<title>eos chaos: failed" in (tmp_path / "report.html").read_text()
    with pytest.raises(SystemExit):
        cli._conclude([ScheduleOutcome.read(tmp_path / "schedules" / "seed-1.json")], tmp_path)
    assert f"logs of seed-1: {tmp_path}/schedules/seed-1.*.log" in capsys.readouterr().out
