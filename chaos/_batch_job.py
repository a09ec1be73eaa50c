"""A batch job in a notebook: one call of the sink for each input, in one process.

It records its progress like a query's Spark checkpoint, so that the harness can follow it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos._user_code import log_line
from eos.chaos.job import INPUT_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.chaos.job import Job

    class Writes(Protocol):
        """A sink, or an object that calls one."""

        def write(self, df: DataFrame, *, epoch: int) -> object:
            """Write one epoch."""


_POLL_S: Final = 0.1


class Notebook:
    """Has the interface of a query: it can be awaited and stopped.

    Ctrl-C ends the running cell; the next one begins with the same key and the same sink.
    """

    def __init__(self, spark: SparkSession, job: Job, sink: Writes) -> None:
        self._spark = spark
        self._job = job
        self._sink = sink
        self._stopped = threading.Event()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        """Run cells until it is stopped.

        Raises:
            Exception: the error of a cell, unless it was interrupted.
        """
        while not self._stopped.is_set():
            try:
                self._run_cells()
            except (KeyboardInterrupt, UnboundLocalError) as error:
                # A Ctrl-C while PySpark opens a socket becomes an UnboundLocalError.
                if KeyboardInterrupt not in (type(error), type(error.__context__)):
                    raise
                with contextlib.suppress(KeyboardInterrupt):
                    log_line("notebook", "interrupted")

    def stop(self) -> None:
        """Stop after the running cell."""
        self._stopped.set()

    def _run_cells(self) -> None:
        checkpoint = Checkpoint(self._job.checkpoint)
        while not self._stopped.is_set():
            number = checkpoint.inputs_done()
            path = Path(self._job.input_dir) / f"input-{number:06}.parquet"
            if path.exists():
                self._run_cell(number, path)
            else:
                self._stopped.wait(_POLL_S)

    def _run_cell(self, number: int, path: Path) -> None:
        self._note("offsets", number, f'v1\n{{}}\n{{"logOffset":{number}}}\n')
        rows = self._spark.read.schema(INPUT_SCHEMA).parquet(str(path))
        df = rows.repartition(self._job.tasks, "slot").drop("slot")
        self._sink.write(df, epoch=number)  # skipped if the interrupt came after the commit
        self._note("commits", number, "v1\n{}\n")
        log_line("notebook", f"key {number}")

    def _note(self, folder: str, number: int, text: str) -> None:
        path = Path(self._job.checkpoint) / folder / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{number}.draft")
        draft.write_text(text)
        os.replace(draft, path)
