"""Tasks, executors and stages that run twice, on real executors: no duplicate rows."""

from __future__ import annotations

import json
import uuid

import pytest

from eos.commit_log import CommitLog
from tests.support.judge import drain
from tests.support.processes import driver

# Four scenarios in one driver, each with executors that die.
pytestmark = pytest.mark.timeout(320)

TAG = uuid.uuid4().hex[:8]
REASONS = {
    # First, while both executors have a part of the shuffle. No attempt number shows this one:
    # only the stage's own counter does.
    f"fetch-{TAG}": "another run of the task has answered",
    f"task-{TAG}": "another run of the task has answered",
    f"executor-{TAG}": "another run of the task has answered",
}
ERROR = f"error-{TAG}"


@pytest.fixture(scope="module")
def folder(pulsar_standalone, tmp_path_factory):
    """Run all scenarios in one driver; return the folder with their commit logs."""
    folder = tmp_path_factory.mktemp("reruns")
    urls = (pulsar_standalone.service_url, pulsar_standalone.admin_url)
    with driver("tests.sinks.rerun_driver", *urls, str(folder), *REASONS, ERROR) as process:
        out, err = process.communicate(timeout=290)
    assert process.returncode == 0, err[-3000:]
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [line["scenario"] for line in lines] == [*REASONS, ERROR]
    *written, raised = lines
    assert {(line["status"], line["records"]) for line in written} == {("written", 160_000)}
    assert raised["status"] == "raised"
    assert "order 7 has no customer" in raised["error"]
    return folder


@pytest.mark.parametrize("scenario", REASONS, ids=lambda s: s.split("-")[0])
def test_a_rerun_task_is_aborted_and_its_epoch_written_once(folder, pulsar_standalone, scenario):
    records = [r for r in CommitLog.open_read_only(folder / "log", scenario).records() if r.epoch]
    states = [record.state.value for record in records]
    assert states == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert str(records[2].reason).startswith("POISONED: ")
    assert REASONS[scenario] in str(records[2].reason)
    topic = f"persistent://public/default/{scenario}"
    seen = drain(pulsar_standalone.service_url, topic)
    assert sorted(int(m.value[:8]) for m in seen) == list(range(160_000))


def test_an_error_of_the_users_code_ends_the_job_and_is_not_in_the_log(folder):
    """Its later runs may not write, and fail with the error of the first one."""
    records = [r for r in CommitLog.open_read_only(folder / "log", ERROR).records() if r.epoch]
    assert [record.state.value for record in records] == ["OPEN", "ABORTING", "ABORTED"]
    reason = str(records[-1].reason)
    assert reason.startswith("FAILED: ")
    assert "order 7" not in reason
