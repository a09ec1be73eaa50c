"""One run of a sink that several processes share: tasks open an epoch or join it, one commits it.

For drivers that Spark calls step by step, each time in another process (its Data Source writer).
What they share is the commit log alone. The run's id is known to all of them: the first one claims
the sink with it. An attempt is opened by the conditional append of OPEN, which has one winner; the
others find it and join. Whoever ends the epoch reads the log first.

Spark runs an epoch once in a run. So a run opens one attempt of an epoch and no more: a task that
wakes up behind its end must not write into a new one, which nobody would commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from eos.commit_log import CommitLog
from eos.committer._attempt import OpenEpoch
from eos.committer._call_guard import Calls
from eos.committer._claim import Claim
from eos.committer._epoch import Reports, check_epoch
from eos.committer.participants import Participants
from eos.errors import (
    ConfigurationError,
    EosError,
    Fenced,
    Indeterminate,
    InDoubt,
    Retriable,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.participant import Participant
from eos.protocol import (
    LogRecord,
    Part,
    Run,
    Skip,
    State,
    check_lineage,
    decide_epoch,
    is_streaming,
)
from eos.retry import attempts

logger = logging.getLogger(__name__)

MAX_AHEAD: Final = timedelta(seconds=1)
"""How far the clock of a machine that opens an epoch may be ahead of the one that commits it."""


class SharedRun:
    """One process' view of a run. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs.
        run_id: of the run; the same in all of its processes, and in no other run.
        deadline_s: of each wait for a participant, and for the log while others append.
        on_new_cluster: what to do about a cluster that does not hold what the log recorded.
        on_new_query: what to do about a query that the log does not know.
        on_rewind: what to do about epochs that are done, and that a stream has planned anew.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Sequence[Participant],
        run_id: str,
        *,
        deadline_s: float = 60.0,
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
        on_new_query: Literal["refuse", "continue"] = "refuse",
        on_rewind: Literal["refuse", "skip"] = "refuse",
    ) -> None:
        self.log = log
        self._run_id = run_id
        self._deadline_s = deadline_s
        self._on_new_query = on_new_query
        self._calls = Calls(log, on_gap="continue", on_rewind=on_rewind)
        self._claim = Claim(
            log,
            Participants(log, participants),
            deadline_s=deadline_s,
            on_new_cluster=on_new_cluster,
            shared_run=run_id,
        )

    @property
    def has_claimed(self) -> bool:
        """Whether a process of the run has claimed the sink, as of the last look."""
        return self.log.history.has_claimed(self._run_id)

    def join(self, query_id: str, epoch: str) -> OpenEpoch | Skip:
        """The run's attempt of ``epoch``, opened when nobody of the run has done so (steps 1 to 4);
        ``Skip`` when the epoch is done.

        Raises:
            TransactionPoisoned: the run's attempt of it has ended, and it gets no other.
            NewLineage: see ``eos.protocol.check_lineage``.
            Fenced, InDoubt, NewCluster, UnfinishedEpoch: see there.
        """
        check_epoch(query_id, epoch)
        for attempt in attempts(self._deadline_s):
            with attempt:  # each append has one winner: whoever loses looks what it was
                joined = self._join(query_id, epoch)
        if joined is None:
            raise TransactionPoisoned(
                f"Epoch {epoch} was ended in this run of the query: a task of it comes too late.",
                hint="Nothing has to be done about the task. The epoch runs again when the query "
                "is started again.",
                epoch=epoch,
            )
        return joined

    def find(self, query_id: str, epoch: str) -> OpenEpoch | Skip | None:
        """What the log says of ``epoch`` now: the run's attempt, OPEN or PREPARED; ``Skip`` when it
        is done; None when the run has none, or none any more.

        Raises:
            Fenced: another run has claimed the sink.
        """
        self.log.refresh()
        history = self.log.history
        if not history.is_done(query_id, epoch):
            if self.log.is_fenced:
                raise Fenced("Another driver has claimed the sink.", sink_id=self.log.sink_id)
            if not self.has_claimed:
                return None
            self._claim.complete()  # which may end what an earlier run has left of this very epoch
        newest = self.log.history.newest(query_id, epoch)
        if self.log.history.is_done(query_id, epoch):
            return Skip(newest)
        is_open = newest is not None and newest.state in (State.OPEN, State.PREPARED)
        if newest is None or not is_open or newest.run_id != self._run_id:
            return None
        return OpenEpoch(self.log, self._claim, newest)

    def end(self, opened: OpenEpoch, written: Reports) -> LogRecord:
        """Steps 6 to 10: commit what ``join`` or ``find`` has returned, where that may be; goes on
        with what is PREPARED. The attempt's last record, COMMITTED or EMPTY.

        Raises:
            TransactionPoisoned: it must not be committed, and is aborted.
            EosError: likewise. Fenced, InDoubt: the next run of the query ends it.
        """
        if opened.record.state is State.OPEN:
            try:
                self._check_clock(opened.record)
                opened.prepare(written)
            except (Fenced, InDoubt):
                raise
            except BaseException as error:
                opened.abort(error)
                if isinstance(error, Indeterminate):
                    raise TransactionPoisoned(f"A write is in doubt: {error.message}") from error
                raise
        last = opened.note(opened.commit())
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return last

    def check_replayed(
        self, query_id: str, epoch: str, planned_at: Callable[[], datetime | None]
    ) -> None:
        """Nothing, when ``epoch``, which is done, holds the rows that it had when it was written.

        Raises:
            RewoundCheckpoint: see ``eos.protocol.check_replayed``.
        """
        self._calls.check_replayed(query_id, epoch, planned_at)

    def _check_clock(self, opened: LogRecord) -> None:
        """What ``check_replayed`` compares are times of two machines: the plan's, of this one, and
        OPEN's, of a task's. Were that one ahead, a plan made anew would look older."""
        assert opened.query_id is not None
        assert opened.opened_at is not None
        ahead = opened.opened_at - datetime.now(UTC)
        if ahead > MAX_AHEAD and is_streaming(opened.query_id):
            raise ConfigurationError(
                f"The clock of the machine that opened epoch {opened.epoch} is "
                f"{ahead.total_seconds():.0f} s ahead of this one, and a checkpoint that was set "
                "back would not be noticed.",
                hint="Let driver and executors keep the same time (NTP), and start the query "
                "again: nothing of the epoch is readable, and it runs again.",
            )

    def _join(self, query_id: str, epoch: str) -> OpenEpoch | Skip | None:
        found = self.find(query_id, epoch)
        if found is None and not self.has_claimed:
            check_lineage(self.log.history, query_id, epoch, self._on_new_query)
            self._claim.complete()
            found = self.find(query_id, epoch)  # that took a while: somebody may have been quicker
        if found is not None:
            is_over = isinstance(found, OpenEpoch) and found.record.state is not State.OPEN
            return None if is_over else found
        if self._has_opened(query_id, epoch):
            return None
        decision = decide_epoch(self.log.history, query_id, epoch)
        return decision if isinstance(decision, Skip) else self._open(query_id, epoch, decision)

    def _has_opened(self, query_id: str, epoch: str) -> bool:
        """Whether an attempt of ``epoch`` was opened in this run: it was ended then. What others
        have opened since the last look is not ended: whoever opens next finds that out."""
        history = self.log.history
        newest, known = history.newest(query_id, epoch), history.last_seq
        if newest is None or newest.attempt is None:
            return False
        opened = (r for r in self.log.records() if r.state is State.OPEN and r.key == newest.key)
        return any(record.run_id == self._run_id and record.seq <= known for record in opened)

    def _open(self, query_id: str, epoch: str, run: Run) -> OpenEpoch:
        begun: list[tuple[Part, ...]] = []
        with ThreadPoolExecutor(1) as beside:
            try:
                opened, _ = OpenEpoch.begin(
                    self.log,
                    self._claim,
                    query_id,
                    epoch,
                    run,
                    beside=beside,
                    meanwhile=lambda parts: begun.append(parts()),
                    deadline_s=self._deadline_s,
                )
            except Retriable:
                for parts in begun:
                    self._undo(parts)
                raise
        return opened

    def _undo(self, parts: tuple[Part, ...]) -> None:
        """End what was begun and is in no log: nobody can ever commit it, and nobody else would end
        it before its time is over. Not needed for safety."""
        claimed: LogRecord = self._claim.take()
        for part, (_, participant) in zip(
            parts, self._claim.participants.of_record(claimed), strict=True
        ):
            try:
                participant.abort(part, deadline_s=self._deadline_s, is_own=True)
            except EosError as error:
                logger.warning("%s, which is empty, stays until it expires: %s", part.label, error)
