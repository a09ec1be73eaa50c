"""Recounts one partition's committed entries, as the broker delivers them, against the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eos.cli.reports import Facts
from eos.client import Entry
from eos.ids import EntryPlace, MessageId, TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part
from eos.pulsar.recount import Recount, is_entry_of
from eos.recovery._sink_view import is_decided
from eos.task_report import PartitionFigures

# A readable message of such an attempt is a finding.
NEVER_READABLE: Final = frozenset({State.ABORTING, State.ABORTED, State.EMPTY, State.ABANDONED})


class Attempts:
    """The attempts of one sink, by transaction id, in generations: one for each cluster."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self._generation: dict[str, int] = {}
        self._newest: dict[str, LogRecord] = {}
        last: dict[int, int] = {}
        mark: EntryPlace = (-1, -1)
        generation = 0
        for record in records:
            part = pulsar_part(record)
            if part.txn is None or part.mark_id is None or part.mark_uuid is None:
                continue
            if part.mark_uuid not in self._generation:
                # One cluster's ids and marks only grow. Where one does not, another cluster begins,
                # which reuses the ids.
                is_later = part.txn.least > last.get(part.txn.most, -1)
                if not is_later or part.mark_id.place <= mark:
                    generation += 1
                    last = {}
                last[part.txn.most] = part.txn.least
                mark = part.mark_id.place
                self._generation[part.mark_uuid] = generation
            self._newest[part.mark_uuid] = record
        # If two clusters used the same id, the newest generation wins.
        self._by_txn = {pulsar_part(record).txn: record for record in self._newest.values()}

    @property
    def newest(self) -> list[LogRecord]:
        """The newest record of each attempt, in order."""
        return list(self._newest.values())

    def of(self, txn: TxnId | None) -> LogRecord | None:
        """The newest record of the attempt with this id. It may belong to another cluster."""
        return None if txn is None else self._by_txn.get(txn)

    def generation(self, record: LogRecord) -> int:
        """The generation of the attempt of ``record``."""
        return self._generation[str(pulsar_part(record).mark_uuid)]

    def is_newest_cluster(self, record: LogRecord) -> bool:
        """Whether the attempt was written with the same cluster as the log's newest one."""
        return self.generation(record) == max(self._generation.values())


class Finding(Facts):
    """An error in an output."""

    sink_id: str
    query_id: str | None
    epoch: str | None
    topic: str
    what: str
    message_id: str | None = None  # the first message that shows it


@dataclass
class Stray:
    """Messages of a transaction in the log that the log does not count: of a repeated task, or of
    an aborted attempt."""

    record: LogRecord
    topic: str
    first: MessageId
    records: int = 0
    is_certain: bool = False  # position and producer agree too: the id is not another cluster's

    def finding(self) -> Finding:
        """The finding about these messages."""
        record, count = self.record, f"{self.records:,} messages"
        if record.state is State.COMMITTED:
            what = (
                f"{count} of its transaction {pulsar_part(record).txn} were not counted by any task"
            )
        else:
            what = f"{count} of attempt {record.attempt}, which is aborted, are readable"
        if is_decided(record):
            what += f"; {record.state.value} was decided by a person ({record.reason})"
        return finding_of(record, self.topic, what, self.first)


