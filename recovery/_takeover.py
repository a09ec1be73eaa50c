"""Take over a sink without Spark: claim it, and end its unfinished transactions."""

# ruff: noqa: ARG002 - an output that was given up is asked nothing
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self

from eos.commit_log import CommitLog
from eos.committer import Claim, Participants
from eos.committer.participants import open_participant
from eos.errors import ConfigurationError
from eos.participant import Access, Attempt, Participant
from eos.protocol import ABORTED, Fate, History, LogRecord, Part, Reason, State, unknown


class GivenUpOutput(Participant):
    """An output that will never answer again, according to a person. It stays unchanged."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def claimed(self, history: History, log_table_id: str) -> Part:
        """The part in the log."""
        return self._part

    def begin(self, attempt: Attempt) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def count(self, part: Part, written: Sequence[Any]) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def prepare(self, record: LogRecord, part: Part) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Unknown."""
        # Nobody knows whether its part was committed: only a person's decision goes on without it.
        return unknown("given up")

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Aborted; staged data stays where it is."""
        # Safe without an answer: once the log says so, this part is never committed.
        return ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """Unknown."""
        return unknown("given up")


def check_given_up(outputs: Collection[str], parts: Iterable[Part], sink_id: str) -> None:
    """Check that all of ``outputs`` exist and may be given up.

    Raises:
        ConfigurationError: the output does not exist, or it decides the outcome.
    """
    known = {part.output: part for part in parts}
    for name in outputs:
        if name not in known:
            raise ConfigurationError(
                f"Output {name} does not exist in this sink.",
                hint=f"Its outputs: {', '.join(known)}.",
                sink_id=sink_id,
            )
        # The output that can expire decides for all; without its answer nothing is proved.
        if known[name].can_expire:
            raise ConfigurationError(
                f"{name} can't be given up: its outcome decides for the other outputs.",
                hint="Pass a cluster that answers with --service-url.",
                sink_id=sink_id,
            )


class Takeover:
    """The claim of one sink, as for a restarted driver. Taken when first needed.

    Args:
        access: without a service URL, the log's last cluster; without an admin URL, partitions
            pinned by an aborted transaction stay.
        deadline_s: of each wait: for a mark, an END_TXN or the witness.
        give_up: outputs, named as in the log, that are no longer asked. An epoch to be committed
            there stays in doubt until a person decides; an abort proceeds without them.

    Raises:
        ConfigurationError: the log or output does not exist, or no driver ever claimed the sink.
        CommitLogError: the log is broken.
    """

    def __init__(
        self,
        sink_id: str,
        *,
        commit_log: str | Path,
        access: Access,
        give_up: Collection[str] = (),
        deadline_s: float = 60.0,
    ) -> None:
        storage = access.storage_options
        # Opening for writing would create a log for a misspelt name.
        CommitLog.open_read_only(commit_log, sink_id, storage_options=storage)
        self._log = CommitLog.open(commit_log, sink_id, storage_options=storage)
        claim = self._log.history.last_claim
        if claim is None:
            raise ConfigurationError("No driver has claimed this sink yet.", sink_id=sink_id)
        # An unfinished epoch may name outputs that the newest claim no longer has.
        named = [claim, *self._log.history.unfinished]
        check_given_up(give_up, [part for record in named for part in record.participants], sink_id)

        def open_other(part: Part) -> Participant:
            if part.output in give_up:
                return GivenUpOutput(part)
            return open_participant(sink_id, part, access)

        with ExitStack() as opening:  # the first one is closed if the second can't be opened
            own = [opening.enter_context(closing(open_other(one))) for one in claim.participants]
            opening.pop_all()
        self._participants = Participants(self._log, own, open_other=open_other)
        # Unlike a driver, continue on a new cluster: a person needs a way out. Without its mark, no
        # transaction is ended there.
        self._claim = Claim(
            self._log,
            self._participants,
            deadline_s=deadline_s,
            on_new_cluster="continue",
            in_recovery=True,
        )

    @property
    def unfinished(self) -> tuple[LogRecord, ...]:
        """The newest record of each unfinished epoch."""
        return self._log.history.unfinished

    def finish(self, record: LogRecord) -> LogRecord:
        """End one transaction as the log decided; takes the claim if it is not taken yet.

        Returns:
            Its last record: COMMITTED, ABORTED or EMPTY. The next run of the query writes an
            aborted epoch again.

        Raises:
            InDoubt: the outcome can't be proved now; the log is unchanged.
            Fenced: a driver claimed the sink at the same moment, or afterwards.
        """
        return self._claim.finish(record)

    def claim(self) -> History:
        """Take the claim if it is not taken yet, and return the log's history.

        Raises:
            Fenced: a driver claimed the sink at the same moment.
        """
        self._claim.take()
        return self._log.history

    def decide(self, record: LogRecord, state: State, reason: Reason) -> LogRecord:
        """Append a person's decision about the epoch of ``record``.

        Sends no END_TXN. Other outputs of the epoch are committed or aborted accordingly.

        Raises:
            Fenced: a driver claimed the sink at the same moment, or afterwards.
            CommitLogError: the state may not follow the epoch's newest record.
        """
        return self._claim.decide(record, state, reason)

    def close(self) -> None:
        """Close connections."""
        self._participants.close()  # the claim stays until the next driver takes it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
