"""The transactional half of ``PulsarSink``: one Pulsar transaction for each attempt. Spark-free."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from eos.client import PulsarClient
from eos.committer.half import Begun
from eos.committer.pins import Pins
from eos.committer.reading import Reading
from eos.committer.receipts import ReceiptTopic, receipt_topic_name
from eos.coordinator import EndAnswer, MarkAnswer, WitnessAnswer
from eos.errors import (
    EosError,
    InvalidTransactionStatus,
    TopicNotFound,
    TopicTerminated,
    TransactionNotFound,
)
from eos.ids import MessageId, TopicName
from eos.transaction import LogRecord
from eos.transport.security import Security
from eos.wire.commands import TxnAction

logger = logging.getLogger(__name__)

ACKNOWLEDGE_EVERY_S: Final = 30.0
"""Acknowledging attaches a consumer; once in a while is enough to let the broker trim."""


class PulsarHalf:
    """Begin, commit, abort and outcome of one sink's Pulsar transactions.

    Args:
        sink_id: names the receipt topic.
        service_url, security: the cluster; one principal for driver and executors.
        receipt_namespace: ``tenant/namespace`` for a new receipt topic.
        admin_url: with it, pinned partitions are found and healed after an abort.
        timeout_s: deadline of each request.
    """

    def __init__(
        self,
        sink_id: str,
        service_url: str,
        security: Security,
        *,
        receipt_namespace: str,
        admin_url: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.client = PulsarClient(service_url, security=security, timeout_s=timeout_s)
        self._sink_id = sink_id
        self._timeout_s = timeout_s
        self._namespace = receipt_namespace
        self._reading = Reading(service_url, security, timeout_s=timeout_s)
        self._pins = Pins(self.client, admin_url, security, timeout_s=timeout_s)
        self._receipts: ReceiptTopic | None = None
        self._acknowledged_at: float | None = None
        self._touched: tuple[str, ...] = ()

    def touches(self, topics: Iterable[str]) -> None:
        """The exact partitions that the epoch under way may write to: suspects after an abort."""
        self._touched = tuple(topics)

    def receipt_topic(self, log_table_id: str) -> str:
        """Full name of the topic for this sink's receipts, as a new log shall record it."""
        return str(receipt_topic_name(self._namespace, self._sink_id, log_table_id))

    def check(self, receipt_topic: str) -> None:
        """Before a claim: is the cluster there, with transactions, and a place for receipts?

        Raises:
            ConnectionLost, TransactionsDisabled, Unauthorized: as they say.
            TopicNotFound: the namespace for the receipts does not exist. Looking a topic up
                creates nothing.
        """
        self.client.coordinators.count()
        try:
            self.client.lookup.broker_of(receipt_topic)
        except TopicNotFound as error:
            error.hint = (
                "Create the namespace (pulsar-admin namespaces create ...), or name one that "
                "exists with receipt_namespace."
            )
            raise

    def attach(self, receipt_topic: str, coordinators: Iterable[int]) -> None:
        """Use the log's receipt topic; connect to every coordinator that the log names.

        After a restart a coordinator loads, expires and finishes its transactions only when a
        client connects (measured).
        """
        self._receipts = ReceiptTopic(self.client, self._reading, TopicName.parse(receipt_topic))
        for tc_id in coordinators:
            self.client.coordinators.connect(tc_id)

    def commits_after(self, record: LogRecord, *, timeout_s: float) -> str | None:
        """The first committed receipt behind ``record``'s mark that is not its own.

        Raises:
            ConnectionLost: the receipt topic could not be read to its end in time.
        """
        return self._receipt_topic.commits_after(record, timeout_s=timeout_s)

    def ensure_witness(self, *, first: bool) -> None:
        """Make the receipt topic, when it is not there, and its subscription in any case."""
        topic = self._receipt_topic
        is_new = not topic.exists()
        topic.subscribe()
        if first or is_new:
            topic.prime()

    def begin(self, ttl_ms: int) -> Begun:
        """Send a mark, then open a transaction that expires after ``ttl_ms``."""
        mark_id, mark_uuid = self._receipt_topic.send_mark()
        return Begun(self.client.coordinators.begin(ttl_ms), mark_id, mark_uuid)

    def send_receipt(self, record: LogRecord) -> MessageId:
        """Send the receipt inside the transaction; an error poisons it."""
        return self._receipt_topic.send_receipt(record)

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Whether the mark is where the log says."""
        return self._receipt_topic.find_mark(record, timeout_s=timeout_s)

    def end(self, record: LogRecord, *, commit: bool, timeout_s: float) -> EndAnswer:
        """END_TXN, once."""
        assert record.txn is not None
        action = TxnAction.COMMIT if commit else TxnAction.ABORT
        try:
            # Several tries fit into one deadline: an answer that was lost is asked for again.
            one_try_s = min(timeout_s, self._timeout_s)
            self.client.coordinators.end(record.txn, action, timeout_s=one_try_s)
        except (TransactionNotFound, InvalidTransactionStatus):
            return EndAnswer.ENDED
        except EosError as error:
            logger.warning("END_TXN of %s: %s", record.txn, error)
            return EndAnswer.OTHER
        return EndAnswer.OK

    def ask_witness(self, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
        """Whether the receipt is readable, or proved absent."""
        return self._receipt_topic.ask(record, timeout_s=timeout_s)

    def diagnose(self, record: LogRecord) -> str:
        """What can be seen of a commit that stays in doubt. For a person; decides nothing."""
        seen = self._receipt_topic.ask(record, timeout_s=5.0)
        if seen is not WitnessAnswer.READABLE:
            return ""
        gone = [part.topic for part in record.partitions if not self._takes_messages(part.topic)]
        return (
            "Its receipt is readable: it is committed, and not visible on "
            f"{', '.join(gone) or 'topics whose markers are not written yet'}."
        )

    def _takes_messages(self, topic: str) -> bool:
        name = TopicName.parse(topic)
        try:
            # Asked first: opening a producer would create a topic that was deleted.
            self.client.partition_count(str(name.base))
            self.client.producer(topic).close()
        except (TopicNotFound, TopicTerminated):
            return False
        except EosError:
            pass
        return True

    def after_commit(self, record: LogRecord) -> None:
        """Acknowledge the receipt topic up to this record's receipt, now and then."""
        now = time.monotonic()
        if self._acknowledged_at is not None and now - self._acknowledged_at < ACKNOWLEDGE_EVERY_S:
            return
        assert record.receipt_id is not None
        try:
            self._receipt_topic.acknowledge(record.receipt_id)
            self._acknowledged_at = now
        except EosError as error:
            logger.warning("the receipt topic is not acknowledged, it keeps growing: %s", error)

    def after_abort(self, record: LogRecord) -> None:
        """Look for partitions that the dead transaction pins, and heal them."""
        assert record.txn is not None
        self._pins.heal(record.txn, [*self._touched, record.receipt_topic])

    def close(self) -> None:
        """Free connections."""
        self._reading.close()
        self.client.close()

    @property
    def _receipt_topic(self) -> ReceiptTopic:
        if self._receipts is None:
            raise RuntimeError("attach() comes first")
        return self._receipts
