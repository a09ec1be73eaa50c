"""A query that is stopped in the middle of an epoch: run by test_failures.py.

python -m tests.sinks.stopped_driver SERVICE_URL FOLDER NAME
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from eos import PulsarSink


def main() -> None:
    """Write an epoch whose task never ends; stop the query once it runs."""
    service_url, where, name = sys.argv[1:]
    folder = Path(where)
    is_running = folder / "running"

    def hang(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        is_running.touch()
        threading.Event().wait()

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    sink = PulsarSink(
        sink_id=name,
        service_url=service_url,
        topic=name,
        commit_log=str(folder / "log"),
        create_topics=True,
    )
    rows = spark.readStream.text(str(folder / "source")).mapInArrow(hang, "value string")
    query = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not is_running.exists() and query.isActive:
        time.sleep(0.05)
    query.stop()
    print(f"exception: {query.exception()}", flush=True)
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main()
