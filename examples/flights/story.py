"""The same job under the same kills, written one way or the other, and what came of it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from chaos.checker import Verdict, check
from eos.commit_log import CommitLog
from eos.standalone import PulsarStandalone
from eos.transaction import LogRecord
from examples.flights.data import Flights
from examples.flights.driver import Driver, Event
from examples.flights.job import SINK_ID, Job, Way
from examples.flights.watcher import Watcher, drain

PARTITIONS: Final = 4
_SILENCE_S: Final = 120.0
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class Kill:
    """Something that was killed. ``at``: ``time.time()`` seconds."""

    what: str
    epoch: int
    at: float


@dataclass
class Run:
    """One way's run: what happened and what readers saw. Times are ``time.time()`` seconds."""

    way: Way
    flights: Flights
    events: list[Event] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    seen: list[tuple[float, int]] = field(default_factory=list)
    drained: list[int] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict[int]:
        """What is wrong with what a fresh reader finds when all is quiet."""
        return check(self.flights.written(), self.drained)

    @property
    def began_at(self) -> float:
        """When the first epoch began."""
        return min(event.at for event in self.events if event.event == "begin")

    @property
    def ended_at(self) -> float:
        """When the last epoch was done."""
        return max(event.at for event in self.events if event.event == "end")

    def complete_at(self, epoch: int) -> float:
        """When an epoch was decided: PREPARED in the log, or, without a log, its last end."""
        prepared = [
            record.written_at.timestamp()
            for record in self.records
            if record.epoch == str(epoch) and record.state == "PREPARED" and record.written_at
        ]
        ends = [e.at for e in self.events if e.event == "end" and e.epoch == epoch]
        return max(prepared or ends)

    @property
    def early_epochs(self) -> list[int]:
        """Epochs of which the watching reader had rows before they were complete."""
        first_seen: dict[int, float] = {}
        for at, flight in self.seen:
            first_seen.setdefault(self.flights.epoch_of(flight), at)
        return [epoch for epoch, at in sorted(first_seen.items()) if at < self.complete_at(epoch)]


class Story:
    """Runs the job one way: kills an executor a third of the way, the driver at two thirds.

    Below ``folder`` is what goes with the demo, below ``log_folder`` what the drivers print.
    ``tell`` gets one line of text for each thing that happens; ``progress`` the epochs done.
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
        self._executor_epoch = 0
        self._driver_epoch = flights.epochs * 2 // 3

    def run(self, way: Way) -> Run:
        """The whole story of one way.

        Raises:
            RuntimeError: the job failed by itself; its log file says why.
        """
        run = Run(way, self._flights)
        job = self._job(way)
        with Watcher(self._broker.service_url, job.topic) as watcher:
            self._executor_epoch = self._flights.epochs // 3
            self._live(run, replace(job, dies_after=self._driver_epoch), first=True)
            self._tell("driver started again, on the same checkpoint")
            self._live(run, job, first=False)
            run.drained = drain(self._broker.service_url, job.topic)
            _await_all(watcher, len(run.drained))
        run.seen = watcher.seen
        if way == "eos":
            run.records = CommitLog.open_read_only(job.commit_log, SINK_ID).records()
        return run

    def _live(self, run: Run, job: Job, *, first: bool) -> None:
        """One life of the driver: until it dies as planned, or has finished."""
        # The failpoint counts epochs prepared; an attempt that was aborted never gets there.
        setting = {"EOS_FAILPOINTS": f"prepare=kill@{self._driver_epoch + 1}"}
        env = setting if first and run.way == "eos" else {}
        with Driver(job, self._log_folder / f"{run.way}.log", env) as driver:
            while True:
                event = driver.next_event(_SILENCE_S)
                run.events.append(event)
                if event.event == "begin" and first and event.epoch == self._executor_epoch:
                    self._kill_executor(run, driver, job.topic)
                elif event.event == "end":
                    self._progress(event.epoch + 1)
                    again = event.epoch == self._executor_epoch < self._driver_epoch - 1
                    if first and again and run.way == "eos" and self._came_too_late(job):
                        self._executor_epoch += 1
                elif event.event == "finished":
                    return
                elif event.event == "died":
                    driver.kill()
                    self._note_death(run, event, first=first)
                    return

    def _kill_executor(self, run: Run, driver: Driver, topic: str) -> None:
        """Kill while the epoch is being sent: when a quarter of its rows have arrived."""
        quarter = self._messages_in(topic) + len(self._flights.ids(self._executor_epoch)) // 4
        deadline = time.monotonic() + 30
        while self._messages_in(topic) < quarter and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        pid = driver.kill_an_executor()
        run.kills.append(Kill("executor", self._executor_epoch, time.time()))
        self._tell(f"executor killed (pid {pid}) while it writes epoch {self._executor_epoch}")

    def _came_too_late(self, job: Job) -> bool:
        """Whether the executor's death met no transaction: all its rows were sent already."""
        records = CommitLog.open_read_only(job.commit_log, SINK_ID).records()
        return not any(record.state == "ABORTED" for record in records)

    def _note_death(self, run: Run, event: Event, *, first: bool) -> None:
        begun = max((e.epoch for e in run.events if e.event == "begin"), default=-1)
        if not first or begun != self._driver_epoch:
            raise RuntimeError(
                f"the driver died in epoch {begun}, unplanned: see {self._log_folder / run.way}.log"
            )
        run.kills.append(Kill("driver", begun, event.at))
        where = "between PREPARED and END_TXN" if run.way == "eos" else "before Spark noted it"
        self._tell(f"driver killed, Python and JVM: epoch {begun} was sent, {where}")

    def _job(self, way: Way) -> Job:
        topic = f"flights-{way}"
        path = f"/admin/v2/persistent/public/default/{topic}/partitions"
        request = urllib.request.Request(
            self._broker.admin_url + path,
            data=json.dumps(PARTITIONS).encode(),
            method="PUT",
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30).close()
        scratch = self._folder / f"{way}-scratch"
        scratch.mkdir()
        return Job(
            way=way,
            input_dir=str(self._flights.folder),
            scratch_dir=str(scratch),
            checkpoint=str(self._folder / f"{way}-checkpoint"),
            service_url=self._broker.service_url,
            admin_url=self._broker.admin_url,
            topic=f"persistent://public/default/{topic}",
            commit_log=str(self._folder / "commit-log"),
        )

    def _messages_in(self, topic: str) -> int:
        """How many messages the broker has taken, in a transaction or not."""
        name = topic.rsplit("/", 1)[1]
        path = f"/admin/v2/persistent/public/default/{name}/partitioned-stats"
        with urllib.request.urlopen(self._broker.admin_url + path, timeout=30) as response:
            return int(json.load(response)["msgInCounter"])


def _await_all(watcher: Watcher, count: int) -> None:
    """Until the watching reader has caught up with what the draining one found."""
    deadline = time.monotonic() + 60
    while len(watcher.seen) < count and time.monotonic() < deadline:
        time.sleep(_POLL_S)
