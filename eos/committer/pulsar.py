"""The transactional half of ``PulsarSink``: one Pulsar transaction for each attempt. Spark-free."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from eos.client import PulsarClient
from eos.client.admin import AdminClient
from eos.committer.acknowledging import Acknowledging
from eos.committer.half import Begun
from eos.committer.pins import Pins
from eos.committer.receipts import ReceiptTopic, receipt_topic_name, receipt_topics_of
from eos.committer.witness import Witness
from eos.errors import (
    BrokerNotReady,
    ConnectionLost,
    EosError,
    InvalidTransactionStatus,
    TopicNotFound,
    TopicTerminated,
    TransactionNotFound,
    Unauthorized,
)
from eos.ids import MessageId, TopicName
from eos.protocol import DataAnswer, EndAnswer, LogRecord, MarkAnswer, State, WitnessAnswer
from eos.retry import attempts
from eos.roll_call import RollCall
from eos.summary import Answer
from eos.transport.security import Security
from eos.wire.commands import TxnAction

logger = logging.getLogger(__name__)


class PulsarHalf:
    """Begin, commit, abort and outcome of one sink's Pulsar transactions.

    Args:
        sink_id: names the receipt topic.
        service_url, security: the cluster; one principal for driver and executors.
        receipt_namespace: ``tenant/namespace`` for a new receipt topic.
        admin_url: with it, pinned partitions are found and healed after an abort, and the receipt
            topic is created where clients may not create any.
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
        self._admin = (
            AdminClient(
                admin_url, security, timeout_s=timeout_s, service=self.client.lookup.service
            )
            if admin_url
            else None
        )
        self._pins = Pins(self.client, self._admin)
        self._receipts: ReceiptTopic | None = None
        self._acknowledging: Acknowledging | None = None
        self._touched: tuple[str, ...] = ()

    def touches(self, topics: Iterable[str]) -> None:
        """The exact partitions that epochs may write to: suspects after an abort."""
        self._touched = tuple(topics)

    def receipt_topic(self, log_table_id: str) -> str:
        """Full name of the topic for this sink's receipts, as a new log shall record it."""
        return str(receipt_topic_name(self._namespace, self._sink_id, log_table_id))

    def other_receipt_topics(self) -> list[str]:
        """Receipt topics in our namespace that logs of this sink have left there.

        Of a broker that does not let us look we believe that there are none.

        Raises:
            EosError: it does not answer, or not in a way that can be understood.
        """
        try:
            return receipt_topics_of(self.client, self._namespace, self._sink_id)
        except Unauthorized as error:
            logger.warning("nobody knows whether sink %s wrote before: %s", self._sink_id, error)
            return []

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

    def has_history(self, receipt_topic: str) -> bool:
        """Whether the receipt topic of an older claim is there.

        Its subscription keeps it while it is idle, and its history as long as it is not
        acknowledged: without the topic this is another cluster, or somebody deleted it.
        """
        return self._topic(receipt_topic).exists()

    def make_receipts(self, receipt_topic: str) -> None:
        """Before a claim: make the receipt topic, when it is not there.

        Raises:
            ConfigurationError: nobody lets us; says the command that makes it.
        """
        self._topic(receipt_topic).create(self._admin)

    def attach(self, receipt_topic: str, coordinators: Iterable[int]) -> None:
        """Use the log's receipt topic; connect to every coordinator that the log names.

        After a restart a coordinator loads, expires and finishes its transactions only when a
        client connects (measured).
        """
        if self._receipts is None:
            self._receipts = self._topic(receipt_topic)
            self._acknowledging = Acknowledging(self._receipts)
        for tc_id in coordinators:
            self.client.coordinators.connect(tc_id)

    def _topic(self, receipt_topic: str) -> ReceiptTopic:
        return ReceiptTopic(self.client, TopicName.parse(receipt_topic))

    def commits_after(self, record: LogRecord, *, timeout_s: float) -> str | None:
        """The first committed receipt behind ``record``'s mark that is not its own.

        Raises:
            ConnectionLost: the receipt topic could not be read to its end in time.
        """
        return self._witness.commits_after(record, timeout_s=timeout_s)

    def ensure_witness(self, *, first: bool) -> None:
        """Make the receipt topic's subscription; ready its transaction buffer the first time."""
        topic = self._receipt_topic
        topic.create(self._admin)
        topic.subscribe()
        if first:
            topic.prime()

    def begin(self, ttl_ms: int) -> Begun:
        """Send a mark, then open a transaction that expires after ``ttl_ms``."""
        call = self._receipt_topic.send_mark()
        return Begun(self.client.coordinators.begin(ttl_ms), call)

    def close_roll_call(self, call: RollCall) -> tuple[Answer, ...]:
        """Which runs of tasks have answered; whoever comes later sends nothing.

        A broker that moves the topic is no reason to write everything again: to close twice does
        no harm, who answers between the two is counted and sends nothing.

        Raises:
            EosError: it is not known who has answered: poison.
        """
        for attempt in attempts(self._timeout_s, retry_on=(ConnectionLost, BrokerNotReady)):
            with attempt:
                answers = self._receipt_topic.close_roll_call(call, timeout_s=self._timeout_s)
        return answers

    def send_receipt(self, record: LogRecord) -> MessageId:
        """Send the receipt inside the transaction; an error poisons it."""
        return self._receipt_topic.send_receipt(record)

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Whether the mark is where the log says."""
        return self._witness.find_mark(record, timeout_s=timeout_s)

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
        return self._witness.ask(record, timeout_s=timeout_s)

    def ask_data(self, record: LogRecord, *, timeout_s: float) -> DataAnswer:
        """Whether all that the transaction wrote is readable, as its own."""
        return self._witness.ask_data(record, timeout_s=timeout_s)

    def diagnose(self, record: LogRecord) -> str:
        """What can be seen of a commit that stays in doubt. For a person; decides nothing."""
        seen = self._witness.ask(record, timeout_s=5.0)
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

    def suspect(self, record: LogRecord) -> None:
        """Look after the partitions that an aborted transaction may pin, from now on."""
        assert record.txn is not None
        self._pins.suspect(record.txn, [*self._touched, record.receipt_topic])

    def after_end(self, record: LogRecord, *, is_last: bool) -> None:
        """Acknowledge, now and then; look for partitions that dead transactions pin, and heal."""
        if record.state is State.ABORTED:
            self.suspect(record)
        self._pins.heal()
        # The receipt of one that is in doubt still has to be there when the witness is asked.
        if is_last and self._acknowledging is not None:
            self._acknowledging.later()

    def rest(self) -> None:
        """Acknowledge everything: a day's quiet must not look like a consumer that is stuck."""
        if self._acknowledging is not None:
            self._acknowledging.now()

    def close(self) -> None:
        """Free connections."""
        if self._acknowledging is not None:
            self._acknowledging.stop()
        self.client.close()

    @property
    def _receipt_topic(self) -> ReceiptTopic:
        if self._receipts is None:
            raise RuntimeError("attach() comes first")
        return self._receipts

    @property
    def _witness(self) -> Witness:
        return Witness(self.client, self._receipt_topic)
