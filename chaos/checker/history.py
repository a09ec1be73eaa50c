"""The history of a run: its input, the log's decisions, and what readers saw. Data only.

All times, including the commit log's, are ``time.time()`` seconds of one machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from eos.commit_log import KEEP_EPOCHS
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part

OperationResult = Literal["ok", "fail", "unknown"]
"""``unknown``: the end was not observed. It may have happened, and must not count as failed."""


class Record(NamedTuple):
    """One input record.

    ``id`` is unique; ``place`` is its index in the order of all records. ``topic`` is its expected
    topic, with the partition if known, or None for any. ``key`` is "" for none. ``input`` is the
    input it came with; within an epoch, Spark mixes the records of different inputs.
    """

    id: str
    epoch: str
    place: int
    key: str = ""
    topic: str | None = None
    schema_version: str = ""
    input: int = 0


class Position(NamedTuple):
    """The position of a message in its partition, in reading order."""

    ledger: int
    entry: int
    batch_index: int


class Sighting(NamedTuple):
    """A message as a reader saw it.

    ``record`` is the id of the record in it; None if there is none, or its checksum differs.
    ``topic`` is the full name of the partition.
    """

    at: float
    topic: str
    position: Position
    record: str | None
    key: str = ""
    producer: str = ""
    schema_version: str = ""


@dataclass(frozen=True)
class ReaderSightings:
    """The messages that a reader saw, in order within each partition."""

    name: str
    sightings: tuple[Sighting, ...]


class Decision(NamedTuple):
    """A record of the commit log, reduced to the checker's needs.

    ``producers`` are pairs of topic partition and producer name, for all sends of the attempt.
    """

    seq: int
    query: str
    epoch: str
    attempt: int
    txn: str
    state: State
    at: float
    producers: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Operation:
    """An operation from outside: a run of a driver, a fault."""

    name: str
    began_at: float
    ended_at: float
    outcome: OperationResult
    detail: str = ""


@dataclass(frozen=True)
class Control:
    """Ids of plain messages sent to a separate topic: their losses are the broker's.

    ``acknowledged`` and ``unknown`` are the sender's results; ``seen`` was readable.
    """

    acknowledged: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()

    @property
    def lost(self) -> frozenset[str]:
        """Messages that were acknowledged but are not readable."""
        return self.acknowledged - self.seen


@dataclass(frozen=True)
class RunHistory:
    """All that the checker knows about a run.

    Attributes:
        records: the input (I).
        decisions: the commit log at the end, in order; None for a sink without a log.
        readers: those that watched while faults happened (O), from the first message.
        fresh: the reader that read everything at the end (F).
        noted: the epochs that are done in Spark's checkpoint; None if there is none.
        earlier: records that the log had before; with ``decisions``, all that it ever had.
        stuck: blocked readers and transactions at the end, as lines of text.
        fresh_again, decisions_again: after a second recovery; None without one.
        says_clean: the final result of the recovery tool; None if it was not run.
        table: the record id in each row of the job's table at the end; None without a table.
        kept_epochs: minimum number of finished epochs that the log keeps.
        keeps_order: whether the workload keeps the order of a key's records.
        is_whole: whether the job reached the end of its input; false if it had to end.
    """

    records: tuple[Record, ...]
    fresh: ReaderSightings
    decisions: tuple[Decision, ...] | None = None
    readers: tuple[ReaderSightings, ...] = ()
    noted: frozenset[str] | None = None
    earlier: tuple[Decision, ...] = ()
    stuck: tuple[str, ...] = ()
    fresh_again: ReaderSightings | None = None
    decisions_again: tuple[Decision, ...] | None = None
    says_clean: bool | None = None
    table: tuple[str | None, ...] | None = None
    kept_epochs: int = KEEP_EPOCHS
    keeps_order: bool = True
    is_whole: bool = True
    control: Control = field(default_factory=Control)
    operations: tuple[Operation, ...] = ()


def decisions_of(records: Iterable[LogRecord]) -> tuple[Decision, ...]:
    """The commit log's records as decisions, without claims."""
    return tuple(
        Decision(
            seq=record.seq,
            query=record.query_id or "",
            epoch=record.epoch or "",
            attempt=record.attempt or 0,
            txn=str(pulsar_part(record).txn),
            state=record.state,
            at=record.written_at.timestamp() if record.written_at else 0.0,
            producers=frozenset(
                (figures.topic, producer)
                for figures in pulsar_part(record).partitions
                for producer in figures.producers
            ),
        )
        for record in records
        if record.key is not None
    )
