"""Runs the whole pipeline once: a producer, a Spark query between topics, and three kills."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from eos.chaos.observers.resources import Ticker
from eos.commit_log import CommitLog
from eos.errors import BrokerNotReady, EosError
from eos.retry import attempts
from eos.testing import PulsarCluster
from examples._demo.demo_command import DemoFailed, log_tail
from examples._demo.demo_topic import Topic
from examples._demo.subprocesses import Event, SparkDriver, Subprocess
from examples.baskets.basket_year import Year
from examples.baskets.baskets_run import BasketsRun, Victim, VictimKill
from examples.baskets.count_baskets import SINK_ID, SUBSCRIPTION, BasketsTask
from examples.baskets.send_baskets import ProducerTask

PARTITIONS: Final = 4
# Of the watermark; 4 s of the run. While a broker is down, partitions are not read equally far.
DELAY: Final = timedelta(days=14)
_PER_TRANSACTION: Final = 400
_PAUSE_S: Final = 0.3
_KEEP_ALL: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
_POLL_S: Final = 0.25
_BACKLOG_EVERY_S: Final = 0.5
_SILENCE_S: Final = 120.0
_MAX_UNPLANNED: Final = 5


@dataclass(frozen=True)
class Folders:
    """Where the run keeps its data; ``logs`` gets the output of the programs."""

    data: Path
    logs: Path

    @property
    def table(self) -> str:
        """The Delta table."""
        return str(self.data / "table")

    @property
    def commit_log(self) -> str:
        """The root of the commit logs."""
        return str(self.data / "commit-log")

    @property
    def driver_log(self) -> Path:
        """The output of the driver programs."""
        return self.logs / "baskets.log"

    @property
    def producer_log(self) -> Path:
        """The output of the producer program."""
        return self.logs / "producer.log"


class ClusterScenario:
    """Sends all baskets, counts them, and kills an executor, the driver and a broker meanwhile.

    Args:
        rows: only the first ``rows`` baskets are sent; None: all of ``year``.
        log: called with one line of text for each thing that happens.
        show: called with the run, several times a second.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        year: Year,
        rows: int | None,
        folders: Folders,
        *,
        log: Callable[[str], None],
        show: Callable[[BasketsRun], None],
    ) -> None:
        self._cluster = cluster
        self._folders = folders
        self._log = log
        self._show = show
        self._producer: Subprocess | None = None
        # Without it, messages that all subscriptions have acknowledged are deleted when a topic
        # moves, and the final readers would miss them.
        cluster.admin("POST", "/v2/namespaces/public/default/retention", _KEEP_ALL)
        self.source = Topic.create(cluster, "baskets", PARTITIONS)
        self.target = Topic.create(cluster, "shop-days", PARTITIONS)
        self.run = BasketsRun(year)
        self._producer_task = ProducerTask(
            service_url=cluster.service_url,
            topic=self.source.url,
            rows=rows,
            per_transaction=_PER_TRANSACTION,
            pause_s=_PAUSE_S,
            delay_s=DELAY.total_seconds(),
        )

    def play(self) -> BasketsRun:
        """Run from the first event to the last closed window.

        Raises:
            DemoFailed: a program failed for good.
        """
        run = self.run
        task = self._task()
        with ExitStack() as stack:
            stack.enter_context(Ticker(_BACKLOG_EVERY_S, self._read_backlog, EosError))
            killer = stack.enter_context(
                ProcessKiller(self._cluster, self.target.url, run, self._log)
            )
            self._log("starting Spark: a driver and two executors")
            while not self._run_driver(task, killer, stack):
                self._log("driver started again, on the same checkpoint")
        run.records = CommitLog.open_read_only(task.commit_log, SINK_ID).records()
        return run

    def _read_backlog(self) -> None:
        entries = self.source.maybe_backlog(SUBSCRIPTION)
        if entries is not None:
            self.run.backlog.append((time.time(), entries))

    def _run_driver(self, task: BasketsTask, killer: ProcessKiller, stack: ExitStack) -> bool:
        """Run a driver program; return whether it has finished its work."""
        run, log = self.run, self._folders.driver_log
        heard_at = time.monotonic()
        program = "examples.baskets.count_baskets"
        with SparkDriver(program, task, log, Path(task.scratch_dir)) as driver:
            # Commands that the driver before may not have received.
            if killer.has_sent_die and run.kill_of("driver") is None:
                driver.send("die")
            if run.all_sent:
                driver.send("finish")
            while True:
                self._take_producer_events(driver)
                self._show(run)
                try:
                    event = driver.next_event(_POLL_S)
                except TimeoutError:
                    if time.monotonic() - heard_at > _SILENCE_S:
                        raise DemoFailed(f"The driver sends no events.\n{log_tail(log)}") from None
                    continue
                heard_at = time.monotonic()
                run.events.append(event)
                if event.event == "started" and self._producer is None:
                    self._producer = stack.enter_context(self._start_producer())
                if event.event in ("finished", "died"):
                    return event.event == "finished" or self._record_death(event, driver, killer)
                killer.on_event(event, driver)

    def _start_producer(self) -> Subprocess:
        self._log("the producer starts: a year of baskets, 400 in a transaction")
        return Subprocess(
            "examples.baskets.send_baskets", self._producer_task, self._folders.producer_log
        )

    def _take_producer_events(self, driver: SparkDriver) -> None:
        while self._producer is not None and not self.run.all_sent:
            try:
                event = self._producer.next_event(0)
            except TimeoutError:
                return
            if event.event == "died":
                raise DemoFailed(f"The producer died.\n{log_tail(self._folders.producer_log)}")
            self.run.on_producer_event(event)
            if self.run.all_sent:
                self._log("the producer has sent everything; its last event closes all windows")
                driver.send("finish")

    def _record_death(self, event: Event, driver: SparkDriver, killer: ProcessKiller) -> bool:
        # An error of the query is no failure of the demo: a job would be started again, too.
        is_first = self.run.kill_of("driver") is None
        if killer.has_sent_die and is_first and driver.exit_code == -signal.SIGKILL:
            killer.record_driver_death(event)
            return False
        self.run.unplanned += 1
        log = self._folders.driver_log
        if self.run.unplanned > _MAX_UNPLANNED:
            raise DemoFailed(f"The query fails at each restart.\n{log_tail(log)}")
        self._log(f"the query ended with an error (exit code {driver.exit_code}); see {log}")
        return False

    def _task(self) -> BasketsTask:
        scratch = self._folders.data / "scratch"
        scratch.mkdir()
        last = self.run.year.last(DELAY)
        closed_at = datetime.fromtimestamp(last.at_ms / 1000, UTC) - DELAY
        return BasketsTask(
            scratch_dir=str(scratch),
            checkpoint=str(self._folders.data / "checkpoint"),
            service_url=self._cluster.service_url,
            admin_url=self._cluster.admin_url,
            source=self.source.url,
            target=self.target.url,
            table=self._folders.table,
            commit_log=self._folders.commit_log,
            delay_s=DELAY.total_seconds(),
            closed_at=closed_at.isoformat(),
        )


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
