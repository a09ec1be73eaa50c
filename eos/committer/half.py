"""The transactional half of a sink: what a committer needs of it. Spark-free.

Every method that talks to the outside is one bounded attempt, and says "unknown" rather than
guess. The other half, from a DataFrame to task summaries, lives with the sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from eos.ids import MessageId, TxnId
from eos.protocol import DataAnswer, EndAnswer, LogRecord, MarkAnswer, WitnessAnswer
from eos.roll_call import RollCall
from eos.summary import Answer


@dataclass(frozen=True)
class Begun:
    """A transaction that was just begun, and the roll call that its mark has opened before it."""

    txn: TxnId
    call: RollCall


class TransactionalHalf(Protocol):
    """Begin, commit, abort and outcome of one sink's transactions."""

    def receipt_topic(self, log_table_id: str) -> str:
        """Full name of the topic for this sink's receipts, as a new log shall record it."""

    def check(self, receipt_topic: str) -> None:
        """Before a claim: is the cluster there, with transactions, and a place for receipts?"""

    def has_history(self, receipt_topic: str) -> bool:
        """Whether the cluster holds what a log recorded that names this receipt topic."""

    def make_receipts(self, receipt_topic: str) -> None:
        """Before a claim: make the topic for receipts, when it is not there."""

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

    def close_roll_call(self, call: RollCall) -> tuple[Answer, ...]:
        """Which runs of tasks have answered; whoever comes later sends nothing. An error poisons
        the transaction."""

    def send_receipt(self, record: LogRecord) -> MessageId:
        """Send the receipt inside the transaction; an error poisons it."""

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Whether the mark is where the log says."""

    def end(self, record: LogRecord, *, commit: bool, timeout_s: float) -> EndAnswer:
        """END_TXN, once."""

    def ask_witness(self, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
        """Whether the receipt is readable, or proved absent."""

    def ask_data(self, record: LogRecord, *, timeout_s: float) -> DataAnswer:
        """Whether all that the transaction wrote is readable, as its own."""

    def diagnose(self, record: LogRecord) -> str:
        """For a person, when a commit stays in doubt: what can be seen from outside."""

    def suspect(self, record: LogRecord) -> None:
        """Look after what an aborted transaction may leave behind, now and at later ends."""

    def after_end(self, record: LogRecord, *, is_last: bool) -> None:
        """Housekeeping behind a COMMITTED, ABORTED or EMPTY that safety does not need. Never
        raises. ``is_last``: no other transaction of the sink is unfinished."""

    def rest(self) -> None:
        """Nothing is unfinished, and nothing may come for long: leave no debts. Never raises."""

    def close(self) -> None:
        """Free connections."""
