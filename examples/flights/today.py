"""How the job is written today: ``foreachPartition`` with plain ``pulsar-client`` producers.

Done with care: batching, one flush per task, and a task fails when one send failed. Nothing is
lost. But what a dead task or a dead driver had sent stays, and is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pulsar
from pyspark.sql import DataFrame, Row


def write_with_pulsar_client(service_url: str, topic: str) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that sends each row as a message to ``topic``."""

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
