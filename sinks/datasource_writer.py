"""Writers of ``format("pulsar")`` for Spark's Data Source API, in batch and streaming.

Epochs, commit log and guarantee are those of ``PulsarSink``. Spark calls from several processes
(tasks on executors, and on the driver one for the plan and one for the commit), which share only
the commit log. Spark runs an epoch once, so an epoch that can't be committed ends the query.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from eos.errors import EosError, Fatal, InDoubt
from eos.protocol import BATCH, Skip
from eos.sinks._checkpoint_files import planned_at, query_id_of
from eos.sinks._datasource_tasks import EpochName, TaskReport, Writing, running_epoch
from eos.sinks._progress import log_job, warn_of_other_rows, warn_of_skipped_key
from eos.sinks.dataframe_columns import layout_of
from eos.sinks.options import WriterOptions

logger = logging.getLogger(__name__)

_Messages = Sequence[WriterCommitMessage | None]

_RESTART: Final = (
    "Restart the query with the same checkpoint: the epoch runs again in a new transaction, and "
    "nothing is lost or written twice."
)
_RERUN: Final = "None of its rows is readable: run the job again."
_UNKNOWN: Final = (
    "It is not known yet whether its rows are readable. With the option epoch, run the job again: "
    "nothing is written twice. Without it, run eos recovery resolve first."
)


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("pulsar")``: each micro-batch is one transaction.

    Args:
        given: Spark's options; see ``WriterOptions``.
        columns: of the DataFrame.
        overwrite: whether the query's output mode replaces earlier rows, which is refused.

    Raises:
        ConfigurationError, InputError: an option or a column is wrong.
    """

    def __init__(self, given: Mapping[str, str], columns: StructType, *, overwrite: bool) -> None:
        options = WriterOptions.of_stream(given, overwrite=overwrite)
        self._checkpoint = options.checkpoint_location
        self._writing = _writing(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run one task, on an executor."""
        return self._writing.write(running_epoch(), iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        """Commit the epoch, in a process of the driver that has not seen it before.

        Raises:
            EosError: it is not committed, and the query ends.
        """
        reports = _reports(messages)
        if not reports:
            return  # no task has run: there are no rows, and the query's id is not known
        with _explained(lambda _: _RESTART):
            self._writing.commit(reports[0].name, reports, lambda: self._planned_at(batchId))

    def _planned_at(self, epoch: int) -> datetime:
        assert self._checkpoint is not None  # required by on_rewind="refuse", the only caller
        return planned_at(self._checkpoint, str(epoch))

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        """Abort the epoch's open transaction after a task or the commit failed. A failed task has
        no message; if all have failed, only the log knows the run."""
        with _left_to_the_next_run():
            reports = _reports(messages)
            name = reports[0].name if reports else self._open_epoch(str(batchId))
            if name is not None:
                self._writing.abort(name)

    def _open_epoch(self, epoch: str) -> EpochName | None:
        query_id = None if self._checkpoint is None else query_id_of(self._checkpoint)
        return self._writing.open_epoch(epoch, query_id)


class PulsarBatchWriter(DataSourceArrowWriter):
    """``df.write.format("pulsar")``: each job is one transaction.

    The constructor runs on the driver and opens the epoch, unless an earlier job has written it.

    Args:
        given: Spark's options; see ``WriterOptions``.
        columns: of the DataFrame.
        overwrite: whether existing rows are replaced, which is refused.

    Raises:
        ConfigurationError, InputError: an option or a column is wrong.
        EosError: the epoch can't be opened.
    """

    def __init__(self, given: Mapping[str, str], columns: StructType, *, overwrite: bool) -> None:
        options = WriterOptions.of_batch(given, overwrite=overwrite)
        self._writing = _writing(options, columns)
        self._has_key = options.epoch is not None
        key = options.epoch or f"job-{uuid.uuid4()}"
        self._name = EpochName(BATCH, key, str(uuid.uuid4()))
        self._target = self._writing.begin(self._name)
        if isinstance(self._target, Skip):
            warn_of_skipped_key(self._target.records, options.sink_id, key)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run one task, on an executor, where no commit log is needed."""
        return self._writing.write_in(self._name, self._target, iterator)

    def commit(self, messages: _Messages) -> None:
        """Commit the epoch.

        Raises:
            EosError: it is not committed.
        """
        with _explained(lambda error: _UNKNOWN if isinstance(error, InDoubt) else _RERUN):
            self._writing.commit(self._name, _reports(messages))
        self._writing.forget(self._name)
        if isinstance(self._target, Skip):
            skipped = sum(report.skipped for report in _reports(messages))
            warn_of_other_rows(
                self._target.records, self._writing.options.sink_id, self._name.epoch, skipped
            )
            return
        log_job(
            sum(report.records for report in _reports(messages)),
            self._writing.options.sink_id,
            self._name.epoch if self._has_key else None,
        )

    def abort(self, messages: _Messages) -> None:  # noqa: ARG002
        """Abort it, unless the log has its decision."""
        with _left_to_the_next_run():
            self._writing.abort(self._name)
            self._writing.forget(self._name)


def _writing(options: WriterOptions, columns: StructType) -> Writing:
    layout = layout_of(
        columns,
        names_topics=options.topic is None,
        schema=options.schema_of_values,
        metadata=options.metadata,
    )
    return Writing(options, layout)


def _reports(messages: _Messages) -> list[TaskReport]:
    return [message for message in messages if isinstance(message, TaskReport)]


@contextmanager
def _explained(next_step: Callable[[EosError], str]) -> Iterator[None]:
    """Add to a temporary error's hint what has happened to the rows, and what to do."""
    try:
        yield
    except EosError as error:
        if not isinstance(error, Fatal):
            error.hint = f"{error.hint} {next_step(error)}".strip()
        raise


@contextmanager
def _left_to_the_next_run() -> Iterator[None]:
    """Log a failed abort: the next claim aborts. If it were raised, Spark would show it instead of
    the job's own error (measured: "Writing job failed", and no more)."""
    try:
        yield
    except Exception as error:
        logger.warning("The transaction is not aborted yet; the next run aborts it: %s", error)
