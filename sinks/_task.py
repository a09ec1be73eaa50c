"""The Spark task that sends its rows in the epoch's transaction; runs on an executor.

Imports nothing that only a driver has (no pydantic, deltalake, tenacity).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from eos import failpoints
from eos.client import EntryProducer, PulsarClient, Transaction
from eos.client.worker_cache import ClientOptions, cached_client
from eos.errors import EosError, TopicNotFound
from eos.ids import MessageId, TxnId
from eos.pulsar.roll_call import AnsweredBefore, RollCall
from eos.sinks._row_encoding import TaskSchemas, message_rows
from eos.sinks._topics import TaskTopics, TopicCreation
from eos.spark_worker import disable_delayed_acks, freeze_imports
from eos.steps import TaskStep
from eos.task_report import PartitionFigures, TaskError, TaskSummary
from eos.waiting import parallel_map
from eos.wire.batch import (
    Auto,
    Compression,
    EncodedBatch,
    Hashing,
    PartitionSlice,
    Rows,
    by_partition,
    check_rows,
    encode_batches,
    longest_key_bytes,
    override_partitions,
    partitions_for_keys,
)
from eos.wire.encryption import Encryptor, PublicKey
from eos.wire.from_python import text_row

if TYPE_CHECKING:
    from eos.schemas import Schema  # costs a new worker 36 ms, and few need it

# The columns of a task's result: one row, `TaskSummary` as JSON. Not DDL text, which Spark's JVM
# would have to parse in each epoch.
SUMMARY_SCHEMA: Final = StructType().add("summary", StringType())

# Entries' worth of rows that are held back, at most, before they are split by key.
MAX_GATHERED_BATCHES = 16


@dataclass(frozen=True)
class WriteTask:
    """The function that ``mapInArrow`` runs on the executors.

    Attributes:
        after: idle producers that were last used in one of these transactions are reused; they are
            the newest committed ones.
        reuse: whether producers are kept idle for a later epoch.
        topics: the exact names of all partitions, fixed by the driver for the whole epoch; empty if
            the rows name their topics.
        creation: creates missing topics that rows name.
        spread: whether the rows of one task go to several partitions.
        value_type: of the values, before Spark made JSON of them; None without a schema.
        own_columns: the DataFrame's names of the message's own columns.
        public_keys: encrypt the messages, by name.
    """

    client: ClientOptions
    txn: TxnId
    call: RollCall
    after: tuple[TxnId, ...]
    reuse: bool
    topics: tuple[str, ...]
    creation: TopicCreation | None
    spread: bool
    max_batch_bytes: int
    compression: Compression | Auto
    hashing: Hashing
    by_key: bool
    tombstones: bool
    schema: Schema | None
    value_type: pa.DataType | None
    own_columns: tuple[str, ...] = ()
    public_keys: Mapping[str, PublicKey] | None = None

    @property
    def gathered_bytes(self) -> int:
        """The bytes of rows to hold back, so that each partition gets full entries."""
        partitions = len(self.topics) or MAX_GATHERED_BATCHES
        entries = min(partitions, MAX_GATHERED_BATCHES) if self.spread else 1
        return self.max_batch_bytes * entries

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send ``batches``, and yield the summary."""
        # Otherwise the task's rows come up to 40 ms late (docs/facts.md, "Spark").
        disable_delayed_acks()
        yield text_row(summary=self.write(batches).to_json())
        freeze_imports()  # else Spark scans them after each task: 95 ms of a core (measured)
        failpoints.reached(TaskStep.REPORT)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskSummary:
        """Send ``batches``; the summary has the error if that fails."""
        return _Run(self, spark_partition()).write(batches)


