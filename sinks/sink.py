"""The base class of all sinks: decides when an epoch runs, for any outputs."""

from __future__ import annotations

import contextlib
import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.commit_log import CommitLog
from eos.committer import Committer, EpochResult, Observer, PartsBegun, Reports
from eos.errors import DuplicateEpochCall, EosError
from eos.forking import stay_in_process
from eos.protocol import BATCH, History, Part, State, unfinished_epoch_error
from eos.retry import attempts
from eos.sinks._arguments import BatchKey, NamedKey, batch_key, check_batch
from eos.sinks._open_log import open_log
from eos.sinks._progress import log_written, warn_of_skipped_key
from eos.sinks._release import check_jvm
from eos.sinks._spark_jvm import (
    is_in_query,
    is_stateful,
    may_rerun,
    planned_at,
    run_without_writing,
    running_query,
    spark_context,
)
from eos.sinks.failures import explained_failures, shortened
from eos.sinks.options import SinkOptions
from eos.sinks.output import Output
from eos.waiting import close_when_freed

_MOST_FAILED: Final = 1000  # epochs of a query whose errors are caught


@dataclass(frozen=True)
class _Failed:
    """How an epoch ended in an error. ``duplicate``: it was written, and called again."""

    # It does not keep the error, whose traceback would keep objects alive.

    error_type: str
    duplicate: DuplicateEpochCall | None


