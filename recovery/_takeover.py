"""Take over a sink without Spark: claim it, and end its unfinished transactions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from eos.commit_log import CommitLog
from eos.committer import Claim, Participants
from eos.committer.participants import open_participant
from eos.errors import ConfigurationError
from eos.participant import Access, Participant
from eos.protocol import History, LogRecord, Part, Reason, State
from eos.recovery._unreachable_output import GivenUpOutput, check_given_up
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth


class Takeover:
    """The claim of one sink, as for a restarted driver. Taken when first needed.

    Args:
        service_url: the cluster; the last one in the log if None.
        admin_url: needed to find and free partitions pinned by an aborted transaction.
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
        service_url: str | None = None,
        auth: Auth | None = None,
        rules: ClusterRules,
        admin_url: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        give_up: Collection[str] = (),
        deadline_s: float = 60.0,
        timeout_s: float = 30.0,
    ) -> None:
        # Opening for writing would create a log for a misspelt name.
        CommitLog.open_read_only(commit_log, sink_id, storage_options=storage_options)
        self._log = CommitLog.open(commit_log, sink_id, storage_options=storage_options)
        claim = self._log.history.last_claim
        if claim is None:
            raise ConfigurationError("No driver has claimed this sink yet.", sink_id=sink_id)
        named = [claim, *self._log.history.unfinished]
        check_given_up(give_up, [part for record in named for part in record.participants], sink_id)
        access = Access(
            service_url=service_url,
            auth=auth or Auth(),
            rules=rules,
            admin_url=admin_url,
            storage_options=storage_options,
            timeout_s=timeout_s,
        )

        def open_other(part: Part) -> Participant:
            if part.output in give_up:
                return GivenUpOutput(part)
            return open_participant(sink_id, part, access)

        self._participants = Participants(
            self._log, [open_other(part) for part in claim.participants], open_other=open_other
        )
        # Unlike a driver, continue on a new cluster: a person needs a way out. Without its mark, no
        # transaction is ended there.
        self._claim = Claim(
            self._log, self._participants, deadline_s=deadline_s, on_new_cluster="continue"
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
        """Close connections. The claim stays until the next driver takes it."""
        self._participants.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
