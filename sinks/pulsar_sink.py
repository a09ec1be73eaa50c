"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.commit_log import CommitLog, has_log
from eos.committer import Begun, Committer, EpochResult, PulsarHalf, Written
from eos.errors import DuplicateEpochCall, EosError, TopicNotFound
from eos.protocol import (
    BATCH,
    FINAL,
    History,
    State,
    check_lineage,
    lost_log,
    unfinished_epoch,
)
from eos.retry import attempts
from eos.summary import TaskSummary
from eos.wire.compression import Compression
from sinks.arguments import BatchKey, batch_key, check_batch
from sinks.columns import select_columns
from sinks.failures import shortened
from sinks.jobs import spark_context, tagged_jobs
from sinks.options import PulsarSinkArguments, PulsarSinkOptions
from sinks.progress import log_written, warn_of_new_topic
from sinks.streaming import (
    is_stateful,
    may_rerun,
    planned_at,
    run_without_writing,
    running_query,
)
from sinks.task import SUMMARY_SCHEMA, WriteTask

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Failed:
    """An epoch that ended in an error, of which kind; ``twice``: it was written, and called again.

    Not the error itself, which would keep its traceback and all that hangs on it.
    """

    epoch: str
    why: str
    twice: DuplicateEpochCall | None


class PulsarSink:
    """One output of Spark, in Pulsar: each epoch is one transaction, readable whole or not at all.

    An instance is the function that ``foreachBatch`` takes; ``write`` serves batch jobs::

        sink = PulsarSink(sink_id="orders", service_url="pulsar://localhost:6650",
                          topic="persistent://public/default/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Columns: ``value`` (binary or string, required), ``key`` (string or binary), ``event_time``
    (timestamp, or milliseconds since 1970), ``properties`` (map of string to string),
    ``ordering_key`` (binary or string). Rows with a key go to the partition that the Java client's
    default hashing chooses; rows without one stay together, one partition for each task.

    The options are those of ``PulsarSinkOptions``. Nothing is connected before the first epoch;
    then the sink is claimed, and a driver that holds it elsewhere is fenced.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    def __init__(self, **options: Unpack[PulsarSinkArguments]) -> None:
        self.options = PulsarSinkOptions.parse(options)
        self._lock = threading.Lock()
        self._half: PulsarHalf | None = None
        self._committer: Committer | None = None
        self._failed: dict[str, _Failed] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of a streaming query, exactly once; skip it if it was written.

        Raises:
            EosError: see ``write``; also NewLineage, for a new checkpoint under a known sink.
        """
        try:
            self._write_batch(df, batch_id)
        except Exception as error:
            failure, line = shortened(error, self._named(batch_id))
            raise failure from line

    def _write_batch(self, df: DataFrame, batch_id: int) -> None:
        context = spark_context(df)
        query = running_query(df)
        result = self._reported(
            df,
            context,
            query.query_id,
            str(batch_id),
            call=query.run_id,
            planned_at=lambda: planned_at(df, batch_id),
        )
        if result.status == "skipped" and is_stateful(df):
            run_without_writing(df)

    def write(self, df: DataFrame, *, epoch: BatchKey) -> EpochResult:
        """Write a batch job's rows, exactly once for each ``epoch``.

        A key that an earlier run has written is skipped, by the key alone: rows are not compared.

        Args:
            epoch: what names these rows: text, a whole number, a date or a datetime. A number
                counts as its digits, a date as its ISO text: ``date(2026, 11, 20)`` and
                ``"2026-11-20"`` are one key, ``datetime(2026, 11, 20)`` is another one.

        Raises:
            ConfigurationError: ``epoch`` or ``df`` is something else; says what is allowed.
            InputError: the rows can't be written as they are; nothing of them is readable.
            DuplicateEpochCall: ``epoch`` was written by this sink object already.
            Fenced: another driver has claimed the sink.
            InDoubt: an earlier transaction's outcome can't be proved now.
            TransactionPoisoned: the epoch failed ``max_attempts`` times; the log says why.
        """
        context = spark_context(df)
        check_batch(df)
        return self._reported(df, context, BATCH, batch_key(epoch))

    def close(self) -> None:
        """Free connections. The claim stays: the next driver takes it over."""
        with self._lock:
            half, self._half = self._half, None
            committer, self._committer = self._committer, None
            self._failed.clear()
        try:
            if committer is not None:
                committer.await_noted()
        finally:
            if half is not None:
                half.close()

    def __repr__(self) -> str:
        return f"PulsarSink(sink_id={self.options.sink_id!r}, topic={self.options.topic!r})"

    def _named(self, epoch: object) -> str:
        return f"epoch {epoch} of sink {self.options.sink_id}"

    def _reported(
        self, df: DataFrame, context: SparkContext, query_id: str, epoch: str, **known: Any
    ) -> EpochResult:
        started = time.monotonic()
        result = self._run(df, context, query_id, epoch, **known)
        log_written(result, self._named(epoch), time.monotonic() - started)
        return result

    def _run(
        self, df: DataFrame, context: SparkContext, query_id: str, epoch: str, **known: Any
    ) -> EpochResult:
        with self._lock:
            try:
                self._check_order(query_id, epoch)
                committer, half = self._opened(query_id, epoch)
                result = committer.run_epoch(
                    query_id,
                    epoch,
                    lambda begun: self._plan(df, context, half, begun),
                    **known,
                    # A batch job's caller may end the process, or look at the log, right away.
                    notes_later=query_id != BATCH,
                    may_rerun=lambda: query_id == BATCH or may_rerun(df),
                )
            except BaseException as error:
                twice = copy.copy(error) if isinstance(error, DuplicateEpochCall) else None
                self._failed.setdefault(query_id, _Failed(epoch, type(error).__name__, twice))
                if isinstance(error, EosError):
                    error.with_context(sink_id=self.options.sink_id, query_id=query_id, epoch=epoch)
                raise
            self._failed.pop(query_id, None)
            return result

    def _check_order(self, query_id: str, epoch: str) -> None:
        """The log knows of most epochs that failed; of those before a claim only this object does.

        Spark asks for the same epoch again after an error, unless somebody has swallowed it.
        """
        failed = self._failed.get(query_id)
        if failed is None or query_id == BATCH or failed.epoch == epoch:
            return
        if failed.twice is not None:
            raise failed.twice  # its second call's rows are in no topic, and no log knows of them
        if self._is_settled(query_id, failed.epoch):
            del self._failed[query_id]
            return
        raise unfinished_epoch(
            query_id, epoch, failed.epoch, failed.why, sink_id=self.options.sink_id
        )

    def _is_settled(self, query_id: str, epoch: str) -> bool:
        """Whether the log says by now that the epoch is done, or that a person gave it up."""
        options = self.options
        with contextlib.suppress(EosError):
            log = CommitLog.open_read_only(
                options.commit_log, options.sink_id, storage_options=options.storage_options
            )
            newest = log.history.newest(query_id, epoch)
            return newest is not None and newest.state in (*FINAL, State.ABANDONED)
        return False

    def _opened(self, query_id: str, epoch: str) -> tuple[Committer, PulsarHalf]:
        options = self.options
        if self._committer is None or self._half is None:
            half = PulsarHalf(
                options.sink_id,
                options.service_url,
                options.security,
                receipt_namespace=options.receipt_namespace or options.topic_name.namespace_name,
                admin_url=options.admin_url,
                timeout_s=options.request_timeout_s,
            )
            # A client that is left open keeps threads that may outlive the interpreter.
            weakref.finalize(self, half.close)
            self._check_log_is_there(half, query_id, epoch)
            log = CommitLog.open(
                options.commit_log,
                options.sink_id,
                storage_options=options.storage_options,
                keep_epochs=options.keep_epochs,
            )
            warn_of_new_topic(log.history, options.topic_name)
            with contextlib.suppress(EosError):  # what an earlier run may have pinned
                half.touches(self._partitions(half))
            self._half = half
            self._committer = Committer(
                log,
                half,
                service_url=options.service_url,
                ttl_ms=int(options.transaction_ttl_s * 1000),
                max_attempts=options.max_attempts,
                deadline_s=options.resolve_timeout_s,
                on_new_cluster=options.on_new_cluster,
                on_gap=options.on_gap,
                on_rewind=options.on_rewind,
            )
        self._committer.check_lineage(query_id, epoch, options.on_new_query)
        return self._committer, self._half

    def _check_log_is_there(self, half: PulsarHalf, query_id: str, epoch: str) -> None:
        """Before an empty one is made in the place of a log that is elsewhere."""
        options = self.options
        where = (options.commit_log, options.sink_id)
        if has_log(*where, storage_options=options.storage_options):
            return
        check_lineage(History(options.sink_id), query_id, epoch, options.on_new_query)
        if options.on_new_query == "continue":
            return
        others: list[str] = []
        for attempt in attempts(options.resolve_timeout_s):
            with attempt:
                others = half.other_receipt_topics()
        if others:
            raise lost_log(options.commit_log, others[-1])

    def _plan(
        self, df: DataFrame, context: SparkContext, half: PulsarHalf, begun: Begun
    ) -> Callable[[], Written]:
        """Step 5, up to the one Spark action that sends the rows; the function runs that."""
        rows = select_columns(df)
        topics = self._topics(half)
        half.touches(topics)
        task = WriteTask(
            client=self.options.client,
            txn=begun.txn,
            call=begun.call,
            topics=topics,
            keyed="key" in df.columns,
            max_batch_bytes=self.options.max_batch_bytes,
            compression=Compression.parse(self.options.compression),
        )
        writing = rows.mapInArrow(task, SUMMARY_SCHEMA)

        def write() -> Written:
            with tagged_jobs(context):
                return [TaskSummary.from_json(row.summary) for row in writing.collect()]

        return write

    def _topics(self, half: PulsarHalf) -> tuple[str, ...]:
        """The exact names of the topic's partitions, fixed here for the whole epoch."""
        try:
            return self._partitions(half)
        except TopicNotFound as error:
            if not self.options.create_topics:
                error.hint = "Create the topic, or set create_topics=True."
                raise
            half.client.create_unpartitioned(str(self.options.topic_name))
            return (str(self.options.topic_name),)

    def _partitions(self, half: PulsarHalf) -> tuple[str, ...]:
        name = self.options.topic_name
        count = half.client.partition_count(str(name))
        return tuple(str(partition) for partition in name.partitions(count))
