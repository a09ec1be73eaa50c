"""The sink without its two-phase commit: the same encoder, client and Spark action.

What exactly-once costs is the difference: no log, no receipt, no transaction, no summary of what
was sent. A retry writes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from eos.client.worker_cache import ClientOptions, kept_client
from eos.ids import TopicName
from eos.sinks.columns import select_columns
from eos.spark_worker import disable_delayed_acks, freeze_imports
from eos.transport.auth import Auth
from eos.wire.batch import Rows, encode_batches


@dataclass(frozen=True)
class PlainTask:
    """What ``mapInArrow`` runs: rows without keys, to one partition for each task."""

    client: ClientOptions
    topics: tuple[str, ...]

    @classmethod
    def of(cls, service_url: str, topic: str, partitions: int) -> PlainTask:
        """To the first ``partitions`` of ``topic``."""
        client = ClientOptions(service_url, Auth(), timeout_s=30.0)
        return cls(client, tuple(map(str, TopicName.parse(topic).partitions(partitions))))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send everything, wait for the receipts, and yield how many rows it was."""
        disable_delayed_acks()
        context = TaskContext.get()
        assert context is not None
        records = 0
        with kept_client(self.client) as client:
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
    """All rows of ``df``; how many."""
    rows = select_columns(df).rows.mapInArrow(task, "records long").collect()
    return sum(row.records for row in rows)
