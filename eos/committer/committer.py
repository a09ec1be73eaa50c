"""The commit of an epoch, step by step (``eos.steps``), for any sink with a transactional half.

Log first, broker second, always. The order of the lines here is the protocol: each one is a place
where the process may die, and a later run takes over from what the log says.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.ending import Ending
from eos.committer.epoch import EpochResult, Write, check_epoch, result_of
from eos.committer.half import TransactionalHalf
from eos.committer.reasons import raise_task_error, reason_of
from eos.coordinator import (
    Answers,
    MarkAnswer,
    Run,
    Skip,
    check_lineage,
    decide_epoch,
    find_poison,
)
from eos.errors import (
    CommitLogError,
    DuplicateEpochCall,
    EosError,
    Fenced,
    Indeterminate,
    InDoubt,
    Retriable,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.retry import attempts, reruns
from eos.steps import Step
from eos.summary import merge_figures
from eos.transaction import (
    LogRecord,
    Reason,
    ReasonKind,
    State,
)

logger = logging.getLogger(__name__)


class Committer:
    """One driver's hold on one sink. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        half: the sink's transactional half.
        service_url: recorded with each transaction; where it was opened.
        ttl_ms: time to live of an epoch's first transaction.
        max_attempts: how often one call may run the same epoch.
        deadline_s: of each wait for a broker, a mark, an END_TXN or the witness.
    """

    def __init__(
        self,
        log: CommitLog,
        half: TransactionalHalf,
        *,
        service_url: str,
        ttl_ms: int,
        max_attempts: int = 3,
        deadline_s: float = 60.0,
    ) -> None:
        self._log = log
        self._half = half
        self._service_url = service_url
        self._ttl_ms = ttl_ms
        self._max_attempts = max_attempts
        self._deadline_s = deadline_s
        self._ending = Ending(log, half, deadline_s)
        self._claim: LogRecord | None = None
        self._is_ready = False
        self._called: set[tuple[str, str, str]] = set()

    def check_lineage(
        self, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
    ) -> None:
        """Refuse a new query on a known sink, before anything is claimed.

        Raises:
            NewLineage: see ``eos.coordinator.check_lineage``.
        """
        check_lineage(self._log.history, query_id, epoch, on_new_query)

    def claim(self) -> LogRecord:
        """Step 1: claim the sink, connect to its coordinators, end what is unfinished.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            InDoubt: a transaction of an earlier run can't be ended now.
        """
        if self._claim is not None and self._is_ready:
            return self._claim
        claim = self.take_claim()
        self._finish_all()
        self._check_not_rolled_back()
        for attempt in attempts(self._deadline_s):
            with attempt:
                self._half.ensure_witness(first=not self._log.history.coordinators)
        self._is_ready = True
        failpoints.reached(Step.CLAIM)
        return claim

    def take_claim(self) -> LogRecord:
        """The first half of ``claim``: fence everybody else, and end nothing yet.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
        """
        if self._claim is None:
            topic = self._log.history.receipt_topic or self._half.receipt_topic(
                self._log.log_table_id
            )
            for attempt in attempts(self._deadline_s):
                with attempt:  # whoever can't write must not fence the one who can
                    self._half.check(topic)
            self._claim = self._log.append(
                LogRecord.claimed(
                    sink_id=self._log.sink_id,
                    run_id=str(uuid.uuid4()),
                    service_url=self._service_url,
                    receipt_topic=topic,
                )
            )
        for attempt in attempts(self._deadline_s):
            with attempt:
                self._half.attach(self._claim.receipt_topic, self._log.history.coordinators)
        return self._claim

    def _check_not_rolled_back(self) -> None:
        """A log that was replaced by an older copy looks whole; the receipts know better (I2)."""
        last = self._log.history.last_opened
        if last is None:
            return
        newer: str | None = None
        for attempt in attempts(self._deadline_s):
            with attempt:
                newer = self._half.commits_after(last, timeout_s=self._deadline_s)
        if newer is not None:
            raise CommitLogError(
                f"Commit log {self._log.uri} ends before a transaction that was committed: "
                f"{newer}.",
                hint="It was rolled back to an older copy. Restore the newest one: with this one "
                "epochs that are readable already would be written again.",
                sink_id=self._log.sink_id,
            )

    def finish(self, record: LogRecord) -> LogRecord:
        """End one unfinished transaction of an earlier run as the log decides; its last record.

        Raises:
            InDoubt: its outcome can't be proved now.
            Fenced: another run holds the claim.
        """
        claim = self.take_claim() if self._claim is None else self._claim
        reason = Reason(ReasonKind.RECOVERY, f"left {record.state} by run {record.run_id}")
        last = self._ending.finish(record, claim, reason=reason)
        self._clean_up(last)
        return last

    def _finish_all(self) -> None:
        for record in self._log.history.unfinished:
            self.finish(record)

    def run_epoch(self, query_id: str, epoch: str, write: Write, *, call: str = "") -> EpochResult:
        """Steps 2 to 10: write ``epoch`` exactly once, or find that it was.

        Args:
            call: what tells a repeated call from a new one: Spark's run id of the query.

        Raises:
            DuplicateEpochCall: the epoch was written by this committer and ``call`` already.
            Fenced, InDoubt, InputError, TransactionPoisoned: see there; the log says why.
        """
        check_epoch(query_id, epoch)
        if (query_id, epoch, call) in self._called:
            raise DuplicateEpochCall(
                "This sink was called twice for one epoch in one run; the first call's rows stay.",
                hint="Call each sink once in a foreachBatch function (union the DataFrames, or "
                "use a second sink_id); give each batch write a key of its own.",
                query_id=query_id,
                epoch=epoch,
            )
        claim = self.claim()
        self._finish_all()
        result: EpochResult | None = None
        for attempt in reruns(self._max_attempts):
            with attempt:
                result = self._run_once(claim, query_id, epoch, write)
        assert result is not None
        self._called.add((query_id, epoch, call))
        return result

    def _run_once(self, claim: LogRecord, query_id: str, epoch: str, write: Write) -> EpochResult:
        decision = decide_epoch(self._log.history, query_id, epoch, ttl_ms=self._ttl_ms)
        failpoints.reached(Step.DECIDE)
        if isinstance(decision, Skip):
            logger.info("epoch %s of %s was written before: skipped", epoch, query_id)
            return result_of("skipped", decision.record)
        record = self._open(claim, query_id, epoch, decision)
        try:
            ready = self._write_and_prepare(claim, record, write)
        except (Fenced, InDoubt):
            raise
        except BaseException as error:
            self._abort(claim, record, error)
            if isinstance(error, Indeterminate):
                raise TransactionPoisoned(f"A write is in doubt: {error.message}") from error
            raise
        # Everything was acknowledged a moment ago: the mark needs no second look.
        last = self._ending.finish(
            ready, claim, reason=_NO_RECORDS, answers=Answers(mark=MarkAnswer.FOUND)
        )
        self._clean_up(last)
        failpoints.reached(Step.FINISH)
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return result_of("written", last)

    def _open(self, claim: LogRecord, query_id: str, epoch: str, run: Run) -> LogRecord:
        """Steps 3 and 4: mark, NEW_TXN, OPEN."""
        for attempt in attempts(self._deadline_s):
            with attempt:
                begun = self._half.begin(run.ttl_ms)
        failpoints.reached(Step.BEGIN)
        record = self._log.append(
            LogRecord.opened(
                claim,
                query_id=query_id,
                epoch=epoch,
                attempt=run.attempt,
                txn=begun.txn,
                ttl_ms=run.ttl_ms,
                opened_at=datetime.now(UTC),
                mark_id=begun.mark_id,
                mark_uuid=begun.mark_uuid,
            )
        )
        failpoints.reached(Step.OPEN)
        return record

    def _write_and_prepare(self, claim: LogRecord, record: LogRecord, write: Write) -> LogRecord:
        """Steps 5 to 8; the PREPARED record, or ``record`` itself when there is nothing to send."""
        assert record.txn is not None
        written = write(record.txn)
        failpoints.reached(Step.WRITE)
        raise_task_error(written.summaries)
        poison = find_poison(written.summaries, written.stage)
        if poison is not None:
            raise TransactionPoisoned(f"Transaction {record.txn} is poisoned: {poison}.")
        failpoints.reached(Step.CHECK)
        figures = merge_figures(written.summaries)
        if not any(partition.records for partition in figures):
            return record
        draft = record.advance(State.PREPARED, claim=claim, partitions=figures)
        receipt_id = self._half.send_receipt(draft)
        failpoints.reached(Step.RECEIPT)
        prepared = self._log.append(replace(draft, receipt_id=receipt_id))
        failpoints.reached(Step.PREPARE)
        return prepared

    def _abort(self, claim: LogRecord, record: LogRecord, error: BaseException) -> None:
        """End what failed. Should that fail too, a failure that would be retried gives way."""
        try:
            last = self._ending.finish(record, claim, reason=reason_of(error))
        except EosError as failure:
            if isinstance(failure, Fenced) or isinstance(error, Retriable | Indeterminate):
                raise failure from error
            error.add_note(f"The transaction is not aborted yet, the next run does it: {failure}")
            return
        self._clean_up(last)

    def _clean_up(self, last: LogRecord) -> None:
        if last.state is State.COMMITTED:
            self._half.after_commit(last)
        elif last.state is State.ABORTED:
            self._half.after_abort(last)


_NO_RECORDS: Final = Reason(ReasonKind.EMPTY, "the epoch had no records")
