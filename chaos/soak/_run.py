"""The run: a cluster, a producer program, a query under faults, and then plain readers."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from eos.chaos._checkpoint import Checkpoint
from eos.chaos.cluster.processes import kill_session
from eos.chaos.cluster.proxy import FaultProxy
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults import FAULTS
from eos.chaos.faults.nemesis import Happened, Nemesis
from eos.chaos.job import INPUT_SUBSCRIPTION, Job, prepare
from eos.chaos.observers.readers import drain, keep, open_client
from eos.chaos.observers.resources import Sample, Sampler
from eos.chaos.observers.table import columns_of
from eos.chaos.schedule import Planned, Schedule
from eos.chaos.soak._gauges import Gauges, Reading, folder_size
from eos.chaos.soak._job import SPARK_CONF, WORKLOAD
from eos.chaos.soak._plan import (
    DELAY_S,
    PARTITIONS,
    SoakPlan,
    WindowCount,
    WindowsVerdict,
    count_of,
    judge,
)
from eos.ids import TopicName
from eos.standalone import PulsarCluster

BROKERS: Final = 2
FAULT_EVERY_MIN: Final = 4
_TOPIC: Final = "persistent://public/default/soak"
_SINK_ID: Final = "soak"
_POLL_S: Final = 1.0
_TELL_EVERY_S: Final = 60.0
_STUCK_S: Final = 300.0
# A ledger is deleted whole, and lives for four hours by default: an hour would show nothing.
_CONFIG: Final = {
    "managedLedgerMinLedgerRolloverTimeMinutes": "1",
    "managedLedgerMaxLedgerRolloverTimeMinutes": "4",
}
_KILLS: Final = ("executor-kill", "worker-kill")
"""What the driver survives, though a worker does not."""


@dataclass
class SoakResult:
    """What came of it. ``lives``: of the driver; ``seconds``: until all was written;
    ``began_at``: ``time.time()``."""

    plan: SoakPlan
    topic: WindowsVerdict
    table: WindowsVerdict
    windows: int
    lives: int
    epochs: int
    seconds: float
    began_at: float
    happened: list[Happened] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether both outputs have each window once, with its count."""
        return not any(one.missing or one.extra for one in (self.topic, self.table))


class SoakFailed(Exception):
    """It could not run to its end, which proves nothing."""


def soak(plan: SoakPlan, seed: int, folder: Path, tell: Callable[[str], None]) -> SoakResult:
    """Run it.

    Args:
        folder: for everything that the run makes.

    Raises:
        SoakFailed, EosError, RuntimeError, TimeoutError: it could not run to its end.
    """
    tell(f"starting a cluster: {BROKERS} brokers, 2 bookies")
    with PulsarCluster(brokers=BROKERS, bookies=2, config=_CONFIG) as cluster:
        return _Run(plan, seed, folder, cluster, tell).go()


def schedule_of(seed: int, minutes: float) -> Schedule:
    """A fault every few minutes, of those that a driver survives; an epoch of it is a minute."""
    rng = random.Random(seed)
    names = [
        *(one.name for one in FAULTS.values() if one.is_survived and one.part == "cluster"),
        *_KILLS,
    ]
    minutes_of = range(FAULT_EVERY_MIN, int(minutes), FAULT_EVERY_MIN)
    rng.shuffle(names)
    faults = tuple(
        Planned(names[n % len(names)], minute, 0.0, 2.0) for n, minute in enumerate(minutes_of)
    )
    return Schedule(
        seed=seed,
        epochs=int(minutes),
        rows=0,
        padding=0,
        tasks=2,
        partitions=PARTITIONS,
        keyed=True,
        faults=faults,
        brokers=BROKERS,
    )


