"""The sink without its two-phase commit: the same encoder, client and Spark action.

The difference is the cost of exactly-once: this one has no log, no receipt, no transaction and no
report of the sent rows. A retry writes rows twice.
"""

# Spark's workers import this module, so it has few imports.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from eos.client.worker_cache import ClientOptions, cached_client
from eos.ids import TopicName
from eos.sinks.dataframe_columns import select_columns
from eos.spark_worker import disable_delayed_acks, freeze_imports
from eos.transport.auth import Auth
from eos.wire.batch import Rows, encode_batches


@dataclass(frozen=True)
class PlainTask:
    """The function of ``mapInArrow``: sends rows without keys, to one partition for each task."""

    client: ClientOptions
    topics: tuple[str, ...]

    @classmethod
    def of(cls, service_url: str, topic: str, partitions: int) -> PlainTask:
        """Return the task that writes to the first ``partitions`` of ``topic``."""
        client = ClientOptions(service_url, Auth(), timeout_s=30.0)
        return cls(client, tuple(map(str, TopicName.parse(topic).partitions(partitions))))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send all rows, wait for the receipts, and yield the number of rows."""
        disable_delayed_acks()  # as the sink's tasks do: else it would measure them
        context = TaskContext.get()
        assert context is not None
        records = 0
        with cached_client(self.client) as client:
            producer = None
            for batch in batches:
                if producer is None:
                    topic = self.topics[context.partitionId() % len(self.topics)]
                    (producer,) = client.entry_producers([topic])
                for encoded in encode_batches(Rows(value=batch.column(0))):
                    producer.send_batch(encoded)
                    records += encoded.num_messages
            if producer is not None:
                producer.close()
        yield pa.RecordBatch.from_pydict({"records": [records]})
        freeze_imports()


def write(df: DataFrame, task: PlainTask) -> int:
    """Write all rows of ``df``; return their number."""
    rows = select_columns(df).rows.mapInArrow(task, "records long").collect()
    return sum(row.records for row in rows)
