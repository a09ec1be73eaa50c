"""Performs what the protocol decides about ending one transaction."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.half import TransactionalHalf
from eos.errors import InDoubt
from eos.protocol import (
    Answers,
    AppendState,
    AskData,
    AskWitness,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    LogRecord,
    MarkAnswer,
    Reason,
    ReasonKind,
    State,
    StayInDoubt,
    WitnessAnswer,
    next_action,
)
from eos.retry import Patience
from eos.steps import EndingStep, Step

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settled:
    """A transaction that has ended at the broker; ``outcome``: what the log still has to say."""

    record: LogRecord
    outcome: AppendState | None


@dataclass(frozen=True)
class Ending:
    """Brings transactions to their end: asks, acts, appends; never decides.

    ``deadline_s`` bounds each of: finding the mark and END_TXN together, and the witness.
    """

    log: CommitLog
    half: TransactionalHalf
    deadline_s: float

    def finish(
        self, record: LogRecord, claim: LogRecord, *, reason: Reason, answers: Answers | None = None
    ) -> LogRecord:
        """End the transaction of ``record``; its last record: COMMITTED, ABORTED or EMPTY.

        Args:
            reason: why, should it have to be aborted.
            answers: what is known already; a driver that has just sent the receipt itself needs
                no mark before its first END_TXN.

        Raises:
            InDoubt: the outcome can't be proved now; the log is as it was.
            Fenced: another run holds the claim.
        """
        settled = self.settle(record, claim, reason=reason, answers=answers)
        return self.note(settled, claim)

    def settle(
        self, record: LogRecord, claim: LogRecord, *, reason: Reason, answers: Answers | None = None
    ) -> Settled:
        """As ``finish``, but for the last record: what the broker holds is final, and what the log
        has to say of it is known."""
        known = answers or Answers()
        patience = Patience(self.deadline_s)
        while True:
            match next_action(record, known):
                case Finished():
                    return Settled(record, None)
                case StayInDoubt(why):
                    raise self._in_doubt(record, why)
                case AppendState(State.ABORTING):
                    record = self._append(record, claim, State.ABORTING, reason)
                    failpoints.reached(EndingStep.ABORTING)
                case AppendState() as outcome:
                    return Settled(record, outcome)
                case FindMark():
                    mark = self.half.find_mark(record, timeout_s=patience.left_s)
                    failpoints.reached(EndingStep.MARK)
                    known = replace(known, mark=mark)
                    if mark is MarkAnswer.UNKNOWN:
                        known = _wait(known, patience)
                case EndTransaction(commit):
                    end = self.half.end(record, commit=commit, timeout_s=patience.left_s)
                    failpoints.reached(Step.END)
                    known = replace(known, end=end)
                    if end is EndAnswer.OTHER:
                        # The broker may be another one by the time that we ask again.
                        known = _wait(replace(known, mark=MarkAnswer.NOT_ASKED), patience)
                    else:
                        patience = Patience(self.deadline_s)
                case AskWitness():
                    witness = self.half.ask_witness(record, timeout_s=patience.left_s)
                    failpoints.reached(EndingStep.WITNESS)
                    known = replace(known, witness=witness)
                    if witness is WitnessAnswer.UNKNOWN:
                        known = _wait(known, patience)
                case AskData():
                    data = self.half.ask_data(record, timeout_s=patience.left_s)
                    failpoints.reached(EndingStep.DATA)
                    known = replace(known, data=data)

    def note(self, settled: Settled, claim: LogRecord) -> LogRecord:
        """Append the outcome, where it is not in the log yet; the transaction's last record.

        Raises:
            Fenced: another run holds the claim.
        """
        if settled.outcome is None:
            return settled.record
        record, why = settled.record, None
        if settled.outcome.expired:
            why = Reason(
                ReasonKind.EXPIRED,
                f"prepared, but not committed within its time to live of {record.ttl_ms} ms",
            )
        written = self._append(record, claim, settled.outcome.state, why)
        failpoints.reached(EndingStep.OUTCOME)
        return written

    def _append(
        self, record: LogRecord, claim: LogRecord, state: State, reason: Reason | None
    ) -> LogRecord:
        written = self.log.append(record.advance(state, claim=claim, reason=reason))
        logger.info(
            "sink %s, epoch %s: transaction %s is %s",
            written.sink_id,
            written.epoch,
            written.txn,
            written.state,
        )
        return written

    def _in_doubt(self, record: LogRecord, why: str) -> InDoubt:
        seen = self.half.diagnose(record) if record.state is State.PREPARED else ""
        return InDoubt(
            " ".join(filter(None, (f"Transaction {record.txn} is in doubt: {why}.", seen))),
            hint=_BY_A_PERSON if record.state is State.PREPARED else None,
            sink_id=record.sink_id,
            query_id=record.query_id,
            epoch=record.epoch,
            txn_id=record.txn,
        )


_BY_A_PERSON: Final = (
    f"{InDoubt.default_hint} What nobody can prove, a person decides: "
    "`eos-recovery decide` shows the evidence first."
)


def _wait(known: Answers, patience: Patience) -> Answers:
    patience.pause()
    return replace(known, time_is_up=patience.is_over)
