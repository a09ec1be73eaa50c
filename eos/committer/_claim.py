"""One driver's claim on one sink: step 1, and the end of what earlier runs have left."""

from __future__ import annotations

import uuid
from typing import Literal

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer._finisher import Ending
from eos.committer.participants import Participants
from eos.errors import CommitLogError, Fenced, NewCluster
from eos.participant import Participant
from eos.protocol import Fate, Known, LogRecord, Part, Reason, ReasonKind, State
from eos.retry import attempts
from eos.steps import Step


class Claim:
    """The claim of one run, and what it entitles to. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs.
        deadline_s: of each wait for a participant.
        on_new_cluster: what to do about a cluster that does not hold what the log recorded.
        shared_run: the id of a run that several processes share: the first one claims, the others
            find that it has; None: the run is this process' own.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Participants,
        *,
        deadline_s: float = 60.0,
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
        shared_run: str | None = None,
    ) -> None:
        self.ending = Ending(log, participants, deadline_s)
        self.participants = participants
        self._log = log
        self._deadline_s = deadline_s
        self._on_new_cluster = on_new_cluster
        self._shared_run = shared_run
        self._record: LogRecord | None = None
        self._is_ready = False

    @property
    def taken(self) -> LogRecord | None:
        """The CLAIMED of this run, as soon as it is appended."""
        return self._record

    def complete(self) -> LogRecord:
        """Step 1: claim the sink, attach to its outputs, end what is unfinished.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            InDoubt: an attempt of an earlier run can't be ended now.
            NewCluster: an output is not the one that the log was written with.
        """
        if self._record is not None and self._is_ready:
            return self._record
        claim = self.take()
        if self._is_at_work:
            self._is_ready = True
            return claim
        for record in self._log.history.owing:
            if record.attempt is not None:
                self._suspect(record)
        self.finish_all()
        for participant in self.participants.own:
            self._check_not_rolled_back(participant)
            for attempt in attempts(self._deadline_s):
                with attempt:
                    participant.ready(self._log.history)
        self._is_ready = True
        failpoints.reached(Step.CLAIM)
        return claim

    def take(self) -> LogRecord:
        """The first half of ``complete``: fence everybody else, and end nothing yet.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            ConfigurationError: the outputs can't be written all or nothing.
            NewCluster: as ``complete``.
        """
        if self._record is None:
            parts = self.participants.claim()
            self._record = self._adopted() or self._appended(parts)
        for part, participant in self.participants.of_record(self._record):
            for attempt in attempts(self._deadline_s):
                with attempt:
                    participant.attach(part, self._log.history)
        return self._record

    @property
    def _is_at_work(self) -> bool:
        """Whether the shared run has an attempt open: who opened it has completed the claim. It is
        not to be ended as one of an earlier run; and one that is prepared hides what comes behind
        its receipt."""
        return any(
            record.run_id == self._shared_run and record.state is not State.ABORTING
            for record in self._log.history.unfinished
        )

    def _adopted(self) -> LogRecord | None:
        """The claim that another process of the run has appended.

        Raises:
            Fenced: the run has had the claim, and lost it.
        """
        run_id, newest = self._shared_run, self._log.history.last_claim
        if run_id is None or not self._log.history.has_claimed(run_id):
            return None
        if newest is None or newest.run_id != run_id:
            raise Fenced("Another driver has claimed the sink.", sink_id=self._log.sink_id)
        self._log.adopt(run_id)
        return newest

    def _appended(self, parts: tuple[Part, ...]) -> LogRecord:
        for participant, part in zip(self.participants.own, parts, strict=True):
            for attempt in attempts(self._deadline_s):
                with attempt:  # whoever can't write must not fence the one who can
                    participant.check(part)
                    self._check_not_new(participant, part)
                    participant.make(part)
        run_id = self._shared_run or str(uuid.uuid4())
        return self._log.append(
            LogRecord.claimed(sink_id=self._log.sink_id, run_id=run_id, participants=parts)
        )

    def _suspect(self, record: LogRecord) -> None:
        for part in record.participants:
            participant = self.participants.maybe_of(part)
            if participant is not None:
                participant.suspect(record, part)

    def _check_not_new(self, participant: Participant, part: Part) -> None:
        if self._on_new_cluster == "continue":
            return
        missing = participant.missing(part, self._log.history)
        if missing is None:
            missing = participant.lost_commit(part, self._log.history)
        if missing is None:
            return
        raise NewCluster(
            f"{missing[:1].upper()}{missing[1:]}, and {_written(self._log)} by the commit log "
            f"{self._log.uri}: it is a different one, it has lost its data, or it was deleted.",
            hint="Check where the outputs are (service_url, table). To go on without the missing "
            'rows: set on_new_cluster="continue" once; epochs that the log holds as committed '
            "are not written again. To write them again, begin with a new commit_log and "
            "checkpoint.",
            sink_id=self._log.sink_id,
        )

    def _check_not_rolled_back(self, participant: Participant) -> None:
        """A log that was replaced by an older copy looks whole; its outputs know better (I2)."""
        newer: str | None = None
        for attempt in attempts(self._deadline_s):
            with attempt:
                newer = participant.newer_commit(self._log.history, timeout_s=self._deadline_s)
        if newer is not None:
            raise CommitLogError(
                f"Commit log {self._log.uri} ends before an epoch that was committed: {newer}.",
                hint="It was rolled back to an older copy. Restore the newest one: with this one "
                "epochs that are already readable would be written again. If no newer copy "
                "exists: move this one away, and start once with the newest checkpoint and "
                'on_new_query="continue". Only the epoch that Spark runs again may then be '
                "written twice. Batch keys are forgotten with their log.",
                sink_id=self._log.sink_id,
            )

    def finish(self, record: LogRecord) -> LogRecord:
        """End one unfinished attempt of an earlier run as the log decides; its last record.

        Raises:
            InDoubt: its outcome can't be proved now.
            Fenced: another run holds the claim.
        """
        claim = self.take() if self._record is None else self._record
        reason = Reason(ReasonKind.RECOVERY, f"left {record.state} by run {record.run_id}")
        last = self.ending.finish(record, claim, reason=reason)
        self.ending.clean_up(last)
        return last

    def decide(self, record: LogRecord, state: State, reason: Reason) -> LogRecord:
        """Append what a person decided; of a PREPARED with several outputs, the others are ended
        as the first one's fate demands.

        Args:
            state: COMMITTED or ABORTED, what became of the first participant's part; ABANDONED.

        Raises:
            Fenced: another run holds the claim.
            InDoubt: another participant's part can't be ended now.
            CommitLogError: no such record may follow.
        """
        claim = self.take()
        if record.state is State.PREPARED and state is not State.ABANDONED:
            decided = Fate(Known.COMMITTED if state is State.COMMITTED else Known.ABORTED)
            last = self.ending.finish(record, claim, reason=reason, decided=decided)
        else:
            last = self._log.append(record.advance(state, claim=claim, reason=reason))
        if last.attempt is not None:
            self._take_back(last)
            self.ending.clean_up(last)
        return last

    def _take_back(self, last: LogRecord) -> None:
        """What a person called aborted must not be committed by a driver that only slept."""
        if last.state is not State.ABORTED:
            return
        for part, participant in self.participants.of_record(last):
            if not part.can_expire:
                participant.abort(part, deadline_s=self._deadline_s, is_own=False)

    def finish_all(self) -> None:
        """End every unfinished attempt of the sink, whatever its query or epoch.

        Raises:
            InDoubt, Fenced: as ``finish``.
        """
        for record in self._log.history.unfinished:
            self.finish(record)


def _written(log: CommitLog) -> str:
    """What the log holds as committed, as far as it keeps records."""
    committed = [record for record in log.records() if record.state is State.COMMITTED]
    rows = sum(record.records or 0 for record in committed)
    return f"{len(committed):,} epochs with {rows:,} messages are committed"