def spark_partition() -> int:
    """Return the partition id of the task that runs here."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


@dataclass
class _Run:
    """One run of a task."""

    # A task sends its rows once, or reports why not: it raises no EosError, because Spark would run
    # it again. It answers the roll call before its first row, and sends nothing if another run of
    # it has answered (I4). Without rows it does not answer or connect.

    task: WriteTask
    spark_partition: int
    run_id: str = ""
    limit_hit: bool = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskSummary:
        figures: tuple[PartitionFigures, ...] = ()
        registered: tuple[str, ...] = ()
        counts: tuple[tuple[str, int], ...] = ()
        error: TaskError | None = None
        rows = gathered(batches, self.task.gathered_bytes)
        try:
            first = next(rows, None)
            if first is not None:
                figures, registered, counts = self._connect_and_send(itertools.chain([first], rows))
        except EosError as failure:
            if isinstance(failure, AnsweredBefore):
                # The run before this one failed. Its error, for example one of the user's code,
                # occurs here again, and Spark ends the job with it.
                for _ in rows:
                    pass
            if isinstance(failure, TopicNotFound) and self.task.topics:
                failure.hint = failure.deleted_hint  # it existed when the driver planned
            error = TaskError.of(failure)
        return TaskSummary(
            spark_partition=self.spark_partition,
            run_id=self.run_id,
            registered=registered,
            partitions=figures,
            partition_counts=counts,
            error=error,
            limit_hit=self.limit_hit,
        )

    def _connect_and_send(
        self, batches: Iterable[pa.RecordBatch]
    ) -> tuple[tuple[PartitionFigures, ...], tuple[str, ...], tuple[tuple[str, int], ...]]:
        with cached_client(self.task.client) as client:
            try:
                return self._answer_and_send(client, batches)
            finally:
                self.limit_hit = client.limit_hit

    def _answer_and_send(
        self, client: PulsarClient, batches: Iterable[pa.RecordBatch]
    ) -> tuple[tuple[PartitionFigures, ...], tuple[str, ...], tuple[tuple[str, int], ...]]:
        task = self.task
        self.run_id = task.call.answer(
            client, self.spark_partition, timeout_s=task.client.timeout_s, reuse=task.reuse
        )
        failpoints.reached(TaskStep.ANSWER)
        txn = client.join(task.txn)
        topics = TaskTopics(client, task.topics, creation=task.creation, options=task.client)
        encryptor = Encryptor(task.public_keys) if task.public_keys else None
        schemas = TaskSchemas(
            client, task.schema, task.value_type, task.own_columns, encrypted=bool(encryptor)
        )
        writers: dict[str, _PartitionWriter] = {}
        try:
            self._send(batches, schemas, txn, topics, writers, encryptor)
            # Closed before the summary is sent: none of this task's sends is in flight then (I3).
            ordered = [writers[name] for name in sorted(writers)]
            figures = tuple(parallel_map(lambda writer: writer.close(reuse=task.reuse), ordered))
            failpoints.reached(TaskStep.SETTLE)
            txn.check()
        except BaseException:
            # The abort that follows must not overtake sends in flight: it could block readers.
            txn.settle()
            for writer in writers.values():
                writer.abandon()
            raise
        idle = [one.successor for one in ordered if one.successor is not None]
        schemas.release_producers(idle, txn)
        return figures, txn.registered, topics.partition_counts

    def _send(
        self,
        batches: Iterable[pa.RecordBatch],
        schemas: TaskSchemas,
        txn: Transaction,
        topics: TaskTopics,
        writers: dict[str, _PartitionWriter],
        encryptor: Encryptor | None,
    ) -> None:
        # Tasks rotate over the partitions from epoch to epoch, so that each gets rows.
        turn = txn.id.least + self.spark_partition
        for batch in batches:
            by_topic = list(topics.split(batch))
            schemas.look_up([names[0] for names, _ in by_topic])
            sliced = [
                (names, *_split(schemas.encoded(rows, names[0]), len(names), turn, self.task))
                for names, rows in by_topic
            ]
            # Two spellings in a column may name one topic.
            wanted = (names[one.partition] for names, _, slices in sliced for one in slices)
            new = dict.fromkeys(name for name in wanted if name not in writers)
            producers = schemas.open_producers(new, txn, after=self.task.after)
            for name, producer in producers.items():
                writers[name] = _PartitionWriter(producer, txn, encryptor)
            failpoints.reached(TaskStep.REGISTER)
            for names, rows, slices in sliced:
                addressed = [(writers[names[one.partition]], one) for one in slices]
                _send_slices(self.task, rows, addressed)
            failpoints.reached(TaskStep.SEND)


def gathered(batches: Iterable[pa.RecordBatch], at_least_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield ``batches`` that have rows, in order; small ones are joined to ``at_least_bytes``."""
    # Spark passes 10,000 rows at a time, which would make tiny entries when they are split by key
    # over many partitions. A batch that is large enough is not copied.
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= at_least_bytes:
            yield _joined(held)
            held, held_bytes = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _split(
    batch: pa.RecordBatch, partition_count: int, turn: int, task: WriteTask
) -> tuple[Rows, list[PartitionSlice]]:
    # By the partition that a row names, else by that of its key. Rows without both stay together.
    is_pair = task.schema is not None and len(task.schema.columns) > 1
    rows = message_rows(batch, tombstones=task.tombstones, is_pair=is_pair)
    keyless = turn % partition_count
    chosen = batch.column("partition") if "partition" in batch.schema.names else None
    if chosen is None and (rows.key is None or partition_count == 1):
        return rows, [PartitionSlice(keyless, 0, len(rows))]
    if rows.key is None:
        partitions = np.full(len(rows), keyless, np.int32)
    else:
        partitions = partitions_for_keys(
            rows.key, partition_count, keyless_partition=keyless, hashing=task.hashing
        )
    if chosen is not None:
        partitions = override_partitions(partitions, chosen, partition_count)
    return by_partition(rows, partitions)


