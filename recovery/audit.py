"""Counting again what the log says was committed, entry by entry, as any reader sees it.

A partition's checksum is a sum over its entries, so an entry is the smallest thing that can be
told apart: messages of one ``ledger:entry`` belong together. Messages are attributed to an
attempt by their producer's name, which the broker gave and gives to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eos.ids import MessageId
from eos.summary import PartitionFigures
from eos.transaction import LogRecord
from eos.wire.checksum import CHECKSUM_MODULUS, crc32c
from recovery.report import Facts


class Finding(Facts):
    """Something that must not be. ``message_id``: the first message that shows it, or None."""

    sink_id: str
    query_id: str | None
    epoch: str | None
    topic: str
    what: str
    message_id: str | None = None


@dataclass
class Counted:
    """What was read of one attempt in one partition."""

    records: int = 0
    bytes: int = 0
    checksum: int = 0
    first: MessageId | None = None


@dataclass
class _Entry:
    """The entry that is being read: values are taken in at once, keys when it is over."""

    at: MessageId
    producer: str
    crc: int = 0
    keys: list[bytes] = field(default_factory=list)
    records: int = 0
    bytes: int = 0


class PartitionAudit:
    """The messages of one exact topic, against the figures of the epochs in it.

    Args:
        committed: records that say COMMITTED, each with figures of this topic.
        never: records of attempts that must not be readable.
    """

    def __init__(
        self, topic: str, committed: Iterable[LogRecord], never: Iterable[LogRecord]
    ) -> None:
        self.topic = topic
        self._figures: dict[str, tuple[LogRecord, PartitionFigures]] = {}
        self._never: dict[str, LogRecord] = {}
        self._counted: dict[str, Counted] = {}
        self._entry: _Entry | None = None
        self.findings: list[Finding] = []
        self.others = 0
        """Messages of producers that no record names: somebody else's, or plain writes."""
        self.records = 0
        self.bytes = 0
        """What was read of the epochs."""
        for record in committed:
            part = figures_of(record, topic)
            for producer in part.producers:
                self._figures[producer] = (record, part)
            self._counted[_name(record)] = Counted()
        for record in never:
            for producer in figures_of(record, topic).producers:
                self._never[producer] = record

    @property
    def start(self) -> MessageId:
        """Where to begin to read."""
        return min(part.first_id for _, part in self._figures.values())

    @property
    def end(self) -> MessageId:
        """The last message that has to be read."""
        return max(part.last_id for _, part in self._figures.values())

    def take(self, message: Any, at: MessageId) -> None:
        """Count one message (of ``pulsar-client``), which sits at ``at``."""
        place = MessageId(at.ledger, at.entry)
        if self._entry is None or self._entry.at != place:
            self._close_entry()
            self._entry = _Entry(place, message.producer_name())
            self._check_place(self._entry, at)
        entry = self._entry
        value: bytes = message.data()
        key: str = message.partition_key() or ""
        entry.crc = crc32c(value, entry.crc)
        if key:
            entry.keys.append(key.encode())
        entry.records += 1
        entry.bytes += len(value) + len(key.encode())

    def _check_place(self, entry: _Entry, at: MessageId) -> None:
        wrong = self._never.get(entry.producer)
        if wrong is not None:
            self._find(wrong, f"a message of attempt {wrong.attempt}, which is aborted", at)
        known = self._figures.get(entry.producer)
        if known is None:
            return
        record, part = known
        if not _entry_of(part.first_id) <= entry.at <= _entry_of(part.last_id):
            self._find(record, "a message outside of what the epoch sent", at)

    def _close_entry(self) -> None:
        entry, self._entry = self._entry, None
        if entry is None:
            return
        known = self._figures.get(entry.producer)
        if known is None:
            if entry.producer not in self._never:
                self.others += entry.records
            return
        counted = self._counted[_name(known[0])]
        self.records += entry.records
        self.bytes += entry.bytes
        counted.records += entry.records
        counted.bytes += entry.bytes
        counted.checksum += crc32c(b"".join(entry.keys), entry.crc)
        counted.first = counted.first or entry.at

    def close(self, first_ledger: int | None) -> list[LogRecord]:
        """Compare. Returns the records that can't be compared: trimmed away, wholly or partly.

        Args:
            first_ledger: the oldest ledger that the topic still has; None when nobody could be
                asked, then an epoch of which nothing is there counts as trimmed too.
        """
        self._close_entry()
        trimmed: list[LogRecord] = []
        for record in self._records():
            part, counted = figures_of(record, self.topic), self._counted[_name(record)]
            gone = (
                counted.records == 0
                if first_ledger is None
                else (part.first_id.ledger < first_ledger)
            )
            if _is_equal(counted, part):
                continue
            if gone:
                trimmed.append(record)
                continue
            self._find(record, _difference(counted, part), counted.first or part.first_id)
        return trimmed

    def all_gone(self) -> list[Finding]:
        """The findings when the topic does not exist any more."""
        for record in self._records():
            gone = figures_of(record, self.topic)
            self._find(record, f"the topic is gone, and {gone.records:,} messages with it", None)
        return self.findings

    def _records(self) -> list[LogRecord]:
        return list({_name(record): record for record, _ in self._figures.values()}.values())

    def _find(self, record: LogRecord, what: str, at: MessageId | None) -> None:
        self.findings.append(
            Finding(
                sink_id=record.sink_id,
                query_id=record.query_id,
                epoch=record.epoch,
                topic=self.topic,
                what=what,
                message_id=str(at) if at else None,
            )
        )


def figures_of(record: LogRecord, topic: str) -> PartitionFigures:
    """What ``record`` says about one exact topic."""
    return next(part for part in record.partitions if part.topic == topic)


def by_topic(records: Iterable[LogRecord]) -> Mapping[str, list[LogRecord]]:
    """The records that name each exact topic."""
    found: dict[str, list[LogRecord]] = {}
    for record in records:
        for part in record.partitions:
            found.setdefault(part.topic, []).append(record)
    return found


def _name(record: LogRecord) -> str:
    return f"{record.txn}/{record.mark_uuid}"


def _entry_of(message_id: MessageId) -> MessageId:
    return MessageId(message_id.ledger, message_id.entry)


def _is_equal(counted: Counted, part: PartitionFigures) -> bool:
    return (counted.records, counted.bytes, counted.checksum % CHECKSUM_MODULUS) == (
        part.records,
        part.bytes,
        part.checksum,
    )


def _difference(counted: Counted, part: PartitionFigures) -> str:
    if counted.records != part.records:
        return f"{counted.records:,} of its {part.records:,} messages are readable"
    if counted.bytes != part.bytes:
        return f"its {part.records:,} messages hold {counted.bytes:,} bytes, not {part.bytes:,}"
    return f"its {part.records:,} messages have another checksum than those that were sent"
