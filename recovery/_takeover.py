"""Taking a sink over without Spark: its claim, and the ending of what a driver left."""

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
from eos.recovery._unreachable_output import GivenUp, check_given_up
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules


class Takeover:
    """The claim of one sink, as a restarted driver has it. Claims nothing before ``finish``.

    Args:
        service_url: the cluster; what the log recorded last when None.
        admin_url: with it, partitions that an aborted transaction pins are found and healed.
        deadline_s: of each wait for a mark, an END_TXN or the witness.
        give_up: outputs, as the log names them, that are not asked any more. A commit of one stays
            in doubt, unless a person decides it; an abort is done without it.

    Raises:
        ConfigurationError: there is no such log or output, or no driver ever claimed the sink.
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
        # Opening for writing would create a log for a name that was only misspelt.
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
            return (
                GivenUp(part) if part.output in give_up else open_participant(sink_id, part, access)
            )

        self._participants = Participants(
            self._log, [open_other(part) for part in claim.participants], open_other=open_other
        )
        # A person is looking, and has to get out where a driver stops: no mark, no END_TXN.
        self._claim = Claim(
            self._log, self._participants, deadline_s=deadline_s, on_new_cluster="continue"
        )

    @property
    def unfinished(self) -> tuple[LogRecord, ...]:
        """The newest record of each epoch that is neither committed nor aborted."""
        return self._log.history.unfinished

    def finish(self, record: LogRecord) -> LogRecord:
        """Take the claim, the first time, and end one transaction as the log decides.

        Returns:
            Its last record: COMMITTED, ABORTED or EMPTY. An aborted epoch is written by the next
            run of its query.

        Raises:
            InDoubt: the outcome can't be proved now; the log is as it was.
            Fenced: a driver claimed the sink at the same moment, or took it back.
        """
        return self._claim.finish(record)

    def claim(self) -> History:
        """Take the claim, the first time; what the log says then.

        Raises:
            Fenced: a driver claimed the sink at the same moment.
        """
        self._claim.take()
        return self._log.history

    def decide(self, record: LogRecord, state: State, reason: Reason) -> LogRecord:
        """Append what a person decided about ``record``'s epoch. Ends nothing at the broker; where
        the epoch has other outputs, they are ended as the first one's fate demands.

        Raises:
            Fenced: a driver claimed the sink at the same moment, or took it back.
            CommitLogError: no such record may follow.
        """
        return self._claim.decide(record, state, reason)

    def close(self) -> None:
        """Free connections. The claim stays: the next driver takes it over."""
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
