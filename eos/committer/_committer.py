"""Epochs of one sink, exactly once each: whether one runs, how often, and what follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Literal

from eos import failpoints
from eos._waiting import submit
from eos.commit_log import CommitLog
from eos.committer._attempt import OpenEpoch
from eos.committer._call_guard import Calls
from eos.committer._claim import Claim
from eos.committer._epoch import EpochResult, PlanWriting, check_epoch, planned, result_of
from eos.committer._finisher import Settled
from eos.committer._step_timer import EpochWatch
from eos.committer.participants import Participants
from eos.errors import (
    ConfigurationError,
    Fenced,
    Indeterminate,
    InDoubt,
    TransactionExpired,
    TransactionPoisoned,
    UnfinishedEpoch,
)
from eos.participant import Participant
from eos.protocol import (
    BATCH,
    EpochDecision,
    LogRecord,
    Run,
    Skip,
    State,
    check_lineage,
    decide_epoch,
    is_streaming,
)
from eos.retry import reruns
from eos.steps import Step

logger = logging.getLogger(__name__)

_DAYS_AT_MOST = 2
"""Of daily keys, all of one zone, so many may be a midnight of one day in some zone."""

PlanTime = Callable[[], datetime | None]
"""When Spark planned an epoch; None: it does not say."""


class Committer:
    """One driver's work on one sink. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs: all of them hold an epoch, or none.
        max_attempts: how often one call may run the same epoch.
        deadline_s: of each wait for a participant.
        on_new_cluster: what to do about a cluster that does not hold what the log recorded.
        on_gap: what to do about a query that begins its life behind epochs that the log lacks.
        on_rewind: what to do about epochs that are done, and that a stream has planned anew.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Sequence[Participant],
        *,
        max_attempts: int = 3,
        deadline_s: float = 60.0,
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
        on_gap: Literal["refuse", "continue"] = "refuse",
        on_rewind: Literal["refuse", "skip"] = "refuse",
    ) -> None:
        self._log = log
        self._max_attempts = max_attempts
        self._deadline_s = deadline_s
        self._claim = Claim(
            log,
            Participants(log, participants),
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

    def check_lookalikes(
        self, key: str, lookalikes: Iterable[str], midnights: Iterable[str] = ()
    ) -> None:
        """Refuse a new batch key, when the log holds one that people use for the same rows.

        Args:
            midnights: the moments at which the day ``key`` begins, zone by zone. Of daily keys two
                can be among them at most; where there are more, they are hours and no days.

        Raises:
            ConfigurationError: one of the others is written, and ``key`` is not.
        """
        self._catch_up()
        history = self._log.history
        written = [one for one in lookalikes if history.is_done(BATCH, one)]
        days = [one for one in midnights if history.is_done(BATCH, one)]
        written += days if len(days) <= _DAYS_AT_MOST else []
        if written and not history.is_done(BATCH, key):
            raise ConfigurationError(
                f"epoch {key} is not written, and {written[0]} is: if both name the same rows, "
                "they would be written twice.",
                hint=f'If they are the same rows, use epoch="{written[0]}", which is skipped. If '
                f'not, use the text epoch="{key}".',
            )

    def claim(self) -> LogRecord:
        """Step 1, unless it is done: claim the sink, end what is unfinished.

        Raises:
            Fenced, InDoubt, NewCluster: as ``Claim.complete``.
        """
        self._catch_up()
        return self._claim.complete()

    def run_epoch(
        self,
        query_id: str,
        epoch: str,
        plan: PlanWriting,
        *,
        check: Callable[[], None] = lambda: None,
        call: str = "",
        planned_at: PlanTime | None = None,
        may_rerun: Callable[[], bool] = lambda: True,
        notes_later: bool = False,
        watch: EpochWatch | None = None,
    ) -> EpochResult:
        """Steps 2 to 10: write ``epoch`` exactly once, or find that it was.

        Args:
            plan, check: how its rows are written; and what refuses them before each attempt.
            call: what tells a repeated call from a new one: Spark's run id of the query.
            planned_at: when the caller decided what is in a stream's epoch; without it an epoch
                that is done is skipped by its number alone.
            may_rerun: asked before this call runs the epoch once more.
            notes_later: return after step 9, when the epoch is readable, and leave step 10 to a
                thread; its errors are the next call's.
            watch: takes the time of each step, since the call began; see ``Observer``.

        Raises:
            DuplicateEpochCall: a stream's epoch was written in ``call`` already.
            UnfinishedEpoch: an earlier epoch of the query is not in the topics.
            RewoundCheckpoint: the epoch is done, and was planned anew since.
            Fenced, InDoubt, InputError, TransactionPoisoned: see there; the log says why.
        """
        watch = watch or EpochWatch()
        check_epoch(query_id, epoch)
        self._calls.check(query_id, epoch, call)
        try:
            self.claim()
            self._claim.finish_all()
            self._calls.check_follows(query_id, epoch)
            watch.passed(Step.CLAIM)
            result: EpochResult | None = None
            for attempt in reruns(self._max_attempts, may_rerun):
                with attempt:
                    decision = self._decide(query_id, epoch)
                    failpoints.reached(Step.DECIDE)
                    if isinstance(decision, Skip):
                        result = self._skipped(query_id, epoch, decision, planned_at, watch)
                        continue
                    check()
                    result = self._run_once(
                        query_id, epoch, decision, plan, watch, planned_at, notes_later
                    )
        except BaseException as error:
            self._calls.note_failure(self._claim.taken, query_id, epoch, error)
            raise
        assert result is not None
        if not notes_later:
            for participant in self._claim.participants.own:
                participant.rest()
        self._calls.add(query_id, epoch, call)  # last: an interrupted call may be made again
        return result

    def _skipped(
        self,
        query_id: str,
        epoch: str,
        decision: Skip,
        planned_at: PlanTime | None,
        watch: EpochWatch,
    ) -> EpochResult:
        if planned_at is not None:
            self._calls.check_replayed(query_id, epoch, planned_at)
        watch.passed(Step.DECIDE)
        logger.info("epoch %s of %s is done: skipped", epoch, query_id)
        if not is_streaming(query_id) and decision.record is not None:
            self._warn_of_outputs_without(decision.record)
        return result_of("skipped", decision.record, watch)

    def _warn_of_outputs_without(self, written: LogRecord) -> None:
        """A batch key counts for the sink, not for each output: one that came later lacks it."""
        claimed = self._claim.taken
        parts = () if claimed is None else claimed.participants
        for part in parts:
            if written.part(part.key) is None:
                logger.warning(
                    "Epoch %s was written earlier without %s, which lacks its rows. Write them "
                    "there with another sink_id.",
                    written.epoch,
                    part.output,
                )

    def _catch_up(self) -> None:
        """What an earlier call was interrupted in may be half done: the log says what is.

        Raises:
            EosError: as ``await_noted``.
        """
        self.await_noted()
        submit(self._beside, lambda: None).result()  # an append that nobody waited for any more
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

    def close(self) -> None:
        """Wait for all that is done beside the caller's own work: the last note, the housekeeping.

        Raises:
            EosError: as ``await_noted``.
        """
        try:
            self.await_noted()
        finally:
            self._log.rest()

    def _run_once(
        self,
        query_id: str,
        epoch: str,
        run: Run,
        plan: PlanWriting,
        watch: EpochWatch,
        planned_at: PlanTime | None,
        notes_later: bool,
    ) -> EpochResult:
        watch.passed(Step.DECIDE)
        opened, write = OpenEpoch.begin(
            self._log,
            self._claim,
            query_id,
            epoch,
            run,
            beside=self._beside,
            meanwhile=lambda parts: planned(plan, parts),  # Spark plans while others answer
            deadline_s=self._deadline_s,
            planned_at=planned_at or (lambda: None),
            watch=watch,
        )
        try:
            written = write()
            watch.passed(Step.WRITE)
            failpoints.reached(Step.WRITE)
            opened.prepare(written)
        except (Fenced, InDoubt):
            raise
        except BaseException as error:
            watch.broke_off()
            opened.abort(error)
            watch.runs_again()
            if isinstance(error, Indeterminate):
                raise TransactionPoisoned(f"A write is in doubt: {error.message}") from error
            raise
        settled = opened.commit()
        watch.passed(Step.END)
        outcome = settled.outcome
        if notes_later and outcome is not None and outcome.state is State.COMMITTED:
            self._noting = submit(self._beside, lambda: self._note_beside(opened, settled, watch))
            return result_of("written", opened.record, watch)
        last = opened.note(settled)
        watch.passed(Step.FINISH)
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return result_of("written", last, watch)

    def _decide(self, query_id: str, epoch: str) -> EpochDecision:
        """Step 2. Whoever was overtaken may know less than the log holds by now.

        A batch key may have been committed by anybody since: that is a skip, even for a run that
        has lost its claim, which writes nothing more.
        """
        if not is_streaming(query_id):
            self._log.refresh()
        try:
            return decide_epoch(self._log.history, query_id, epoch)
        except UnfinishedEpoch:
            self._log.refresh()
            if self._log.is_fenced:
                raise Fenced("Another driver has claimed the sink.") from None
            return decide_epoch(self._log.history, query_id, epoch)

    def _note_beside(self, opened: OpenEpoch, settled: Settled, watch: EpochWatch) -> LogRecord:
        since = time.monotonic()
        try:
            last = opened.note(settled)
            watch.noted(since)
            return last
        except BaseException as error:  # there may be no next call that it could come up in
            epoch = settled.record.epoch
            logger.warning("epoch %s is committed; noting that it is failed: %s", epoch, error)
            raise
