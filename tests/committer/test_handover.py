"""A successor takes over a sink while the old driver only sleeps: each append has one winner."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from eos import failpoints
from eos.chaos.cluster.proxy import FaultProxy, FrameAction
from eos.commit_log import CommitLog
from eos.errors import CommitLogError, EosError, Fenced
from eos.participant import Attempt
from eos.pulsar.part import pulsar_part
from eos.pulsar.witness import Witness
from eos.steps import Step
from eos.wire import commands
from tests.support import processes
from tests.support.judge import drain
from tests.support.plain_driver import rows_of

EPOCHS = 3


def values(broker, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(broker.service_url, topic)]


def await_sleep(pid: int) -> None:
    """Wait until the process has stopped itself."""
    deadline = time.monotonic() + 60
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("step", list(Step), ids=lambda step: step.name.lower())
def test_a_driver_that_sleeps_after_any_step_is_fenced_when_it_wakes_up(
    pulsar_standalone, make_driver, topic, tmp_path, name, step
):
    args = (pulsar_standalone.service_url, str(tmp_path / "log"), name, topic, str(EPOCHS))
    setting = f"{step.name.lower()}=stop@{1 if step is Step.CLAIM else 2}"
    with processes.driver(
        "tests.support.plain_driver", *args, env={"EOS_FAILPOINTS": setting}
    ) as sleeper:
        await_sleep(sleeper.pid)
        successor = make_driver()
        for epoch in range(EPOCHS):
            successor.run(str(epoch))
        before = successor.records()
        os.kill(sleeper.pid, signal.SIGCONT)
        _, err = sleeper.communicate(timeout=120)
    assert sleeper.returncode == 1
    assert "eos.errors.Fenced" in err
    after = successor.records()
    assert after == before
    committed = [record.epoch for record in after if record.state == "COMMITTED"]
    assert committed == [str(epoch) for epoch in range(EPOCHS)]
    successor.run(str(EPOCHS))  # the claim is still the successor's
    everything = [row for epoch in range(EPOCHS + 1) for row in rows_of(str(epoch))]
    assert values(pulsar_standalone, topic) == everything


@pytest.mark.parametrize("action", ["commit", "abort"])
def test_an_end_txn_that_is_still_in_flight_changes_nothing(
    pulsar_standalone, make_driver, topic, action
):
    """The old driver sends it, the successor decides and continues, and only then it arrives."""
    with FaultProxy(pulsar_standalone.service_url) as proxy:
        old = make_driver(service_url=proxy.service_url, timeout_s=60.0, deadline_s=90.0)
        old.committer.claim()
        after: list[object] = []

        def hand_over(_: commands.EndTxn) -> FrameAction:
            if not after:
                successor = make_driver()
                successor.run("0")
                successor.run("1")
                after.extend(successor.records())
            return FrameAction.PASS

        def fail(_) -> None:
            raise ValueError("the job failed")

        if action == "abort":
            old.during_write = fail
        with proxy.fault(commands.EndTxn, hand_over), pytest.raises(Fenced):
            old.run("0")
    assert after
    assert old.records() == after
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1")


def put_copy_back(folder: Path) -> None:
    """Replace ``log`` by the older ``copy``."""
    shutil.rmtree(folder / "log")
    shutil.move(folder / "copy", folder / "log")


@pytest.mark.parametrize("left", [1, 2], ids=["one epoch behind", "two epochs behind"])
def test_a_new_driver_refuses_a_log_replaced_by_an_older_copy(
    pulsar_standalone, make_driver, topic, tmp_path, left
):
    first = make_driver()
    first.run("0")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    for epoch in range(1, left + 1):
        first.run(str(epoch))
    first.close()
    put_copy_back(tmp_path)
    for _ in range(2):
        with pytest.raises(CommitLogError, match="rolled back") as caught:
            make_driver().run("1")
        assert "epoch 1, transaction" in str(caught.value)
    written = [row for epoch in range(left + 1) for row in rows_of(str(epoch))]
    assert values(pulsar_standalone, topic) == written


def test_a_new_driver_refuses_a_copy_of_the_log_from_the_middle_of_a_committed_epoch(
    pulsar_standalone, make_driver, topic, tmp_path
):
    first = make_driver()
    first.run("0")
    with failpoints.armed(Step.OPEN, lambda: shutil.copytree(tmp_path / "log", tmp_path / "copy")):
        first.run("1")
    first.close()
    put_copy_back(tmp_path)
    for _ in range(2):
        with pytest.raises(CommitLogError, match="rolled back") as caught:
            make_driver().run("1")
        assert "epoch 1, transaction" in str(caught.value)
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1")


def test_an_older_copy_of_the_log_is_noticed_after_its_last_mark_was_trimmed(
    pulsar_standalone, make_driver, tmp_path, monkeypatch
):
    first = make_driver()
    first.run("0")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    first.run("1")
    later = {pulsar_part(one).mark_uuid for one in first.records()}
    first.close()
    put_copy_back(tmp_path)
    read_from = Witness._read_from

    def behind_the_mark(self, part):  # a reader begins at the first entry that is left (measured)
        place = part.mark_id._replace(entry=part.mark_id.entry + 1)
        return read_from(self, replace(part, mark_id=place))

    monkeypatch.setattr(Witness, "_read_from", behind_the_mark)
    newer = make_driver()
    with pytest.raises(CommitLogError, match="rolled back"):
        newer.run("1")
    # Its own commits, of before it was in another cluster, are none.
    (old,) = (pulsar_part(one) for one in newer.records() if one.state == "PREPARED")
    ask = partial(newer.participant._witness.commits_after, old, timeout_s=20)
    assert ask(later) is None
    assert "epoch 1, transaction" in ask({old.mark_uuid})


def test_marks_and_aborted_receipts_after_the_logs_end_do_not_count_as_a_rollback(
    pulsar_standalone, make_driver, topic
):
    first = make_driver()
    first.run("0")
    first.participant.begin(
        Attempt("q", "0", 1, None, has_expired=False)
    )  # a driver that died before it could append OPEN
    poisoned = [True]

    def fail_once() -> None:
        if poisoned.pop():
            raise ValueError("the job failed behind its receipt")

    with failpoints.armed(Step.RECEIPT, fail_once), pytest.raises(ValueError, match="behind"):
        first.run("1")
    second = make_driver()
    second.run("1")
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1")


def test_a_sink_that_changes_between_drivers_is_written_by_one_at_a_time(
    pulsar_standalone, make_driver, topic, tmp_path, name
):
    drivers = [make_driver(), make_driver()]
    for epoch in range(4):
        with contextlib.suppress(EosError):
            drivers[epoch % 2].run(str(epoch))
        drivers[epoch % 2] = make_driver()
        drivers[epoch % 2].run(str(epoch))
    records = CommitLog.open_read_only(tmp_path / "log", name).records()
    assert [r.epoch for r in records if r.state == "COMMITTED"] == ["0", "1", "2", "3"]
    assert values(pulsar_standalone, topic) == [r for n in range(4) for r in rows_of(str(n))]
