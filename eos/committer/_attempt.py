"""One attempt of one epoch, step by step (``eos.steps``), for whoever drives it.

``foreachBatch`` calls us, and we call Spark: ``Committer.run_epoch``. Spark's Data Source writer
calls us at each of its steps: then the steps here are called one by one. Log first, outputs second,
always. The order of the lines is the protocol: each one is a place where the process may die, and a
later run takes over from what the log says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from eos import failpoints
from eos._waiting import submit
from eos.commit_log import CommitLog
from eos.committer._claim import Claim
from eos.committer._epoch import PartsBegun, Reports
from eos.committer._finisher import Settled
from eos.committer._reasons import NO_RECORDS, reason_of
from eos.committer._step_timer import EpochWatch
from eos.errors import EosError, Fenced, Indeterminate, Retriable
from eos.participant import Attempt, Participant
from eos.protocol import LogRecord, Part, ReasonKind, Run, State
from eos.retry import attempts
from eos.steps import Step

T = TypeVar("T")


class OpenEpoch:
    """An attempt that is open: its transactions are begun, and OPEN is in the log.

    ``record`` is the newest record of the attempt: OPEN, then PREPARED. Made by ``begin``, ended by
    ``commit`` or ``abort``; an object that is dropped instead is ended by the next claim.
    """

    def __init__(
        self, log: CommitLog, claim: Claim, record: LogRecord, watch: EpochWatch | None = None
    ) -> None:
        self.record = record
        self._watch = watch or EpochWatch()
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
        beside: Executor,
        meanwhile: Callable[[PartsBegun], T],
        deadline_s: float,
        planned_at: Callable[[], datetime | None] = lambda: None,
        watch: EpochWatch | None = None,
    ) -> tuple[OpenEpoch, T]:
        """Steps 3 and 4: begin each participant, append OPEN.

        Args:
            run: which attempt, as ``decide_epoch`` says.
            beside: one thread, which does both.
            meanwhile: what can be done without them: planning, for one. What it is given waits for
                the parts that are begun, and raises what went wrong with them; it raises nothing
                else.
            planned_at: asked meanwhile, too: when Spark planned the epoch.
            watch: takes the time of each step.

        Raises:
            EosError: nothing was opened, or the log does not take it.
        """
        watch = watch or EpochWatch()
        beginning = _Beginning(claim, query_id, epoch, run, deadline_s, watch)
        try:
            parts = submit(beside, beginning.begin)
            plan_time = planned_at()
            opening = submit(
                beside, lambda: log.append(beginning.record(parts.result(), plan_time))
            )
            done = meanwhile(parts.result)
            opened = cls(log, claim, opening.result(), watch)
        except BaseException:
            beginning.give_up()
            raise
        watch.passed(Step.OPEN)
        failpoints.reached(Step.OPEN)
        return opened, done

    def prepare(self, written: Reports) -> None:
        """Steps 6 to 8: count what was written, leave the proof, append PREPARED. An epoch without
        rows stays OPEN: its commit is an abort.

        Raises:
            TransactionPoisoned: it must not be committed.
            EosError: likewise; call ``abort``. Fenced, InDoubt: leave it alone.
        """
        pairs = list(self._claim.participants.of_record(self.record))
        counted, failures = [], []
        for (part, participant), rows in zip(pairs, written, strict=True):
            try:
                counted.append(participant.count(part, rows))
            except Exception as error:  # the others learn all the same what they have to undo
                failures.append(error)
        if failures:
            raise failures[0]
        self._watch.passed(Step.CHECK)
        failpoints.reached(Step.CHECK)
        draft = replace(self.record, participants=tuple(counted)).with_totals()
        if not draft.records:
            return
        # What can expire comes last: its time runs, and an error here still aborts them all.
        prepared = [
            participant.prepare(draft, part)
            for part, (_, participant) in zip(reversed(counted), reversed(pairs), strict=True)
        ]
        self._watch.passed(Step.RECEIPT)
        claimed = self._claim.complete()
        self.record = self._log.append(
            self.record.advance(State.PREPARED, claim=claimed, participants=prepared[::-1])
        )
        self._watch.passed(Step.PREPARE)
        failpoints.reached(Step.PREPARE)

    def commit(self) -> Settled:
        """Step 9: what PREPARED decides, done in every output; an epoch without rows is aborted.

        Raises:
            InDoubt: an outcome can't be proved now.
        """
        return self._claim.ending.settle(
            self.record, self._claim.complete(), reason=NO_RECORDS, is_own=True
        )

    def note(self, settled: Settled) -> LogRecord:
        """Step 10: append the outcome; the attempt's last record.

        Raises:
            Fenced: another run holds the claim.
        """
        last = self._claim.ending.note(settled, self._claim.complete())
        self._claim.ending.clean_up(last)
        failpoints.reached(Step.FINISH)
        return last

    def abort(self, error: BaseException) -> None:
        """End what failed of ``error``. Should that fail too, a failure that would be retried gives
        way. What is PREPARED is decided: the next claim ends it.

        Raises:
            EosError: it can't be ended now, and ``error`` would be retried.
        """
        if self.record.state is not State.OPEN:
            return
        claimed = self._claim.complete()
        try:
            last = self._claim.ending.finish(self.record, claimed, reason=reason_of(error))
        except EosError as failure:
            if isinstance(failure, Fenced) or isinstance(error, Retriable | Indeterminate):
                raise failure from error
            error.add_note(f"The transaction is not aborted yet, the next run does it: {failure}")
            return
        self._claim.ending.clean_up(last)


class _Beginning:
    """An attempt that is being begun, in a thread beside its caller's."""

    def __init__(
        self,
        claim: Claim,
        query_id: str,
        epoch: str,
        run: Run,
        deadline_s: float,
        watch: EpochWatch,
    ) -> None:
        self._claimed = claim.complete()
        self._pairs = list(claim.participants.of_record(self._claimed))
        self._query_id = query_id
        self._epoch = epoch
        self._run = run
        self._deadline_s = deadline_s
        self._watch = watch
        self._is_given_up = threading.Event()

    def give_up(self) -> None:
        """Nobody waits for it any more: what is not answered now is not asked for again."""
        self._is_given_up.set()

    def begin(self) -> tuple[Part, ...]:
        """Step 3: begin each participant.

        Raises:
            EosError: one can't be begun.
        """
        parts = tuple(self._begun(participant, part) for part, participant in self._pairs)
        self._watch.passed(Step.BEGIN)
        failpoints.reached(Step.BEGIN)
        return parts

    def record(self, parts: tuple[Part, ...], planned_at: datetime | None) -> LogRecord:
        """OPEN, for the log."""
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
                if self._is_given_up.is_set():
                    raise CancelledError
                begun = participant.begin(attempt)
        return begun
