"""The writing side, with Spark: each task writes a file of JSON lines."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import struct, to_json

from eos.protocol import Part
from eos.sinks.options import SinkOptions
from eos.sinks.output import Begun, Output, Write, collect_staged
from eos.sinks.sink import Sink
from examples.folder.participant import FolderPart, FolderParticipant


class FolderSinkOptions(SinkOptions):
    """The options of all sinks, and the folder."""

    folder: str


class FolderSink(Sink):
    """The function for ``foreachBatch``, and ``write``."""

    options: FolderSinkOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(FolderSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """The folder; ``all_or_nothing`` takes the outputs of several sinks."""
        return [FolderOutput(self.options.folder)]


class FolderOutput(Output):
    """Turns rows into files, and those into the participant's ``written``."""

    def __init__(self, folder: str) -> None:
        self._folder = str(Path(folder).absolute())
        self.participant = FolderParticipant(folder)

    def is_written_by(self, part: Part) -> bool:
        """See ``Output``."""
        return isinstance(part, FolderPart) and part.root == self._folder

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        part = begun()  # waits until OPEN is in the log
        assert isinstance(part, FolderPart)
        lines = df.select(to_json(struct("*")).alias("line"))
        tasks = lines.mapInArrow(WriteLines(str(part.written)), "staged STRING, error STRING")
        return lambda: [json.loads(text) for text in collect_staged(tasks, context)]


@dataclass(frozen=True)
class WriteLines:
    """Runs on the executors, for a task perhaps more than once: each run has a file of its own."""

    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows; yield one row: the files as a JSON list of JSON texts, and no error."""
        path = Path(self.folder, f"{uuid.uuid4()}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            lines = (line for batch in batches for line in batch.column(0).to_pylist())
            size = sum(file.write(f"{line}\n") for line in lines)
        staged = json.dumps([json.dumps(str(path))] if size else [])
        yield pa.record_batch({"staged": [staged], "error": pa.array([None], pa.string())})