class PartitionAudit:
    """Compares the entries of one exact topic with the figures of its epochs.

    Args:
        committed: COMMITTED records with figures of this topic, to be compared.
        others: other records with figures of this topic; their entries are skipped.
        attempts: every attempt of the sink.
    """

    def __init__(
        self,
        topic: str,
        committed: Sequence[LogRecord],
        others: Iterable[LogRecord],
        attempts: Attempts,
    ) -> None:
        self.topic = topic
        self._committed = [(record, figures_of(record, topic)) for record in committed]
        self._others = [(record, figures_of(record, topic)) for record in others]
        self._attempts = attempts
        self._known: dict[str, list[tuple[LogRecord, PartitionFigures]]] = {}
        for known in (*self._committed, *self._others):
            # The broker assigns producers' names, each only once: they find an entry's attempt.
            for producer in known[1].producers:
                self._known.setdefault(producer, []).append(known)
        self._counted = {_name(record): Recount() for record in committed}
        self._strays: dict[str, Stray] = {}
        self.findings: list[Finding] = []
        self.seen: set[int] = set()  # generations of the entries that the log counts
        self.others = 0  # messages between the epochs that are in none of the log's transactions

    @property
    def start(self) -> MessageId | None:
        """Where to start reading; None for the beginning of the topic."""
        # After the previous epoch: this also shows entries before the first counted message.
        first = min((part.first_id for _, part in self._committed), default=None)
        before = max(
            (p.last_id for r, p in self._others if r.state is State.COMMITTED), default=None
        )
        if first is None or before is None:
            # Without a previous epoch, start at the same ledger instead of the whole topic.
            return before if first is None else MessageId(first.ledger, 0)
        return min(first, before)

    @property
    def end(self) -> EntryPlace:
        """The last entry to be read; (-1, -1) if there is none."""
        return max((part.last_id.place for _, part in self._committed), default=(-1, -1))

    @property
    def records(self) -> int:
        """Number of messages of the epochs that were read."""
        return sum(counted.records for counted in self._counted.values())

    @property
    def bytes(self) -> int:
        """Number of bytes of the epochs that were read."""
        return sum(counted.bytes for counted in self._counted.values())

    @property
    def strays(self) -> list[Stray]:
        """The strays found so far."""
        return list(self._strays.values())

    def take(self, entry: Entry) -> None:
        """Count one entry.

        Raises:
            ProtocolError: the entry belongs to an epoch and is malformed.
        """
        for record, part in self._known.get(entry.metadata.producer_name, ()):
            # All three must agree: transaction, producer and position.
            if not is_entry_of(entry, pulsar_part(record), part):
                continue
            if record.state in NEVER_READABLE:
                self._count_stray(record, entry).is_certain = True
                return
            self.seen.add(self._attempts.generation(record))
            if _name(record) in self._counted:
                self._counted[_name(record)].add(entry)
            return
        # A second run of a task has another producer, so only the transaction names its attempt.
        owner = self._attempts.of(entry.txn)
        if owner is not None and (owner.state is State.COMMITTED or owner.state in NEVER_READABLE):
            self._count_stray(owner, entry)
        elif owner is None and self._is_between(entry):
            self.others += entry.num_messages

    def _count_stray(self, record: LogRecord, entry: Entry) -> Stray:
        stray = self._strays.setdefault(_name(record), Stray(record, self.topic, entry.id))
        stray.records += entry.num_messages
        return stray

    def _is_between(self, entry: Entry) -> bool:
        first = min((p.first_id.place for _, p in self._committed), default=None)
        return first is not None and first <= entry.id.place <= self.end

    def close(self, first_ledger: int | None) -> list[LogRecord]:
        """Compare, and return the records that can't be compared: trimmed, completely or partly.

        Args:
            first_ledger: the oldest ledger of the topic; None if unknown.
        """
        trimmed: list[LogRecord] = []
        for record, part in self._committed:
            counted = self._counted[_name(record)]
            if counted.matches(part):
                continue
            # Without the oldest ledger, a loss of all messages can't be told from retention.
            gone = (
                counted.records == 0
                if first_ledger is None
                else (part.first_id.ledger < first_ledger)
            )
            if gone:
                trimmed.append(record)
                continue
            what = counted.difference(part)
            if is_decided(record):
                what += f"; {record.state.value} was decided by a person ({record.reason})"
            first = counted.first or part.first_id
            self.findings.append(finding_of(record, self.topic, what, first))
        return trimmed

    @property
    def parts(self) -> int:
        """Number of committed epochs with messages in this topic."""
        return len(self._committed)

    def all_gone(self) -> list[Finding]:
        """The findings if the topic no longer exists."""
        return [
            finding_of(
                record,
                self.topic,
                f"the topic no longer exists; {part.records:,} messages are lost",
                None,
            )
            for record, part in self._committed
        ]


def finding_of(record: LogRecord, topic: str, what: str, at: MessageId | None) -> Finding:
    """Make a finding about an attempt."""
    return Finding(
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        topic=topic,
        what=what,
        message_id=str(at) if at else None,
    )


def figures_of(record: LogRecord, topic: str) -> PartitionFigures:
    """The figures of one exact topic in ``record``."""
    return next(part for part in pulsar_part(record).partitions if part.topic == topic)


def by_topic(records: Iterable[LogRecord]) -> Mapping[str, list[LogRecord]]:
    """Group the records by exact topic."""
    found: dict[str, list[LogRecord]] = {}
    for record in records:
        for part in pulsar_part(record).partitions:
            found.setdefault(part.topic, []).append(record)
    return found


def _name(record: LogRecord) -> str:
    return str(pulsar_part(record).mark_uuid)
