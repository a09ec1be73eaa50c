"""What users' code does with a sink: calls it twice, or goes on when it has failed."""

from __future__ import annotations

import logging
from typing import Literal

from eos.commit_log import CommitLog
from eos.committer.reasons import reason_of
from eos.errors import DuplicateEpochCall, EosError, Fenced, UnfinishedEpoch
from eos.protocol import BATCH, LogRecord, check_follows, is_streaming

logger = logging.getLogger(__name__)


class Calls:
    """The epochs that one life of a driver was asked to write, and those that it could not."""

    def __init__(self, log: CommitLog, *, on_gap: Literal["refuse", "continue"]) -> None:
        self._log = log
        self._on_gap = on_gap
        self._asked: set[str] = set()
        self._keys: set[str] = set()
        # Spark asks for a stream's epochs in turn: the last one is enough to remember.
        self._last: dict[str, tuple[str, str]] = {}

    def check(self, query_id: str, epoch: str, call: str) -> None:
        """Nothing, when ``epoch`` was not done in ``call`` yet.

        Raises:
            DuplicateEpochCall: it was; the rows of this call would be dropped in silence.
        """
        done = self._last.get(query_id) == (epoch, call)
        if done or (query_id == BATCH and epoch in self._keys):
            raise DuplicateEpochCall(
                "This sink was called twice for one epoch in one run; the first call's rows stay.",
                hint="Call each sink once in a foreachBatch function (union the DataFrames, or "
                "use a second sink_id); give each batch write a key of its own.",
                query_id=query_id,
                epoch=epoch,
            )

    def check_follows(self, query_id: str, epoch: str) -> None:
        """Nothing, unless this is the query's first epoch in this life, and does not follow.

        Raises:
            UnfinishedEpoch: see ``eos.protocol.check_follows``.
        """
        if self._on_gap == "refuse" and query_id not in self._asked:
            check_follows(self._log.history, query_id, epoch)
        self._asked.add(query_id)

    def add(self, query_id: str, epoch: str, call: str) -> None:
        """``epoch`` is done."""
        if query_id == BATCH:
            self._keys.add(epoch)
        else:
            self._last[query_id] = (epoch, call)

    def note_failure(
        self, claim: LogRecord | None, query_id: str, epoch: str, error: BaseException
    ) -> None:
        """Leave a record of an epoch that got no transaction: no other may follow it unnoticed.

        Whoever swallows its error makes Spark go on to the next epoch, in this life or a later one.
        """
        is_told = isinstance(error, Fenced | UnfinishedEpoch)
        if claim is None or is_told or not is_streaming(query_id):
            return
        try:
            self._log.settle()
            if self._log.history.newest(query_id, epoch) is None:
                reason = reason_of(error)
                self._log.append(
                    LogRecord.failed(claim, query_id=query_id, epoch=epoch, reason=reason)
                )
        except EosError as failure:
            logger.warning("that epoch %s failed is not in the commit log: %s", epoch, failure)
