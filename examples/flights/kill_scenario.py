"""Runs the job once, in one of the two ways, with kills, and plain readers that watch."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import pulsar

from eos.commit_log import CommitLog
from eos.protocol import State
from eos.testing import PulsarStandalone
from examples._demo.demo_command import DemoFailed, log_tail
from examples._demo.demo_topic import Topic, open_client, read_all
from examples._demo.subprocesses import Event, SparkDriver
from examples.flights.flight_files import FILES_PER_EPOCH, Flights
from examples.flights.flights_run import FlightsRun, Kill, Way
from examples.flights.write_flights import SINK_ID, FlightsTask

PARTITIONS: Final = 4
_SILENCE_S: Final = 90.0
_POLL_S: Final = 0.005
_WATCHER_POLL_S: Final = 0.02
_STEPS_PER_TASK: Final = 12


class KillScenario:
    """Kills an executor in the epoch at one third of the job, the driver in the one at two thirds.

    Args:
        folder: for data of the run.
        log_folder: for the output of the driver programs.
        log: called with one line of text for each thing that happens.
        progress: called with the number of finished epochs.
    """

    def __init__(
        self,
        broker: PulsarStandalone,
        flights: Flights,
        folder: Path,
        log_folder: Path,
        *,
        log: Callable[[str], None],
        progress: Callable[[int], None],
    ) -> None:
        self._broker = broker
        self._flights = flights
        self._folder = folder
        self._log_folder = log_folder
        self._log = log
        self._progress = progress
        self._executor_epoch = flights.epochs // 3
        self._driver_epoch = flights.epochs * 2 // 3
        self._messages_before = 0  # in the topic, when the present epoch began

    def run(self, way: Way) -> FlightsRun:
        """Run the job in one way, from the first epoch to the last.

        Raises:
            DemoFailed: the job or a reader failed.
        """
        run = FlightsRun(way, self._flights)
        topic = Topic.create(self._broker, f"flights-{way}", PARTITIONS)
        task = self._task(way, topic)
        try:
            with _TopicWatcher(self._broker.service_url, topic.url) as watcher:
                self._log("starting Spark: a driver and two executors")
                # Of the two ways, only pulsar-client's dies by itself; eos has a failpoint.
                dying = replace(task, dies_after=self._driver_epoch)
                self._run_driver(run, dying, topic, first=True)
                if run.last_kill("driver"):
                    self._log("driver started again, on the same checkpoint")
                    self._run_driver(run, task, topic, first=False)
                self._log("reading the whole topic with a new reader")
                run.drained = _drain(self._broker.service_url, topic.url)
                watcher.await_rows(len(run.drained))
        except (RuntimeError, TimeoutError) as error:
            raise DemoFailed(f"{error}.\n{log_tail(self._log_file(way))}") from None
        run.seen = watcher.seen
        if way == "eos":
            run.records = CommitLog.open_read_only(task.commit_log, SINK_ID).records()
        return run

    def _run_driver(self, run: FlightsRun, task: FlightsTask, topic: Topic, *, first: bool) -> None:
        """Run a driver program until it is killed as planned, or has finished."""
        # The failpoint counts prepared epochs; an aborted attempt is never prepared.
        setting = {"EOS_FAILPOINTS": f"prepare=kill@{self._driver_epoch + 1}"}
        env = setting if first and run.way == "eos" else {}
        with SparkDriver(
            "examples.flights.write_flights",
            task,
            self._log_file(run.way),
            Path(task.scratch_dir),
            env,
        ) as driver:
            while True:
                event = driver.next_event(_SILENCE_S)
                run.events.append(event)
                if event.event == "begin":
                    self._messages_before = topic.messages_in()
                    if first and event.epoch == self._executor_epoch:
                        self._kill_executor(run, driver, topic)
                elif event.event == "end":
                    self._progress(event.epoch + 1)
                    if first and event.epoch == self._executor_epoch:
                        self._retry_executor_kill(run, task, topic)
                elif event.event == "finished":
                    return
                elif event.event == "died":
                    self._record_death(run, event, driver.exit_code, topic, first=first)
                    return

    def _kill_executor(self, run: FlightsRun, driver: SparkDriver, topic: Topic) -> None:
        # Kill while the epoch is being sent: when a quarter of its rows have arrived.
        rows = len(self._flights.ids(self._executor_epoch))
        deadline = time.monotonic() + _SILENCE_S
        while (sent := topic.messages_in() - self._messages_before) < rows / 4:
            if time.monotonic() > deadline:
                raise TimeoutError(f"No rows of epoch {self._executor_epoch} arrive")
            time.sleep(_POLL_S)
        if sent >= rows:
            return  # too late: it would hit no running task
        pid = driver.kill_oldest_executor()
        if pid is None:
            raise RuntimeError("No executor is running")
        run.kills.append(Kill("executor", self._executor_epoch, time.time(), sent))
        self._log(
            f"executor killed (pid {pid}): the broker has {sent:,} of {rows:,} rows of "
            f"epoch {self._executor_epoch}"
        )

    def _retry_executor_kill(self, run: FlightsRun, task: FlightsTask, topic: Topic) -> None:
        # A kill that hit no running task shows nothing: it is planned for the next epoch.
        epoch = self._executor_epoch
        if run.way == "eos":
            records = CommitLog.open_read_only(task.commit_log, SINK_ID).records()
            is_hit = any(r.state is State.ABORTED and r.epoch == str(epoch) for r in records)
        else:
            is_hit = topic.messages_in() - self._messages_before > len(self._flights.ids(epoch))
        if not is_hit and epoch + 1 < self._driver_epoch:
            self._log(f"the kill had no effect on epoch {epoch}: it is repeated in the next one")
            self._executor_epoch += 1

    def _record_death(
        self, run: FlightsRun, event: Event, code: int | None, topic: Topic, *, first: bool
    ) -> None:
        begun = max((e.epoch for e in run.events if e.event == "begin"), default=-1)
        if not first or begun != self._driver_epoch or code != -signal.SIGKILL:
            where = f"in epoch {begun}" if begun >= 0 else "before its first epoch"
            raise RuntimeError(f"The driver ended {where} with exit code {code}, not as planned")
        sent = topic.messages_in() - self._messages_before
        run.kills.append(Kill("driver", begun, event.at, sent))
        when = (
            "between PREPARED and END_TXN" if run.way == "eos" else "before Spark had recorded it"
        )
        self._log(f"driver killed, with its JVM: all rows of epoch {begun} are sent, {when}")

    def _log_file(self, way: Way) -> Path:
        return self._log_folder / f"{way}.log"

    def _task(self, way: Way, topic: Topic) -> FlightsTask:
        scratch = self._folder / f"{way}-scratch"
        scratch.mkdir()
        rows_per_task = self._flights.rows // self._flights.epochs // FILES_PER_EPOCH
        return FlightsTask(
            way=way,
            input_dir=str(self._flights.folder),
            scratch_dir=str(scratch),
            checkpoint=str(self._folder / f"{way}-checkpoint"),
            service_url=self._broker.service_url,
            admin_url=self._broker.admin_url,
            topic=topic.url,
            commit_log=str(self._folder / "commit-log"),
            rows_per_step=max(1, rows_per_task // _STEPS_PER_TASK),
        )


def _flight_id(message: Any) -> int:
    """Return the unique id in a flight event."""
    return int(json.loads(message.data())["id"])


@dataclass
class _TopicWatcher:
    """Reads a topic from its first message in a thread, until its context ends.

    Attributes:
        seen: time (``time.time()`` seconds) and flight id of each message, in reading order.
    """

    service_url: str
    topic: str
    seen: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def await_rows(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until it has read ``count`` rows.

        Raises:
            RuntimeError: it failed or is too slow. Its missing rows must not count as unseen.
        """
        deadline = time.monotonic() + timeout_s
        while len(self.seen) < count and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(_WATCHER_POLL_S)
        if len(self.seen) < count:
            raise RuntimeError(
                f"The reader of {self.topic} received {len(self.seen)} of {count} rows: "
                f"{self._error or 'it is stuck'}"
            )

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self._error = error

    def _watch(self) -> None:
        client = open_client(self.service_url)
        try:
            reader = client.create_reader(
                self.topic, pulsar.MessageId.earliest, receiver_queue_size=5000
            )
            while not self._stop.is_set():
                try:
                    message = reader.read_next(timeout_millis=200)
                except pulsar.Timeout:
                    continue
                at = time.time()
                if message.data():  # a sentinel has none
                    self.seen.append((at, _flight_id(message)))
        finally:
            client.close()


def _drain(service_url: str, topic: str) -> list[int]:
    """Return the flight ids of everything that is readable.

    Raises:
        TimeoutError: the topic is stuck.
    """
    return [_flight_id(message) for message in read_all(service_url, topic)]
