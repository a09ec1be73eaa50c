"""The target runs ``eos recovery`` with the database's login, while the harness's process keeps its
own; and it sees the claims of other drivers."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos._run import ScheduleRun
from eos.chaos.cluster import target
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.planning import only
from eos.commit_log import CommitLog
from eos.errors import CommitLogError, EosError
from eos.protocol import State


@pytest.mark.broker
def test_recovery_logs_in_and_the_users_process_keeps_its_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("PGUSER", "somebody")
    broker = cast("Any", SimpleNamespace(service_url="", admin_url=""))
    run = ScheduleRun(only("database-kill"), "m:f", broker, tmp_path, tell=lambda _: None)
    command = [sys.executable, "-c", "import os; print(os.environ['PGUSER'])"]
    monkeypatch.setattr(FaultTarget, "_recovery_command", lambda *_: command)
    with ExitStack() as stack:
        database = run._start_database(stack)
        nothing = cast("Any", None)
        mine = FaultTarget(broker, nothing, nothing, nothing, [])
        assert mine.recovery("verify").stdout == "somebody\n"
        mine.database = database
        assert mine.recovery("verify").stdout == "postgres\n"
        assert os.environ["PGUSER"] == "somebody"


def test_log_is_found_whatever_the_jobs_sink_id(tmp_path):
    run = ScheduleRun(
        only("deaf"),
        "m:f",
        cast("Any", SimpleNamespace(service_url="", admin_url="")),
        tmp_path,
        tell=lambda _: None,
    )
    nothing = cast("Any", None)
    mine = FaultTarget(nothing, nothing, nothing, run._job, [])
    assert mine.log_records() is None
    CommitLog.open(mine.job.commit_log, "my-orders")
    assert mine.log_records() == []
    CommitLog.open(mine.job.commit_log, "others")
    assert mine.log_records() is None  # none of them is named
    CommitLog.open(mine.job.commit_log, mine.job.sink_id)
    assert mine.log_records() == []


class Reading(FaultTarget):
    """Its log gives these answers, one after the other: a number of claims, None or an error."""

    def __init__(self, *answers: int | EosError | None) -> None:
        self._answers = iter(answers)

    def log_records(self) -> Any:
        answer = next(self._answers)
        if isinstance(answer, EosError):
            raise answer
        return None if answer is None else [SimpleNamespace(state=State.CLAIMED)] * answer


UNREADABLE = CommitLogError("it can't be read")


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([UNREADABLE] * 3, ""),
        ([UNREADABLE, 1, UNREADABLE, 2], "which took claim 2"),
        ([1, 1, 1], ""),
        ([None], "without a commit log"),
    ],
)
def test_only_a_claim_that_was_read_is_one(answers, wanted, monkeypatch):
    monkeypatch.setattr(target, "_START_S", 0.0)
    alive = iter([True] * (len(answers) - 1) + [False])

    class Rival:
        is_alive = property(lambda _: next(alive))

    assert Reading(*answers).await_claim(cast("Any", Rival())) == wanted
