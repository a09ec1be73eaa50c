"""Performs what the protocol decides about ending one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.participants import Participants
from eos.errors import InDoubt
from eos.protocol import (
    COMMITTED,
    AppendState,
    EndPart,
    Fate,
    Finished,
    Known,
    LogRecord,
    Reason,
    ReasonKind,
    State,
    StayInDoubt,
    next_action,
)
from eos.steps import EndingStep


@dataclass(frozen=True)
class Settled:
    """An attempt whose participants have all ended it; ``outcome``: what the log still has to say,
    and ``reason`` why."""

    record: LogRecord
    outcome: AppendState | None
    reason: Reason | None = None


@dataclass(frozen=True)
class Ending:
    """Brings attempts to their end: asks, acts, appends; never decides.

    ``deadline_s`` bounds each participant's commit, or abort.
    """

    log: CommitLog
    participants: Participants
    deadline_s: float

    def finish(
        self, record: LogRecord, claim: LogRecord, *, reason: Reason, decided: Fate | None = None
    ) -> LogRecord:
        """End the attempt of ``record``; its last record: COMMITTED, ABORTED or EMPTY.

        Args:
            reason: why, should it have to be aborted.
            decided: what a person says became of the first participant's part of a PREPARED;
                ``reason`` says who.

        Raises:
            InDoubt: the outcome can't be proved now; the log is as it was.
            Fenced: another run holds the claim.
        """
        return self.note(self.settle(record, claim, reason=reason, decided=decided), claim)

    def settle(
        self,
        record: LogRecord,
        claim: LogRecord,
        *,
        reason: Reason,
        is_own: bool = False,
        decided: Fate | None = None,
    ) -> Settled:
        """As ``finish``, but for the last record: what the outputs hold is final, and what the log
        has to say of it is known.

        Args:
            is_own: this process has written it a moment ago.
        """
        for part in record.participants:
            self.participants.of(part)  # all of them, or nothing is begun
        known = [] if decided is None else [decided]
        while True:
            match next_action(record, known):
                case Finished():
                    return Settled(record, None)
                case StayInDoubt(doubt, is_lost):
                    raise self._in_doubt(record, doubt, is_lost=is_lost)
                case AppendState(State.ABORTING) as aborting:
                    if aborting.expired and decided is None:
                        reason = Reason(ReasonKind.EXPIRED, known[0].why)
                    record = self._append(record, claim, State.ABORTING, reason)
                    failpoints.reached(EndingStep.ABORTING)
                    known = known[:1]
                case AppendState() as outcome:
                    why = reason if decided is not None else None
                    if outcome.expired and decided is None:
                        why = Reason(ReasonKind.EXPIRED, known[0].why)
                    return Settled(record, outcome, why)
                case EndPart(index, commit):
                    fate = self._end(record, index, commit=commit, is_own=is_own)
                    # A person who decides to commit goes on without what can't be.
                    if commit and decided is not None and fate.known is not Known.COMMITTED:
                        reason = _without(reason, record, index, fate)
                        fate = COMMITTED
                    known.append(fate)
                    failpoints.reached(EndingStep.PART)

    def _end(self, record: LogRecord, index: int, *, commit: bool, is_own: bool) -> Fate:
        part = record.participants[index]
        participant = self.participants.of(part)
        end = participant.commit if commit else participant.abort
        return end(part, deadline_s=self.deadline_s, is_own=is_own)

    def note(self, settled: Settled, claim: LogRecord) -> LogRecord:
        """Append the outcome, where it is not in the log yet; the attempt's last record.

        Raises:
            Fenced: another run holds the claim.
        """
        if settled.outcome is None:
            return settled.record
        written = self._append(settled.record, claim, settled.outcome.state, settled.reason)
        failpoints.reached(EndingStep.OUTCOME)
        return written

    def clean_up(self, last: LogRecord) -> None:
        """What can be done once an attempt has ended, and safety does not need."""
        is_last = not self.log.history.unfinished
        for part, participant in self.participants.of_record(last):
            participant.after_end(last, part, is_last=is_last)

    def _append(
        self, record: LogRecord, claim: LogRecord, state: State, reason: Reason | None
    ) -> LogRecord:
        return self.log.append(record.advance(state, claim=claim, reason=reason))

    def _in_doubt(self, record: LogRecord, why: str, *, is_lost: bool) -> InDoubt:
        seen: list[str] = []
        if record.state is State.PREPARED and not is_lost:
            seen = [p.diagnose(part) for part, p in self.participants.of_record(record)]
        label = record.label[:1].upper() + record.label[1:]
        return InDoubt(
            " ".join(filter(None, (f"{label} is in doubt: {why}.", *seen))),
            hint=_hint(record, is_lost=is_lost),
            sink_id=record.sink_id,
            query_id=record.query_id,
            epoch=record.epoch,
            txn_id=record.txn_id,
        )


_BY_A_PERSON: Final = (
    f"{InDoubt.default_hint} What nobody can prove, a person decides: "
    "`eos recovery decide` shows the evidence first."
)


def _without(reason: Reason, record: LogRecord, index: int, fate: Fate) -> Reason:
    """A person's reason, with what is given up by it."""
    part = record.participants[index]
    return Reason(reason.kind, f"{reason.detail}; without {part.label} ({fate.why})")


def _hint(record: LogRecord, *, is_lost: bool) -> str | None:
    if is_lost:
        return (
            "No run can bring it back. Write the epoch's rows there by hand, or do without, and "
            f"say so: eos recovery decide {record.sink_id} --epoch {record.epoch} --as committed "
            "--because TEXT."
        )
    return _BY_A_PERSON if record.state is State.PREPARED else None
