"""Alternative ways to write a DataFrame from Spark. All write the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pulsar
import pyarrow as pa
from pulsar.schema import BytesSchema
from pyspark.sql import DataFrame, Row

from bench.environment import Environment
from eos import PulsarSink


class EosSink:
    """A ``PulsarSink`` that is kept for a whole measurement, as a query would keep it.

    It compresses nothing, like its peers: the values are so similar that LZ4 would hide all other
    costs.
    """

    def __init__(self, env: Environment, topic: str | None, **options: Any) -> None:
        if topic is not None:
            options = {"sink_id": topic.rsplit("/", 1)[1], **options}
        self.sink = PulsarSink(
            service_url=env.broker.service_url,
            topic=topic,
            commit_log=env.commit_log(),
            **{"compression": "none", **options},
        )
        self._epochs = 0

    def write(self, df: DataFrame) -> None:
        """Write one epoch, exactly once."""
        self._epochs += 1
        self.sink.write(df, epoch=f"epoch-{self._epochs}")

    def close(self) -> None:
        """Close its connections."""
        self.sink.close()


def write_by_pulsar_client(df: DataFrame, service_url: str, topic: str) -> None:
    """Write in the usual way: ``foreachPartition``, a client and a producer in each task, large
    batches. At-least-once, without coordination between the tasks."""
    columns = df.columns

    def message(row: Row) -> dict[str, Any]:
        options = {"content": row.value.encode()}
        if "key" in columns:
            options |= {"partition_key": row.key, "event_timestamp": row.event_time}
        if "properties" in columns:
            options["properties"] = row.properties
        return options

    send_by_pulsar_client(df, service_url, topic, message)


def send_by_pulsar_client(
    df: DataFrame,
    service_url: str,
    topic: str,
    message: Callable[[Row], dict[str, Any]],
    schema: Callable[[], Any] = BytesSchema,
) -> None:
    """Write by a client and a producer in each task; a failed send fails the job.

    Args:
        message: returns the arguments of the producer's ``send`` for a row.
        schema: creates the producer's schema in the task, since it cannot be pickled.
    """

    def send(rows: Iterable[Row]) -> None:
        client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(
            topic,
            schema=schema(),
            batching_enabled=True,
            batching_max_messages=10_000,
            batching_max_allowed_size_in_bytes=1 << 20,
            batching_max_publish_delay_ms=10,
            block_if_queue_full=True,
            max_pending_messages=100_000,
            max_pending_messages_across_partitions=200_000,
        )
        failed: list[object] = []

        def sent(result: object, _: object) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        try:
            for row in rows:
                producer.send_async(callback=sent, **message(row))
            producer.flush()
        finally:
            client.close()
        if failed:
            raise RuntimeError(f"{len(failed)} sends failed: {failed[0]}")

    df.foreachPartition(send)


def pass_through_python(df: DataFrame) -> None:
    """Pass all rows to Python, in Arrow, and drop them: Spark's own cost of a ``mapInArrow``."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    df.mapInArrow(count, "rows long").collect()
