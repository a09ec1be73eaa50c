"""The Spark task of sinks of tables: stages its rows, in files or in a staging table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from eos import failpoints
from eos.delta.staging import stage
from eos.errors import EosError
from eos.sinks._upserts import NO_UPSERTS, Upserts
from eos.spark_worker import disable_delayed_acks, freeze_imports
from eos.steps import TaskStep
from eos.wire.from_python import text_row

# The columns of a task's result: one row, JSON.
REPORT_SCHEMA: Final = StructType().add("staged", StringType()).add("error", StringType())


@dataclass(frozen=True)
class StageTask:
    """The function that ``mapInArrow`` runs on the executors."""

    # It may run more than once: the driver commits only the rows of the run whose result Spark
    # took.

    target: Any
    attempt_id: str
    columns: tuple[str, ...]  # The names of the rows' columns; the batches have numbered ones.
    upserts: Upserts = NO_UPSERTS
    stage: Callable[..., Sequence[Any]] = stage
    """Writes batches to ``target``; each item of its result has ``to_json``."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage ``batches`` and yield the report."""
        disable_delayed_acks()
        context = TaskContext.get()
        assert context is not None
        staged: Sequence[Any] = ()
        error = None
        try:
            rows = self.upserts.checked(batches)
            staged = self.stage(
                (batch.rename_columns(list(self.columns)) for batch in rows),
                self.target,
                attempt_id=self.attempt_id,
                spark_partition=context.partitionId(),
            )
        except EosError as failure:  # the epoch runs again, not the task
            error = json.dumps([type(failure).__name__, failure.message, failure.hint])
        failpoints.reached(TaskStep.SETTLE)
        yield text_row(staged=json.dumps([one.to_json() for one in staged]), error=error)
        freeze_imports()
        failpoints.reached(TaskStep.REPORT)
