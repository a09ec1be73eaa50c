"""The steps of the Data Source writer, each in another process: open, write, commit, abort."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import MultiProcessRun, OpenAttempt
from eos.errors import (
    ConfigurationError,
    EosError,
    NewLineage,
    TransactionPoisoned,
)
from eos.protocol import Skip, State, is_streaming
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.sinks._arrow_columns import message_columns
from eos.sinks._open_log import log_is_there, open_log
from eos.sinks._task import spark_partition
from eos.sinks.dataframe_columns import Layout
from eos.sinks.options import WriterOptions
from eos.sinks.pulsar_sink import PulsarOutput
from eos.spark_worker import disable_delayed_acks, freeze_imports
from eos.steps import TaskStep
from eos.task_report import TaskError, TaskSummary, raise_task_error


@dataclass(frozen=True)
class EpochName:
    """The identity of an epoch: its query, its number or key, and the run that writes it."""

    query_id: str
    epoch: str
    run_id: str


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """A task's report, which Spark passes to the commit.

    ``mark`` names the transaction that has the task's rows; None when it sent no rows. ``skipped``:
    rows that are not written, because the epoch was committed before.
    """

    name: EpochName
    mark: str | None
    summary: str
    skipped: int = 0

    @property
    def records(self) -> int:
        """The number of rows that the task has written."""
        return sum(one.records for one in TaskSummary.from_json(self.summary).partitions)


@dataclass(frozen=True)
class BatchTarget:
    """Where a batch job's tasks write: the transaction, and the exact partitions (empty if the rows
    name their topics)."""

    part: PulsarPart
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Writing:
    """The writer's options and column layout, which all processes have, and the writer's steps."""

    options: WriterOptions
    layout: Layout

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert the batches that have rows to the columns of messages."""
        disable_delayed_acks()
        return (message_columns(batch, self.layout) for batch in batches if batch.num_rows)

    def report(self, name: EpochName, part: PulsarPart | None, summary: TaskSummary) -> TaskReport:
        """Return the report of this process's task."""
        mark = part.mark_uuid if part is not None and summary.run_id else None
        freeze_imports()
        failpoints.reached(TaskStep.REPORT)
        return TaskReport(name, mark, summary.to_json())

    def nothing(self, name: EpochName, error: EosError | None = None) -> TaskReport:
        """Return the report of a task that has written nothing."""
        reported = None if error is None else TaskError.of(error)
        return self.report(name, None, TaskSummary(spark_partition(), "", (), (), reported))

    def write(self, name: EpochName, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Join or open the epoch's transaction at the first row, and send the rows in it.

        Raises no ``EosError``: Spark would run the task again.
        """
        rows = self.rows(batches)
        first = next(rows, None)
        if first is None:
            return self.nothing(name)
        rows = itertools.chain([first], rows)
        try:
            process = Process.of(self.options, name)
            joined = process.run.join(name.query_id, name.epoch)
            topics = () if isinstance(joined, Skip) else process.output.topics()
        except EosError as error:
            _drain(rows)
            return self.nothing(name, error)
        if isinstance(joined, Skip):
            _drain(rows)  # the rows are not written, but a stateful query needs its state
            return self.nothing(name)
        part = pulsar_part(joined.record)
        summary = process.output.task(part, topics, self.layout).write(rows)
        if topics:  # each task has looked them up itself: the results must be equal
            summary = replace(summary, partition_counts=((str(self.options.topic), len(topics)),))
        return self.report(name, part, summary)

    def begin(self, name: EpochName) -> BatchTarget | Skip:
        """Open a batch job's epoch on the driver, unless it was committed before."""
        process = Process.of(self.options, name)
        try:
            opened = process.run.join(name.query_id, name.epoch)
            if isinstance(opened, Skip):
                return opened
            try:
                return BatchTarget(pulsar_part(opened.record), process.output.topics())
            except BaseException as error:
                opened.abort(error)
                raise
        finally:
            self.forget(name)  # another process commits

    def write_in(
        self, name: EpochName, target: BatchTarget | Skip, batches: Iterable[pa.RecordBatch]
    ) -> TaskReport:
        """Send the rows in the transaction that ``begin`` opened."""
        if isinstance(target, Skip):
            disable_delayed_acks()
            return replace(self.nothing(name), skipped=sum(batch.num_rows for batch in batches))
        rows = self.rows(batches)
        task = PulsarOutput(self.options).task(target.part, target.topics, self.layout)
        return self.report(name, target.part, task.write(rows))

    def commit(
        self,
        name: EpochName,
        reports: Sequence[TaskReport],
        planned_at: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        """Commit the epoch after all tasks have reported, or raise EosError.

        ``planned_at``: when Spark planned the epoch; only called if it was committed before.
        """
        marks = {report.mark for report in reports if report.mark is not None}
        summaries = [TaskSummary.from_json(report.summary) for report in reports]
        process = self._committing(name, marks)
        found = process.run.find(name.query_id, name.epoch)
        if found is None:
            if marks and not process.run.has_claimed:
                raise self._not_shared()
            raise_task_error(summaries)
            if marks:
                raise TransactionPoisoned(
                    "Another process ended the epoch's transaction (perhaps eos recovery)."
                )
            found = process.run.join(name.query_id, name.epoch)  # empty epochs are recorded, too
        if isinstance(found, Skip):
            _check_committed(found, marks)
            process.run.check_replayed(name.query_id, name.epoch, planned_at)
            return
        # Another mark: the tasks wrote with their own commit log, which needs its own advice.
        if marks - {pulsar_part(found.record).mark_uuid}:
            refusal = self._not_shared()
            found.abort(refusal)
            raise refusal
        process.output.participant.set_topics(
            {topic for summary in summaries for topic in summary.registered}
        )
        process.run.end(found, [summaries])

    def _committing(self, name: EpochName, marks: set[str]) -> Process:
        try:
            return Process.of(self.options, name)
        except NewLineage as error:
            if marks:  # then the tasks have a log
                raise self._not_shared() from error
            raise

    def _not_shared(self) -> ConfigurationError:
        return ConfigurationError(
            "Tasks have written in a transaction that is not in the driver's commit log: "
            f"{self.options.commit_log} is not the same place for the driver and its tasks.",
            hint="The tasks of a stream open its epochs, so put commit_log on storage that the "
            "driver and all executors share. Or use foreachBatch(PulsarSink(...)), where only the "
            "driver needs it. None of the epoch's rows is readable.",
        )

    def open_epoch(self, epoch: str, query_id: str | None) -> EpochName | None:
        """Return a stream's epoch that is open in the log; None if there is none."""
        # Another query may have taken the sink over: its id is compared, if it is known.
        options = self.options
        if not log_is_there(options):
            return None
        log = CommitLog.open_read_only(
            options.commit_log, options.sink_id, storage_options=options.storage_options
        )
        for record in log.history.unfinished:
            if record.state is not State.OPEN or record.epoch != epoch:
                continue
            assert record.query_id is not None
            # A query that gives up its epoch must not abort another query's.
            if is_streaming(record.query_id) and query_id in (None, record.query_id):
                return EpochName(record.query_id, epoch, record.run_id)
        return None

    def abort(self, name: EpochName) -> None:
        """Abort the run's attempt of the epoch, unless the log has its decision."""
        found = Process.of(self.options, name).run.find(name.query_id, name.epoch)
        if isinstance(found, OpenAttempt):
            found.abort(TransactionPoisoned("Spark aborted the epoch because a task failed"))

    def forget(self, name: EpochName) -> None:
        """Close the connections and the log that this process has open for a finished run."""
        kept = _kept.pop(_key(self.options, name), None)
        if kept is not None:
            kept.close()


class Process:
    """The connections and the log that this process has open for one run."""

    # Spark reuses its processes for later epochs, so they stay open there.

    def __init__(self, options: WriterOptions, name: EpochName) -> None:
        self.output = PulsarOutput(options)
        try:
            log = open_log(options, [self.output], name.query_id, name.epoch)
            self.output.remember(log.history)
        except BaseException:
            self.output.participant.close()
            raise
        self.run = MultiProcessRun(
            log,
            [self.output.participant],
            name.run_id,
            deadline_s=options.resolve_timeout_s,
            policies=options.policies,
        )

    @classmethod
    def of(cls, options: WriterOptions, name: EpochName) -> Process:
        """Return the one of this run: kept from an earlier epoch, or new."""
        key = _key(options, name)
        kept = _kept.get(key)
        if kept is None:
            kept = cls(options, name)
            while len(_kept) >= MAX_CLIENTS:
                _kept.pop(next(iter(_kept))).close()
            _kept[key] = kept
        return kept

    def close(self) -> None:
        """Close its connections."""
        self.output.participant.close()


def _key(options: WriterOptions, name: EpochName) -> tuple[str, str, str]:
    return options.commit_log, options.sink_id, name.run_id


# Number of runs that a process keeps open; Spark uses a process for several queries.
MAX_CLIENTS: Final = 4

_kept: Final[dict[tuple[str, str, str], Process]] = {}


def running_epoch() -> EpochName:
    """Return the micro-batch whose task runs here; ConfigurationError if there is none."""
    context = TaskContext.get()
    assert context is not None
    names = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")
    query_id, epoch, run_id = (context.getLocalProperty(name) for name in names)
    if query_id is None or epoch is None or run_id is None:
        raise ConfigurationError(
            "Only micro-batches can be written: continuous processing has no epochs."
        )
    return EpochName(query_id, epoch, run_id)


def _drain(rows: Iterable[pa.RecordBatch]) -> None:
    for _ in rows:
        pass


def _check_committed(done: Skip, marks: set[str]) -> None:
    # The rows that were sent must be in the committed transaction.
    committed = None if done.record is None else pulsar_part(done.record).mark_uuid
    if marks - {committed}:
        raise TransactionPoisoned(
            "Another run committed the epoch, and the rows of this run are not readable."
        )
