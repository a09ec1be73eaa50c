"""What one run attempted, what the log decided, and what readers saw. Data; nothing is judged here.

All times are ``time.time()`` seconds of one machine, the commit log's included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from eos.commit_log import KEEP_EPOCHS
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part

Told = Literal["ok", "fail", "unknown"]
"""``unknown``: nobody was told how it ended. It may have happened, and must not count as failed."""


class Record(NamedTuple):
    """One input record.

    ``id`` is unique, ``place`` its place in the order of all records. ``topic`` is where it
    belongs, with the partition when that is known; None: anywhere. ``key`` is ``""`` for none.
    ``input``: which one it came with; within an epoch Spark mixes those of different inputs.
    """

    id: str
    epoch: str
    place: int
    key: str = ""
    topic: str | None = None
    schema_version: str = ""
    input: int = 0


class Position(NamedTuple):
    """Of a message within its partition, in the order of reading."""

    ledger: int
    entry: int
    batch_index: int


class Sighting(NamedTuple):
    """One message as a reader saw it.

    ``record`` is the id that it carries; None when it carries none, or its checksum differs.
    ``topic`` is the exact name of the partition.
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
    """What one reader saw of all partitions; in order within each of them."""

    name: str
    sightings: tuple[Sighting, ...]


class Decision(NamedTuple):
    """One record of the commit log, as far as the checker needs it.

    ``producers`` are (topic partition, producer name) of everything that the attempt sent.
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
    """Something that was attempted from outside: a driver's life, a fault, a verb of the CLI."""

    name: str
    began_at: float
    ended_at: float
    outcome: Told
    detail: str = ""


@dataclass(frozen=True)
class Control:
    """Plain sends to a topic of their own, beside the workload: what they lose, the broker lost.

    ``acknowledged`` and ``unknown`` are what the sender was told; ``seen`` is what was readable.
    """

    acknowledged: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()

    @property
    def lost(self) -> frozenset[str]:
        """Acknowledged, and yet not readable."""
        return self.acknowledged - self.seen


@dataclass(frozen=True)
class RunHistory:
    """Everything that the checker is given of one run.

    Attributes:
        records: the input (I).
        decisions: the commit log when all was quiet, in its order; None for a sink without one.
        readers: those that watched while faults happened (O), each from the first message on.
        fresh: the one that read everything when all was quiet (F).
        noted: the epochs that Spark's checkpoint holds as done; None when it can't be asked.
        earlier: what the log said at earlier moments; with ``decisions`` all that it ever said.
        stuck: what did not get on when all was quiet, each as a line of text.
        fresh_again, decisions_again: after recovery ran once more; None when it did not.
        says_clean: what the recovery tool said at the end; None when it was not asked.
        table: the record in each row of the job's second output, at the end; None when it has none.
        kept_epochs: how many finished epochs the log keeps at least; older ones may be gone.
        keeps_order: whether the workload keeps the order of a key's records.
        is_whole: whether the job came to the end of its input; one that had to end did not.
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
    """The commit log's records as the checker takes them; claims are left out."""
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
