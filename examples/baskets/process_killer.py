"""Kills an executor, the driver, and the broker that serves the output topic, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from eos.errors import BrokerNotReady, EosError
from eos.retry import attempts
from eos.testing import PulsarCluster
from examples._demo.subprocesses import Event, SparkDriver
from examples.baskets.baskets_run import BasketsRun, Victim, VictimKill

_AT: Final[dict[Victim, float]] = {"executor": 0.15, "driver": 0.4, "broker": 0.65}
"""The share of the input that is sent before each kill."""
_EPOCHS_BETWEEN: Final = 2
_FAIL_OVER_S: Final = 90.0


class ProcessKiller:
    """Kills each victim once. A context manager, which waits until the broker is running again.

    Args:
        topic: full name of the output topic.
        log: called with one line of text for each thing that happens.
    """

    def __init__(
        self, cluster: PulsarCluster, topic: str, run: BasketsRun, log: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._partition = f"{topic}-partition-0"
        self._run = run
        self._log = log
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fail-over")
        self._fail_over: Future[None] | None = None
        self._begun: set[Victim] = set()
        self._epochs = 0  # ended since the last kill

    def on_event(self, event: Event, driver: SparkDriver) -> None:
        """Kill the next victim if its time has come."""
        if event.event == "started":
            self._epochs = 0
        elif event.event == "end":
            self._epochs += 1
        # The job must have recovered from the kill before.
        if self._epochs < _EPOCHS_BETWEEN:
            return
        if event.event == "begin" and self._is_time("executor"):
            self._epochs = 0
            self._kill_executor(event.epoch, driver)
        elif event.event == "end" and self._is_time("driver") and self._run.kill_of("executor"):
            self._begun.add("driver")
            driver.send("die")
        elif event.event == "begin" and self._is_time("broker") and self._run.kill_of("driver"):
            self._begun.add("broker")
            self._fail_over = self._pool.submit(self._kill_broker, event.epoch)

    @property
    def has_sent_die(self) -> bool:
        """Whether a driver has been sent the command to die at its next commit."""
        return "driver" in self._begun

    def record_driver_death(self, event: Event) -> None:
        """Record that the driver has died as planned."""
        epoch = self._run.epoch
        text = f"driver killed, with its JVM: epoch {epoch} is prepared, and not yet committed"
        self._record("driver", epoch, event.at, text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if self._fail_over is not None and kind is None:
            self._fail_over.result()

    def _is_time(self, what: Victim) -> bool:
        return what not in self._begun and self._run.share_sent >= _AT[what]

    def _kill_executor(self, epoch: int, driver: SparkDriver) -> None:
        pid = driver.kill_oldest_executor()
        if pid is not None:
            self._begun.add("executor")
            text = f"executor killed (pid {pid}), in epoch {epoch}"
            self._record("executor", epoch, time.time(), text)

    def _kill_broker(self, epoch: int) -> None:
        dead = self._cluster.owner(self._partition)
        dead.kill()
        killed_at = time.time()
        text = f"{dead.name} killed, which serves the output topic, in epoch {epoch}"
        self._record("broker", epoch, killed_at, text)
        # Started again only after the fail-over: otherwise no topic would move.
        for attempt in attempts(_FAIL_OVER_S, retry_on=(EosError,)):
            with attempt:
                successor = self._cluster.owner(self._partition)
                if successor is dead:
                    raise BrokerNotReady(f"The cluster has not noticed that {dead.name} is dead.")
        self._run.took_over_at = time.time()
        waited_s = self._run.took_over_at - killed_at
        self._log(f"{successor.name} serves the output topic now, after {waited_s:.1f} s")
        dead.start()
        self._run.back_at = time.time()
        self._log(f"{dead.name} is running again")

    def _record(self, what: Victim, epoch: int, at: float, text: str) -> None:
        self._run.kills.append(VictimKill(what, epoch, at, text))
        self._log(text)
