"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.commit_log import CommitLog, has_log
from eos.committer import Committer, EpochResult, PulsarHalf, Written
from eos.coordinator import check_lineage
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TxnId
from eos.summary import TaskSummary
from eos.transaction import BATCH, History
from eos.wire.compression import Compression
from sinks.columns import select_columns
from sinks.jobs import spark_context, tagged_jobs
from sinks.options import PulsarSinkOptions
from sinks.task import SUMMARY_SCHEMA, WriteTask

logger = logging.getLogger(__name__)


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

    def __init__(self, **options: Any) -> None:
        self.options = PulsarSinkOptions.parse(options)
        self._lock = threading.Lock()
        self._half: PulsarHalf | None = None
        self._committer: Committer | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of a streaming query, exactly once; skip it if it was written.

        Raises:
            EosError: see ``write``; also NewLineage, for a new checkpoint under a known sink.
        """
        context = spark_context(df)
        query_id = context.getLocalProperty("sql.streaming.queryId")
        if not query_id:
            raise ConfigurationError(
                "The sink was called outside of a streaming query.",
                hint="Give it to foreachBatch; for a batch job use sink.write(df, epoch=key).",
            )
        # A query that is started again within this process runs under a new run id.
        run_id = context.getLocalProperty("spark.jobGroup.id") or ""
        self._run(df, context, query_id, str(batch_id), run_id)

    def write(self, df: DataFrame, *, epoch: str) -> EpochResult:
        """Write a batch job's rows, exactly once for each ``epoch``.

        A key that an earlier run has written is skipped, by the key alone: rows are not compared.

        Raises:
            InputError: the rows can't be written as they are; nothing of them is readable.
            DuplicateEpochCall: ``epoch`` was written by this sink object already.
            Fenced: another driver has claimed the sink.
            InDoubt: an earlier transaction's outcome can't be proved now.
            TransactionPoisoned: the epoch failed ``max_attempts`` times; the log says why.
        """
        return self._run(df, spark_context(df), BATCH, epoch, "")

    def close(self) -> None:
        """Free connections. The claim stays: the next driver takes it over."""
        with self._lock:
            half, self._half = self._half, None
            committer, self._committer = self._committer, None
        try:
            if committer is not None:
                committer.await_noted()
        finally:
            if half is not None:
                half.close()

    def __repr__(self) -> str:
        return f"PulsarSink(sink_id={self.options.sink_id!r}, topic={self.options.topic!r})"

    def _run(
        self, df: DataFrame, context: SparkContext, query_id: str, epoch: str, call: str
    ) -> EpochResult:
        with self._lock:
            try:
                committer, half = self._opened(query_id, epoch)
                return committer.run_epoch(
                    query_id,
                    epoch,
                    lambda txn: self._plan(df, context, half, txn),
                    call=call,
                    # A batch job's caller may end the process, or look at the log, right away.
                    notes_later=query_id != BATCH,
                )
            except EosError as error:
                error.with_context(sink_id=self.options.sink_id, query_id=query_id, epoch=epoch)
                raise

    def _opened(self, query_id: str, epoch: str) -> tuple[Committer, PulsarHalf]:
        options = self.options
        if self._committer is None or self._half is None:
            self._check_log_is_there(query_id, epoch)
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
            log = CommitLog.open(
                options.commit_log,
                options.sink_id,
                storage_options=options.storage_options,
                keep_epochs=options.keep_epochs,
            )
            self._half = half
            self._committer = Committer(
                log,
                half,
                service_url=options.service_url,
                ttl_ms=int(options.transaction_ttl_s * 1000),
                max_attempts=options.max_attempts,
                deadline_s=options.resolve_timeout_s,
            )
        self._committer.check_lineage(query_id, epoch, options.on_new_query)
        return self._committer, self._half

    def _check_log_is_there(self, query_id: str, epoch: str) -> None:
        """Before an empty one is made in the place of a log that is elsewhere."""
        options = self.options
        where = (options.commit_log, options.sink_id)
        if not has_log(*where, storage_options=options.storage_options):
            check_lineage(History(options.sink_id), query_id, epoch, options.on_new_query)

    def _plan(
        self, df: DataFrame, context: SparkContext, half: PulsarHalf, txn: TxnId
    ) -> Callable[[], Written]:
        """Step 5, up to the one Spark action that sends the rows; the function runs that."""
        rows = select_columns(df)
        topics = self._topics(half)
        half.touches(topics)
        task = WriteTask(
            client=self.options.client,
            txn=txn,
            topics=topics,
            keyed="key" in df.columns,
            max_batch_bytes=self.options.max_batch_bytes,
            compression=Compression.parse(self.options.compression),
        )
        writing = rows.mapInArrow(task, SUMMARY_SCHEMA)

        def write() -> Written:
            with tagged_jobs(context) as jobs:
                summaries = [TaskSummary.from_json(row.summary) for row in writing.collect()]
                stage = jobs.stage_facts(summaries[0].stage_id if summaries else None)
            return Written(summaries, stage)

        return write

    def _topics(self, half: PulsarHalf) -> tuple[str, ...]:
        """The exact names of the topic's partitions, fixed here for the whole epoch."""
        name = self.options.topic_name
        try:
            count = half.client.partition_count(str(name))
        except TopicNotFound:
            if not self.options.create_topics:
                raise
            half.client.producer(str(name), create=True).close()
            count = 0
        return tuple(str(partition) for partition in name.partitions(count))
