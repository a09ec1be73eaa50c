"""One driver's hold on one sink: step 1, and the end of what earlier runs have left."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Literal

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.ending import Ending
from eos.committer.half import TransactionalHalf
from eos.committer.pins import WATCH_S
from eos.errors import CommitLogError, NewCluster
from eos.protocol import LogRecord, Reason, ReasonKind, State
from eos.retry import attempts
from eos.steps import Step


class Hold:
    """The claim of one run, and what it entitles to. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        half: the sink's transactional half.
        service_url: recorded with the claim.
        deadline_s: of each wait for a broker, a mark, an END_TXN or the witness.
        on_new_cluster: what to do about a cluster that does not hold what the log recorded.
    """

    def __init__(
        self,
        log: CommitLog,
        half: TransactionalHalf,
        *,
        service_url: str,
        deadline_s: float = 60.0,
        on_new_cluster: Literal["refuse", "continue"] = "refuse",
    ) -> None:
        self.ending = Ending(log, half, deadline_s)
        self._log = log
        self._half = half
        self._service_url = service_url
        self._deadline_s = deadline_s
        self._on_new_cluster = on_new_cluster
        self._claim: LogRecord | None = None
        self._is_ready = False

    @property
    def held(self) -> LogRecord | None:
        """The claim, as soon as it is taken."""
        return self._claim

    def claim(self) -> LogRecord:
        """Step 1: claim the sink, connect to its coordinators, end what is unfinished.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            InDoubt: a transaction of an earlier run can't be ended now.
            NewCluster: the cluster is not the one that the log was written with.
        """
        if self._claim is not None and self._is_ready:
            return self._claim
        claim = self.take_claim()
        for record in self._log.history.owing:
            if record.txn is not None and _is_recent(record):
                self._half.suspect(record)
        self.finish_all()
        self._check_not_rolled_back()
        for attempt in attempts(self._deadline_s):
            with attempt:
                self._half.ensure_witness(first=not self._log.history.coordinators)
        self._is_ready = True
        failpoints.reached(Step.CLAIM)
        return claim

    def take_claim(self) -> LogRecord:
        """The first half of ``claim``: fence everybody else, and end nothing yet.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            NewCluster: as ``claim``.
        """
        if self._claim is None:
            topic = self._log.history.receipt_topic or self._half.receipt_topic(
                self._log.log_table_id
            )
            for attempt in attempts(self._deadline_s):
                with attempt:  # whoever can't write must not fence the one who can
                    self._half.check(topic)
                    self._check_cluster(topic)
                    self._half.make_receipts(topic)
            self._claim = self._log.append(
                LogRecord.claimed(
                    sink_id=self._log.sink_id,
                    run_id=str(uuid.uuid4()),
                    service_url=self._service_url,
                    receipt_topic=topic,
                )
            )
        for attempt in attempts(self._deadline_s):
            with attempt:
                self._half.attach(self._claim.receipt_topic, self._log.history.coordinators)
        return self._claim

    def _check_cluster(self, receipt_topic: str) -> None:
        history = self._log.history
        if self._on_new_cluster == "continue" or not history.coordinators:
            return
        if self._half.has_history(receipt_topic):
            return
        raise NewCluster(
            f"The cluster at {self._service_url} has no receipt topic {receipt_topic}, and "
            f"{_written(self._log)} by the commit log {self._log.uri}: it is another cluster, or "
            "one that has lost its data, or somebody deleted the topic.",
            hint="Check service_url. To write on without what is not there: set "
            'on_new_cluster="continue" once; epochs that the log holds as committed are not '
            "written again. To write them again, begin with a new commit_log and checkpoint.",
            sink_id=self._log.sink_id,
        )

    def _check_not_rolled_back(self) -> None:
        """A log that was replaced by an older copy looks whole; the receipts know better (I2)."""
        last = self._log.history.last_opened
        if last is None:
            return
        newer: str | None = None
        for attempt in attempts(self._deadline_s):
            with attempt:
                newer = self._half.commits_after(last, timeout_s=self._deadline_s)
        if newer is not None:
            raise CommitLogError(
                f"Commit log {self._log.uri} ends before a transaction that was committed: "
                f"{newer}.",
                hint="It was rolled back to an older copy. Restore the newest one: with this one "
                "epochs that are readable already would be written again. Is none left? Move this "
                "one away, and start once with the newest checkpoint and "
                'on_new_query="continue": only the epoch that Spark runs again may then be there '
                "twice. Batch keys are forgotten with their log.",
                sink_id=self._log.sink_id,
            )

    def finish(self, record: LogRecord) -> LogRecord:
        """End one unfinished transaction of an earlier run as the log decides; its last record.

        Raises:
            InDoubt: its outcome can't be proved now.
            Fenced: another run holds the claim.
        """
        claim = self.take_claim() if self._claim is None else self._claim
        reason = Reason(ReasonKind.RECOVERY, f"left {record.state} by run {record.run_id}")
        last = self.ending.finish(record, claim, reason=reason)
        self.clean_up(last)
        return last

    def finish_all(self) -> None:
        """End every unfinished transaction of the sink, whatever its query or epoch.

        Raises:
            InDoubt, Fenced: as ``finish``.
        """
        for record in self._log.history.unfinished:
            self.finish(record)

    def clean_up(self, last: LogRecord) -> None:
        """What can be done once a transaction has ended, and safety does not need."""
        self._half.after_end(last, is_last=not self._log.history.unfinished)


def _written(log: CommitLog) -> str:
    """What the log holds as committed, as far as it keeps records."""
    committed = [record for record in log.records() if record.state is State.COMMITTED]
    rows = sum(record.records or 0 for record in committed)
    return f"{len(committed):,} epochs with {rows:,} messages are committed"


def _is_recent(record: LogRecord) -> bool:
    if record.written_at is None:
        return False
    return (datetime.now(UTC) - record.written_at).total_seconds() < WATCH_S
