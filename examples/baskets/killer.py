"""Who kills: an executor, the driver, and the broker that serves the output topic, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from eos.errors import BrokerNotReady, EosError
from eos.retry import attempts
from eos.standalone import PulsarCluster
from examples.baskets.run import BasketsRun, Strike, Victim
from examples.child import Event
from examples.driver import Driver

_AT: Final[dict[Victim, float]] = {"executor": 0.15, "driver": 0.4, "broker": 0.65}
"""How much of the input has to be sent before each."""
_EPOCHS_BEFORE: Final = 2
_FAIL_OVER_S: Final = 90.0


class Killer:
    """Kills each once. A context manager, which waits until what was killed is back.

    Args:
        topic: the output topic's full name.
        tell: gets one line of text for each thing that happens.
    """

    def __init__(
        self, cluster: PulsarCluster, topic: str, run: BasketsRun, tell: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._partition = f"{topic}-partition-0"
        self._run = run
        self._tell = tell
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fail-over")
        self._fail_over: Future[None] | None = None
        self._begun: set[Victim] = set()
        self._ended = 0  # epochs since the last kill

    def look(self, event: Event, driver: Driver) -> None:
        """Something happened: perhaps it is time."""
        if event.event == "started":
            self._ended = 0
        elif event.event == "end":
            self._ended += 1
        # One thing at a time: what was hit before has to be over.
        if self._ended < _EPOCHS_BEFORE:
            return
        if event.event == "begin" and self._is_time("executor"):
            self._ended = 0
            self._kill_an_executor(event.epoch, driver)
        elif event.event == "end" and self._is_time("driver") and self._run.strike("executor"):
            self._begun.add("driver")
            driver.order("die")
        elif event.event == "begin" and self._is_time("broker") and self._run.strike("driver"):
            self._begun.add("broker")
            self._fail_over = self._pool.submit(self._kill_the_broker, event.epoch)

    @property
    def has_ordered_death(self) -> bool:
        """Whether a driver is to die at its next commit, or has."""
        return "driver" in self._begun

    def note_death(self, event: Event) -> None:
        """The driver has died as it was ordered to."""
        epoch = self._run.epoch
        text = f"driver killed, with its JVM: epoch {epoch} is prepared, and not yet committed"
        self._strike("driver", epoch, event.at, text)

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if self._fail_over is not None and kind is None:
            self._fail_over.result()

    def _is_time(self, what: Victim) -> bool:
        return what not in self._begun and self._run.share_sent >= _AT[what]

    def _kill_an_executor(self, epoch: int, driver: Driver) -> None:
        pid = driver.maybe_kill_an_executor()
        if pid is not None:
            self._begun.add("executor")
            text = f"executor killed (pid {pid}), in epoch {epoch}"
            self._strike("executor", epoch, time.time(), text)

    def _kill_the_broker(self, epoch: int) -> None:
        dead = self._cluster.owner(self._partition)
        dead.kill()
        killed_at = time.time()
        text = f"{dead.name} killed, which serves the output topic, in epoch {epoch}"
        self._strike("broker", epoch, killed_at, text)
        # Not started before it is missed: else nothing would have moved.
        for attempt in attempts(_FAIL_OVER_S, retry_on=(EosError,)):
            with attempt:
                heir = self._cluster.owner(self._partition)
                if heir is dead:
                    raise BrokerNotReady(f"{dead.name} is not missed yet.")
        self._run.took_over_at = time.time()
        waited_s = self._run.took_over_at - killed_at
        self._tell(f"{heir.name} serves the output topic now, after {waited_s:.1f} s")
        dead.start()
        self._run.back_at = time.time()
        self._tell(f"{dead.name} is back")

    def _strike(self, what: Victim, epoch: int, at: float, text: str) -> None:
        self._run.strikes.append(Strike(what, epoch, at, text))
        self._tell(text)
