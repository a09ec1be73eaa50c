"""A sink's receipt topic: marks, receipts and sentinels, and what can be proved from them.

The mark is sent before the transaction, the receipt inside it, the sentinel when somebody asks.
Reading is in order and stops at the first open transaction: whoever has read mark and sentinel has
seen every committed receipt between them. One topic for each sink: another sink's open
transaction would hide the sentinel (measured).
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import Any, Final

import pulsar

from eos.client import Producer, PulsarClient
from eos.committer.reading import Reading, ReceivedMessage, read_until
from eos.coordinator import MarkAnswer, WitnessAnswer
from eos.errors import ConfigurationError, ConnectionLost, EosError, TopicNotFound
from eos.ids import MessageId, TopicName
from eos.transaction import LogRecord

logger = logging.getLogger(__name__)

SUBSCRIPTION: Final = "eos-receipts"
_PRIMING_TTL_MS: Final = 60_000


def receipt_topic_name(namespace: str, sink_id: str, log_table_id: str) -> TopicName:
    """``__eos-receipts-<sink>-<log table id>`` in ``tenant/namespace``.

    Raises:
        ConfigurationError: ``namespace`` is not ``tenant/namespace``.
    """
    if namespace.count("/") != 1:
        raise ConfigurationError(
            f"receipt_namespace {namespace!r}: expected tenant/namespace, public/default for one."
        )
    return TopicName.parse(f"persistent://{namespace}/__eos-receipts-{sink_id}-{log_table_id}")


class ReceiptTopic:
    """The receipt topic ``topic`` as the driver and recovery use it."""

    def __init__(self, client: PulsarClient, reading: Reading, topic: TopicName) -> None:
        self._client = client
        self._reading = reading
        self._topic = topic
        self._plain: Producer | None = None

    def exists(self) -> bool:
        """Whether the broker has the topic. Creates nothing.

        Raises:
            EosError: no answer.
        """
        try:
            partitions = self._client.partition_count(str(self._topic))
        except TopicNotFound:
            return False
        if partitions:
            raise ConfigurationError(
                f"{self._topic} is partitioned; a receipt topic must not be.",
                hint="The namespace creates partitioned topics by itself: set "
                "allowAutoTopicCreationType=non-partitioned for it, delete this topic and retry.",
            )
        return True

    def subscribe(self) -> None:
        """Make the durable subscription from the earliest message, and the topic if need be.

        A topic without a subscription is trimmed, and deleted when idle (measured).

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        with self._reading.subscription(str(self._topic), SUBSCRIPTION):
            pass
        self.exists()  # refuses a partitioned one

    def prime(self) -> None:
        """Commit one small transaction, so that the topic's transaction buffer is ready before
        an epoch depends on it.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        with self._client.join(self._client.coordinators.begin(_PRIMING_TTL_MS)) as txn:
            producer = self._client.producer(str(self._topic))
            producer.send(b"", txn=txn, properties={"eos": "prime"})
            producer.close()

    def send_mark(self) -> tuple[MessageId, str]:
        """Send a mark; its id and uuid.

        Raises:
            EosError: the broker did not store it, or it is not known whether it did.
        """
        mark_uuid = str(uuid.uuid4())
        return self._send_plain("mark", mark_uuid), mark_uuid

    def send_receipt(self, record: LogRecord) -> MessageId:
        """Send the receipt of ``record``'s attempt inside its transaction, and close the producer.

        Nothing of it is done ahead: a transaction that has expired, or a permission that is gone,
        is found out here, before PREPARED.

        Raises:
            EosError: the broker did not store it, or it is not known whether it did: poison.
        """
        assert record.txn is not None
        txn = self._client.join(record.txn)
        (producer,) = self._client.producers([str(self._topic)], txn=txn)
        body = {
            "sink_id": record.sink_id,
            "query_id": record.query_id,
            "epoch": record.epoch,
            "attempt": record.attempt,
            "records": record.records,
            "checksum": record.checksum,
        }
        receipt = producer.send(
            json.dumps(body).encode(),
            txn=txn,
            properties={"eos": "receipt", "uuid": str(record.mark_uuid), "txn": str(record.txn)},
        )
        producer.close()
        txn.check()
        return receipt.result(timeout=0)

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Read the mark of ``record`` where the log says it is, and compare its uuid."""
        deadline = time.monotonic() + timeout_s
        try:
            if not self.exists():
                return MarkAnswer.ABSENT
            # Something to read in any case: a topic that was made anew is empty.
            self._send_plain("sentinel", str(uuid.uuid4()))
            with self._reading.reader(str(self._topic), _mark_id(record)) as reader:
                return _first_is_mark(reader, record, deadline)
        except EosError as error:
            logger.info("the mark of transaction %s can't be read yet: %s", record.txn, error)
            return MarkAnswer.UNKNOWN

    def ask(self, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
        """Whether the transaction of ``record``, over by now, was committed.

        Only the receipt itself proves a commit. Only mark, then a sentinel sent after the
        transaction was over, and no receipt between them, prove that there was none.
        """
        deadline = time.monotonic() + timeout_s
        try:
            if not self.exists():
                return WitnessAnswer.HISTORY_GONE
            with self._reading.reader(str(self._topic), _mark_id(record)) as reader:
                sentinel = str(uuid.uuid4())
                self._send_plain("sentinel", sentinel)
                match _first_is_mark(reader, record, deadline):
                    case MarkAnswer.ABSENT:
                        return WitnessAnswer.HISTORY_GONE
                    case MarkAnswer.FOUND:
                        return _receipt_before(sentinel, reader, record, deadline)
        except EosError as error:
            logger.info("the witness of transaction %s is silent: %s", record.txn, error)
        return WitnessAnswer.UNKNOWN

    def commits_after(self, record: LogRecord, *, timeout_s: float) -> str | None:
        """The first receipt behind the mark of ``record`` that is another transaction's, in words.

        None: there is none, or the mark is gone, and with it the proof.

        Raises:
            ConnectionLost: no sentinel was read in time.
        """
        deadline = time.monotonic() + timeout_s
        if not self.exists():
            return None
        with self._reading.reader(str(self._topic), _mark_id(record)) as reader:
            sentinel = str(uuid.uuid4())
            self._send_plain("sentinel", sentinel)
            if _first_is_mark(reader, record, deadline) is MarkAnswer.ABSENT:
                return None
            for message in read_until(reader, deadline):
                if _is(message, "sentinel", sentinel):
                    return None
                properties = message.properties()
                if properties.get("eos") == "receipt" and properties["uuid"] != record.mark_uuid:
                    return f"{message.data().decode(errors='replace')}"
        raise ConnectionLost(f"Nobody can read {self._topic} to its end.")

    def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge everything up to ``message_id``, attached only for this moment.

        Raises:
            EosError: it did not work; nothing depends on it.
        """
        with self._reading.subscription(str(self._topic), SUBSCRIPTION) as consumer:
            try:
                consumer.acknowledge_cumulative(
                    pulsar.MessageId(-1, message_id.ledger, message_id.entry, -1)
                )
            except Exception as error:
                raise ConnectionLost(f"Acknowledging on {self._topic}: {error}.") from None

    def _send_plain(self, kind: str, message_uuid: str) -> MessageId:
        if self._plain is None or not self._plain.is_usable:
            self._plain = self._client.producer(str(self._topic))
        sent = self._plain.send(b"", properties={"eos": kind, "uuid": message_uuid})
        self._plain.flush()
        return sent.result()  # the receipt is here: its thread may need a moment to say so


def _mark_id(record: LogRecord) -> MessageId:
    assert record.mark_id is not None
    return record.mark_id


def _first_is_mark(reader: Any, record: LogRecord, deadline: float) -> MarkAnswer:
    for message in read_until(reader, deadline):
        found = _is(message, "mark", record.mark_uuid)
        return MarkAnswer.FOUND if found else MarkAnswer.ABSENT
    return MarkAnswer.UNKNOWN


def _receipt_before(
    sentinel: str, reader: Any, record: LogRecord, deadline: float
) -> WitnessAnswer:
    for message in read_until(reader, deadline):
        if _is(message, "receipt", record.mark_uuid):
            return WitnessAnswer.READABLE
        if _is(message, "sentinel", sentinel):
            return WitnessAnswer.PROVED_ABSENT
    return WitnessAnswer.UNKNOWN


def _is(message: ReceivedMessage, kind: str, message_uuid: str | None) -> bool:
    properties = message.properties()
    return properties.get("eos") == kind and properties.get("uuid") == message_uuid
