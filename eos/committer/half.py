"""The transactional half of a sink: what a committer needs of it. Spark-free.

Every method that talks to the outside is one bounded attempt, and says "unknown" rather than
guess. The other half, from a DataFrame to task summaries, lives with the sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from eos.coordinator import EndAnswer, MarkAnswer, WitnessAnswer
from eos.ids import MessageId, TxnId
from eos.transaction import LogRecord


@dataclass(frozen=True)
class Begun:
    """A transaction that was just begun, and the mark that was sent before it."""

    txn: TxnId
    mark_id: MessageId
    mark_uuid: str


class TransactionalHalf(Protocol):
    """Begin, commit, abort and outcome of one sink's transactions."""

    def receipt_topic(self, log_table_id: str) -> str:
        """Full name of the topic for this sink's receipts, as a new log shall record it."""

    def check(self, receipt_topic: str) -> None:
        """Before a claim: is the cluster there, with transactions, and a place for receipts?"""

    def attach(self, receipt_topic: str, coordinators: Iterable[int]) -> None:
        """Use the log's receipt topic; connect to every coordinator that the log names."""

    def commits_after(self, record: LogRecord, *, timeout_s: float) -> str | None:
        """A commit of this sink that is newer than ``record``'s transaction, in words; None when
        there is none, or when nobody can tell any more."""

    def ensure_witness(self, *, first: bool) -> None:
        """Make what the witness needs; called only when nothing is unfinished. ``first``: no
        transaction of this sink was ever opened."""

    def begin(self, ttl_ms: int) -> Begun:
        """Send a mark, then open a transaction that expires after ``ttl_ms``."""

    def send_receipt(self, record: LogRecord) -> MessageId:
        """Send the receipt inside the transaction; an error poisons it."""

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Whether the mark is where the log says."""

    def end(self, record: LogRecord, *, commit: bool, timeout_s: float) -> EndAnswer:
        """END_TXN, once."""

    def ask_witness(self, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
        """Whether the receipt is readable, or proved absent."""

    def diagnose(self, record: LogRecord) -> str:
        """For a person, when a commit stays in doubt: what can be seen from outside."""

    def after_commit(self, record: LogRecord) -> None:
        """Housekeeping that safety does not need; never raises."""

    def after_abort(self, record: LogRecord) -> None:
        """Find and heal what an aborted transaction may have left behind; never raises."""

    def close(self) -> None:
        """Free connections."""
