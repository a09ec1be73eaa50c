"""One schedule, from a fresh topic to a verdict: feed, break, heal, drain, recover, check."""

from __future__ import annotations

import math
import time
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from chaos.anomalies import Anomaly
from chaos.checker import check
from chaos.control import ControlWriter
from chaos.history import Decision, Reader, RunHistory, decisions_of
from chaos.job import Job, prepare
from chaos.nemesis import Happened, Nemesis
from chaos.proxy import FaultProxy
from chaos.readers import Watcher, drain
from chaos.records import records_of, release
from chaos.resources import Sample, Sampler
from chaos.schedule import Schedule
from chaos.stuck import held_back
from chaos.supervisor import Supervisor
from chaos.target import Target
from chaos.timing import Timing, timing_of
from eos.commit_log import CommitLog
from eos.errors import EosError
from eos.standalone import PulsarStandalone
from eos.transaction import LogRecord

EPOCH_TIMEOUT_S: Final = 180.0
WATCHERS: Final = 2
_POLL_S: Final = 0.1
_AHEAD: Final = 1
"""So many epochs wait in the input beside the one that runs."""

_TRICKLE_S: Final = 4.0
"""How often an epoch is given out while a fault is in effect: a second driver takes its time."""


@dataclass
class Result:
    """What came of one schedule.

    ``failure`` is "" unless the run itself did not come to its end; then nothing is proved.
    """

    schedule: Schedule
    history: RunHistory | None = None
    anomalies: list[Anomaly] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    samples: list[Sample] = field(default_factory=list)
    began_at: float = 0.0
    ended_at: float = 0.0
    failure: str = ""

    @property
    def is_good(self) -> bool:
        """It came to its end, and nothing is wrong."""
        return not self.failure and not self.anomalies


