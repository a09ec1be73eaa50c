"""A driver's claim on one sink: step 1, and the end of attempts that earlier runs left."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable
from typing import Literal

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer._finisher import Finisher, rolled_back
from eos.committer.participants import Participants
from eos.errors import Fenced, InDoubt, NewCluster
from eos.participant import Participant
from eos.protocol import Fate, Known, LogRecord, Part, Reason, ReasonKind, State
from eos.retry import attempts
from eos.steps import Step


class Claim:
    """The claim of one run, and the operations that require it. Not thread-safe.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs.
        deadline_s: timeout of each wait for a participant.
        on_new_cluster: whether to accept a cluster that lacks the transactions in the log.
        in_recovery: whether a person's command claims, not a driver.
        shared_run: the id of a run that several processes share: the first process claims, the
            others find its claim. None: the run belongs to this process alone.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Participants,
        *,
        deadline_s: float = 60.0,
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
        in_recovery: bool = False,
        shared_run: str | None = None,
    ) -> None:
        self.finisher = Finisher(log, participants, deadline_s)
        self.participants = participants
        self._log = log
        self._deadline_s = deadline_s
        self._on_new_cluster = on_new_cluster
        self._in_recovery = in_recovery
        self._shared_run = shared_run
        self._record: LogRecord | None = None
        self._is_ready = False

    @property
    def taken(self) -> LogRecord | None:
        """The CLAIMED of this run, once it is appended."""
        return self._record

    def ensure(self, before: Callable[[], None] = lambda: None) -> LogRecord:
        """Step 1, if not yet done: claim the sink, attach to its outputs, end unfinished attempts.

        Args:
            before: called right before the sink is claimed; its errors leave another driver alone.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            InDoubt: an attempt of an earlier run can't be ended now.
            NewCluster: an output is not the one that the log was written with.
        """
        if self._record is not None and self._is_ready:
            return self._record
        claim = self.take(before)
        if self._has_open_attempt:
            self._is_ready = True
            return claim
        for record in self._log.history.unwritten:
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

    def take(self, before: Callable[[], None] = lambda: None) -> LogRecord:
        """The first half of ``ensure``: fence all other drivers, but end nothing yet.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            ConfigurationError: the outputs can't be written all or nothing.
            NewCluster: as ``ensure``.
        """
        if self._record is None:
            parts = self.participants.claim()
            self._record = self._find_shared_claim() or self._append_claim(parts, before)
        for part, participant in self.participants.of_record(self._record):
            for attempt in attempts(self._deadline_s):
                with attempt:
                    participant.attach(part, self._log.history)
        return self._record

    @property
    def _has_open_attempt(self) -> bool:
        # The process that opened it has completed the claim. It must not be ended as if an earlier
        # run had left it, and a prepared one hides everything after its receipt.
        return any(
            record.run_id == self._shared_run and record.state is not State.ABORTING
            for record in self._log.history.unfinished
        )

    def _find_shared_claim(self) -> LogRecord | None:
        """Return the claim that another process of the run has appended."""
        run_id, newest = self._shared_run, self._log.history.last_claim
        if run_id is None or not self._log.history.has_claimed(run_id):
            return None
        if newest is None or newest.run_id != run_id:
            raise Fenced("Another driver has claimed the sink.", sink_id=self._log.sink_id)
        self._log.adopt(run_id)
        return newest

    def _append_claim(self, parts: tuple[Part, ...], before: Callable[[], None]) -> LogRecord:
        for participant, part in zip(self.participants.own, parts, strict=True):
            for attempt in attempts(self._deadline_s):
                with attempt:  # a driver that can't write must not fence one that can
                    participant.check(part)
                    self._check_same_cluster(participant, part)
                    participant.make(part, in_recovery=self._in_recovery)
        if not self._in_recovery:  # which may finish the epochs of a table by all its names
            attempts(self._deadline_s)(self.participants.check_targets, parts)
        before()
        run_id = self._shared_run or str(uuid.uuid4())
        return self._log.append(
            LogRecord.claimed(sink_id=self._log.sink_id, run_id=run_id, participants=parts)
        )

    def _suspect(self, record: LogRecord) -> None:
        for part in record.participants:
            participant = self.participants.find(part)
            if participant is not None:
                participant.suspect(record, part)

    def _check_same_cluster(self, participant: Participant, part: Part) -> None:
        if self._on_new_cluster == "continue":
            return
        missing = participant.missing(part, self._log.history)
        if missing is None:
            missing = participant.lost_commit(part, self._log.history)
        if missing is None:
            return
        committed = _describe_committed(self._log)
        raise NewCluster(
            f"{missing[:1].upper()}{missing[1:]}, and {committed} by the commit log "
            f"{self._log.uri}: it is a different one, it has lost its data, or it was deleted.",
            hint=f"Check that it is the right {participant.place}. To go on without the missing "
            'rows: set on_new_cluster="continue" once; epochs that the log holds as committed '
            "are not written again. To write them again, begin with a new commit_log and "
            "checkpoint.",
            sink_id=self._log.sink_id,
        )

    def _check_not_rolled_back(self, participant: Participant) -> None:
        # An older copy of the log would look complete, but its outputs have newer commits (I2).
        newer: str | None = None
        for attempt in attempts(self._deadline_s):
            with attempt:
                newer = participant.newer_commit(self._log.history, timeout_s=self._deadline_s)
        if newer is not None:
            raise rolled_back(self._log, newer)

    def finish(self, record: LogRecord) -> LogRecord:
        """End one unfinished attempt of an earlier run as the log decides; return its last record.

        Raises:
            InDoubt: its outcome can't be proved now.
            NewCluster: a person's command would commit it to an older copy of an output.
            Fenced: another run holds the claim.
        """
        claim = self.take() if self._record is None else self._record
        self._check_not_set_back(record)
        reason = Reason(ReasonKind.RECOVERY, f"left {record.state} by run {record.run_id}")
        last = self.finisher.finish(record, claim, reason=reason)
        self.finisher.clean_up(last)
        return last

    def decide(self, record: LogRecord, state: State, reason: Reason) -> LogRecord:
        """Append a person's decision, and end the attempt's other outputs accordingly.

        Args:
            state: COMMITTED or ABORTED, the outcome of the first participant's part; or ABANDONED.

        Raises:
            Fenced: another run holds the claim.
            InDoubt: a participant's part can't be ended now, or was ended in another way.
            NewCluster: as ``finish``.
            CommitLogError: the record must not follow.
        """
        claim = self.take()
        if state is State.COMMITTED:
            self._check_not_set_back(record)
        if record.state is State.PREPARED and state is State.ABORTED:
            self._fence_first(record)
        if record.state is State.PREPARED and state is not State.ABANDONED:
            decided = Fate(Known.COMMITTED if state is State.COMMITTED else Known.ABORTED)
            last = self.finisher.finish(record, claim, reason=reason, decided=decided)
        else:
            last = self._log.append(record.advance(state, claim=claim, reason=reason))
        if last.attempt is not None:
            self._abort_outputs(last)
            self.finisher.clean_up(last)
        return last

    def _check_not_set_back(self, record: LogRecord) -> None:
        # A driver is refused before it claims. One more commit would hide for good what the output
        # has lost.
        if not self._in_recovery or record.state is not State.PREPARED:
            return
        for part, participant in self.participants.of_record(record):
            lost = attempts(self._deadline_s)(participant.lost_commit, part, self._log.history)
            if lost is not None:
                raise NewCluster(
                    f"{lost[:1].upper()}{lost[1:]}. {part.label} is not committed to it.",
                    hint="Restore the newest copy. To go on without the missing rows: start the "
                    'query with on_new_cluster="continue" once.',
                    **record.context,
                )

    def _fence_first(self, record: LogRecord) -> None:
        # A driver that slept behind PREPARED looks at no log before it commits. If its first output
        # can expire, whether it can still commit was asked before.
        part, participant = next(iter(self.participants.of_record(record)))
        if part.can_expire:
            return
        fate = participant.abort(part, deadline_s=self._deadline_s, is_own=False)
        if fate.known is not Known.ABORTED:
            raise InDoubt(
                f"{part.label} was committed meanwhile, and is not aborted."
                if fate.known is Known.COMMITTED
                else f"{part.label} can't be aborted now: {fate.why}. Nothing was decided.",
                hint="`eos recovery resolve` finishes the epoch, or says what is missing. If the "
                f"output will never answer again: --give-up {shlex.quote(part.output)}",
                **record.context,
            )

    def _abort_outputs(self, last: LogRecord) -> None:
        if last.state is not State.ABORTED:
            return
        # A sleeping driver must not commit what a person has called aborted.
        for part, participant in self.participants.of_record(last):
            if not part.can_expire:
                participant.abort(part, deadline_s=self._deadline_s, is_own=False)

    def finish_all(self) -> None:
        """End every unfinished attempt of the sink, of any query and epoch.

        Raises:
            InDoubt, Fenced: as ``finish``.
        """
        for record in self._log.history.unfinished:
            self.finish(record)


def _describe_committed(log: CommitLog) -> str:
    """Describe the log's committed epochs, as far as their records are kept."""
    committed = [record for record in log.records() if record.state is State.COMMITTED]
    rows = sum(record.records or 0 for record in committed)
    return f"{len(committed):,} epochs with {rows:,} rows are committed"
