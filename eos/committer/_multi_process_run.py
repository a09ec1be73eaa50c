"""One run of a sink in several processes: tasks open an epoch or join it, one process commits it.

For drivers that Spark calls step by step, each time in another process (its Data Source writer).
"""

# The processes share only the commit log and the run's id. An attempt is opened by the conditional
# append of OPEN, which has one winner; the others find it and join.

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from eos.commit_log import CommitLog
from eos.committer._attempt import OpenAttempt
from eos.committer._call_guard import CallGuard, Policies
from eos.committer._claim import Claim
from eos.committer._epoch import Reports, check_epoch
from eos.committer.participants import Participants
from eos.errors import (
    ConfigurationError,
    EosError,
    Fenced,
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

MAX_CLOCK_SKEW: Final = timedelta(seconds=1)
"""How far the clock of the process that opens an epoch may be ahead of the one that commits it."""


class MultiProcessRun:
    """One process's view of a run. Not thread-safe.

    Args:
        log: the sink's commit log, open for writing.
        participants: the sink's outputs.
        run_id: id of the run; the same in all of its processes, and in no other run.
        deadline_s: timeout of each wait for a participant, and for the log while others append.
        policies: except ``on_gap``: Spark leaves no epoch out.
    """

    def __init__(
        self,
        log: CommitLog,
        participants: Sequence[Participant],
        run_id: str,
        *,
        deadline_s: float = 60.0,
        policies: Policies | None = None,
    ) -> None:
        self.log = log
        self._run_id = run_id
        self._deadline_s = deadline_s
        self._policies = replace(policies or Policies(), on_gap="continue")
        self._guard = CallGuard(log, self._policies)
        self._claim = Claim(
            log,
            Participants(log, participants),
            deadline_s=deadline_s,
            on_new_cluster=self._policies.on_new_cluster,
            shared_run=run_id,
        )

    @property
    def has_claimed(self) -> bool:
        """Whether a process of the run has claimed the sink, as of the last refresh."""
        return self.log.history.has_claimed(self._run_id)

    def join(self, query_id: str, epoch: str) -> OpenAttempt | Skip:
        """Return the run's attempt of ``epoch``, opened if needed (steps 1 to 4), or ``Skip``.

        Raises:
            TransactionPoisoned: the run's attempt has ended, and there is no second one.
            NewLineage: see ``eos.protocol.check_lineage``.
            Fenced, InDoubt, NewCluster, UnfinishedEpoch: see their docs.
        """
        check_epoch(query_id, epoch)
        for attempt in attempts(self._deadline_s):
            with attempt:  # each append has one winner: a loser looks at the winner's record
                joined = self._join(query_id, epoch)
        if joined is None:
            # Spark runs an epoch once in a run, so a second attempt would never be committed.
            raise TransactionPoisoned(
                f"Epoch {epoch} has already ended in this run of the query: its task is too late.",
                hint="Ignore the task's error. The epoch runs again when the query is restarted.",
                epoch=epoch,
            )
        return joined

    def find(self, query_id: str, epoch: str) -> OpenAttempt | Skip | None:
        """Return the run's OPEN or PREPARED attempt of ``epoch``, as in the log now, or None.

        ``Skip`` if the epoch is done.

        Raises:
            Fenced: another run has claimed the sink.
        """
        self.log.refresh()
        history = self.log.history
        if not history.must_skip(query_id, epoch):
            if self.log.is_fenced:
                raise Fenced("Another driver has claimed the sink.", sink_id=self.log.sink_id)
            if not self.has_claimed:
                return None
            self._claim.ensure()  # which may end an earlier run's attempt of this very epoch
        newest = self.log.history.newest(query_id, epoch)
        if self.log.history.must_skip(query_id, epoch):
            return Skip.of(newest)
        is_open = newest is not None and newest.state in (State.OPEN, State.PREPARED)
        if newest is None or not is_open or newest.run_id != self._run_id:
            return None
        return OpenAttempt(self.log, self._claim, newest)

    def end(self, opened: OpenAttempt, written: Reports) -> LogRecord:
        """Steps 6 to 10: commit the attempt of ``join`` or ``find``; return its last record.

        Raises:
            TransactionPoisoned: it must not be committed, and is aborted.
            EosError: likewise. Fenced, InDoubt: the next run of the query ends it.
        """
        if opened.record.state is State.OPEN:
            with opened.abort_on_error():
                _check_clock(opened.record)
                opened.prepare(written)
        last = opened.finish(opened.commit())
        if last.state is State.ABORTED:
            raise TransactionExpired("The transaction expired before it was committed.")
        return last

    def check_replayed(
        self, query_id: str, epoch: str, planned_at: Callable[[], datetime | None]
    ) -> None:
        """Check that a committed ``epoch`` still has the rows with which it was written.

        Raises:
            RewoundCheckpoint: see ``eos.protocol.check_replayed``.
        """
        self._guard.check_replayed(query_id, epoch, planned_at)

    def _join(self, query_id: str, epoch: str) -> OpenAttempt | Skip | None:
        found = self.find(query_id, epoch)
        if found is None and not self.has_claimed:
            check_lineage(self.log.history, query_id, epoch, self._policies.on_new_query)
            self._claim.ensure()
            found = self.find(query_id, epoch)  # meanwhile another process may have been quicker
        if found is not None:
            is_over = isinstance(found, OpenAttempt) and found.record.state is not State.OPEN
            return None if is_over else found
        if self._has_opened(query_id, epoch):
            return None
        decision = decide_epoch(self.log.history, query_id, epoch)
        return decision if isinstance(decision, Skip) else self._open(query_id, epoch, decision)

    def _has_opened(self, query_id: str, epoch: str) -> bool:
        """Whether an attempt of ``epoch`` was opened in this run, and so has ended."""
        # One that others have opened since the last refresh has not: the next append finds it.
        history = self.log.history
        newest, known = history.newest(query_id, epoch), history.last_seq
        if newest is None or newest.attempt is None:
            return False
        opened = (r for r in self.log.records() if r.state is State.OPEN and r.key == newest.key)
        return any(record.run_id == self._run_id and record.seq <= known for record in opened)

    def _open(self, query_id: str, epoch: str, run: Run) -> OpenAttempt:
        begun: list[tuple[Part, ...]] = []
        with ThreadPoolExecutor(1) as executor:
            try:
                opened, _ = OpenAttempt.begin(
                    self.log,
                    self._claim,
                    query_id,
                    epoch,
                    run,
                    executor=executor,
                    meanwhile=lambda parts: begun.append(parts()),
                    deadline_s=self._deadline_s,
                )
            except Retriable:
                for parts in begun:
                    self._undo(parts)
                raise
        return opened

    def _undo(self, parts: tuple[Part, ...]) -> None:
        """Abort begun parts that are in no log. Not needed for safety: they would expire."""
        claimed: LogRecord = self._claim.take()
        for part, (_, participant) in zip(
            parts, self._claim.participants.of_record(claimed), strict=True
        ):
            try:
                participant.abort(part, deadline_s=self._deadline_s, is_own=True)
            except EosError as error:
                logger.warning("%s is empty and stays until it expires: %s", part.label, error)


def _check_clock(opened: LogRecord) -> None:
    # ``check_replayed`` compares the plan's time, of this machine, with that of OPEN, of a task's
    # machine. If the latter is ahead, a new plan looks older.
    assert opened.query_id is not None
    assert opened.opened_at is not None
    ahead = opened.opened_at - datetime.now(UTC)
    if ahead > MAX_CLOCK_SKEW and is_streaming(opened.query_id):
        raise ConfigurationError(
            f"The clock of the machine that opened epoch {opened.epoch} is "
            f"{ahead.total_seconds():.0f} s ahead of this one, and a checkpoint that was set "
            "back would not be noticed.",
            hint="Synchronize the clocks of driver and executors (NTP), and start the query "
            "again: nothing of the epoch is readable, and it runs again.",
        )
