"""Ends one attempt as the protocol decides."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.participants import Participants
from eos.errors import CommitLogError, EosError, Fenced, InDoubt
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
    decide_command,
    next_action,
)
from eos.steps import EndingStep

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that all participants have ended."""

    record: LogRecord
    outcome: AppendState | None
    """The record that the log still lacks."""
    reason: Reason | None = None


@dataclass(frozen=True)
class Finisher:
    """Ends attempts: asks, acts and appends, but never decides.

    ``deadline_s`` bounds each participant's commit or abort.
    """

    log: CommitLog
    participants: Participants
    deadline_s: float

    def finish(
        self, record: LogRecord, claim: LogRecord, *, reason: Reason, decided: Fate | None = None
    ) -> LogRecord:
        """End the attempt of ``record``; return its last record: COMMITTED, ABORTED or EMPTY.

        Args:
            reason: recorded if it has to be aborted.
            decided: a person's decision about the first participant's part of a PREPARED attempt;
                ``reason`` names the person.

        Raises:
            InDoubt: the outcome can't be proved now; the log is unchanged.
            CommitLogError: the log is an older copy.
            Fenced: another run holds the claim.
        """
        return self.append_outcome(
            self.end_parts(record, claim, reason=reason, decided=decided), claim
        )

    def end_parts(
        self,
        record: LogRecord,
        claim: LogRecord,
        *,
        reason: Reason,
        is_own: bool = False,
        decided: Fate | None = None,
    ) -> EndedAttempt:
        """As ``finish``, except for the last record: the outputs are final, and the record that
        follows is known.

        Args:
            is_own: this process has just written it.
        """
        for part in record.participants:
            self.participants.of(part)  # all of them must be available before any is ended
        known = [] if decided is None else [decided]
        lost: list[tuple[str, str]] = []
        while True:
            match next_action(record, known, is_over=_is_over(record)):
                case Finished():
                    return EndedAttempt(record, None)
                case StayInDoubt() as doubt:
                    raise self._in_doubt(record, doubt)
                case AppendState(State.ABORTING) as aborting:
                    if aborting.expired and decided is None:
                        reason = _expired(known[0])
                    record = self._append(record, claim, State.ABORTING, reason)
                    failpoints.reached(EndingStep.ABORTING)
                    known = known[:1]  # the others were only prepared, and are asked to abort
                case AppendState() as outcome:
                    _warn_of_silence(record, known, outcome.state)
                    why = _without(reason, lost) if decided is not None else None
                    if outcome.expired and decided is None:
                        why = _expired(known[0])
                    return EndedAttempt(record, outcome, why)
                case EndPart(index, commit):
                    fate = self._end(record, index, commit=commit, is_own=is_own)
                    # A decision to commit holds although some parts can't be committed any more.
                    if commit and decided is not None and fate.known is not Known.COMMITTED:
                        lost.append((record.participants[index].label, fate.why))
                        fate = COMMITTED
                    known.append(fate)
                    failpoints.reached(EndingStep.PART)

    def _end(self, record: LogRecord, index: int, *, commit: bool, is_own: bool) -> Fate:
        part = record.participants[index]
        participant = self.participants.of(part)
        end = participant.commit if commit else participant.abort
        return end(part, deadline_s=self.deadline_s, is_own=is_own)

    def append_outcome(self, ended: EndedAttempt, claim: LogRecord) -> LogRecord:
        """Append the outcome if the log lacks it; return the attempt's last record.

        Raises:
            Fenced: another run holds the claim.
        """
        if ended.outcome is None:
            return ended.record
        written = self._append(ended.record, claim, ended.outcome.state, ended.reason)
        failpoints.reached(EndingStep.OUTCOME)
        return written

    def clean_up(self, last: LogRecord) -> None:
        """Do what safety does not need, after the end of an attempt."""
        is_last = not self.log.history.unfinished
        for part, participant in self.participants.of_record(last):
            participant.after_end(last, part, is_last=is_last)

    def _append(
        self, record: LogRecord, claim: LogRecord, state: State, reason: Reason | None
    ) -> LogRecord:
        return self.log.append(record.advance(state, claim=claim, reason=reason))

    def _in_doubt(self, record: LogRecord, doubt: StayInDoubt) -> EosError:
        # A successor may have ended it and gone on, while this driver slept.
        is_newest = False
        with suppress(EosError):
            self.log.refresh()
            is_newest = True
        if self.log.is_fenced:
            return Fenced("Another driver has claimed the sink.", **record.context)
        if doubt.is_rolled_back and is_newest:
            return rolled_back(self.log, doubt.why)
        seen: list[str] = []
        if record.state is State.PREPARED and not doubt.is_lost:
            seen = [p.diagnose(part) for part, p in self.participants.of_record(record)]
        label = record.label[:1].upper() + record.label[1:]
        return InDoubt(
            " ".join(filter(None, (f"{label} is in doubt: {doubt.why}.", *seen))),
            hint=_hint(record, is_lost=doubt.is_lost),
            **record.context,
        )


_BY_A_PERSON: Final = (
    f"{InDoubt.default_hint} If it can't be proved, a person may decide: "
    "`eos recovery decide` shows the evidence first."
)


def rolled_back(log: CommitLog, why: str) -> CommitLogError:
    """Return the error for a log that is an older copy, with the way out."""
    return CommitLogError(
        f"Commit log {log.uri} ends before an epoch that was committed: {why}.",
        hint="It was rolled back to an older copy. Restore the newest one: with this one "
        "epochs that are already readable would be written again. If no newer copy "
        "exists: move this one away, and start once with the newest checkpoint and "
        'on_new_query="continue". Only the epoch that Spark runs again may then be '
        "written twice. Batch keys are forgotten with their log.",
        sink_id=log.sink_id,
    )


def _is_over(record: LogRecord) -> bool:
    return record.expires_at is not None and record.expires_at < datetime.now(UTC)


def _warn_of_silence(record: LogRecord, fates: Sequence[Fate], state: State) -> None:
    for part, fate in zip(record.participants, fates, strict=True):
        if fate.known is Known.UNKNOWN:
            logger.warning(
                "Sink %s, epoch %s: %s did not confirm its abort: %s. It is never committed, and "
                "its time to live is over: it is recorded as %s. Was one of its topics terminated?",
                *(record.sink_id, record.epoch, part.label, fate.why, state),
            )


def _expired(fate: Fate) -> Reason:
    return Reason(ReasonKind.EXPIRED, fate.why or "it can't be committed any more")


def _without(reason: Reason, lost: Sequence[tuple[str, str]]) -> Reason:
    """A person's reason, with the parts that are given up, and their answers."""
    if not lost:
        return reason
    labels = " and ".join(label for label, _ in lost)
    answers = "; ".join(why for _, why in lost)
    return reason.ending_in(f"; without {labels}", answers=f" ({answers})")


def _hint(record: LogRecord, *, is_lost: bool) -> str | None:
    if is_lost:
        return (
            "No run can bring it back. Write the epoch's rows there by hand, or accept the loss, "
            "and record it:\n"
            + decide_command(record.sink_id, record.query_id, record.epoch, "committed")
        )
    if record.state is State.ABORTING and record.expires_at is not None and not _is_over(record):
        return (
            f"{InDoubt.default_hint} After {record.expires_at:%Y-%m-%d %H:%M:%S} UTC (its time to "
            "live), it needs no answer from what expires."
        )
    return _BY_A_PERSON if record.state is State.PREPARED else None
