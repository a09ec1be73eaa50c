"""One attempt of one epoch, step by step (``eos.steps``). Always log first, outputs second.

The order of the lines is the protocol: the process may die at each one, and a later run takes over
from the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer._claim import Claim
from eos.committer._epoch import NO_RECORDS, PartsBegun, Reports, StepTimer, reason_of
from eos.committer._finisher import EndedAttempt
from eos.errors import EosError, Fenced, Indeterminate, InDoubt, Retriable, TransactionPoisoned
from eos.participant import Attempt, Participant
from eos.protocol import LogRecord, Part, ReasonKind, Run, State
from eos.retry import attempts
from eos.steps import Step
from eos.waiting import submit

T = TypeVar("T")


class OpenAttempt:
    """An open attempt: its transactions are begun, and OPEN is in the log.

    ``record`` is its newest record: OPEN, then PREPARED. Ended by ``commit`` or ``abort``; if the
    object is dropped instead, the next claim ends the attempt.
    """

    def __init__(
        self, log: CommitLog, claim: Claim, record: LogRecord, timer: StepTimer | None = None
    ) -> None:
        self.record = record
        self._timer = timer or StepTimer()
        self._log = log
        self._claim = claim

    @classmethod
    def begin(
        cls,
        log: CommitLog,
        claim: Claim,
        query_id: str,
        epoch: str,
        run: Run,
        *,
        executor: Executor,
        meanwhile: Callable[[PartsBegun], T],
        deadline_s: float,
        planned_at: Callable[[], datetime | None] = lambda: None,
        timer: StepTimer | None = None,
    ) -> tuple[OpenAttempt, T]:
        """Steps 3 and 4: begin each participant, append OPEN.

        Args:
            executor: one thread, which does both, after the work that an interrupted call has left.
            meanwhile: work that needs no parts, such as planning. Its argument waits for the begun
                parts, or raises the error of their begin; ``meanwhile`` must raise nothing else.
            planned_at: called meanwhile, too: when Spark planned the epoch.

        Raises:
            EosError: nothing was opened, or the log refuses the record.
        """
        timer = timer or StepTimer()
        beginning = _Beginning(claim, query_id, epoch, run, deadline_s, timer)
        try:
            parts = submit(executor, beginning.begin)
            plan_time = planned_at()
            opening = submit(
                executor, lambda: log.append(beginning.record(parts.result(), plan_time))
            )
            done = meanwhile(parts.result)
            opened = cls(log, claim, opening.result(), timer)
        except BaseException:
            beginning.cancel()
            raise
        timer.step_ended(Step.OPEN)
        failpoints.reached(Step.OPEN)
        return opened, done

    def prepare(self, written: Reports) -> None:
        """Steps 6 to 8: count the written rows, leave the proof, append PREPARED.

        An epoch without rows stays OPEN: its commit is an abort.

        Raises:
            TransactionPoisoned: it must not be committed.
            EosError: likewise; call ``abort``. Fenced, InDoubt: leave the attempt alone.
        """
        pairs = list(self._claim.participants.of_record(self.record))
        counted, failures = [], []
        for (part, participant), rows in zip(pairs, written, strict=True):
            try:
                counted.append(participant.count(part, rows))
            except Exception as error:  # the other outputs must still learn what to undo
                failures.append(error)
        if failures:
            raise failures[0]
        self._timer.step_ended(Step.CHECK)
        failpoints.reached(Step.CHECK)
        # Never appended: PREPARED has the parts that are made from it, with their receipts.
        draft = replace(self.record, participants=tuple(counted)).with_totals()
        if not draft.records:
            return
        # The part that can expire comes last: its time runs, and an error here still aborts all.
        prepared = [
            participant.prepare(draft, part)
            for part, (_, participant) in zip(reversed(counted), reversed(pairs), strict=True)
        ]
        self._timer.step_ended(Step.RECEIPT)
        claimed = self._claim.ensure()
        self.record = self._log.append(
            self.record.advance(State.PREPARED, claim=claimed, participants=prepared[::-1])
        )
        self._timer.step_ended(Step.PREPARE)
        failpoints.reached(Step.PREPARE)

    def commit(self) -> EndedAttempt:
        """Step 9: do what PREPARED decides in every output; an epoch without rows is aborted.

        Raises:
            InDoubt: an outcome can't be proved now.
        """
        # is_own: every send was acknowledged just now, so Pulsar's mark is not read again.
        return self._claim.finisher.end_parts(
            self.record, self._claim.ensure(), reason=NO_RECORDS, is_own=True
        )

    def finish(self, ended: EndedAttempt) -> LogRecord:
        """Step 10: append the outcome and return it: the attempt's last record.

        Raises:
            Fenced: another run holds the claim.
        """
        last = self._claim.finisher.append_outcome(ended, self._claim.ensure())
        self._claim.finisher.clean_up(last)
        failpoints.reached(Step.FINISH)
        return last

    @contextmanager
    def abort_on_error(self) -> Iterator[None]:
        """``abort`` if the block, which writes and prepares, fails.

        Raises:
            TransactionPoisoned: a write is in doubt.
        """
        try:
            yield
        except (Fenced, InDoubt):  # the run that fenced it, or the next claim, ends it
            raise
        except BaseException as error:
            self._timer.step_failed()
            self.abort(error)
            self._timer.attempt_aborted()
            if isinstance(error, Indeterminate):
                raise TransactionPoisoned(f"A write is in doubt: {error.message}") from error
            raise

    def abort(self, error: BaseException) -> None:
        """End the attempt after ``error``.

        Raises:
            EosError: it can't be ended now, and ``error`` would be retried.
        """
        if self.record.state is not State.OPEN:
            return  # PREPARED is decided: the next claim ends it
        claimed = self._claim.ensure()
        try:
            last = self._claim.finisher.finish(self.record, claimed, reason=reason_of(error))
        except EosError as failure:
            if isinstance(failure, Fenced) or isinstance(error, Retriable | Indeterminate):
                raise failure from error  # a retry would find the attempt unfinished
            error.add_note(f"The transaction is not aborted yet; the next run aborts it: {failure}")
            return
        self._claim.finisher.clean_up(last)


class _Beginning:
    """An attempt that is being begun, in another thread than its caller's."""

    def __init__(
        self,
        claim: Claim,
        query_id: str,
        epoch: str,
        run: Run,
        deadline_s: float,
        timer: StepTimer,
    ) -> None:
        self._claimed = claim.ensure()
        self._pairs = list(claim.participants.of_record(self._claimed))
        self._query_id = query_id
        self._epoch = epoch
        self._run = run
        self._deadline_s = deadline_s
        self._timer = timer
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop: a begin that fails now is not repeated."""
        self._is_cancelled.set()

    def begin(self) -> tuple[Part, ...]:
        """Step 3: begin each participant.

        Raises:
            EosError: one can't be begun.
        """
        parts = tuple(self._begun(participant, part) for part, participant in self._pairs)
        self._timer.step_ended(Step.BEGIN)
        failpoints.reached(Step.BEGIN)
        return parts

    def record(self, parts: tuple[Part, ...], planned_at: datetime | None) -> LogRecord:
        return LogRecord.opened(
            self._claimed,
            query_id=self._query_id,
            epoch=self._epoch,
            attempt=self._run.attempt,
            opened_at=datetime.now(UTC),
            planned_at=planned_at,
            participants=parts,
        )

    def _begun(self, participant: Participant, claimed: Part) -> Part:
        previous = self._run.previous
        reason = previous.reason if previous else None
        attempt = Attempt(
            query_id=self._query_id,
            epoch=self._epoch,
            number=self._run.attempt,
            previous=previous.part(claimed.key) if previous else None,
            has_expired=reason is not None and reason.kind is ReasonKind.EXPIRED,
        )
        for one_try in attempts(self._deadline_s):
            with one_try:
                if self._is_cancelled.is_set():
                    raise CancelledError
                begun = participant.begin(attempt)
        return begun