class _Run:
    def __init__(
        self,
        plan: SoakPlan,
        seed: int,
        folder: Path,
        cluster: PulsarCluster,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._schedule = schedule_of(seed, plan.minutes)
        self._folder = folder
        self._cluster = cluster
        self._tell = tell
        self._job = Job(
            workload=WORKLOAD,
            service_url=cluster.service_url,
            admin_url=cluster.admin_url,
            topic=_TOPIC,
            sink_id=_SINK_ID,
            commit_log=str(folder / "commit-log"),
            checkpoint=str(folder / "checkpoint"),
            input_dir=str(folder / "input"),
            scratch_dir=str(folder / "scratch"),
            input_topic=f"{_TOPIC}-input",
            table=str(folder / "table"),
            shape="windowed",
            spark_conf=SPARK_CONF,
        )
        self._topics = _partitions(_TOPIC)
        self._checkpoint = Checkpoint(self._job.checkpoint)
        self._sent = 0
        self._began = time.monotonic()

    def go(self) -> SoakResult:
        prepare(self._job)
        cluster = self._cluster
        for topic in (self._job.topic, self._job.input_topic):
            cluster.admin("PUT", f"{path_of(topic)}/partitions", PARTITIONS)
        self._keep_outputs()
        self._subscribe()
        with ExitStack() as stack:
            proxy = stack.enter_context(FaultProxy(cluster.service_url))
            job = replace(self._job, service_url=proxy.service_url)
            supervisor = DriverSupervisor(job, self._folder, project=Path.cwd(), tell=self._tell)
            target = FaultTarget(cluster, proxy, supervisor, job, self._topics)
            stack.enter_context(supervisor)
            sampler = stack.enter_context(Sampler(supervisor))
            gauges = stack.enter_context(Gauges(lambda at_s: self._read(at_s, target)))
            nemesis = stack.enter_context(Nemesis(self._schedule, target, self._tell))
            feed = stack.enter_context(self._feeding())
            self._began, began_at = time.monotonic(), time.time()
            self._await_all(feed, supervisor, nemesis)
            seconds = time.monotonic() - self._began
            nemesis.stop()
            nemesis.join(_STUCK_S)
            supervisor.end()
            self._tell("plain readers read the topic and the table")
            expected = list(self._plan.expected())
            return SoakResult(
                plan=self._plan,
                topic=judge(expected, self._in_topic()),
                table=judge(expected, _in_table(self._job.table)),
                windows=len(expected),
                lives=len(supervisor.operations),
                epochs=self._checkpoint.noted()[-1] + 1,
                seconds=round(seconds, 1),
                began_at=began_at,
                happened=nemesis.happened,
                samples=sampler.samples,
                readings=gauges.readings,
            )

    def _await_all(
        self, feed: subprocess.Popen[bytes], supervisor: DriverSupervisor, nemesis: Nemesis
    ) -> None:
        """Until all is written that the last row closes."""
        epoch, noted_at, told_at = -1, time.monotonic(), time.monotonic()
        while not self._is_done(feed):
            supervisor.check()
            now = time.monotonic()
            noted = self._checkpoint.noted()
            if noted and noted[-1] > epoch:
                epoch, noted_at = noted[-1], now
                supervisor.progress()
            elif now - noted_at > _STUCK_S:
                raise SoakFailed(f"epoch {epoch + 1} is not done after {_STUCK_S:.0f} s")
            nemesis.epoch_begins(int((now - self._began) / 60))
            if now - told_at > _TELL_EVERY_S:
                told_at = now
                self._tell(f"{self._sent_rows():,} rows sent, {epoch + 1:,} epochs")
            time.sleep(_POLL_S)

    def _is_done(self, feed: subprocess.Popen[bytes]) -> bool:
        if feed.poll() is None:
            return False
        if feed.returncode:
            raise SoakFailed(f"the producer ended; see {self._folder / 'feed.log'}")
        noted = self._checkpoint.noted()
        if not noted or noted[-1] != self._checkpoint.planned()[-1]:
            return False
        # Spark writes what a watermark closes in the epoch behind the one that moved it.
        return self._checkpoint.watermark_s(noted[-1]) >= self._plan.last_ms / 1000 - DELAY_S

    @contextlib.contextmanager
    def _feeding(self) -> Iterator[subprocess.Popen[bytes]]:
        words = (self._cluster.service_url, self._job.input_topic, self._plan.to_json())
        with (self._folder / "feed.log").open("wb") as log, (self._sent_file).open("wb") as sent:
            process = subprocess.Popen(
                [sys.executable, "-m", "eos.chaos.soak._feed", *words],
                stdout=sent,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill_session(process.pid)
            process.wait(timeout=30)

    @property
    def _sent_file(self) -> Path:
        return self._folder / "sent.log"

    def _sent_rows(self) -> int:
        with self._sent_file.open("rb") as sent:
            sent.seek(max(0, sent.seek(0, 2) - 100))
            lines = [line for line in sent.read().split(b"\n")[-3:] if line.isdigit()]
        self._sent = int(lines[-1]) if lines else self._sent
        return self._sent

    def _keep_outputs(self) -> None:
        client = open_client(self._cluster.service_url)
        try:
            for topic in self._topics:
                keep(client, topic)
        finally:
            client.close()

    def _subscribe(self) -> None:
        """Before the first row: what no subscription holds may be deleted."""
        for topic in _partitions(self._job.input_topic):
            path = f"{path_of(topic)}/subscription/{INPUT_SUBSCRIPTION}"
            self._cluster.admin("PUT", path, {"earliest": True})

    def _read(self, at_s: float, target: FaultTarget) -> Reading:
        log_bytes, log_files = folder_size(Path(self._job.commit_log))
        _, checkpoint_files = folder_size(Path(self._job.checkpoint))
        receipts = target.receipt_topic()
        inputs = [self._stats(topic) for topic in _partitions(self._job.input_topic)]
        noted = self._checkpoint.noted()
        return Reading(
            at_s=at_s,
            epochs=noted[-1] + 1 if noted else 0,
            log_bytes=log_bytes,
            log_files=log_files,
            checkpoint_files=checkpoint_files,
            receipts_bytes=self._stats(receipts)["storageSize"] if receipts else 0,
            input_bytes=sum(one["storageSize"] for one in inputs),
            backlog=sum(one["subscriptions"][INPUT_SUBSCRIPTION]["msgBacklog"] for one in inputs),
        )

    def _stats(self, topic: str) -> dict[str, Any]:
        stats: dict[str, Any] = self._cluster.admin("GET", f"{path_of(topic)}/stats")
        return stats

    def _in_topic(self) -> Iterator[WindowCount]:
        service_url = self._cluster.service_url
        sights = drain(service_url, self._topics, "reader", read=_text).sights
        return (count_of(json.loads(sight.record or "{}")) for sight in sights)


def _text(message: Any) -> tuple[str, str]:
    return message.data().decode(), ""


def _partitions(topic: str) -> list[str]:
    return [str(one) for one in TopicName.parse(topic).partitions(PARTITIONS)]


def _in_table(uri: str) -> Iterator[WindowCount]:
    return map(count_of, columns_of(uri, *WindowCount._fields).to_pylist())
