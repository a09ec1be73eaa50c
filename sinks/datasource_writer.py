"""Writers of ``format("pulsar")`` for Spark's Data Source API, in batch and streaming."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from eos.errors import ConfigurationError, EosError, Fatal, InDoubt
from eos.protocol import BATCH, UNNAMED, Skip
from eos.sinks._arguments import batch_key
from eos.sinks._datasource_tasks import EpochName, TaskReport, Writing, running_epoch
from eos.sinks._progress import log_job, warn_of_other_rows, warn_of_skipped_key
from eos.sinks.dataframe_columns import layout_of
from eos.sinks.datasource_compat import DataSourceStreamArrowWriter
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
        overwrite: whether the query's output mode replaces earlier rows, which is refused.

    Raises:
        ConfigurationError, InputError: an option or a column is wrong.
    """

    # Spark calls from several processes (tasks on executors, and on the driver one for the plan and
    # one for the commit), which share only the commit log. It runs an epoch once, so an epoch that
    # can't be committed ends the query.

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
        """Abort the epoch's open transaction after a task or the commit failed."""
        # A failed task has no message; if all have failed, only the log knows the run.
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
        overwrite: whether existing rows are replaced, which is refused.

    Raises:
        ConfigurationError, InputError: an option or a column is wrong.
        EosError: the epoch can't be opened.
    """

    def __init__(self, given: Mapping[str, str], columns: StructType, *, overwrite: bool) -> None:
        options = WriterOptions.of_batch(given, overwrite=overwrite)
        self._writing = _writing(options, columns)
        self._has_key = options.epoch is not None
        key = batch_key(options.epoch).text if self._has_key else f"{UNNAMED}{uuid.uuid4()}"
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
    # A temporary error's hint also says what has happened to the rows, and what to do.
    try:
        yield
    except EosError as error:
        if not isinstance(error, Fatal):
            error.hint = f"{error.hint} {next_step(error)}".strip()
        raise


@contextmanager
def _left_to_the_next_run() -> Iterator[None]:
    # A failed abort is logged, and the next claim aborts. If it were raised, Spark would show it
    # instead of the job's own error (measured: "Writing job failed", and no more).
    try:
        yield
    except Exception as error:
        logger.warning("The transaction is not aborted yet; the next run aborts it: %s", error)


_TIME: Final = "batchTimestampMs"


def planned_at(checkpoint: str, epoch: str) -> datetime:
    """Return when Spark planned which rows are in ``epoch``.

    ``checkpoint``: the query's ``checkpointLocation``, a path or a URL that Arrow can open.

    Raises:
        ConfigurationError: it can't be read here, or has no plan of the epoch.
    """
    # Source: OffsetSeqLog of Spark 4.2: offsets/N has a version, a line of JSON with the time of
    # the plan, and the sources' offsets. Spark writes it before it runs the epoch, and reads it
    # when it runs the epoch again.
    try:
        lines = _lines(checkpoint, f"offsets/{epoch}")
        found = next(line for line in lines if _TIME in line)
        return datetime.fromtimestamp(json.loads(found)[_TIME] / 1000, UTC)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise ConfigurationError(
            f"Epoch {epoch} is committed, and checkpoint {checkpoint} can't be read to see whether "
            f"it was set back: {type(error).__name__}.",
            hint="Let the driver's Python read it. If the source cuts the same epochs each time, "
            "set on_rewind to 'skip' once.",
        ) from error


def query_id_of(checkpoint: str) -> str:
    """Return the id of the checkpoint's query, or raise ConfigurationError."""
    try:
        return str(json.loads("".join(_lines(checkpoint, "metadata")))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"The query id of checkpoint {checkpoint} can't be read: {type(error).__name__}."
        ) from error


def _lines(checkpoint: str, path: str) -> list[str]:
    system, folder = _opened(checkpoint)
    with system.open_input_stream(f"{folder.rstrip('/')}/{path}") as stream:
        return bytes(stream.read()).decode().splitlines()


def _opened(checkpoint: str) -> tuple[fs.FileSystem, str]:
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return fs.LocalFileSystem(), unquote(parts.path) if parts.scheme else checkpoint
    url = f"s3://{checkpoint.split('://', 1)[1]}" if parts.scheme == "s3a" else checkpoint
    system, folder = fs.FileSystem.from_uri(url)
    return system, folder
