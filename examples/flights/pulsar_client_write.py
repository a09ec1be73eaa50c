"""The usual way to write such a job: ``foreachPartition`` with ``pulsar-client`` producers.

It is written with care: batches, one flush per task, and a failed send fails the task, so no row is
lost. But rows that a dead task or a dead driver has sent stay readable, and are sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pulsar
from pyspark.sql import DataFrame, Row


def write_with_pulsar_client(service_url: str, topic: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that sends each row as a message to ``topic``."""

    def send_partition(rows: Iterable[Row]) -> None:
        client = pulsar.Client(service_url)
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=10, block_if_queue_full=True
        )
        failures: list[Any] = []

        def on_ack(result: Any, _: Any) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)

        for row in rows:
            producer.send_async(
                row.value.encode(),
                on_ack,
                partition_key=row.key,
                event_timestamp=int(row.event_time.timestamp() * 1000),
            )
        producer.flush()
        client.close()
        if failures:
            raise RuntimeError(f"{len(failures)} sends failed, the first with {failures[0]}")

    def write(df: DataFrame, _: int) -> None:
        df.foreachPartition(send_partition)

    return write
