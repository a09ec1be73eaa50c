"""Writes the epochs of one sink, exactly once each: runs, repeats or skips them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer._attempt import OpenAttempt
from eos.committer._call_guard import CallGuard, Policies
from eos.committer._claim import Claim
from eos.committer._epoch import (
    EpochResult,
    PlanWriting,
    StepTimer,
    check_epoch,
    plan_writing,
    result_of,
)
from eos.committer._finisher import EndedAttempt
from eos.committer.participants import Participants
from eos.errors import (
    ConfigurationError,
    Fenced,
    TransactionExpired,
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
    check_follows,
    check_lineage,
    decide_epoch,
    is_streaming,
)
from eos.retry import attempts, reruns
from eos.steps import Step
from eos.waiting import submit

logger = logging.getLogger(__name__)

# Midnight of one day differs by zone; of daily keys in one zone, at most this many match.
_MAX_DAYS = 2

PlanTime = Callable[[], datetime | None]
"""When Spark planned an epoch; None if unknown."""


class Committer:
    """One driver's work on one sink. Not thread-safe.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs: all of them hold an epoch, or none.
        max_attempts: how often one call may run the same epoch.
        deadline_s: timeout of each wait for a participant.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Sequence[Participant],
        *,
        max_attempts: int = 3,
        deadline_s: float = 60.0,
        policies: Policies | None = None,
    ) -> None:
        self._log = log
        self._policies = policies or Policies()
        self._max_attempts = max_attempts
        self._deadline_s = deadline_s
        self._claim = Claim(
            log,
            Participants(log, participants),
            deadline_s=deadline_s,
            on_new_cluster=self._policies.on_new_cluster,
        )
        # Not a daemon thread: a driver that exits normally waits for it.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eos-log")
        self._finishing: Future[LogRecord] | None = None
        self._guard = CallGuard(log, self._policies)

    def check_lineage(self, query_id: str, epoch: str) -> None:
        """Refuse a new query on a known sink, before anything is claimed.

        Raises:
            NewLineage: see ``eos.protocol.check_lineage``.
        """
        self._catch_up()
        check_lineage(self._log.history, query_id, epoch, self._policies.on_new_query)

    def check_similar_keys(
        self, key: str, similar_keys: Iterable[str], midnights: Iterable[str] = ()
    ) -> None:
        """Refuse a new batch key if the log holds another spelling that is used for the same rows.

        Args:
            midnights: the moments at which the day ``key`` begins, zone by zone. At most two daily
                keys can be among them; if there are more, the keys are hours and not days.

        Raises:
            ConfigurationError: one of the others is written, and ``key`` is not.
        """
        self._catch_up()
        history = self._log.history
        written = [one for one in similar_keys if history.is_done(BATCH, one)]
        days = [one for one in midnights if history.is_done(BATCH, one)]
        written += days if len(days) <= _MAX_DAYS else []
        if written and not history.is_done(BATCH, key):
            raise ConfigurationError(
                f"Epoch {key} is not written, but {written[0]} is: if both name the same rows, "
                "they would be written twice.",
                hint=f'If they are the same rows, use epoch="{written[0]}", which is skipped. If '
                f'not, use the text epoch="{key}".',
            )

    def claim(self) -> LogRecord:
        """Step 1, unless it is done: claim the sink, end unfinished attempts.

        Raises:
            Fenced, InDoubt, NewCluster: as ``Claim.ensure``.
        """
        self._catch_up()
        return self._claim.ensure()

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
        finish_later: bool = False,
        timer: StepTimer | None = None,
    ) -> EpochResult:
        """Steps 2 to 10: write ``epoch`` exactly once, or find that it is written.

        Args:
            plan, check: writes the rows; and refuses them, before each attempt.
            call: distinguishes a repeated call from a new one: Spark's run id of the query.
            planned_at: without it, a committed epoch is skipped by its number alone.
            finish_later: return after step 9, when the epoch is readable, and run step 10 in the
                background; its errors are raised by the next call.

        Raises:
            DuplicateEpochCall: a stream's epoch was already written in ``call``.
            UnfinishedEpoch: an earlier epoch of the query is not in the topics.
            RewoundCheckpoint: the epoch is committed, and has been planned again since.
            Fenced, InDoubt, InputError, TransactionPoisoned: see there; the log has the reason.
        """
        timer = timer or StepTimer()
        check_epoch(query_id, epoch)
        self._guard.check(query_id, epoch, call)
        try:
            self._catch_up()
            self._claim.ensure(lambda: self._check_early(query_id, epoch, check, planned_at))
            timer.step_ended(Step.CLAIM)
            result: EpochResult | None = None
            for attempt in reruns(self._max_attempts, may_rerun):
                with attempt:
                    # Also of this call: the log may not have taken the end of its last attempt.
                    self._claim.finish_all()
                    self._guard.check_follows(query_id, epoch)
                    decision = self._decide(query_id, epoch)
                    failpoints.reached(Step.DECIDE)
                    if isinstance(decision, Skip):
                        result = self._skipped(query_id, epoch, decision, planned_at, timer)
                        continue
                    # In the time of other questions: three quick attempts are over in seconds.
                    attempts(self._deadline_s)(check)
                    result = self._run_once(
                        query_id, epoch, decision, plan, timer, planned_at, finish_later
                    )
        except BaseException as error:
            self._guard.record_failure(self._claim.taken, query_id, epoch, error)
            raise
        assert result is not None
        if not finish_later:
            for participant in self._claim.participants.own:
                participant.rest()
        self._guard.add(query_id, epoch, call)  # last: an interrupted call may be repeated
        return result

    def _check_early(
        self, query_id: str, epoch: str, check: Callable[[], None], planned_at: PlanTime | None
    ) -> None:
        # Another driver may be writing: a run that would be refused after its claim, because of an
        # old checkpoint or wrong columns, must not fence it.
        history = self._log.history
        if any(record.query_id == query_id for record in history.unfinished):
            return  # they are ended first, and may be committed
        # Without a claim no failure is recorded. If user code swallows it, it must be noticed by
        # the gap that it leaves.
        if is_streaming(query_id) and not self._guard.notices_gaps(query_id):
            return
        check_follows(history, query_id, epoch)
        decision = decide_epoch(history, query_id, epoch)
        if isinstance(decision, Run):
            attempts(self._deadline_s)(check)
        elif planned_at is not None:
            self._guard.check_replayed(query_id, epoch, planned_at)

    def _skipped(
        self,
        query_id: str,
        epoch: str,
        decision: Skip,
        planned_at: PlanTime | None,
        timer: StepTimer,
    ) -> EpochResult:
        if planned_at is not None:
            self._guard.check_replayed(query_id, epoch, planned_at)
        timer.step_ended(Step.DECIDE)
        logger.info("Epoch %s of %s is already written: skipped", epoch, query_id)
        if not is_streaming(query_id) and decision.record is not None:
            self._warn_of_new_outputs(decision.record)
        return result_of("skipped", decision.record, timer)

    def _warn_of_new_outputs(self, written: LogRecord) -> None:
        # A batch key counts for the whole sink, also for outputs that it did not have then.
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
        """Wait for the work of an interrupted earlier call: the log shows how far it came."""
        self.await_finished()
        submit(self._executor, lambda: None).result()  # an append that was no longer waited for
        self._log.resync()
        if self._claim.taken is None:  # others may have written since this log was opened
            self._log.refresh_if_moved()

    def await_finished(self) -> None:
        """Wait until step 10 of an earlier call is done.

        Raises:
            EosError: the record could not be appended; the next run finds the outcome.
        """
        if self._finishing is None:
            return
        try:
            self._finishing.result()
        finally:
            if self._finishing.done():  # otherwise the wait was interrupted and has to be repeated
                self._finishing = None

    def close(self) -> None:
        """Wait for all background work: the last step 10 and the compaction.

        Raises:
            EosError: as ``await_finished``.
        """
        try:
            self.await_finished()
        finally:
            self._log.await_maintenance()

    def _run_once(
        self,
        query_id: str,
        epoch: str,
        run: Run,
        plan: PlanWriting,
        timer: StepTimer,
        planned_at: PlanTime | None,
        finish_later: bool,
    ) -> EpochResult:
        timer.step_ended(Step.DECIDE)
        opened, write = OpenAttempt.begin(
            self._log,
            self._claim,
            query_id,
            epoch,
            run,
            executor=self._executor,
            meanwhile=lambda parts: plan_writing(plan, parts),  # Spark plans during the requests
            deadline_s=self._deadline_s,
            planned_at=planned_at or (lambda: None),
            timer=timer,
        )
        with opened.abort_on_error():
            written = write()
            timer.step_ended(Step.WRITE)
            failpoints.reached(Step.WRITE)
            opened.prepare(written)
        ended = opened.commit()
        timer.step_ended(Step.END)
        outcome = ended.outcome
        if finish_later and outcome is not None and outcome.state is State.COMMITTED:
            self._finishing = submit(
                self._executor, lambda: self._finish_in_background(opened, ended, timer)
            )
            return result_of("written", opened.record, timer)
        last = opened.finish(ended)
        timer.step_ended(Step.FINISH)
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return result_of("written", last, timer)

    def _decide(self, query_id: str, epoch: str) -> EpochDecision:
        """Step 2."""
        # An overtaken driver's history may be older than the log. Any driver may have committed a
        # batch key since: it is skipped, even by a run that has lost its claim.
        if not is_streaming(query_id):
            self._log.refresh_if_moved()
        try:
            return decide_epoch(self._log.history, query_id, epoch)
        except UnfinishedEpoch:
            self._log.refresh()
            if self._log.is_fenced:
                raise Fenced("Another driver has claimed the sink.") from None
            return decide_epoch(self._log.history, query_id, epoch)

    def _finish_in_background(
        self, opened: OpenAttempt, ended: EndedAttempt, timer: StepTimer
    ) -> LogRecord:
        since = time.monotonic()
        try:
            last = opened.finish(ended)
            timer.finished_in_background(since)
            return last
        except BaseException as error:  # maybe no later call can raise it
            epoch = ended.record.epoch
            logger.warning("Epoch %s is committed, but not recorded as such: %s", epoch, error)
            raise
