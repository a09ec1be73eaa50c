"""Inputs in a topic, each in a transaction; also in a table, or in tiered storage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

from eos.chaos._query_shapes import SHAPES
from eos.chaos._records import id_in, slot_of, text_of
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import Record
from eos.chaos.cluster.chunk_sender import ChunkedMessage, send_in_chunks
from eos.chaos.cluster.object_store import ObjectStore
from eos.chaos.cluster.target import Pulsar, path_of
from eos.chaos.job import SLOT, Job
from eos.chaos.schedule import Schedule
from eos.client import EntryProducer, PulsarClient, Transaction
from eos.errors import EosError, RequestTimeout
from eos.ids import EntryPlace, TopicName
from eos.testing import offload
from eos.wire.commands import MessageIdData

# Keyed records use only these: a key must stay in its partition when more are added.
KEYED_PARTITIONS: Final = 2
_TTL_S: Final = 15.0
_TRIES: Final = 20
_PAUSE_S: Final = 1.0
_ABORTED_EVERY: Final = 3
_EXPIRED_EVERY: Final = 6
_EXPIRES_S: Final = 10.0
_UNCOMMITTED: Final = b"of a transaction that is not committed"
# The source reads smaller ledgers through the broker.
_LARGE: Final = 2 * [bytes(9 << 19)]
_EARLIEST: Final = "earliest"
_INCOMPLETE_SHARE: Final = 0.02


class TopicInputs:
    """Creates ``job.input_topic`` and sends inputs to it."""

    _are_transactions = True

    def __init__(self, job: Job, schedule: Schedule, broker: Pulsar) -> None:
        self._topic = TopicName.parse(job.input_topic)
        self._filler = "x" * schedule.padding
        self._broker = broker
        self._readings = SHAPES[job.shape].readings
        self._checkpoint = Checkpoint(job.checkpoint)
        self._ends: list[dict[str, EntryPlace]] = []
        self._places: dict[str, tuple[str, EntryPlace]] = {}
        path = f"/v2/{job.input_topic.replace('://', '/')}/partitions"
        broker.admin("PUT", path, KEYED_PARTITIONS)

    def release(self, number: int, records: list[Record]) -> None:
        """See ``Inputs``.

        Raises:
            EosError: the topic can't be written after all retries.
        """
        # It bypasses the proxy, but not a broker that dies: each input must be there exactly once.
        for attempt in range(_TRIES):
            try:
                with PulsarClient(self._broker.service_url, timeout_s=10) as client:
                    # In doubt after an error: searched before it is sent again.
                    places = self._known(client, records) if attempt else {}
                    left = [record for record in records if record.id not in places]
                    if left:
                        places |= self._send(client, number, left)
                break
            except (EosError, OSError):
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_S)
        self._places = places | self._places  # a stateful query gets some of them twice
        ends: dict[str, EntryPlace] = {}
        for topic, place in places.values():
            ends[topic] = max(place, ends.get(topic, place))
        self._ends.append(ends)

    def _send(
        self, client: PulsarClient, number: int, records: list[Record]
    ) -> dict[str, tuple[str, EntryPlace]]:
        count = client.partition_count(str(self._topic))
        producers = client.entry_producers([str(one) for one in self._topic.partitions(count)])
        if number % _ABORTED_EVERY == 0:
            # Readers must step over it.
            aborted = client.transaction(timeout_s=_TTL_S)
            for producer in producers:
                producer.send(b"of an aborted transaction", txn=aborted)
            aborted.abort()
        sent = []
        with client.transaction(timeout_s=_TTL_S) as txn:
            for record in records:
                slot = slot_of(record)
                producer = producers[slot % (KEYED_PARTITIONS if record.key else count)]
                future = producer.send(
                    text_of(record.id, self._filler).encode(),
                    txn=txn,
                    key=record.key or None,
                    properties={SLOT: str(slot)},
                )
                sent.append((record.id, producer.topic, future))
            places = {name: (topic, future.result().place) for name, topic, future in sent}
            self._before_commit(client, number, producers)
        return places

    def _before_commit(
        self, client: PulsarClient, number: int, producers: Sequence[EntryProducer]
    ) -> None:
        """Do more while the transaction of an input is open; ``producers`` have sent it."""

    def _known(
        self, client: PulsarClient, records: Iterable[Record]
    ) -> dict[str, tuple[str, EntryPlace]]:
        """Find the positions of the records in the topic; in transactions of all, or of none."""
        time.sleep(_TTL_S)  # by then the transaction has ended, one way or the other
        wanted = {record.id for record in records}
        found: dict[str, tuple[str, EntryPlace]] = {}
        count = client.partition_count(str(self._topic))
        for topic in map(str, self._topic.partitions(count)):
            # Only after the earlier inputs, which may contain some of them too.
            before = max((ends[topic] for ends in self._ends if topic in ends), default=(-1, -1))
            with client.reader(topic, columns=("value", "ledger", "entry")) as reader:
                for batch in reader.read_to(reader.last_id):
                    for row in batch.to_pylist():
                        name, place = id_in(row["value"]), (row["ledger"], row["entry"])
                        if name in wanted and place > before:
                            found[name] = (topic, place)
        if found and found.keys() != wanted and self._are_transactions:
            raise RequestTimeout("An input is only partly readable.")
        return found

    def done(self) -> int:
        """See ``Inputs``."""
        noted = self._checkpoint.noted()
        if not noted:
            return 0
        sources = self._sources(noted[-1])
        if len(sources) < self._readings:
            return 0
        number = 0
        for wanted in self._ends:
            if not all(_has_read(source, one) for source in sources for one in wanted.items()):
                break
            number += 1
        return number

    def epoch_of(self, given: int) -> Callable[[Record], str | None]:  # noqa: ARG002
        """See ``Inputs``. A query that reads the input twice has a record after both readings."""
        planned = [(epoch, self._sources(epoch)) for epoch in self._checkpoint.planned()]

        def find(record: Record) -> str | None:
            read: set[int] = set()
            for epoch, sources in planned:
                read |= {n for n, one in enumerate(sources) if self._reads(one, record)}
                if len(read) == self._readings:
                    return str(epoch)
            return None

        return find

    def _reads(self, source: dict[str, Any], record: Record) -> bool:
        topic, place = self._places[record.id]
        span = source["partitions"].get(topic)
        return span is not None and _place(span["from"]) <= place < _place(span["to"])

    def _sources(self, epoch: int) -> list[dict[str, Any]]:
        return self._checkpoint.sources_of(epoch, "partitions")


def _has_read(source: dict[str, Any], end: tuple[str, EntryPlace]) -> bool:
    name, place = end
    span = source["partitions"].get(name)
    return span is not None and place < _place(span["to"])


def _place(text: str) -> EntryPlace:
    if text == _EARLIEST:
        return 0, 0
    ledger, entry = text.split(":")
    return int(ledger), int(entry)


# Number of inputs in the table, a file each; those without records have none.
PAST_INPUTS: Final = 6


class HistoryInputs(TopicInputs):
    """Fills table and topic immediately; must be created before the job starts."""

    def __init__(
        self, job: Job, schedule: Schedule, broker: Pulsar, records: list[list[Record]]
    ) -> None:
        super().__init__(job, schedule, broker)
        past = records[:PAST_INPUTS]
        self._files = list(accumulate(bool(rows) for rows in past))
        for number, rows in enumerate(past):
            # Also into the topic: a query that switches before the table's end reads them twice.
            super().release(number, rows)
            if rows:
                write_deltalake(job.history, self._table_of(rows), mode="append")

    def _table_of(self, rows: list[Record]) -> pa.Table:
        # With the columns that the source needs to know where the topic continues.
        places = [self._places[row.id] for row in rows]
        topics = [TopicName.parse(topic) for topic, _ in places]
        ids = [
            MessageIdData(ledger=ledger, entry=entry, partition=topic.partition_index or 0).encode()
            for topic, (_, (ledger, entry)) in zip(topics, places, strict=True)
        ]
        slots = [[(SLOT, str(slot_of(row)))] for row in rows]
        return pa.table(
            {
                "value": pa.array([text_of(row.id, self._filler).encode() for row in rows]),
                "__key": pa.array([row.key.encode() or None for row in rows], pa.binary()),
                "__topic": pa.array([str(topic.base) for topic in topics]),
                "__messageId": pa.array(ids, pa.binary()),
                "__messageProperties": pa.array(slots, pa.map_(pa.string(), pa.string())),
            }
        )

    def release(self, number: int, records: list[Record]) -> None:
        """See ``Inputs``. The first ones are already released."""
        if number >= len(self._files):
            super().release(number, records)

    def done(self) -> int:
        """See ``Inputs``."""
        noted = self._checkpoint.noted()
        if not noted:
            return 0
        # An offset counts files of the table; the positions in the topic follow after the last one.
        to = min(source["history"]["to"] for source in self._sources(noted[-1]))
        if to == self._files[-1]:
            return super().done()
        return sum(files <= to for files in self._files)

    def _reads(self, source: dict[str, Any], record: Record) -> bool:
        if record.input >= len(self._files):
            return super()._reads(source, record)
        file = self._files[record.input] - 1
        return bool(source["history"]["from"] <= file < source["history"]["to"])


class ChunkedInputs(TopicInputs):
    """Sends each record as a message in chunks, as Java's producers do, without transactions.

    Two producers of a partition send at the same time, a key by one of them. Some chunks are sent
    again, as after a lost connection, and some messages stay incomplete.
    """

    _are_transactions = False

    def _send(
        self, client: PulsarClient, number: int, records: list[Record]
    ) -> dict[str, tuple[str, EntryPlace]]:
        rng = random.Random(f"chunks of {number}")
        count = client.partition_count(str(self._topic))
        queues: dict[tuple[str, int], list[ChunkedMessage]] = {}
        for record in records:
            slot = slot_of(record)
            partition = slot % (KEYED_PARTITIONS if record.key else count)
            queue = queues.setdefault((str(self._topic.partition(partition)), slot // 2 % 2), [])
            value = text_of(record.id, self._filler).encode()
            if rng.random() < _INCOMPLETE_SHARE:
                queue.append(ChunkedMessage(b"never completed", is_complete=False))
            queue.append(ChunkedMessage(value, record.id, record.key or None, {SLOT: str(slot)}))
        places: dict[str, tuple[str, EntryPlace]] = {}
        for topic in sorted({topic for topic, _ in queues}):
            mine = [queue for (one, _), queue in queues.items() if one == topic]
            found = send_in_chunks(client, topic, mine, rng, timeout_s=_TTL_S)
            places |= {name: (topic, place) for name, place in found.items()}
        return places


class RollingInputs(TopicInputs):
    """Closes the ledgers within each input's transaction, an aborted and an expired one.

    With a ``store`` they are there before the input is readable.
    """

    def __init__(
        self, job: Job, schedule: Schedule, broker: Pulsar, store: ObjectStore | None
    ) -> None:
        super().__init__(job, schedule, broker)
        self._store = store

    def _before_commit(
        self, client: PulsarClient, number: int, producers: Sequence[EntryProducer]
    ) -> None:
        topics = [producer.topic for producer in producers]
        for producer in producers:
            producer.close()  # or else the unload poisons the transaction
        began = time.monotonic()
        others = [client.transaction(timeout_s=_TTL_S)]
        if number % _EXPIRED_EVERY == _EXPIRED_EVERY - 1:
            others.append(client.transaction(timeout_s=_EXPIRES_S))  # never ended here
        _send_all(client, topics, others, _LARGE if self._store else [_UNCOMMITTED])
        for topic in topics:
            self._broker.admin("PUT", f"{path_of(topic)}/unload")
        # A message that is sent after the expiry would block readers for ever.
        is_early = time.monotonic() - began < _EXPIRES_S / 2
        _send_all(client, topics, others if is_early else others[:1], [_UNCOMMITTED])
        if self._store is not None and self._store.comes_first:
            for topic in topics:
                offload(self._broker, topic, timeout_s=_TTL_S)
        others[0].abort()


def _send_all(
    client: PulsarClient,
    topics: Sequence[str],
    transactions: Iterable[Transaction],
    values: Iterable[bytes],
) -> None:
    for txn in transactions:
        for producer in client.entry_producers(topics, txn=txn):
            for sent in [producer.send(value, txn=txn) for value in values]:
                sent.result(timeout=_TTL_S)
            producer.close()
