"""SIGKILL after each of the ten steps, in a real process; after a restart log and topic agree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from eos import failpoints
from eos.commit_log import CommitLog
from eos.errors import ConfigurationError
from eos.steps import PLACES, ArchiveStep, EndingStep, LogStep, Step, TaskStep
from tests.support.judge import drain
from tests.support.plain_driver import rows_of
from tests.support.processes import driver

EPOCHS = 3


def test_only_armed_failpoints_act(monkeypatch):
    failpoints.reached(Step.OPEN)
    reached = []
    with failpoints.armed(Step.OPEN, lambda: reached.append("open")):
        failpoints.reached(Step.OPEN)
        failpoints.reached(Step.END)
    failpoints.reached(Step.OPEN)
    assert reached == ["open"]


@pytest.mark.parametrize("text", ["nowhere=kill", "open=explode", "open=kill@x"])
def test_a_wrong_setting_is_refused_with_the_list_of_steps(text):
    with pytest.raises(ConfigurationError, match=r"claim, .*task-answer.*ending-mark.*log-append"):
        failpoints._arm_from_environment(text)


@pytest.mark.parametrize("step", list(Step), ids=lambda step: step.name.lower())
def test_a_driver_killed_after_any_step_is_replaced_exactly_once(
    pulsar_standalone, client, tmp_path, name, step
):
    topic = f"persistent://public/default/{name}"
    client.entry_producer(topic, create=True).close()
    args = (pulsar_standalone.service_url, str(tmp_path / "log"), name, topic, str(EPOCHS))
    # A driver claims once; all other steps are killed in the second epoch.
    setting = f"{step.name.lower()}=kill@{1 if step is Step.CLAIM else 2}"
    with driver("tests.support.plain_driver", *args, env={"EOS_FAILPOINTS": setting}) as killed:
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL
    for _ in range(2):  # the second restart has nothing to do
        with driver("tests.support.plain_driver", *args) as restarted:
            out, err = restarted.communicate(timeout=60)
            assert restarted.returncode == 0, err
    assert out.split() == [word for n in range(EPOCHS) for word in (str(n), "skipped")]
    records = CommitLog.open_read_only(tmp_path / "log", name).records()
    committed = [record.epoch for record in records if record.state == "COMMITTED"]
    assert committed == ["0", "1", "2"]
    seen = [m.value for m in drain(pulsar_standalone.service_url, topic)]
    assert seen == rows_of("0") + rows_of("1") + rows_of("2")


def test_only_the_first_process_acts_and_leaves_a_file(tmp_path):
    code = "from eos import failpoints; from eos.steps import TaskStep\n"
    code += "failpoints.reached(TaskStep.SEND); print('went on')"
    env = {"EOS_FAILPOINTS": "task-send=error", "EOS_FAILPOINTS_FIRED": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(2)
    ]
    assert "ConnectionError: failpoint task-send" in runs[0].stderr
    assert runs[1].stdout == "went on\n"
    assert int((tmp_path / "task-send").read_text()) > 1


def test_step_names_are_unique():
    kinds = (Step, TaskStep, EndingStep, LogStep, ArchiveStep)
    assert len(PLACES) == sum(map(len, kinds))


def test_without_the_environment_no_failpoint_is_armed():
    code = "from eos import failpoints; raise SystemExit(len(failpoints._actions))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
