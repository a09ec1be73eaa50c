"""The target runs ``eos recovery`` with the database's login, and the harness's process keeps its
own."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos._run import ScheduleRun
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.planning import only


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
        target = FaultTarget(broker, nothing, nothing, nothing, [])
        assert target.recovery("verify").stdout == "somebody\n"
        target.database = database
        assert target.recovery("verify").stdout == "postgres\n"
        assert os.environ["PGUSER"] == "somebody"
