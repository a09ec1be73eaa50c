"""The audit of one sink: every partition and the receipts, read as any consumer reads them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eos.client import PulsarClient
from eos.committer.reading import Reading, read_until
from eos.errors import EosError, TopicNotFound
from eos.ids import MessageId, TopicName
from eos.transaction import LogRecord, State
from eos.wire.commands import MessageIdData
from recovery.audit import Finding, PartitionAudit, by_topic
from recovery.report import Facts
from recovery.sink_view import Unfinished, view
from recovery.target import Target

_EARLIEST = MessageId(-1, -1)


class AuditedSink(Facts):
    """What was checked of one sink."""

    sink_id: str
    epochs: int = 0
    records: int = 0
    bytes: int = 0
    partitions: int = 0
    receipts: int = 0
    trimmed: int = 0
    """Parts of epochs whose messages retention has taken away since: not checked."""
    others: int = 0
    """Messages of other producers in between."""
    unfinished: tuple[Unfinished, ...] = ()


class SinkAudit:
    """Reads a sink's topics and compares them with its log.

    ``findings`` is what must not be, ``unknown`` what could not be checked, ``facts`` the rest;
    all three grow while ``run`` is iterated over.

    Args:
        last: only so many of the newest epochs; all when None.
        silence_s: how long a partition may yield nothing before it is given up.
    """

    def __init__(self, target: Target, sink_id: str, last: int | None, silence_s: float) -> None:
        self.findings: list[Finding] = []
        self.unknown: list[str] = []
        self.facts = AuditedSink(sink_id=sink_id)
        self._target = target
        self._last = last
        self._silence_s = silence_s

    def run(self) -> Iterator[str]:
        """Check everything; yields what it is at."""
        sink_id = self.facts.sink_id
        try:
            log = self._target.log(sink_id)
            records = log.records()
        except EosError as error:
            self.unknown.append(f"the log of sink {sink_id}: {error}")
            return
        self._count(unfinished=tuple(view(log.history, records).unfinished))
        if not records:
            return
        target, url = self._target, records[-1].service_url
        reading = Reading(target.service_url_of(url), target.security, timeout_s=target.timeout_s)
        try:
            with target.client(url) as client:
                client.coordinators.count()  # one complaint, not one for each partition
                yield from self._check_topics(client, reading, records)
                yield f"{sink_id}: receipts"
                with self._unknown_on_error(records[-1].receipt_topic):
                    self._check_receipts(client, reading, records)
        except EosError as error:
            self.unknown.append(f"the topics of sink {sink_id}: {error}")
        finally:
            reading.close()

    def _check_topics(
        self, client: PulsarClient, reading: Reading, records: list[LogRecord]
    ) -> Iterator[str]:
        committed = [record for record in records if record.state is State.COMMITTED]
        committed = committed[-(self._last or 0) :]
        dead = by_topic(r for r in records if r.state is State.ABORTED)
        self._count(epochs=len(committed))
        for topic, mine in sorted(by_topic(committed).items()):
            yield f"{self.facts.sink_id}: {topic}"
            with self._unknown_on_error(topic):
                audit = PartitionAudit(topic, mine, dead.get(topic, []))
                # A reader would create a topic that was deleted.
                if exists(client, TopicName.parse(topic)):
                    self._check_topic(reading, audit)
                else:
                    self.findings += audit.all_gone()

    def _check_topic(self, reading: Reading, audit: PartitionAudit) -> None:
        with reading.reader(audit.topic, audit.start) as reader:
            is_whole = self._read_to_end(reader, audit)
        oldest = self._oldest_ledger(audit.topic)
        if not is_whole and not (oldest is not None and audit.end.ledger < oldest):
            self.unknown.append(
                f"{audit.topic}: readers do not get to {audit.end}, nothing came for "
                f"{self._silence_s:g} s; `orphans` tells whether it is pinned."
            )
            return
        trimmed = audit.close(oldest)
        if trimmed and oldest is None:
            self.unknown.append(
                f"{audit.topic}: nothing is there any more of {len(trimmed)} epochs, trimmed or "
                "lost; --admin-url can tell."
            )
        self.findings += audit.findings
        facts = self.facts
        self._count(
            records=facts.records + audit.records,
            bytes=facts.bytes + audit.bytes,
            partitions=facts.partitions + 1,
            trimmed=facts.trimmed + len(trimmed),
            others=facts.others + audit.others,
        )

    def _read_to_end(self, reader: Any, audit: PartitionAudit) -> bool:
        """Whether the last message that the log names was reached, or one behind it."""
        end = (audit.end.ledger, audit.end.entry)
        for message in self._messages(reader):
            at = id_of(message)
            if (at.ledger, at.entry) > end:
                return True
            audit.take(message, at)
            if (at.ledger, at.entry) == end and _is_last_of_entry(message):
                return True
        return False

    def _messages(self, reader: Any) -> Iterator[Any]:
        # Each message buys the next one a whole silence.
        while message := next(read_until(reader, time.monotonic() + self._silence_s), None):
            yield message

    def _oldest_ledger(self, topic: str) -> int | None:
        """The oldest ledger that the topic still has; None: nobody can be asked."""
        admin = self._target.maybe_admin()
        return admin.read_position(TopicName.parse(topic)).first_ledger if admin else None

    def _check_receipts(
        self, client: PulsarClient, reading: Reading, records: list[LogRecord]
    ) -> None:
        newest = {record.mark_uuid: record for record in records if record.mark_uuid}
        committed = [r.receipt_id for r in records if r.state is State.COMMITTED and r.receipt_id]
        if not committed:
            return
        topic, end = records[-1].receipt_topic, max(committed)
        if not exists(client, TopicName.parse(topic)):
            self.unknown.append(f"{topic}: the receipt topic does not exist any more.")
            return
        oldest = self._oldest_ledger(topic)
        if oldest is not None and end.ledger < oldest:
            return  # all acknowledged, and trimmed since
        count = 0
        with reading.reader(topic, _EARLIEST) as reader:
            for message in self._messages(reader):
                properties = message.properties()
                if properties.get("eos") == "receipt":
                    count += 1
                    self._check_receipt(newest.get(properties.get("uuid")), message, topic)
                at = id_of(message)
                if (at.ledger, at.entry) >= (end.ledger, end.entry):
                    break
            else:
                self.unknown.append(f"{topic}: its readers do not get to {end}.")
        self._count(receipts=count)

    def _check_receipt(self, record: LogRecord | None, message: Any, topic: str) -> None:
        if record is None or record.state is State.PREPARED:
            return  # older than what the log keeps, or in doubt, which is said elsewhere
        if record.state is not State.COMMITTED:
            what = f"a receipt is readable, but the log says {record.state.value}"
        elif _body(message) != (record.records, record.checksum):
            what = "the receipt has other figures than the log"
        else:
            return
        self.findings.append(
            Finding(
                sink_id=record.sink_id,
                query_id=record.query_id,
                epoch=record.epoch,
                topic=topic,
                what=what,
                message_id=str(id_of(message)),
            )
        )

    def _count(self, **figures: Any) -> None:
        self.facts = self.facts.model_copy(update=figures)

    @contextmanager
    def _unknown_on_error(self, topic: str) -> Iterator[None]:
        try:
            yield
        except EosError as error:
            self.unknown.append(f"{topic}: {error}")


def exists(client: PulsarClient, topic: TopicName) -> bool:
    """Whether an exact topic is there. Creates nothing.

    Raises:
        EosError: no answer.
    """
    try:
        count = client.partition_count(str(topic.base))
    except TopicNotFound:
        return False
    return topic.partition_index is None or topic.partition_index < count


def id_of(message: Any) -> MessageId:
    """The id of a message of ``pulsar-client``."""
    found = message.message_id()
    return MessageId(found.ledger_id(), found.entry_id(), found.partition(), found.batch_index())


def _is_last_of_entry(message: Any) -> bool:
    # The size of its batch is in the id's wire form only.
    data = MessageIdData.decode(message.message_id().serialize())
    return data.batch_index + 1 >= data.batch_size


def _body(message: Any) -> tuple[Any, Any] | None:
    try:
        body = json.loads(message.data())
        return body["records"], body["checksum"]
    except (ValueError, KeyError, TypeError):
        return None