def _send_slices(
    task: WriteTask, rows: Rows, slices: Sequence[tuple[_PartitionWriter, PartitionSlice]]
) -> None:
    # The rows of all partitions are encoded in one pass. With by_key entries have rows of one key,
    # and each partition is encoded separately.
    limit = min(writer.max_batch_bytes for writer, _ in slices)
    if task.by_key:  # the entry repeats the key
        limit -= longest_key_bytes(rows)
    check_rows(rows, limit)
    at_most = min(task.max_batch_bytes, limit)
    if task.by_key:
        for writer, (_, start, stop) in slices:
            mine = rows.slice(start, stop)
            writer.send(encode_batches(mine, at_most, compression=task.compression, by_key=True))
        return
    edges = [one.start for _, one in slices]
    batches = encode_batches(rows, at_most, compression=task.compression, edges=edges)
    for writer, (_, start, stop) in slices:
        writer.send(_taken(batches, stop - start))


def _taken(batches: Iterator[EncodedBatch], rows: int) -> Iterator[EncodedBatch]:
    while rows:
        batch = next(batches)
        rows -= batch.num_messages
        yield batch


@dataclass
class _PartitionWriter:
    """Sends to one topic partition, and adds up its figures."""

    producer: EntryProducer
    txn: Transaction
    encryptor: Encryptor | None = None
    records: int = 0
    bytes: int = 0
    checksum: int = 0
    acknowledgements: list[Future[MessageId]] = field(default_factory=list)
    successor: EntryProducer | None = None

    @property
    def max_batch_bytes(self) -> int:
        overhead = self.encryptor.overhead_bytes if self.encryptor else 0
        return self.producer.max_batch_bytes - overhead

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        for plain in batches:
            batch = self.encryptor.encrypt(plain) if self.encryptor else plain
            self.acknowledgements.append(self.producer.send_batch(batch, txn=self.txn))
            self._count(batch)

    def _count(self, batch: EncodedBatch) -> None:
        self.records += batch.num_messages
        self.bytes += batch.value_and_key_bytes
        self.checksum = (self.checksum + batch.checksum) % 2**64

    def abandon(self) -> None:
        # No send is in flight: the broker's answer is not waited for.
        (self.successor or self.producer).abandon()

    def close(self, *, reuse: bool) -> PartitionFigures:
        """Wait for every acknowledgement, close the producer, and return its figures.

        ``reuse``: keep the producer open at the broker, as ``successor``.
        """
        if reuse:
            self.successor = self.producer.transfer()
        else:
            self.producer.close()
        # All have arrived; the thread that read the last one may not have set its result yet.
        ids = [one.result() for one in self.acknowledgements]
        return PartitionFigures(
            topic=self.producer.topic,
            producers=(self.producer.name,),
            records=self.records,
            bytes=self.bytes,
            checksum=self.checksum,
            first_id=min(ids),
            last_id=max(ids),
        )
