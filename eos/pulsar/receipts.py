"""A sink's receipt topic: its life cycle, the driver's messages in it, and their acknowledgement.

The mark is sent before the transaction, the receipt inside it, the sentinel before a query; answers
and closing of the roll call come in between (``roll_call``). ``witness`` derives proofs from them.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

from eos.client import Entry, EntryProducer, PulsarClient, Transaction
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import MessageId, TopicName
from eos.protocol import LogRecord
from eos.pulsar.part import PulsarPart
from eos.pulsar.roll_call import CALL, KIND, MARK, RollCall, properties_of
from eos.task_report import Answer

if TYPE_CHECKING:
    from eos.admin import AdminClient

logger = logging.getLogger(__name__)

SUBSCRIPTION: Final = "eos-receipts"
RECEIPT: Final = "receipt"
SENTINEL: Final = "sentinel"
EVERY_S: Final = 30.0
"""Acknowledging attaches a consumer for a moment, so it is done only this often."""
_PRIMING_TTL_MS: Final = 60_000
_TABLE_ID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def receipt_topic_name(namespace: str, sink_id: str, log_table_id: str) -> TopicName:
    """``__eos-receipts-<sink>-<log table id>`` in ``tenant/namespace``.

    Raises:
        ConfigurationError: ``namespace`` is not ``tenant/namespace``.
    """
    if namespace.count("/") != 1:
        raise ConfigurationError(
            f"receipt_namespace {namespace!r}: expected tenant/namespace, public/default for one."
        )
    # One topic per sink: another sink's open transaction would hide the sentinel (measured).
    return TopicName.parse(f"persistent://{namespace}/__eos-receipts-{sink_id}-{log_table_id}")


def receipt_topics_of(client: PulsarClient, namespace: str, sink_id: str) -> list[str]:
    """List the receipt topics of present and former logs of ``sink_id`` in ``tenant/namespace``.

    Raises:
        EosError: the broker refuses, or does not answer.
    """
    # Other topics of the namespace may have any name: names are compared, never parsed.
    full = rf"persistent://{re.escape(namespace)}/__eos-receipts-{re.escape(sink_id)}-{_TABLE_ID}"
    return sorted(name for name in client.topics(namespace) if re.fullmatch(full, name))


def is_receipt_subscription(subscription: str) -> bool:
    """Whether ``subscription`` of a receipt topic was made by eos, with any prefix."""
    return subscription == SUBSCRIPTION or subscription.endswith(f"-{SUBSCRIPTION}")


def receipt_mark_uuid(entry: Entry) -> str | None:
    """Return the uuid of the mark that a receipt names ("" if none); None: it is no receipt."""
    properties = properties_of(entry)
    # A plain message is never one, whatever its properties say.
    if entry.txn is None or properties.get(KIND) != RECEIPT:
        return None
    return properties.get(CALL, "")


class ReceiptTopic:
    """The receipt topic ``topic`` as a driver and recovery use it."""

    def __init__(self, client: PulsarClient, topic: TopicName) -> None:
        self.name = str(topic)
        self._client = client
        self._subscription = client.lookup.rules.subscription(SUBSCRIPTION)
        self._topic = topic
        self._plain_producer: EntryProducer | None = None
        self._txn: Transaction | None = None  # the one that was registered in last
        self._last_sent: MessageId | None = None

    @property
    def last_sent(self) -> MessageId | None:
        """Position of the newest message that this object has sent; None before the first."""
        return self._last_sent

    def exists(self) -> bool:
        """Whether the broker has the topic. Creates nothing.

        Raises:
            EosError: no answer.
        """
        try:
            partitions = self._client.partition_count(self.name)
        except TopicNotFound:
            return False
        if partitions:
            raise ConfigurationError(
                f"{self._topic} is partitioned; a receipt topic must not be.",
                hint="Delete it (pulsar-admin topics delete-partitioned-topic ...) and create it "
                f"unpartitioned: pulsar-admin topics create {self._topic}",
            )
        return True

    def create(self, admin: AdminClient | None = None) -> None:
        """Create the topic, unpartitioned, if it does not exist.

        Args:
            admin: creates the topic if the namespace does not let clients do so.

        Raises:
            ConfigurationError: the namespace does not let clients create topics.
            EosError: the broker refuses, or does not answer.
        """
        if self.exists():
            return
        try:
            # By PRODUCER alone: a request for the partitions would create a partitioned topic if
            # that is the namespace's default (allowAutoTopicCreationType, measured).
            self._client.create_unpartitioned(self.name)
        except TopicNotFound:
            if admin is not None:
                admin.create_topic(self._topic)
                return
            raise ConfigurationError(
                f"The receipt topic {self._topic} does not exist, and its namespace does not let "
                "clients create topics.",
                hint=f"Create it: pulsar-admin topics create {self._topic} (or set admin_url, with "
                "a role that may; or name another namespace with receipt_namespace).",
            ) from None

    def subscribe(self) -> None:
        """Create the durable subscription from the earliest message, if it does not exist.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        # A topic without a subscription is trimmed, and deleted when idle (measured).
        self._client.subscribe_durably(self.name, self._subscription)

    def has_subscription(self) -> bool:
        """Whether the topic has the durable subscription. Creates nothing.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        # Not entered: that would create it.
        return self._client.cursor(self.name, self._subscription).exists()

    @property
    def cluster(self) -> str:
        """The name of the cluster.

        Raises:
            EosError: the broker refuses a producer, or does not answer.
        """
        # Brokers name producers <cluster>-<broker>-<count> (measured).
        return self._producer().name.rsplit("-", 2)[0]

    def prime(self) -> None:
        """Commit one small transaction, so that the topic's transaction buffer is ready before
        an epoch depends on it.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        with self._client.join(self._client.coordinators.begin(_PRIMING_TTL_MS)) as txn:
            producer = self._client.entry_producer(self.name)
            producer.send(b"", txn=txn, properties={KIND: "prime"})
            producer.close()

    def send_mark(self) -> RollCall:
        """Send a mark, which opens an attempt's roll call.

        Raises:
            EosError: the broker did not store it, or it is not known whether it did.
        """
        mark_uuid = str(uuid.uuid4())
        return RollCall(self.name, self._send_plain(MARK, mark_uuid), mark_uuid)

    def send_sentinel(self) -> MessageId:
        """Send a sentinel: a reader that has reached it has read everything before.

        Raises:
            EosError: the broker did not store it, or it is not known whether it did.
        """
        return self._send_plain(SENTINEL, str(uuid.uuid4()))

    def close_roll_call(
        self, call: RollCall, *, timeout_s: float, reuse: bool
    ) -> tuple[Answer, ...]:
        """Close ``call`` and return the answers given before. ``reuse``: see ``RollCall.close``.

        Raises:
            EosError: it is not known which runs have answered, so the transaction is poisoned.
        """
        return call.close(self._client, self._producer(), timeout_s=timeout_s, reuse=reuse)

    def register(self, part: PulsarPart) -> None:
        """Add the topic to the transaction of ``part``, so that the receipt can be sent.

        Raises:
            TransactionExpired: the transaction has ended.
            EosError: the broker refuses, or does not answer.
        """
        assert part.txn is not None
        self._txn = self._client.join(part.txn)
        self._txn.register([self.name])

    def send_receipt(self, record: LogRecord, part: PulsarPart) -> MessageId:
        """Send the receipt of the attempt inside its transaction.

        Raises:
            EosError: the broker did not store it, or it is not known whether it did: poison.
        """
        assert part.txn is not None
        txn = self._client.join(part.txn)
        producer = self._producer()
        body = {
            "sink_id": record.sink_id,
            "query_id": record.query_id,
            "epoch": record.epoch,
            "attempt": record.attempt,
            "records": part.records or 0,
            "checksum": part.checksum or 0,
        }
        receipt = producer.send(
            json.dumps(body).encode(),
            txn=txn,
            properties={KIND: RECEIPT, CALL: str(part.mark_uuid), "txn": str(part.txn)},
        )
        # This producer object sends nothing more (I3); a successor takes over.
        self._plain_producer = producer.transfer()
        txn.check()
        self._last_sent = receipt.result()
        return self._last_sent

    def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge everything up to ``message_id``; the consumer is attached only meanwhile.

        Raises:
            EosError: it failed; nothing depends on it.
        """
        self._client.acknowledge(self.name, self._subscription, message_id)

    def _producer(self) -> EntryProducer:
        if self._plain_producer is None or not self._plain_producer.is_usable:
            try:
                self._plain_producer = self._client.entry_producer(self.name)
            except TopicNotFound as error:
                error.hint = error.deleted_hint
                raise
        return self._plain_producer

    def _send_plain(self, kind: str, message_uuid: str) -> MessageId:
        producer = self._producer()
        sent = producer.send(b"", properties={KIND: kind, CALL: message_uuid})
        producer.flush()
        # Flushed, so the receipt has arrived; its thread may need a moment to set the result.
        self._last_sent = sent.result()
        return self._last_sent


class ReceiptAcks:
    """Acknowledges its owner's messages in ``receipts``: now and then, and once at the end.

    Called only after the end of a transaction, when everything sent so far is decided. Safety does
    not need it, but the broker's disks do.
    """

    # One old message is enough for a namespace's time-based backlog quota to refuse producers
    # (measured). So an idle sink leaves nothing unacknowledged.

    def __init__(self, receipts: ReceiptTopic) -> None:
        self._receipts = receipts
        self._lock = threading.RLock()  # a request may free an object that calls ``close``
        self._decided: MessageId | None = None
        self._done: MessageId | None = None
        self._done_at = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False
        self._is_asking = False

    def schedule(self) -> None:
        """Acknowledge everything sent so far within ``EVERY_S``."""
        with self._lock:
            self._decided = self._receipts.last_sent
            wait_s = self._done_at + EVERY_S - time.monotonic()
            if wait_s > 0:
                if self._timer is None and not self._closed:
                    self._timer = threading.Timer(wait_s, self._acknowledge)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self._acknowledge()

    def flush(self) -> None:
        """Acknowledge everything sent so far."""
        with self._lock:
            self._decided = self._receipts.last_sent
        self._acknowledge()

    def close(self) -> None:
        """Run the pending acknowledgement, then do nothing more."""
        # A sink that is dropped after each call closes its client while its last epoch is finished.
        self._acknowledge()
        with self._lock:
            self._closed = True

    def _acknowledge(self) -> None:
        with self._lock:
            if self._is_asking:  # in this very thread
                return
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            decided = self._decided
            if self._closed or decided is None or decided == self._done:
                return
            self._done_at = time.monotonic()
            self._is_asking = True
            try:
                self._receipts.acknowledge(decided)
                self._done = decided
            except (EosError, RuntimeError) as error:  # RuntimeError: the interpreter is ending
                logger.warning(
                    "The receipt topic could not be acknowledged and keeps growing: %s", error
                )
            finally:
                self._is_asking = False
