"""A file stream for foreachBatch queries: one text column, one file an epoch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


class Source:
    """Each ``add`` is an epoch's input."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder / "source"
        self.folder.mkdir()
        self.count = 0

    def add(self, *values: str) -> None:
        """Write the next file."""
        file = self.folder / f"{self.count:04}.txt"
        file.write_text("\n".join(values))
        os.utime(file, (self.count, self.count))  # Spark takes the oldest file first
        self.count += 1

    def run(
        self,
        function: Callable[[DataFrame, int], object],
        checkpoint: Path,
        of: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        mode: str = "append",
        files_per_epoch: int = 1,
    ) -> StreamingQuery:
        """Write all existing files with ``function``, one in each epoch; then stop.

        Args:
            of: makes the query of the stream of rows.
            mode: the query's output mode.
        """
        stream = self.spark.readStream.option("maxFilesPerTrigger", files_per_epoch).text(
            str(self.folder)
        )
        query = (
            of(stream)
            .writeStream.foreachBatch(function)
            .outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive
        return query
