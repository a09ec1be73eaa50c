"""Counting again what the log says was committed, entry by entry, as the broker delivers them.

An entry belongs to an attempt by three things: the transaction that it carries, its producer's
name, which the broker gave and gives to nobody else, and its place. One that carries a transaction
of the log and is not counted there is a stray: rows of a second run, or of an aborted attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eos.cli.reports import Facts
from eos.client import Entry
from eos.ids import EntryPlace, MessageId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part
from eos.pulsar.recount import Recount, is_entry_of
from eos.recovery._sink_view import is_decided
from eos.recovery.audit._attempts import NEVER_READABLE, Attempts
from eos.task_report import PartitionFigures


class Finding(Facts):
    """Something that must not be. ``message_id``: the first message that shows it, or None."""

    sink_id: str
    query_id: str | None
    epoch: str | None
    topic: str
    what: str
    message_id: str | None = None


@dataclass
class Stray:
    """Messages of one of the log's transactions that the log does not count, in one partition."""

    record: LogRecord
    topic: str
    first: MessageId
    records: int = 0
    is_certain: bool = False
    """Its place and producer are in the log, too: its number is no other cluster's."""

    def finding(self) -> Finding:
        """The same, in words."""
        record, count = self.record, f"{self.records:,} messages"
        if record.state is State.COMMITTED:
            what = f"{count} of its transaction {pulsar_part(record).txn} that no task has counted"
        else:
            what = f"{count} of attempt {record.attempt}, which is aborted, are readable"
        if is_decided(record):
            what += f"; {record.state.value} was decided by a person ({record.reason})"
        return finding_of(record, self.topic, what, self.first)


class PartitionAudit:
    """The entries of one exact topic, against the figures of the epochs in it.

    Args:
        committed: records that say COMMITTED, each with figures of this topic, to be compared.
        others: more records with figures of this topic; what they count is passed over.
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
            for producer in known[1].producers:
                self._known.setdefault(producer, []).append(known)
        self._counted = {_name(record): Recount() for record in committed}
        self._strays: dict[str, Stray] = {}
        self.findings: list[Finding] = []
        self.seen: set[int] = set()
        """The generations of which something was read that the log counts."""
        self.others = 0
        """Messages in between that are of no transaction of the log."""

    @property
    def start(self) -> MessageId | None:
        """Where to begin to read: behind the epoch before, so that what came before the first
        message that was counted is seen. None: at the beginning."""
        first = min((part.first_id for _, part in self._committed), default=None)
        before = max(
            (p.last_id for r, p in self._others if r.state is State.COMMITTED), default=None
        )
        if first is None or before is None:
            # Without an epoch before: not all that anybody ever wrote, the same ledger is enough.
            return before if first is None else MessageId(first.ledger, 0)
        return min(first, before)

    @property
    def end(self) -> EntryPlace:
        """The last entry that has to be read; (-1, -1) when there is none."""
        return max((part.last_id.place for _, part in self._committed), default=(-1, -1))

    @property
    def records(self) -> int:
        """How many messages of the epochs were read."""
        return sum(counted.records for counted in self._counted.values())

    @property
    def bytes(self) -> int:
        """How many bytes of the epochs were read."""
        return sum(counted.bytes for counted in self._counted.values())

    @property
    def strays(self) -> list[Stray]:
        """What was read of the log's transactions and is not counted there."""
        return list(self._strays.values())

    def take(self, entry: Entry) -> None:
        """Count one entry.

        Raises:
            ProtocolError: it is one of an epoch, and malformed.
        """
        for record, part in self._known.get(entry.metadata.producer_name, ()):
            if not is_entry_of(entry, pulsar_part(record), part):
                continue
            if record.state in NEVER_READABLE:
                self._stray(record, entry).is_certain = True
                return
            self.seen.add(self._attempts.generation(record))
            if _name(record) in self._counted:
                self._counted[_name(record)].add(entry)
            return
        owner = self._attempts.of(entry.txn)
        if owner is not None and (owner.state is State.COMMITTED or owner.state in NEVER_READABLE):
            self._stray(owner, entry)
        elif owner is None and self._is_between(entry):
            self.others += entry.num_messages

    def _stray(self, record: LogRecord, entry: Entry) -> Stray:
        stray = self._strays.setdefault(_name(record), Stray(record, self.topic, entry.id))
        stray.records += entry.num_messages
        return stray

    def _is_between(self, entry: Entry) -> bool:
        first = min((p.first_id.place for _, p in self._committed), default=None)
        return first is not None and first <= entry.id.place <= self.end

    def close(self, first_ledger: int | None) -> list[LogRecord]:
        """Compare. Returns the records that can't be compared: trimmed away, wholly or partly.

        Args:
            first_ledger: the oldest ledger that the topic still has; None when nobody could be
                asked, then an epoch of which nothing is there counts as trimmed too.
        """
        trimmed: list[LogRecord] = []
        for record, part in self._committed:
            counted = self._counted[_name(record)]
            if counted.matches(part):
                continue
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
        """How many committed epochs have messages in this topic."""
        return len(self._committed)

    def all_gone(self) -> list[Finding]:
        """The findings when the topic does not exist any more."""
        return [
            finding_of(
                record,
                self.topic,
                f"the topic is gone, and {part.records:,} messages with it",
                None,
            )
            for record, part in self._committed
        ]


def finding_of(record: LogRecord, topic: str, what: str, at: MessageId | None) -> Finding:
    """A finding about an attempt."""
    return Finding(
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        topic=topic,
        what=what,
        message_id=str(at) if at else None,
    )


def figures_of(record: LogRecord, topic: str) -> PartitionFigures:
    """What ``record`` says about one exact topic."""
    return next(part for part in pulsar_part(record).partitions if part.topic == topic)


def by_topic(records: Iterable[LogRecord]) -> Mapping[str, list[LogRecord]]:
    """The records that name each exact topic."""
    found: dict[str, list[LogRecord]] = {}
    for record in records:
        for part in pulsar_part(record).partitions:
            found.setdefault(part.topic, []).append(record)
    return found


def _name(record: LogRecord) -> str:
    return str(pulsar_part(record).mark_uuid)
