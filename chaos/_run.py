"""Runs one schedule: feed the job, inject faults, heal, read, recover, check."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from eos.chaos._feed import EPOCH_TIMEOUT_S, Feed, FileInputs, Inputs
from eos.chaos._query_shapes import SHAPES, SOAK_CONF, flush
from eos.chaos._records import id_in, read, records_of, topics_of
from eos.chaos._soak_feed import SoakFeed
from eos.chaos._soak_plan import read_count, soak_of
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos._topic_inputs import (
    KEYED_PARTITIONS,
    ChunkedInputs,
    HistoryInputs,
    RollingInputs,
    TopicInputs,
)
from eos.chaos.checker.check import check
from eos.chaos.checker.history import Anomaly, Control, Decision, RunHistory, decisions_of
from eos.chaos.cluster.companions import Archiver, KeyedCounter
from eos.chaos.cluster.object_store import ObjectStore
from eos.chaos.cluster.proxy import FaultProxy
from eos.chaos.cluster.supervisor import MAX_FAILURES, DriverSupervisor, JobFailed
from eos.chaos.cluster.target import FaultTarget, Pulsar, revive
from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS, operators
from eos.chaos.faults.nemesis import Happened, Nemesis
from eos.chaos.job import Job, prepare
from eos.chaos.observers.companion_judges import ArchiveJudge, CountJudge
from eos.chaos.observers.observers import Observers, stuck_in, told
from eos.chaos.observers.readers import (
    Read,
    ids_in,
    ids_in_database,
    ids_in_iceberg,
    read_text,
)
from eos.chaos.observers.resources import Sample, Sampler, Timing, misled_by_clock, timing_of
from eos.chaos.planning import shape_of
from eos.chaos.schedule import Schedule
from eos.cli.reports import Exit
from eos.errors import CommitLogError, EosError
from eos.protocol import LogRecord
from eos.testing import PostgresServer

_log = logging.getLogger(__name__)
# Expected errors of a run; other ones are logged with a traceback.
_EXPECTED: Final = (RuntimeError, TimeoutError, OSError, EosError)
_OWN: Final = "eos.chaos.workloads:"  # others may choose the partitions of their keys
_REFUSALS: Final = 2  # starts of a job that must end: it must fail again after a restart


def needs_store(schedule: Schedule) -> bool:
    """Whether the broker must be able to offload ledgers."""
    return any(CONDITIONS[one].is_tiered for one in schedule.conditions)


@dataclass
class Result:
    """The result of a run."""

    schedule: Schedule
    history: RunHistory | None = None
    anomalies: list[Anomaly] = field(default_factory=list)
    left: list[Anomaly] = field(default_factory=list)  # by the faults; no sink can prevent them
    happened: list[Happened] = field(default_factory=list)
    met: dict[str, str] = field(default_factory=dict)  # the proof for each condition, or ""
    records: list[LogRecord] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    samples: list[Sample] = field(default_factory=list)
    began_at: float = 0.0
    ended_at: float = 0.0
    failure: str = ""  # why the run was aborted, which proves nothing
    ended_by: str = ""  # the required error that ended the job

    @property
    def is_good(self) -> bool:
        """Whether the run finished and nothing is wrong."""
        return not self.failure and not self.anomalies


class ScheduleRun:
    """One run of a schedule against a running broker, or cluster."""

    def __init__(
        self,
        schedule: Schedule,
        workload: str,  # ``module:function``
        broker: Pulsar,
        folder: Path,  # for the job's files and the drivers' logs
        *,
        tell: Callable[[str], None],  # gets a line of text for each event
        project: Path | None = None,  # the driver's working directory; None: that of this process
        minutes: float | None = None,  # no input is released after them; None for no limit
        store: ObjectStore | None = None,  # to which the broker offloads ledgers
    ) -> None:
        self._schedule, self._minutes = schedule, minutes
        self._soak, self._project = soak_of(schedule), project or Path.cwd()
        self._broker, self._store = broker, store
        self._folder, self._tell = folder, tell
        name = f"chaos-{schedule.seed}-{uuid.uuid4().hex[:8]}"
        self._conditions = [CONDITIONS[one] for one in schedule.conditions]
        self._namespace = f"public/{name}" if self._policies else "public/default"
        topic = f"persistent://{self._namespace}/{name}"
        # Not in the run's namespace, whose policies may forbid clients to create it.
        self._control_topic = f"persistent://public/default/{name}-control"
        self._whole_rows = any(one.has_whole_rows for one in self._conditions)
        bases = topics_of(topic) if self._whole_rows else [topic]
        self._topics = [
            f"{base}-partition-{n}" for base in bases for n in range(schedule.partitions)
        ]
        self._records = records_of(schedule, *bases, by_key=workload.startswith(_OWN))
        shape = "counted" if self._soak else shape_of(schedule.conditions)
        self._traits = SHAPES[shape]
        if self._traits.has_windows:  # Spark writes the last windows only after later input
            self._records.append([flush(len(self._records))])
        self._refusals = [f for f in (FAULTS[one.fault] for one in schedule.faults) if f.ends_with]
        self._earlier: dict[Decision, None] = {}  # an ordered set
        self._job = Job(
            workload=workload,
            service_url=broker.service_url,
            admin_url=broker.admin_url if all(c.has_admin_url for c in self._conditions) else "",
            topic=topic,
            sink_id=name,
            commit_log=str(folder / "commit-log"),
            checkpoint=str(folder / "checkpoint"),
            input_dir=str(folder / "input"),
            scratch_dir=str(folder / "scratch"),
            tasks=schedule.tasks,
            shape=shape,
            user_code=tuple(habit for one in self._conditions for habit in one.user_code),
            table=self._path_if("has_table", "table"),
            iceberg=self._path_if("has_iceberg", "iceberg"),
            whole_rows=self._whole_rows,
            by_format=any(one.has_format for one in self._conditions),
            keys=self._path_if("is_encrypted", "keys"),
            input_topic=self._input_topic(name),
            history=self._path_if("has_history", "past"),
            tiered=ObjectStore.url if needs_store(schedule) else "",
            rows=schedule.rows,
            spark_conf={n: v for one in self._conditions for n, v in one.spark_conf.items()}
            | (SOAK_CONF if self._soak else {}),
        )
        self._checkpoint = Checkpoint(self._job.checkpoint)

    def go(self) -> Result:
        """Run everything, and return the result; an error is in ``failure``."""
        result = Result(self._schedule, began_at=time.time())
        clock = time.time() - time.monotonic()
        if self._store is not None:
            self._store.reads = 0  # those of earlier runs prove nothing
        try:
            self._go(result)
        except Exception as error:  # the campaign continues with the next run
            result.failure = f"{type(error).__name__}: {error}"
            if not isinstance(error, _EXPECTED):
                _log.exception("Schedule %d failed", self._schedule.seed)
        found = [f"{one.planned.fault}: {one.error}" for one in result.happened if one.is_violation]
        found += [revive(self._broker), misled_by_clock(clock, result.anomalies)]
        result.failure = "; ".join(filter(None, (result.failure, *found)))
        result.ended_at = time.time()
        return result

    def _go(self, result: Result) -> None:
        prepare(self._job)
        with ExitStack() as stack:
            # Only the job uses the proxy: readers must see the broker's own state.
            proxy = stack.enter_context(FaultProxy(self._broker.service_url))
            database = self._start_database(stack)
            job = replace(
                self._job,
                service_url=proxy.service_url,
                database="" if database is None else database.conninfo,
            )
            supervisor = DriverSupervisor(
                job,
                self._folder,
                project=self._project,
                tell=self._tell,
                max_failures=_REFUSALS if self._refusals else MAX_FAILURES,
            )
            target = FaultTarget(
                self._broker, proxy, supervisor, job, self._topics, store=self._store
            )
            target.database = database
            self._create_namespace(target)
            target.create_topics()
            observers = stack.enter_context(
                Observers(
                    *(self._broker.service_url, self._topics, self._control_topic, self._read),
                    self._job.keys,
                )
            )
            log = target.driver_log()
            feed = self._feed_of(target)  # before the job: a history must exist when it starts
            judge = self._archive(target, stack)
            count_judge = self._count(target, stack)
            stack.enter_context(supervisor)
            stack.enter_context(operators(self._conditions, target))
            storage = feed.storage if isinstance(feed, SoakFeed) else None
            sampler = stack.enter_context(Sampler(supervisor, storage))
            nemesis = stack.enter_context(Nemesis(self._schedule, target, self._tell))
            # The lists themselves, so that they are filled even if the run fails.
            result.samples, result.happened = sampler.samples, nemesis.happened
            result.ended_by = self._run_feed(feed, supervisor, nemesis, target)
            nemesis.join(EPOCH_TIMEOUT_S)
            supervisor.end()
            result.met = {one.name: one.hit(target, log) for one in self._conditions}
            operations = (*supervisor.operations, *nemesis.operations())
            settled = self._settled(result, target, observers, feed)
            if judge is not None and isinstance(feed, Feed):
                result.anomalies += self._found_in_archive(target, judge, feed)
            if count_judge is not None:
                result.anomalies += check(count_judge.history(settled.fresh))
        self._judge(result, target, replace(settled, operations=operations))

    def _judge(self, result: Result, target: FaultTarget, settled: RunHistory) -> None:
        history = self._without_own_losses(settled)
        result.history = history
        result.timing = timing_of(history, target)
        known = {kind for fault in self._refusals for kind in fault.leaves}
        for found in check(history):
            (result.left if found.kind in known else result.anomalies).append(found)
        # An empty run has no anomaly either.
        if not self._checkpoint.noted() and not result.ended_by:
            raise RuntimeError("no epoch was written, which proves nothing")

    def _without_own_losses(self, history: RunHistory) -> RunHistory:
        # If a fault wiped the cluster, the broker has not lost the control workload's messages.
        wiped = any(fault.wipes_all for fault in self._refusals)
        return replace(history, control=Control()) if wiped else history

    def _run_feed(
        self,
        feed: Feed | SoakFeed,
        supervisor: DriverSupervisor,
        nemesis: Nemesis,
        target: FaultTarget,
    ) -> str:
        try:
            feed.run(supervisor, nemesis, lambda: self._read_log(target))
        except JobFailed as failed:
            if not any(f".{fault.ends_with}:" in failed.error for fault in self._refusals):
                raise
            self._tell(f"ended, as required: {failed.error}")
            return failed.error
        # It came to the end of its input, and one that must refuse did not.
        for fault in self._refusals:
            raise RuntimeError(f"{fault.name}: the job did not end with {fault.ends_with}")
        return ""

    def _settled(
        self, result: Result, target: FaultTarget, observers: Observers, feed: Feed | SoakFeed
    ) -> RunHistory:
        # Twice: the second recovery must change nothing (anomaly 15).
        fresh = observers.drain("fresh reader")
        records: list[LogRecord] | None = None
        stuck: list[str] = []
        try:
            records = target.log_records()
        except CommitLogError as error:  # the readers are still checked
            stuck.append(str(error))
        history = RunHistory(
            records=tuple(feed.expected()),
            fresh=fresh,
            readers=observers.watched(fresh),
            noted=feed.noted(),
            earlier=tuple(self._earlier),
            keeps_order=self._traits.keeps_order,
            is_whole=not result.ended_by,
        )
        if records is not None:
            stuck += stuck_in(target)
            failed = told(target.recovery("resolve", "--apply", "--yes"))
            stuck += [failed] if failed and not result.ended_by else []
            result.records = target.log_records() or []
            verify = target.recovery("verify", "--json")
            explains = any(FAULTS[one.planned.fault].leaves_unknown for one in result.happened)
            history = replace(
                history,
                decisions=decisions_of(records),
                fresh_again=observers.drain("fresh reader after recovery"),
                decisions_again=decisions_of(result.records),
                says_clean=verify.returncode == Exit.CLEAN,
                alarm="" if explains and verify.returncode == Exit.UNKNOWN else told(verify),
            )
        stuck += observers.stuck
        tables = self._ids_in_tables(target)
        return replace(history, stuck=tuple(stuck), tables=tables, control=observers.control())

    def _ids_in_tables(self, target: FaultTarget) -> dict[str, tuple[str | None, ...]]:
        find = bytes.decode if self._soak else id_in
        found = {"table": ids_in(self._job.table, find)} if self._job.table else {}
        if target.database is not None:
            found["database"] = ids_in_database(target.database.conninfo, find)
        if self._job.iceberg:
            found["Iceberg table"] = ids_in_iceberg(self._job.iceberg_catalog, find)
        return found

    @property
    def _read(self) -> Read:
        if self._soak:
            return read_count
        return read if self._whole_rows else read_text

    @property
    def _policies(self) -> dict[str, object]:
        return {name: what for one in self._conditions for name, what in one.policies.items()}

    def _create_namespace(self, target: FaultTarget) -> None:
        # A separate one: other schedules share the broker, and its default namespace.
        path = f"/v2/namespaces/{self._namespace}"
        if self._policies:
            target.broker.admin("PUT", path)
        for name, what in self._policies.items():
            target.broker.admin("POST", f"{path}/{name}", what)

    def _input_topic(self, name: str) -> str:
        is_from_topic = any(one.has_input_topic for one in self._conditions)
        return f"persistent://public/default/{name}-input" if is_from_topic else ""

    def _path_if(self, trait: str, name: str) -> str:
        return str(self._folder / name) if any(getattr(c, trait) for c in self._conditions) else ""

    def _start_database(self, stack: ExitStack) -> PostgresServer | None:
        if not any(one.has_database for one in self._conditions):
            return None
        return stack.enter_context(PostgresServer())

    def _archive(self, target: FaultTarget, stack: ExitStack) -> ArchiveJudge | None:
        if not any(one.has_archive for one in self._conditions):
            return None
        topic = self._job.input_topic
        topics = [f"{topic}-partition-{n}" for n in range(KEYED_PARTITIONS)]
        judge = stack.enter_context(ArchiveJudge(self._broker, topics))
        archiver = Archiver(
            topic,
            str(self._folder / "archive"),
            self._folder,
            service_url=target.job.service_url,
            admin_url=self._broker.admin_url,
            tell=self._tell,
        )
        target.archiver = stack.enter_context(archiver)
        return judge

    def _found_in_archive(
        self, target: FaultTarget, judge: ArchiveJudge, feed: Feed
    ) -> list[Anomaly]:
        assert target.archiver is not None
        wrong = target.archiver.finish()
        given = [one for some in self._records[: feed.given] for one in some]
        # Not of the job's topic, but of the input's.
        records = [one._replace(topic=None) for one in given]
        return check(judge.history(target.archiver.table, records, wrong))

    def _count(self, target: FaultTarget, stack: ExitStack) -> CountJudge | None:
        if not any(one.has_counter for one in self._conditions):
            return None
        # Its own proxy: the job's faults wait for the job's requests.
        proxy = stack.enter_context(FaultProxy(self._broker.service_url))
        counter = KeyedCounter(self._topics[0], self._job.topic, self._folder, proxy, self._tell)
        judge = CountJudge(self._broker, counter)
        target.counter = stack.enter_context(counter)
        return judge

    def _feed_of(self, target: FaultTarget) -> Feed | SoakFeed:
        if self._soak:
            return SoakFeed(self._soak, target, self._tell)
        inputs = self._inputs_of(target.job)
        return Feed(target.job, self._schedule, self._records, inputs, self._minutes)

    def _inputs_of(self, job: Job) -> Inputs:
        if job.history:
            return HistoryInputs(job, self._schedule, self._broker, self._records)
        if any(one.is_tiered or one.has_archive for one in self._conditions):
            store = self._store if job.tiered else None
            return RollingInputs(job, self._schedule, self._broker, store)
        if any(one.is_chunked for one in self._conditions):
            return ChunkedInputs(job, self._schedule, self._broker)
        if job.input_topic:
            return TopicInputs(job, self._schedule, self._broker)
        return FileInputs(job, self._schedule)

    def _read_log(self, target: FaultTarget) -> None:
        with contextlib.suppress(EosError):  # during an append; the log is read again later
            self._earlier |= dict.fromkeys(decisions_of(target.log_records() or []))
