"""One driver's hold on one sink: step 1, and the end of what earlier runs have left."""

from __future__ import annotations

import uuid

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer.ending import Ending
from eos.committer.half import TransactionalHalf
from eos.errors import CommitLogError
from eos.retry import attempts
from eos.steps import Step
from eos.transaction import LogRecord, Reason, ReasonKind, State


class Hold:
    """The claim of one run, and what it entitles to. Not for several threads at once.

    Args:
        log: the sink's commit log, open for writing.
        half: the sink's transactional half.
        service_url: recorded with the claim.
        deadline_s: of each wait for a broker, a mark, an END_TXN or the witness.
    """

    def __init__(
        self, log: CommitLog, half: TransactionalHalf, *, service_url: str, deadline_s: float = 60.0
    ) -> None:
        self.ending = Ending(log, half, deadline_s)
        self._log = log
        self._half = half
        self._service_url = service_url
        self._deadline_s = deadline_s
        self._claim: LogRecord | None = None
        self._is_ready = False

    def claim(self) -> LogRecord:
        """Step 1: claim the sink, connect to its coordinators, end what is unfinished.

        Raises:
            Fenced: another driver claimed the sink at the same moment.
            InDoubt: a transaction of an earlier run can't be ended now.
        """
        if self._claim is not None and self._is_ready:
            return self._claim
        claim = self.take_claim()
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
        """
        if self._claim is None:
            topic = self._log.history.receipt_topic or self._half.receipt_topic(
                self._log.log_table_id
            )
            for attempt in attempts(self._deadline_s):
                with attempt:  # whoever can't write must not fence the one who can
                    self._half.check(topic)
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
                "epochs that are readable already would be written again.",
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
        if last.state is State.COMMITTED:
            self._half.after_commit(last)
        elif last.state is State.ABORTED:
            self._half.after_abort(last)
