"""Any order of writing, dying, expiring, recovering and taking over, on a real broker and log.

Expiry needs no waiting: the transaction is aborted by its id, and then the coordinator has
forgotten it, as it has after the time to live.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from eos import failpoints
from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.committer._attempt import OpenAttempt
from eos.errors import Fenced, InvalidTransactionStatus, TransactionNotFound
from eos.protocol import State
from eos.pulsar.part import pulsar_part
from eos.recovery.resolve import resolve
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.wire.commands import TxnAction
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, rows_of

STEPS = [step for step in Step if step is not Step.CLAIM]


class Died(BaseException):
    """The driver's death: it is not caught, and no cleanup runs."""


class Drivers(RuleBasedStateMachine):
    """One sink and its drivers. ``broker`` is set by the test."""

    broker: PulsarStandalone

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="eos-machine-")
        self._root = Path(self._folder.name) / "log"
        self._name = f"t-{uuid.uuid4().hex[:12]}"
        self._topic = f"persistent://public/default/{self._name}"
        self._client = PulsarClient(self.broker.service_url, timeout_s=30)
        self._client.entry_producer(self._topic, create=True).close()
        self._driver: PlainDriver | None = None
        self._asleep: PlainDriver | None = None
        self._next = 0
        self._made: list[PlainDriver] = []

    def _start(self) -> PlainDriver:
        driver = PlainDriver(
            self.broker.service_url,
            self._root,
            self._name,
            self._topic,
            admin_url=self.broker.admin_url,
            timeout_s=30.0,
            deadline_s=60.0,
        )
        self._made.append(driver)
        return driver

    @rule()
    def write(self) -> None:
        """The driver, or a new one, writes the next epoch."""
        self._driver = self._driver or self._start()
        self._driver.run(str(self._next))
        self._next += 1

    @precondition(lambda self: self._next > 0)
    @rule()
    def write_again(self) -> None:
        """A new driver is asked for the last epoch again, as after a lost checkpoint."""
        self._driver = self._start()
        assert self._driver.run(str(self._next - 1)).status == "skipped"

    @rule(step=st.sampled_from(STEPS))
    def die_behind(self, step: Step) -> None:
        """The driver dies in the next epoch."""
        driver = self._driver or self._start()
        driver.committer.claim()

        def die() -> None:
            raise Died

        # Python's way out of the failed attempt is closed: a dead process runs no `except`.
        with (
            mock.patch.object(OpenAttempt, "abort"),
            failpoints.armed(step, die),
            contextlib.suppress(Died),
        ):
            driver.run(str(self._next))
        self._driver = None

    @rule()
    def fail(self) -> None:
        """The user's query fails; the driver lives on."""
        self._driver = self._driver or self._start()

        def fail(_: object) -> None:
            raise ValueError("the query failed")

        self._driver.during_write = fail
        with contextlib.suppress(ValueError):
            # A driver that died after PREPARE has left an epoch that is committed already.
            assert self._driver.run(str(self._next)).status == "skipped"
            self._next += 1
        self._driver.during_write = lambda _: None

    @precondition(lambda self: self._root.exists())
    @rule()
    def expire(self) -> None:
        """All unfinished transactions expire."""
        log = CommitLog.open_read_only(self._root, self._name)
        for record in log.history.unfinished:
            assert pulsar_part(record).txn is not None
            with contextlib.suppress(TransactionNotFound, InvalidTransactionStatus):
                self._client.coordinators.end(
                    pulsar_part(record).txn, TxnAction.ABORT, timeout_s=30
                )

    @precondition(lambda self: self._root.exists())
    @rule()
    def resolve(self) -> None:
        """The recovery tool is used, twice."""
        resolve(self._name, commit_log=self._root, admin_url=self.broker.admin_url)
        before = CommitLog.open_read_only(self._root, self._name).records()
        assert resolve(self._name, commit_log=self._root) == []
        assert CommitLog.open_read_only(self._root, self._name).records() == before
        if self._driver is not None and before[-1].run_id != self._driver.log.history.last.run_id:
            self._asleep, self._driver = self._driver, None

    @precondition(lambda self: self._driver is not None)
    @rule()
    def take_over(self) -> None:
        """A second driver starts and writes while the first one only sleeps."""
        self._asleep, self._driver = self._driver, None
        self.write()

    @precondition(lambda self: self._asleep is not None)
    @rule()
    def wake_up(self) -> None:
        """The first one wakes up too late and is fenced."""
        sleeper, self._asleep = self._asleep, None
        assert sleeper is not None
        with pytest.raises(Fenced):
            sleeper.run(str(self._next))

    def teardown(self) -> None:
        """A last driver ends open attempts and writes one more epoch: each row is there once."""
        try:
            last = self._start()
            last.run(str(self._next))
            records = last.records()
            committed = [record.epoch for record in records if record.state is State.COMMITTED]
            assert committed == [str(epoch) for epoch in range(self._next + 1)]
            seen = [one.value for one in drain(self.broker.service_url, self._topic)]
            assert seen == [row for epoch in committed for row in rows_of(str(epoch))]
        finally:
            for driver in self._made:
                driver.close()
            self._client.close()
            self._folder.cleanup()


@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=pytest.mark.chaos)])
def test_any_order_of_events_leaves_every_row_once(pulsar_standalone, examples):
    machine = type("Machine", (Drivers,), {"broker": pulsar_standalone})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=14,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # to shrink would take minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
