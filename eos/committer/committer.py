"""The commit of an epoch, step by step (``eos.steps``), for any sink with a transactional half.

Log first, broker second, always. The order of the lines here is the protocol: each one is a place
where the process may die, and a later run takes over from what the log says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.calls import Calls
from eos.committer.ending import Settled
from eos.committer.epoch import EpochResult, Plan, Written, check_epoch, planned, result_of
from eos.committer.half import TransactionalHalf
from eos.committer.hold import Hold
from eos.committer.reasons import NO_RECORDS, raise_task_error, reason_of
from eos.errors import (
    EosError,
    Fenced,
    Indeterminate,
    InDoubt,
    Retriable,
    TransactionExpired,
    TransactionPoisoned,
    UnfinishedEpoch,
)
from eos.protocol import (
    Answers,
    EpochDecision,
    LogRecord,
    MarkAnswer,
    Run,
    Skip,
    State,
    check_lineage,
    decide_epoch,
    find_poison,
)
from eos.retry import attempts, reruns
from eos.roll_call import RollCall
from eos.steps import Step
from eos.summary import merge_figures

logger = logging.getLogger(__name__)

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class Committer:
    """One driver's hold on one sink. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        half: the sink's transactional half.
        service_url: recorded with each transaction; where it was opened.
        ttl_ms: time to live of an epoch's first transaction.
        max_attempts: how often one call may run the same epoch.
        deadline_s: of each wait for a broker, a mark, an END_TXN or the witness.
        on_new_cluster: what to do about a cluster that does not hold what the log recorded.
        on_gap: what to do about a query that begins its life behind epochs that the log lacks.
        on_rewind: what to do about epochs that are done, and that a stream has planned anew.
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
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
        on_gap: Literal["refuse", "continue"] = "refuse",
        on_rewind: Literal["refuse", "skip"] = "refuse",
    ) -> None:
        self._log = log
        self._half = half
        self._ttl_ms = ttl_ms
        self._max_attempts = max_attempts
        self._deadline_s = deadline_s
        self._hold = Hold(
            log,
            half,
            service_url=service_url,
            deadline_s=deadline_s,
            on_new_cluster=on_new_cluster,
        )
        # Not a daemon's thread: a driver that ends in order waits for it.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="eos-log")
        self._noting: Future[LogRecord] | None = None
        self._calls = Calls(log, on_gap=on_gap, on_rewind=on_rewind)

    def check_lineage(
        self, query_id: str, epoch: str, on_new_query: Literal["refuse", "continue"]
    ) -> None:
        """Refuse a new query on a known sink, before anything is claimed.

        Raises:
            NewLineage: see ``eos.protocol.check_lineage``.
        """
        self._catch_up()
        check_lineage(self._log.history, query_id, epoch, on_new_query)

    def claim(self) -> LogRecord:
        """Step 1, unless it is done: claim the sink, end what is unfinished.

        Raises:
            Fenced, InDoubt, NewCluster: as ``Hold.claim``.
        """
        self._catch_up()
        return self._hold.claim()

    def run_epoch(
        self,
        query_id: str,
        epoch: str,
        plan: Plan,
        *,
        call: str = "",
        planned_at: Callable[[], datetime] = lambda: _LONG_AGO,
        may_rerun: Callable[[], bool] = lambda: True,
        notes_later: bool = False,
    ) -> EpochResult:
        """Steps 2 to 10: write ``epoch`` exactly once, or find that it was.

        Args:
            plan: how its rows are written; called for each attempt.
            call: what tells a repeated call from a new one: Spark's run id of the query.
            planned_at: asked of an epoch that is done: when the caller decided what is in it.
            may_rerun: asked before this call runs the epoch once more.
            notes_later: return after step 9, when the epoch is readable, and leave step 10 to a
                thread beside the caller's own work. Its errors are the next call's.

        Raises:
            DuplicateEpochCall: the epoch was written by this committer and ``call`` already.
            UnfinishedEpoch: an earlier epoch of the query is not in the topics.
            RewoundCheckpoint: the epoch is done, and was planned anew since.
            Fenced, InDoubt, InputError, TransactionPoisoned: see there; the log says why.
        """
        check_epoch(query_id, epoch)
        self._calls.check(query_id, epoch, call)
        try:
            claim = self.claim()
            self._hold.finish_all()
            self._calls.check_follows(query_id, epoch)
            result: EpochResult | None = None
            for attempt in reruns(self._max_attempts, may_rerun):
                with attempt:
                    decision = self._decide(query_id, epoch)
                    failpoints.reached(Step.DECIDE)
                    if isinstance(decision, Skip):
                        self._calls.check_replayed(query_id, epoch, planned_at)
                        logger.info("epoch %s of %s is done: skipped", epoch, query_id)
                        result = result_of("skipped", decision.record)
                        continue
                    result = self._run_once(
                        claim, query_id, epoch, decision, plan, notes_later=notes_later
                    )
        except BaseException as error:
            self._calls.note_failure(self._hold.held, query_id, epoch, error)
            raise
        assert result is not None
        if not notes_later:
            self._half.rest()
        self._calls.add(query_id, epoch, call)  # last: an interrupted call may be made again
        return result

    def _catch_up(self) -> None:
        """What an earlier call was interrupted in may be half done: the log says what is.

        Raises:
            EosError: as ``await_noted``.
        """
        self.await_noted()
        self._beside.submit(lambda: None).result()  # an append that nobody waited for any more
        self._log.settle()

    def await_noted(self) -> None:
        """Wait until what an earlier call left to be noted is in the log (step 10).

        Raises:
            EosError: it could not be appended; the next run finds out by itself.
        """
        if self._noting is None:
            return
        try:
            self._noting.result()
        finally:
            if self._noting.done():  # else the wait was broken off, and is still to be waited for
                self._noting = None

    def _run_once(
        self,
        claim: LogRecord,
        query_id: str,
        epoch: str,
        run: Run,
        plan: Plan,
        *,
        notes_later: bool,
    ) -> EpochResult:
        record, call, write = self._open(claim, query_id, epoch, run, plan)
        try:
            ready = self._write_and_prepare(claim, record, call, write)
        except (Fenced, InDoubt):
            raise
        except BaseException as error:
            self._abort(claim, record, error)
            if isinstance(error, Indeterminate):
                raise TransactionPoisoned(f"A write is in doubt: {error.message}") from error
            raise
        # Everything was acknowledged a moment ago: the mark needs no second look.
        settled = self._hold.ending.settle(
            ready, claim, reason=NO_RECORDS, answers=Answers(mark=MarkAnswer.FOUND)
        )
        outcome = settled.outcome
        if notes_later and outcome is not None and outcome.state is State.COMMITTED:
            self._noting = self._beside.submit(self._note_beside, settled, claim)
            return result_of("written", ready)
        last = self._note(settled, claim)
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return result_of("written", last)

    def _decide(self, query_id: str, epoch: str) -> EpochDecision:
        """Step 2. Whoever was overtaken may know less than the log holds by now."""
        try:
            return decide_epoch(self._log.history, query_id, epoch, ttl_ms=self._ttl_ms)
        except UnfinishedEpoch:
            self._log.refresh()
            if self._log.is_fenced:
                raise Fenced("Another driver has claimed the sink.") from None
            return decide_epoch(self._log.history, query_id, epoch, ttl_ms=self._ttl_ms)

    def _note(self, settled: Settled, claim: LogRecord) -> LogRecord:
        """Step 10."""
        last = self._hold.ending.note(settled, claim)
        self._hold.clean_up(last)
        failpoints.reached(Step.FINISH)
        return last

    def _note_beside(self, settled: Settled, claim: LogRecord) -> LogRecord:
        try:
            return self._note(settled, claim)
        except BaseException as error:  # there may be no next call that it could come up in
            epoch = settled.record.epoch
            logger.warning("epoch %s is committed; noting that it is failed: %s", epoch, error)
            raise

    def _open(
        self, claim: LogRecord, query_id: str, epoch: str, run: Run, plan: Plan
    ) -> tuple[LogRecord, RollCall, Callable[[], Written]]:
        """Steps 3 and 4: mark, NEW_TXN, OPEN. Spark plans while the log is written."""
        for attempt in attempts(self._deadline_s):
            with attempt:
                begun = self._half.begin(run.ttl_ms)
        failpoints.reached(Step.BEGIN)
        opening = self._beside.submit(
            self._log.append,
            LogRecord.opened(
                claim,
                query_id=query_id,
                epoch=epoch,
                attempt=run.attempt,
                txn=begun.txn,
                ttl_ms=run.ttl_ms,
                opened_at=datetime.now(UTC),
                mark_id=begun.call.mark_id,
                mark_uuid=begun.call.mark_uuid,
            ),
        )
        write = planned(plan, begun)
        record = opening.result()
        failpoints.reached(Step.OPEN)
        return record, begun.call, write

    def _write_and_prepare(
        self, claim: LogRecord, record: LogRecord, call: RollCall, write: Callable[[], Written]
    ) -> LogRecord:
        """Steps 5 to 8; the PREPARED record, or ``record`` itself when there is nothing to send."""
        summaries = write()
        failpoints.reached(Step.WRITE)
        raise_task_error(summaries)
        poison = find_poison(summaries, self._half.close_roll_call(call))
        if poison is not None:
            raise TransactionPoisoned(f"Transaction {record.txn} is poisoned: {poison}.")
        failpoints.reached(Step.CHECK)
        figures = merge_figures(summaries)
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
            last = self._hold.ending.finish(record, claim, reason=reason_of(error))
        except EosError as failure:
            if isinstance(failure, Fenced) or isinstance(error, Retriable | Indeterminate):
                raise failure from error
            error.add_note(f"The transaction is not aborted yet, the next run does it: {failure}")
            return
        self._hold.clean_up(last)
