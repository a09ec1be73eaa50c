"""A stream from files, a file for each epoch, as Spark times it itself (``triggerExecution``:
source, offsets, the write and its commit)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.environment import CORES, Setting

WriteStream = Callable[[DataFrame], DataStreamWriter]
"""How the lines of the files (column ``value``) are written."""


class FileStream:
    """One query over files of the same ``text``; started again for each ``run``, on its
    checkpoint."""

    def __init__(self, setting: Setting, text: str, write: WriteStream) -> None:
        self.epochs = 0
        self._setting = setting
        self._write = write
        self._folder = setting.folder / f"stream-{uuid.uuid4().hex[:8]}"
        self._input = self._folder / "input"
        self._input.mkdir(parents=True)
        self._text = text

    def run(self, epochs: int) -> list[float]:
        """Milliseconds of so many epochs behind a first one, which also makes plans and claims."""
        epochs += 1
        for number in range(self.epochs, self.epochs + epochs):
            drop(self._input, f"{number:06}", self._text)
        self.epochs += epochs
        lines = (
            self._setting.spark.readStream.schema("value string")
            .option("maxFilesPerTrigger", 1)
            .text(str(self._input))
            .repartition(CORES)
        )
        query = (
            self._write(lines)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        took_ms = [
            progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]
        if len(took_ms) != epochs:
            raise RuntimeError(f"Spark tells of {len(took_ms)} epochs of {epochs}")
        return took_ms[1:]


def drop(folder: Path, name: str, text: str) -> None:
    """A file that is there whole or not at all."""
    hidden = folder / f".{name}"
    hidden.write_text(text)
    hidden.rename(folder / name)
