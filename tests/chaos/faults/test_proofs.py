"""A fault that has hit nothing has no proof."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import psutil
import psycopg
import pytest

from eos.chaos.cluster.object_store import ObjectAnswer
from eos.chaos.faults import FAULTS, _database, _fault, _moments, _source
from eos.chaos.faults._fault import Armed, kill_broker
from eos.chaos.job import DATABASE_TABLE
from eos.steps import Step
from eos.testing import BrokerNode, PostgresServer
from tests.chaos.faults.test_fault_tools import Proxy
from tests.transport.scripted import wait_until

TOPIC, URL = "persistent://public/default/t", "pulsar://127.0.0.1:1"


def hit_of(name: str, **target: Any) -> str:
    with FAULTS[name].act(cast("Any", SimpleNamespace(**target))) as proof:
        pass
    return proof.hit


@pytest.mark.parametrize(("code", "is_hit"), [(0, True), (1, True), (2, False), (64, False)])
def test_a_recovery_that_could_not_be_done_hit_nothing(code, is_hit):
    ended = CompletedProcess("eos recovery", code, "", "")
    assert bool(hit_of("cli-resolve", recovery=lambda *_: ended)) == is_hit


@pytest.mark.parametrize(("code", "is_hit"), [(0, True), (1, False), (2, False), (64, False)])
def test_a_task_is_hit_only_if_its_transaction_was_ended(code, is_hit, monkeypatch):
    awake: list[str] = []
    process = SimpleNamespace(pid=7, resume=lambda: awake.append("resumed"))
    armed = SimpleNamespace(await_asleep=lambda: process)
    monkeypatch.setattr(_moments, "Armed", lambda *_: armed)
    ended = CompletedProcess("eos recovery", code, "", "")
    assert bool(hit_of("task-asleep-at-send", recovery=lambda *_: ended)) == is_hit
    assert awake == ["resumed"]


@pytest.mark.parametrize(("code", "is_hit"), [(-signal.SIGKILL, True), (1, False)])
def test_a_driver_that_had_ended_was_not_killed(code, is_hit):
    driver = SimpleNamespace(pid=7, exit_code=code)
    assert bool(hit_of("driver-kill", supervisor=SimpleNamespace(kill=lambda: driver))) == is_hit


class Server(BrokerNode):
    """A broker, or another server; with ``pid`` None it does not run."""

    service_url = URL

    def __init__(self, pid: int | None) -> None:
        self.name = "broker-0"
        self._has_run = pid is not None
        self._jvm: Any = SimpleNamespace(
            pid=pid, exit_code=lambda: None, kill=self._end, stop=lambda _: self._end()
        )

    def _end(self) -> None:
        self._has_run = False

    def _signal(self, number: signal.Signals) -> None:
        """Send none: the process does not exist."""


@pytest.mark.parametrize("pid", [7, None])
def test_a_dead_server_is_not_hit(pid):
    def fresh() -> dict[str, Any]:
        server = Server(pid)
        return {
            "cluster": SimpleNamespace(
                owner=lambda _: server, brokers=[server], bookies=[server], metadata_store=server
            ),
            "broker_of": lambda _: server,
            "topics": [TOPIC],
            "coordinator_topic": lambda: TOPIC,
            "await_new_owner": lambda *_: "broker-1",
            "strike": lambda: None,
            "heal_broker": lambda: None,
        }

    names = [
        *("topic-broker-kill", "topic-broker-zombie", "both-brokers-kill", "all-brokers-kill"),
        *("broker-stop", "coordinator-broker-slow", "bookie-kill", "bookie-slow"),
        *("metadata-store-kill", "broker-kill"),
    ]
    for name in names:
        assert bool(hit_of(name, **fresh())) == (pid is not None), name
    assert bool(kill_broker(cast("Any", SimpleNamespace(**fresh())))) == (pid is not None)
    database = SimpleNamespace(database=Server(pid))
    assert bool(_database._kill(cast("Any", database))) == (pid is not None)


@pytest.mark.parametrize("pid", [7, None])
def test_a_broker_that_a_lookup_names_must_run(pid):
    proxy = Proxy()
    cast("Any", proxy).cut_all = lambda: 0
    target = SimpleNamespace(
        proxy=proxy,
        cluster=SimpleNamespace(brokers=[Server(pid)]),
        strike=lambda: None,
        heal_broker=lambda: None,
    )
    with FAULTS["lookup-of-the-dying"].act(cast("Any", target)) as proof:
        proxy.rule(SimpleNamespace(broker_url=URL))
    assert bool(proof.hit) == (pid is not None)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_input_is_trimmed_only_if_a_ledger_was_deleted(is_deleted, monkeypatch):
    monkeypatch.setattr(_source, "_TRIMMED_WITHIN_S", 0.01)
    there = [{"ledgerId": 3}, {"ledgerId": 4}]

    def admin(method: str, path: str) -> dict[str, Any]:
        if path.endswith("/trim") and is_deleted:
            there[:] = there[1:]
        return {"partitions": 1, "ledgers": list(there)} if method == "GET" else {}

    found = hit_of(
        "input-trimmed",
        job=SimpleNamespace(input_topic=TOPIC),
        broker=SimpleNamespace(admin=admin),
    )
    assert found == ("1 ledgers were deleted" if is_deleted else "")


@pytest.mark.broker
def test_a_table_is_locked_only_if_somebody_waits(monkeypatch):
    monkeypatch.setattr(_database, "_LOCKED_S", 6.0)
    with PostgresServer() as database:

        def write(text: str) -> None:
            with psycopg.connect(database.conninfo, autocommit=True) as connection:
                connection.execute(text)

        write(f"CREATE TABLE {DATABASE_TABLE} (id int)")
        assert hit_of("database-locked", database=database) == ""

        def write_once_it_is_locked() -> None:
            with psycopg.connect(database.conninfo, autocommit=True) as connection:
                held = "SELECT count(*) FROM pg_locks WHERE granted AND mode LIKE 'AccessExcl%'"
                wait_until(lambda: connection.execute(held).fetchone() != (0,))
            write(f"INSERT INTO {DATABASE_TABLE} VALUES (1)")

        late = threading.Thread(target=write_once_it_is_locked)
        late.start()
        assert hit_of("database-locked", database=database) == "1 sessions waited"
        late.join()


def test_a_reader_of_an_object_is_hit_when_a_worker_was_killed(monkeypatch):
    pids = iter(["", "pid 7", "pid 8"])
    monkeypatch.setattr(_source, "kill_workers", lambda _: next(pids))
    rules: list[Any] = []

    @contextmanager
    def fault(rule: Any):
        rules.append(rule)
        yield

    target = SimpleNamespace(store=SimpleNamespace(fault=fault))
    with FAULTS["worker-kill-at-object"].act(cast("Any", target)) as proof:
        whole = ObjectAnswer(b"1")
        assert rules[0]("first", whole) == whole
        assert not proof.hit
        assert rules[0]("second", whole) == replace(whole, is_cut=True)
        assert rules[0]("third", whole) == whole
    assert proof.hit == "second"


@pytest.mark.parametrize("new", [[], ["b"]])
def test_ledgers_are_offloaded_only_if_there_are_new_objects(new, monkeypatch):
    names = ["a"]
    monkeypatch.setattr(_source, "offload", lambda *_, **__: names.extend(new))
    proxy = Proxy()
    target = SimpleNamespace(
        proxy=proxy,
        store=SimpleNamespace(names=lambda: list(names), comes_first=True),
        job=SimpleNamespace(input_topic=TOPIC),
        broker=SimpleNamespace(admin=lambda *_: {"partitions": 1}),
        heal_broker=lambda: None,
    )
    with FAULTS["offloaded-at-read"].act(cast("Any", target)) as proof:
        proxy.rule(SimpleNamespace(message_id=SimpleNamespace(partition=0)))
    assert proof.hit == ("1 objects" if new else "")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL, None])
def test_a_process_that_does_not_stop_is_not_waited_for_without_end(number, tmp_path, monkeypatch):
    monkeypatch.setattr(_fault, "WITHIN_S", 30.0 if number == signal.SIGSTOP else 0.2)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command) as process:
        try:
            if number is not None:
                os.kill(process.pid, number)  # without a wait for it: it is a zombie
            (tmp_path / Step.WRITE.label).write_text(str(process.pid))
            armed = Armed.__new__(Armed)
            armed._folder, armed._place = tmp_path, Step.WRITE
            found = armed.await_asleep()
            assert found == (psutil.Process(process.pid) if number == signal.SIGSTOP else None)
        finally:
            process.kill()
