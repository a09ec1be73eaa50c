"""The writer when tasks, executors and stages run twice: the query ends, its restart continues."""

from __future__ import annotations

import json
import uuid

import pytest

from eos.commit_log import CommitLog
from tests.sinks.rerun_driver import ROWS
from tests.support.judge import drain
from tests.support.processes import driver

# Four scenarios in one driver, each with executors that die.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(420)]

TAG = uuid.uuid4().hex[:8]
SCENARIOS = [f"{what}-writer-{TAG}" for what in ("fetch", "task", "executor", "batch")]


@pytest.fixture(scope="module")
def runs(pulsar_standalone, tmp_path_factory):
    """Run all scenarios in one driver; return the folder with their logs, and each output."""
    folder = tmp_path_factory.mktemp("writer")
    urls = (pulsar_standalone.service_url, pulsar_standalone.admin_url)
    with driver("tests.sinks.writer_driver", *urls, str(folder), *SCENARIOS) as process:
        out, err = process.communicate(timeout=390)
    assert process.returncode == 0, err[-3000:]
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return folder, lines


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.split("-")[0])
def test_a_rerun_task_ends_the_query_and_the_restart_writes_the_epoch_once(
    runs, pulsar_standalone, scenario
):
    folder, lines = runs
    first, *others = [line["error"] for line in lines if line["scenario"] == scenario]
    assert "another run of the task has answered" in first
    again = "run the job again" if scenario.startswith("batch") else "Restart the query"
    assert again in first
    assert others == [""]
    records = [r for r in CommitLog.open_read_only(folder / "log", scenario).records() if r.epoch]
    states = [record.state.value for record in records]
    assert states == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert str(records[2].reason).startswith("POISONED: ")
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{scenario}")
    assert sorted(int(m.value[:8]) for m in seen) == list(range(ROWS))
