"""Guards against user code that calls a sink twice for an epoch, or continues after an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from eos.commit_log import CommitLog
from eos.committer._epoch import reason_of
from eos.errors import (
    CommitLogError,
    DuplicateEpochCall,
    EosError,
    Fenced,
    RewoundCheckpoint,
    UnfinishedEpoch,
)
from eos.protocol import LogRecord, check_follows, check_replayed, is_streaming

logger = logging.getLogger(__name__)

# The last epoch of each query that any object of this process has written, with the query's run:
# user code may create a new sink for each call. By the log's id: it may have several paths.
_done: Final[dict[tuple[str, str], tuple[str, str]]] = {}


def wrote_in_run(log_table_id: str, query_id: str, call: str) -> bool:
    """Whether this process has written an epoch of the query with that log in the run ``call``."""
    return _done.get((log_table_id, query_id), ("", ""))[1] == call != ""


@dataclass(frozen=True)
class Policies:
    """What a driver does if its query or cluster does not agree with the log.

    Attributes:
        on_new_query: the log does not know the query.
        on_new_cluster: the cluster lacks the transactions in the log.
        on_gap: the query's first epoch follows epochs that the log lacks.
        on_rewind: a stream has planned committed epochs again.
    """

    on_new_query: Literal["refuse", "continue"] = "refuse"
    on_new_cluster: Literal["refuse", "continue"] = "refuse"
    on_gap: Literal["refuse", "continue"] = "refuse"
    on_rewind: Literal["refuse", "skip"] = "refuse"


# No FAILED is recorded for these: the log is another run's, has the epoch, or is unreliable.
_NOT_RECORDED: Final = (Fenced, RewoundCheckpoint, CommitLogError)


class CallGuard:
    """The epochs that one run of a driver was asked to write, and those that failed."""

    def __init__(self, log: CommitLog, policies: Policies) -> None:
        self._log = log
        self._policies = policies
        self._asked: set[str] = set()
        # Spark asks for a stream's epochs in order, so only the last one is remembered.
        self._last: dict[str, tuple[str, str]] = {}

    def check(self, query_id: str, epoch: str, call: str) -> None:
        """Check that a stream's ``epoch`` was not written in ``call`` yet.

        Raises:
            DuplicateEpochCall: it was written; the rows of this call would be dropped silently.
        """
        # Spark calls once for each epoch of a run, so a second call has other rows. (A batch job's
        # key is the caller's own name for its rows: a second call with it is skipped.)
        if (epoch, call) in (self._last.get(query_id), _done.get(self._name_of(query_id))):
            raise DuplicateEpochCall(
                "This sink was called twice for one epoch in one run. The first call's rows are "
                "written; the second call's are not, and no restart writes them.",
                hint="Call each sink once in a foreachBatch function (union the DataFrames, or "
                "use a second sink_id). If the second call had other rows, write those: "
                'sink.write(rows, epoch="another key"). Then restart the driver, or call '
                "sink.close().",
                query_id=query_id,
                epoch=epoch,
            )

    def notices_gaps(self, query_id: str) -> bool:
        """Whether ``check_follows`` refuses a query's first epoch in a run if the one before it
        failed without a record."""
        history = self._log.history
        is_first = history.streaming_queries <= {query_id}
        is_known = not is_first or history.last_committed_epoch(query_id) is not None
        return is_known and self._policies.on_gap == "refuse"

    def check_follows(self, query_id: str, epoch: str) -> None:
        """Check that the query's first epoch in this run follows the epochs in the log.

        Raises:
            UnfinishedEpoch: see ``eos.protocol.check_follows``.
        """
        if self._policies.on_gap == "refuse" and query_id not in self._asked:
            check_follows(self._log.history, query_id, epoch)
        self._asked.add(query_id)

    def check_replayed(
        self, query_id: str, epoch: str, planned_at: Callable[[], datetime | None]
    ) -> None:
        """Check that a committed ``epoch`` still has the rows with which it was written.

        Raises:
            RewoundCheckpoint: see ``eos.protocol.check_replayed``.
        """
        if self._policies.on_rewind == "refuse" and is_streaming(query_id):
            check_replayed(self._log.history, query_id, epoch, planned_at())

    def _name_of(self, query_id: str) -> tuple[str, str]:
        return self._log.log_table_id, query_id

    def add(self, query_id: str, epoch: str, call: str) -> None:
        """Remember that ``epoch`` is written."""
        if is_streaming(query_id):
            self._last[query_id] = (epoch, call)
            if call:
                _done[self._name_of(query_id)] = (epoch, call)

    def record_failure(
        self, claim: LogRecord | None, query_id: str, epoch: str, error: BaseException
    ) -> None:
        """Append a record of an epoch that failed before its transaction."""
        # If user code swallows the error, Spark continues with the next epoch, now or in a later
        # run: it must not follow unnoticed.
        if claim is None or isinstance(error, _NOT_RECORDED) or not is_streaming(query_id):
            return
        try:
            self._log.resync()
            history = self._log.history
            if isinstance(error, UnfinishedEpoch) and any(
                owed.query_id == query_id for owed in history.owing
            ):
                return  # the epoch that blocks this one is already in the log
            # A done epoch may have no record any more: it has not failed.
            if history.newest(query_id, epoch) is None and not history.must_skip(query_id, epoch):
                reason = reason_of(error)
                self._log.append(
                    LogRecord.failed(claim, query_id=query_id, epoch=epoch, reason=reason)
                )
        except EosError as failure:
            logger.warning("The failure of epoch %s is not in the commit log: %s", epoch, failure)
