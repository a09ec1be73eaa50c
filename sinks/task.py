"""What one Spark task does on an executor: send its rows inside the epoch's transaction.

Imports nothing that only a driver has (no pydantic, deltalake, tenacity). A task sends everything
once or reports why not; it raises no ``EosError``, which Spark would answer with another attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from eos import failpoints
from eos.client import Producer, PulsarClient, Transaction
from eos.errors import EosError, TransactionPoisoned
from eos.ids import MessageId, TxnId
from eos.steps import TaskStep
from eos.summary import PartitionFigures, TaskError, TaskSummary
from eos.wire.batch import EncodedBatch, Rows, check_rows, encode_batches
from eos.wire.compression import Compression
from eos.wire.routing import partitions_for_keys, split_by_partition
from sinks.clients import ClientOptions, kept_client

SUMMARY_SCHEMA = "summary string"
"""What a task gives back to Spark: one row, ``TaskSummary`` as JSON."""

MAX_GATHERED_BATCHES = 16
"""At most so many entries' worth of rows are held back to be cut up by key."""

_CLOSED_AT_ONCE = 32


@dataclass(frozen=True)
class WriteTask:
    """The function that ``mapInArrow`` runs; travels to the executors.

    ``topics`` are the exact names of all partitions, fixed by the driver for the whole epoch;
    ``keyed`` says whether the rows have a column of keys.
    """

    client: ClientOptions
    txn: TxnId
    topics: tuple[str, ...]
    keyed: bool
    max_batch_bytes: int
    compression: Compression

    @property
    def gathered_bytes(self) -> int:
        """How many bytes of rows to hold back: so that each partition gets whole entries."""
        entries = min(len(self.topics), MAX_GATHERED_BATCHES) if self.keyed else 1
        return self.max_batch_bytes * entries

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send ``batches`` and yield the summary."""
        context = TaskContext.get()
        assert context is not None
        spark_partition = context.partitionId()
        figures: tuple[PartitionFigures, ...] = ()
        registered: tuple[str, ...] = ()
        error: TaskError | None = None
        try:
            if context.attemptNumber() > 0:
                raise TransactionPoisoned(
                    f"attempt {context.attemptNumber()} of a task: the rows of an earlier attempt "
                    "may be in the transaction"
                )
            figures, registered = self._write(batches, spark_partition)
        except EosError as failure:
            error = TaskError(type(failure).__name__, failure.message, failure.hint)
        summary = TaskSummary(
            spark_partition=spark_partition,
            stage_id=context.stageId(),
            attempt_number=context.attemptNumber(),
            registered=registered,
            partitions=figures,
            error=error,
        )
        yield pa.RecordBatch.from_pydict({"summary": [summary.to_json()]})
        failpoints.reached(TaskStep.REPORT)

    def _write(
        self, batches: Iterable[pa.RecordBatch], spark_partition: int
    ) -> tuple[tuple[PartitionFigures, ...], tuple[str, ...]]:
        with kept_client(self.client) as client:
            txn = client.join(self.txn)
            failpoints.reached(TaskStep.JOIN)
            writers: dict[int, _PartitionWriter] = {}
            try:
                self._send(batches, client, txn, writers, spark_partition)
                # Closed before the summary goes out: nothing of this task is under way then (I3).
                figures = _closed([writers[index] for index in sorted(writers)])
            except BaseException:
                # The abort that follows must not overtake what is under way: it could pin readers.
                txn.settle()
                raise
            failpoints.reached(TaskStep.SETTLE)
            txn.check()
            return figures, txn.registered

    def _send(
        self,
        batches: Iterable[pa.RecordBatch],
        client: PulsarClient,
        txn: Transaction,
        writers: dict[int, _PartitionWriter],
        spark_partition: int,
    ) -> None:
        count = len(self.topics)
        # From epoch to epoch the tasks move on, so that no partition is always left out.
        keyless = (self.txn.least + spark_partition) % count
        for batch in gathered(batches, self.gathered_bytes):
            parts = list(_split(_rows(batch), count, keyless))
            new = [index for index, _ in parts if index not in writers]
            producers = client.producers([self.topics[index] for index in new], txn=txn)
            failpoints.reached(TaskStep.REGISTER)
            for index, producer in zip(new, producers, strict=True):
                writers[index] = _PartitionWriter(producer, txn, self)
            for index, rows in parts:
                writers[index].write(rows)
            failpoints.reached(TaskStep.SEND)


def gathered(batches: Iterable[pa.RecordBatch], at_least_bytes: int) -> Iterator[pa.RecordBatch]:
    """``batches``, small ones joined, in order, until they hold ``at_least_bytes``.

    Spark hands over 10,000 rows at a time; cut up by key over many partitions these would make
    tiny entries. A batch that is large enough passes as it is, without a copy.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= at_least_bytes:
            yield _joined(held)
            held, held_bytes = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _rows(batch: pa.RecordBatch) -> Rows:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Rows(
        value=columns["value"],
        key=columns.get("key"),
        event_time_ms=columns.get("event_time"),
        properties=columns.get("properties"),
        ordering_key=columns.get("ordering_key"),
    )


def _split(rows: Rows, partition_count: int, keyless: int) -> Iterator[tuple[int, Rows]]:
    """Rows by topic partition: those with a key by its hash, the others stay together."""
    if not len(rows):
        return
    if rows.key is None or partition_count == 1:
        yield keyless, rows
        return
    partitions = partitions_for_keys(rows.key, partition_count, keyless_partition=keyless)
    yield from split_by_partition(rows, partitions)


@dataclass
class _PartitionWriter:
    """Sends to one topic partition and adds up what it sent."""

    producer: Producer
    txn: Transaction
    task: WriteTask
    records: int = 0
    bytes: int = 0
    checksum: int = 0
    receipts: list[Future[MessageId]] = field(default_factory=list)

    def write(self, rows: Rows) -> None:
        limit = self.producer.max_batch_bytes
        check_rows(rows, limit)
        at_most = min(self.task.max_batch_bytes, limit)
        for batch in encode_batches(rows, at_most, compression=self.task.compression):
            self.receipts.append(self.producer.send_batch(batch, txn=self.txn))
            self._count(batch)

    def _count(self, batch: EncodedBatch) -> None:
        self.records += batch.num_messages
        self.bytes += batch.value_and_key_bytes
        self.checksum = (self.checksum + batch.checksum) % 2**64

    def close(self) -> PartitionFigures:
        """Wait for every receipt, close the producer, and say what was sent."""
        self.producer.close()
        ids = [receipt.result(timeout=0) for receipt in self.receipts]
        return PartitionFigures(
            topic=self.producer.topic,
            producers=(self.producer.name,),
            records=self.records,
            bytes=self.bytes,
            checksum=self.checksum,
            first_id=min(ids),
            last_id=max(ids),
        )


def _closed(writers: list[_PartitionWriter]) -> tuple[PartitionFigures, ...]:
    """Close them, many at a time: each waits for an answer of the broker."""
    if len(writers) < 2:
        return tuple(writer.close() for writer in writers)
    with ThreadPoolExecutor(min(len(writers), _CLOSED_AT_ONCE)) as pool:
        return tuple(pool.map(lambda writer: writer.close(), writers))
