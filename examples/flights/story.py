"""The same job under the same kills, written one way or the other."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Never

from eos.commit_log import CommitLog
from eos.protocol import State
from eos.standalone import PulsarStandalone
from examples.child import Event
from examples.driver import Driver
from examples.flights.data import FILES_PER_EPOCH, Flights
from examples.flights.job import SINK_ID, FlightsJob
from examples.flights.run import DemoRun, Kill, Way
from examples.flights.topic import Topic
from examples.flights.watcher import TopicWatcher, drain

PARTITIONS: Final = 4
_SILENCE_S: Final = 90.0
_POLL_S: Final = 0.005
_STEPS_PER_TASK: Final = 12


class StoryFailed(Exception):
    """The job did not do what it is there to do; the text names its log file."""


class Story:
    """Runs the job one way: kills an executor a third of the way, the driver at two thirds.

    Args:
        folder: for what goes with the demo.
        log_folder: for what the drivers print.
        tell: gets one line of text for each thing that happens.
        progress: gets how many epochs are done.
    """

    def __init__(
        self,
        broker: PulsarStandalone,
        flights: Flights,
        folder: Path,
        log_folder: Path,
        *,
        tell: Callable[[str], None],
        progress: Callable[[int], None],
    ) -> None:
        self._broker = broker
        self._flights = flights
        self._folder = folder
        self._log_folder = log_folder
        self._tell = tell
        self._progress = progress
        self._executor_epoch = flights.epochs // 3
        self._driver_epoch = flights.epochs * 2 // 3
        self._taken = 0

    def run(self, way: Way) -> DemoRun:
        """The whole story of one way.

        Raises:
            StoryFailed: the job failed by itself, or a reader did.
        """
        run = DemoRun(way, self._flights)
        topic = Topic.create(self._broker, f"flights-{way}", PARTITIONS)
        job = self._job(way, topic)
        try:
            with TopicWatcher(self._broker.service_url, topic.url) as watcher:
                self._tell("starting Spark: a driver and two executors")
                self._live(run, replace(job, dies_after=self._driver_epoch), topic, first=True)
                if run.last_kill("driver"):
                    self._tell("driver started again, on the same checkpoint")
                    self._live(run, job, topic, first=False)
                self._tell("draining the topic with a fresh reader")
                run.drained = drain(self._broker.service_url, topic.url)
                watcher.await_rows(len(run.drained))
        except (RuntimeError, TimeoutError) as error:
            self._fail(way, str(error))
        run.seen = watcher.seen
        if way == "eos":
            run.records = CommitLog.open_read_only(job.commit_log, SINK_ID).records()
        return run

    def _live(self, run: DemoRun, job: FlightsJob, topic: Topic, *, first: bool) -> None:
        """One life of the driver: until it dies as planned, or has finished."""
        # The failpoint counts epochs prepared; an attempt that was aborted never gets there.
        setting = {"EOS_FAILPOINTS": f"prepare=kill@{self._driver_epoch + 1}"}
        env = setting if first and run.way == "eos" else {}
        log = self._log_folder / f"{run.way}.log"
        with Driver(
            "examples.flights.job", job.to_json(), log, Path(job.scratch_dir), env
        ) as driver:
            while True:
                event = driver.next_event(_SILENCE_S)
                run.events.append(event)
                if event.event == "begin":
                    self._taken = topic.messages_in()
                    if first and event.epoch == self._executor_epoch:
                        self._kill_executor(run, driver, topic)
                elif event.event == "end":
                    self._progress(event.epoch + 1)
                    if first and event.epoch == self._executor_epoch:
                        self._aim_again(run, job, topic)
                elif event.event == "finished":
                    return
                elif event.event == "died":
                    self._note_death(run, event, driver.exit_code, topic, first=first)
                    return

    def _kill_executor(self, run: DemoRun, driver: Driver, topic: Topic) -> None:
        """Kill while the epoch is being sent: when a quarter of its rows have arrived."""
        rows = len(self._flights.ids(self._executor_epoch))
        deadline = time.monotonic() + _SILENCE_S
        while (sent := topic.messages_in() - self._taken) < rows / 4:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no rows of epoch {self._executor_epoch} arrive")
            time.sleep(_POLL_S)
        if sent >= rows:
            return
        pid = driver.maybe_kill_an_executor()
        if pid is None:
            raise RuntimeError("there is no executor to kill")
        run.kills.append(Kill("executor", self._executor_epoch, time.time(), sent))
        self._tell(
            f"executor killed (pid {pid}): the broker has {sent:,} of {rows:,} rows of "
            f"epoch {self._executor_epoch}"
        )

    def _aim_again(self, run: DemoRun, job: FlightsJob, topic: Topic) -> None:
        """In the next epoch, when the kill met no running task: such a kill shows nothing."""
        epoch = self._executor_epoch
        if run.way == "eos":
            records = CommitLog.open_read_only(job.commit_log, SINK_ID).records()
            is_hit = any(r.state is State.ABORTED and r.epoch == str(epoch) for r in records)
        else:
            is_hit = topic.messages_in() - self._taken > len(self._flights.ids(epoch))
        if not is_hit and epoch + 1 < self._driver_epoch:
            self._tell(f"the kill had no effect on epoch {epoch}: again in the next one")
            self._executor_epoch += 1

    def _note_death(
        self, run: DemoRun, event: Event, code: int | None, topic: Topic, *, first: bool
    ) -> None:
        begun = max((e.epoch for e in run.events if e.event == "begin"), default=-1)
        if not first or begun != self._driver_epoch or code != -signal.SIGKILL:
            where = f"in epoch {begun}" if begun >= 0 else "before its first epoch"
            raise RuntimeError(f"the driver ended {where} with exit code {code}, unplanned")
        sent = topic.messages_in() - self._taken
        run.kills.append(Kill("driver", begun, event.at, sent))
        where = "between PREPARED and END_TXN" if run.way == "eos" else "before Spark noted so"
        self._tell(f"driver killed, with its JVM: all rows of epoch {begun} are sent, {where}")

    def _fail(self, way: Way, text: str) -> Never:
        log = self._log_folder / f"{way}.log"
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        tail = "\n".join(f"  | {line[:200]}" for line in lines[-8:])
        raise StoryFailed(f"{text}.\nThe end of {log}:\n{tail}") from None

    def _job(self, way: Way, topic: Topic) -> FlightsJob:
        scratch = self._folder / f"{way}-scratch"
        scratch.mkdir()
        rows_per_task = self._flights.rows // self._flights.epochs // FILES_PER_EPOCH
        return FlightsJob(
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