class Sink(ABC):
    """A sink: the function for ``foreachBatch``, and ``write`` for batch jobs.

    It connects at the first epoch; then the sink is claimed, and another driver that has claimed it
    is fenced.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._outputs: list[Output] = []
        self._committer: Committer | None = None
        self._failed: dict[str, dict[int, _Failed]] = {}  # of each query, by epoch
        self._observer = Observer(options.sink_id, options.listeners)

    @abstractmethod
    def outputs(self) -> list[Output]:
        """Create its outputs, not connected yet."""

    def frames(self, df: DataFrame) -> list[DataFrame]:
        """Return the DataFrame of each output, in their order."""
        return [df]

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of a streaming query, exactly once; skip it if it was written.

        Raises:
            EosError: see ``write``; also NewLineage, for a new checkpoint under a known sink.
        """
        try:
            self._write_batch(df, batch_id)
        except Exception as error:
            failure, line = shortened(error, self._named(batch_id))
            raise failure from line

    def _write_batch(self, df: DataFrame, batch_id: int) -> None:
        context = spark_context(df)
        query = running_query(df)
        result = self._reported(
            df,
            context,
            query.query_id,
            str(batch_id),
            call=query.run_id,
            planned_at=lambda: planned_at(df, batch_id),
        )
        if result.status == "skipped" and is_stateful(df):
            run_without_writing(df)

    def write(self, df: DataFrame, *, epoch: BatchKey) -> EpochResult:
        """Write a batch job's rows, exactly once for each ``epoch``.

        A key that was written before, by any object, process or run, is skipped: the result's
        status is ``skipped``, its figures are those of the first call, and a warning is logged.
        Only the key counts: rows are not compared.

        Args:
            epoch: the key of these rows: text, a whole number, a date, or a datetime with a time
                zone. A number counts as its digits, a date as its ISO text, a datetime as its ISO
                text in UTC. A date and that day's midnight are two keys: after one of them is
                written, the other is refused, unless it is passed as text.

        Raises:
            ConfigurationError: ``epoch`` or ``df`` has the wrong type.
            InputError: the rows can't be written; none of them is readable.
            Fenced: another driver has claimed the sink.
            InDoubt: an earlier transaction's outcome can't be proved now.
            TransactionPoisoned: the epoch failed ``max_attempts`` times; the log has the reasons.
        """
        context = spark_context(df)
        check_batch(df)
        key = batch_key(epoch)
        result = self._reported(df, context, BATCH, key.text, named=key)
        if result.status == "skipped":
            with contextlib.suppress(Exception):  # a log handler that raises
                warn_of_skipped_key(result.records, self.options.sink_id, key.text)
            if is_in_query(df) and is_stateful(df):
                run_without_writing(df)
        return result

    def close(self) -> None:
        """Close connections, and deliver pending events to listeners. The claim stays until the
        next driver takes it."""
        with self._lock:
            outputs, self._outputs = self._outputs, []
            committer, self._committer = self._committer, None
            self._failed.clear()
        try:
            if committer is not None:
                committer.close()
        finally:
            for output in outputs:
                output.participant.close()
            self._observer.close()

    def _named(self, epoch: object) -> str:
        return f"epoch {epoch} of sink {self.options.sink_id}"

    def _reported(
        self, df: DataFrame, context: SparkContext, query_id: str, epoch: str, **known: Any
    ) -> EpochResult:
        with self._lock, self._observer.epoch(query_id, epoch) as call:
            result = self._run(df, context, query_id, epoch, timer=call.timer, **known)
            call.set_result(result)
        with contextlib.suppress(Exception):  # a log handler that raises: the epoch is written
            log_written(result, self.options.sink_id, query_id, epoch)
        return result

    def _run(
        self,
        df: DataFrame,
        context: SparkContext,
        query_id: str,
        epoch: str,
        *,
        named: NamedKey | None = None,
        **known: Any,
    ) -> EpochResult:
        try:
            self._check_order(query_id, epoch)
            committer = self._opened(df, query_id, epoch, known.get("call", ""))
            if named is not None:
                committer.check_similar_keys(epoch, named.similar_keys, named.midnights)
            result = committer.run_epoch(
                query_id,
                epoch,
                lambda begun: explained_failures()(self._plan(df, context, begun)),
                check=lambda: self._check(df),
                **known,
                # A batch job's caller may end the process, or read the log, right away.
                finish_later=query_id != BATCH,
                may_rerun=lambda: not is_in_query(df) or may_rerun(df),
            )
        except BaseException as error:
            duplicate = copy.copy(error) if isinstance(error, DuplicateEpochCall) else None
            if query_id != BATCH:  # a job's keys have no order
                failed = self._failed.setdefault(query_id, {})
                if len(failed) < _MOST_FAILED:
                    failed.setdefault(int(epoch), _Failed(type(error).__name__, duplicate))
            if isinstance(error, EosError):
                error.with_context(sink_id=self.options.sink_id, query_id=query_id, epoch=epoch)
            raise
        if query_id != BATCH:
            self._failed.get(query_id, {}).pop(int(epoch), None)
        return result

    def _check_order(self, query_id: str, epoch: str) -> None:
        # After an error Spark runs the same epoch again, unless the user's code has caught the
        # error. The log has most failed epochs; only this object has those that failed before the
        # claim.
        by_epoch = self._failed.get(query_id, {})
        history: History | None = None
        # An older copy of the checkpoint asks for an earlier epoch.
        for number in sorted(one for one in by_epoch if one < int(epoch)):
            failed, earlier = by_epoch[number], str(number)
            if failed.duplicate is not None:
                raise failed.duplicate  # the rows of its second call are not written or logged
            # The log may say by now that the epoch is finished, or was abandoned by a person. Or it
            # is of an older copy of the checkpoint, and the log no longer has its record.
            history = history or self._history()
            newest = history.newest(query_id, earlier) if history else None
            is_abandoned = newest is not None and newest.state is State.ABANDONED
            if not is_abandoned and not (history and history.must_skip(query_id, earlier)):
                raise unfinished_epoch_error(
                    query_id,
                    epoch,
                    earlier,
                    failed.error_type,
                    newest.state if newest is not None else None,
                    sink_id=self.options.sink_id,
                )
            del by_epoch[number]

    def _history(self) -> History | None:
        options = self.options
        with contextlib.suppress(EosError):
            return CommitLog.open_read_only(
                options.commit_log, options.sink_id, storage_options=options.storage_options
            ).history
        return None

    def _opened(self, df: DataFrame, query_id: str, epoch: str, run_id: str) -> Committer:
        options = self.options
        if self._committer is None:
            check_jvm(df.sparkSession.sparkContext)
            outputs = self.outputs()
            # An open client has threads that may outlive the interpreter.
            freed = [close_when_freed(self, output.participant.close) for output in outputs]
            on_append = self._observer.state_changed
            try:
                log = open_log(options, outputs, query_id, epoch, run_id, on_append=on_append)
                for output, frame in zip(outputs, self.frames(df), strict=True):
                    attempts(options.resolve_timeout_s)(output.on_open, log.history, frame)
            except BaseException:  # the next call has outputs again
                for output, later in zip(outputs, freed, strict=True):
                    later.detach()
                    output.participant.close()
                raise
            self._outputs = outputs
            self._committer = Committer(
                log,
                [output.participant for output in outputs],
                max_attempts=options.max_attempts,
                deadline_s=options.resolve_timeout_s,
                policies=options.policies,
            )
        self._committer.check_lineage(query_id, epoch)
        return self._committer

    def _check(self, df: DataFrame) -> None:
        for output, frame in zip(self._outputs, self.frames(df), strict=True):
            output.check(frame)

    def _plan(
        self, df: DataFrame, context: SparkContext, begun: PartsBegun
    ) -> Callable[[], Reports]:
        # Step 5; the returned function runs the Spark actions that write the rows.
        pairs = zip(self._outputs, self.frames(df), strict=True)
        # In the order of the record: outputs that can expire come first.
        ordered = sorted(pairs, key=lambda pair: not pair[0].participant.can_expire)
        writes = [
            output.plan(frame, context, partial(_nth, begun, number))
            for number, (output, frame) in enumerate(ordered)
        ]
        return lambda: [write() for write in writes]


def _nth(begun: PartsBegun, number: int) -> Part:
    return begun()[number]


stay_in_process(Sink)