class Run:
    """One run of a schedule against a running broker.

    Args:
        workload: ``module:function``.
        folder: for the job's files; the driver's log stays there.
        project: folder that the driver runs in; this process's own when None.
        minutes: give out no epoch after that; None: all of them.
        tell: gets a line of text for each thing that happens.
    """

    def __init__(
        self,
        schedule: Schedule,
        workload: str,
        broker: PulsarStandalone,
        folder: Path,
        *,
        tell: Callable[[str], None],
        project: Path | None = None,
        minutes: float | None = None,
    ) -> None:
        self._schedule = schedule
        self._minutes = minutes
        self._project = project or Path.cwd()
        self._broker = broker
        self._folder = folder
        self._tell = tell
        name = f"chaos-{schedule.seed}-{uuid.uuid4().hex[:8]}"
        self._topic = f"persistent://public/default/{name}"
        self._topics = [f"{self._topic}-partition-{n}" for n in range(schedule.partitions)]
        self._epochs = records_of(schedule, self._topic)
        self._seen: dict[int, Decision] = {}
        self._given = 0
        self._job = Job(
            workload=workload,
            service_url="",
            admin_url=broker.admin_url,
            topic=self._topic,
            sink_id=name,
            commit_log=str(folder / "commit-log"),
            checkpoint=str(folder / "checkpoint"),
            input_dir=str(folder / "input"),
            scratch_dir=str(folder / "scratch"),
            tasks=schedule.tasks,
        )

    def go(self) -> Result:
        """Everything, to the verdict; what keeps the run from its end is in ``failure``."""
        result = Result(self._schedule, began_at=time.time())
        try:
            self._go(result)
        except (RuntimeError, TimeoutError, OSError, EosError) as error:
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            if not self._broker.is_running():
                self._broker.restart()
        result.ended_at = time.time()
        return result

    def _go(self, result: Result) -> None:
        self._create_topic()
        with ExitStack() as stack:
            proxy = stack.enter_context(FaultProxy(self._broker.service_url))
            job = self._job = replace(self._job, service_url=proxy.service_url)
            prepare(job)
            watchers = [
                stack.enter_context(Watcher(f"watcher {n + 1}", self._broker.service_url, topic))
                for topic in self._topics
                for n in range(WATCHERS)
            ]
            control = stack.enter_context(
                ControlWriter(self._broker.service_url, f"{self._topic}-control")
            )
            log_file = self._folder / "driver.log"
            supervisor = stack.enter_context(
                Supervisor(job, log_file, project=self._project, tell=self._tell)
            )
            target = Target(self._broker, proxy, supervisor, job, self._topics)
            sampler = stack.enter_context(Sampler(supervisor))
            nemesis = stack.enter_context(Nemesis(self._schedule, target, self._tell))
            self._feed(supervisor, nemesis)
            nemesis.join(EPOCH_TIMEOUT_S)
            supervisor.end()
            result.samples = sampler.samples
            self._settle(result, target, watchers, control, nemesis)

    def _create_topic(self) -> None:
        url = f"{self._broker.admin_url}/admin/v2/{self._topic.replace('://', '/')}/partitions"
        body = str(self._schedule.partitions).encode()
        request = urllib.request.Request(url, data=body, method="PUT")  # noqa: S310
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 - our own broker

    def _feed(self, supervisor: Supervisor, nemesis: Nemesis) -> None:
        """Give out the epochs; at the end all of them are noted by Spark."""
        last = self._schedule.epochs - 1
        ends_at = math.inf if self._minutes is None else time.monotonic() + 60 * self._minutes
        released, released_at = -1, 0.0
        noted_at = time.monotonic()
        noted = -1
        while noted < last:
            supervisor.check()
            if time.monotonic() > ends_at:
                last, ends_at = released, math.inf
                nemesis.stop()
            while (
                released < min(last, noted + 1 + _AHEAD)
                and nemesis.may_begin(released + 1)
                and (not nemesis.is_busy or time.monotonic() - released_at > _TRICKLE_S)
            ):
                released, released_at = released + 1, time.monotonic()
                release(self._job, self._schedule, released, self._epochs[released])
            now = self._newest_noted()
            if now > noted:
                noted, noted_at = now, time.monotonic()
                supervisor.progress()
                self._look_at_the_log()
                self._given = released + 1
            elif time.monotonic() - noted_at > EPOCH_TIMEOUT_S:
                raise TimeoutError(f"epoch {noted + 1} is not done after {EPOCH_TIMEOUT_S:.0f} s")
            nemesis.epoch_begins(min(released, noted + 1))
            time.sleep(_POLL_S)

    def _noted(self) -> set[int]:
        commits = Path(self._job.checkpoint) / "commits"
        if not commits.is_dir():
            return set()
        return {int(path.name) for path in commits.iterdir() if path.name.isdecimal()}

    def _newest_noted(self) -> int:
        return max(self._noted(), default=-1)

    def _log_records(self) -> list[LogRecord] | None:
        try:
            return CommitLog.open_read_only(self._job.commit_log, self._job.sink_id).records()
        except EosError:
            return None  # a workload without one, or none yet

    def _look_at_the_log(self) -> None:
        for decision in decisions_of(self._log_records() or []):
            self._seen.setdefault(decision.seq, decision)

    def _settle(
        self,
        result: Result,
        target: Target,
        watchers: list[Watcher],
        control: ControlWriter,
        nemesis: Nemesis,
    ) -> None:
        """All is healed and quiet: read everything, recover once more, and judge."""
        stuck: list[str] = []
        fresh = self._drain("fresh reader", stuck)
        self._await_watchers(watchers, fresh)
        records = self._log_records()
        decisions = None if records is None else decisions_of(records)
        says_clean, fresh_again, decisions_again = None, None, None
        if records is not None:
            stuck += held_back(target)
            target.recovery("resolve", "--apply", "--yes")
            fresh_again = self._drain("fresh reader after recovery", stuck)
            decisions_again = decisions_of(self._log_records() or [])
            verify = target.recovery("verify", "--json")
            says_clean = verify.returncode == 0
            if not says_clean:
                self._tell(f"verify: exit code {verify.returncode}: {verify.stdout[:500]}")
        result.records = records or []
        result.happened = nemesis.happened
        result.history = RunHistory(
            records=tuple(record for epoch in self._epochs[: self._given] for record in epoch),
            fresh=fresh,
            decisions=decisions,
            readers=_readers(watchers),
            noted=frozenset(str(epoch) for epoch in self._noted()),
            earlier=tuple(self._seen.values()),
            stuck=tuple(stuck),
            fresh_again=fresh_again,
            decisions_again=decisions_again,
            says_clean=says_clean,
            control=control.result(),
            operations=(*target.supervisor.operations, *nemesis.operations()),
        )
        result.timing = timing_of(result.history, target)
        result.anomalies = check(result.history)

    def _drain(self, name: str, stuck: list[str]) -> Reader:
        try:
            return drain(self._broker.service_url, self._topics, name)
        except TimeoutError as error:
            stuck.append(str(error))
            return Reader(name, ())

    def _await_watchers(self, watchers: list[Watcher], fresh: Reader) -> None:
        """Until they have seen what the fresh reader has; they saw more when something vanished."""
        wanted = len(fresh.sights) * WATCHERS
        deadline = time.monotonic() + 30
        while sum(len(watcher.sights) for watcher in watchers) < wanted:
            if time.monotonic() > deadline:
                return  # what they lack is for the checker to name
            time.sleep(_POLL_S)


def _readers(watchers: list[Watcher]) -> tuple[Reader, ...]:
    """Each watcher with all partitions that it reads; in order within each of them."""
    return tuple(
        Reader(
            f"watcher {n + 1}",
            tuple(sight for watcher in watchers[n::WATCHERS] for sight in watcher.sights),
        )
        for n in range(WATCHERS)
    )
