"""The history of a run: its input, the log's decisions, the readers' messages; and the anomalies
that it may have, from which checker, tests, report and docs are derived. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, Literal, NamedTuple

from eos.commit_log import KEEP_EPOCHS
from eos.protocol import BATCH, FINAL, LogRecord, State
from eos.pulsar.part import pulsar_part

NO_LOG: Final = "without the checks that need a commit log: there was none in Job.commit_log"
# ``unknown``: the end was not observed. It may have happened, and must not count as failed.
OperationResult = Literal["ok", "fail", "unknown"]


class AnomalyKind(Enum):
    """A kind of anomaly; ``number`` and ``text`` are those of ARCHITECTURE.md."""

    DUPLICATE = 1, "a reader found the same record at two positions"
    LOST_WRITE = 2, "a record of a committed epoch is not readable"
    ABORTED_READ = 3, "a record was read from a transaction that is not its epoch's committed one"
    TORN_EPOCH = 4, "some records of an epoch are readable, others are not"
    EARLY_READ = 5, "a record was read before its epoch was PREPARED"
    CORRUPT = 6, "a record that was read is damaged, or was never written"
    MISROUTED = 7, "a record came with another topic, partition, key or schema version"
    ORDER = 8, "a key's records are readable in another order than they were written"
    SKIP = 9, "a reader went backwards, or skipped a record"
    DISAGREEMENT = 10, "two readers found different things at one position"
    VANISHED = 11, "a record that was read is no longer readable"
    DECISION_FLIP = 12, "the log holds two outcomes, or two transactions, for one epoch"
    GAP = 13, "an epoch before a committed one is undecided, or Spark and the log disagree"
    STUCK = 14, "a reader or a transaction is still blocked at the end"
    NOT_IDEMPOTENT = 15, "a second recovery changed something"
    FALSE_CLEAN = 16, "the recovery tool reports clean, but it is not, or the other way round"
    TORN_OUTPUTS = 17, "a record is in one output of its epoch, but not exactly once in the other"

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text


@dataclass(frozen=True)
class Anomaly:
    """The cases of one kind: their number, and the first few as lines of text."""

    kind: AnomalyKind
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.number} {self.kind.name.lower()} x{self.count}: {self.examples[0]}"


class Record(NamedTuple):
    """One input record, with a unique ``id``."""

    id: str
    epoch: str
    place: int  # in the order of all records
    key: str = ""  # "" for none
    topic: str | None = None  # the expected one, with the partition if known; None for any
    schema_version: str = ""
    input: int = 0  # that it came with: within an epoch, Spark mixes the records of several


class Position(NamedTuple):
    """The position of a message in its partition, in reading order."""

    ledger: int
    entry: int
    batch_index: int


class Sighting(NamedTuple):
    """A message as a reader saw it."""

    at: float
    topic: str  # the full name of the partition
    position: Position
    record: str | None  # its id; None if it is missing or damaged
    key: str = ""
    producer: str = ""
    schema_version: str = ""


@dataclass(frozen=True)
class ReaderSightings:
    """The messages that a reader saw, in order within each partition."""

    name: str
    sightings: tuple[Sighting, ...]


class Decision(NamedTuple):
    """A record of the commit log, reduced to the checker's needs."""

    seq: int
    query: str
    epoch: str
    attempt: int
    txn: str
    state: State
    at: float
    # Of all sends of the attempt, by partition: a message does not name its transaction.
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
    """Ids of plain messages sent to a separate topic: their losses are the broker's."""

    acknowledged: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()  # sent, without an answer
    seen: frozenset[str] = frozenset()

    @property
    def lost(self) -> frozenset[str]:
        """Messages that were acknowledged but are not readable."""
        return self.acknowledged - self.seen


@dataclass(frozen=True)
class RunHistory:
    """All that the checker knows about a run."""

    records: tuple[Record, ...]  # the input (I)
    fresh: ReaderSightings  # the reader that read everything at the end (F)
    decisions: tuple[Decision, ...] | None = None  # the log at the end; None for a sink without one
    readers: tuple[ReaderSightings, ...] = ()  # watched during faults (O), from the first message
    noted: frozenset[str] | None = None  # the epochs done in Spark's checkpoint; None without one
    earlier: tuple[Decision, ...] = ()  # the log's before; with ``decisions``, all it ever had
    stuck: tuple[str, ...] = ()  # blocked readers and transactions at the end
    fresh_again: ReaderSightings | None = None  # after a second recovery; None without one
    decisions_again: tuple[Decision, ...] | None = None
    says_clean: bool | None = None  # the recovery tool's last result; None if it was not run
    alarm: str = ""  # what it says if it has found something, or has crashed
    # Another output -> the id in each of its rows at the end.
    tables: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    kept_epochs: int = KEEP_EPOCHS  # that many finished epochs the log keeps at least
    keeps_order: bool = True  # whether the workload keeps the order of a key's records
    is_whole: bool = True  # whether the job reached the end of its input; false if it had to end
    control: Control = field(default_factory=Control)
    operations: tuple[Operation, ...] = ()

    @property
    def has_log(self) -> bool:
        """Whether there was a commit log; the checks that need one are not made without."""
        return self.decisions is not None


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


class TopicPosition(NamedTuple):
    """A position in one partition."""

    topic: str
    position: Position

    def __str__(self) -> str:
        return f"{self.topic.rpartition('/')[2]}@{':'.join(map(str, self.position))}"


class View:
    """The shared lookups; ``history`` is not changed."""

    def __init__(self, history: RunHistory) -> None:
        self.history = history

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """The input records, by id."""
        return {record.id: record for record in self.history.records}

    @cached_property
    def epochs(self) -> Mapping[str, tuple[Record, ...]]:
        """The input records, by epoch."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.history.records:
            found[record.epoch].append(record)
        return {epoch: tuple(records) for epoch, records in found.items()}

    @property
    def all_readers(self) -> tuple[ReaderSightings, ...]:
        """The watching readers, then the fresh one."""
        return (*self.history.readers, self.history.fresh)

    def known_sights(self, reader: ReaderSightings) -> Iterator[tuple[Sighting, Record]]:
        """A reader's sightings of input records; other messages are anomaly 6."""
        for sight in reader.sightings:
            if sight.record is not None and sight.record in self.records:
                yield sight, self.records[sight.record]

    @cached_property
    def readable(self) -> frozenset[str]:
        """The ids found by the fresh reader."""
        return frozenset(record.id for _, record in self.known_sights(self.history.fresh))

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """All records that the log ever had, in order, including dropped ones."""
        # Compaction drops records; one that changed is there twice, which is anomaly 12.
        known = dict.fromkeys((*self.history.earlier, *(self.history.decisions or ())))
        return tuple(sorted(known, key=lambda decision: decision.seq))

    @cached_property
    def by_epoch(self) -> Mapping[tuple[str, str], tuple[Decision, ...]]:
        """The decisions of each (query, epoch), in order."""
        found: dict[tuple[str, str], list[Decision]] = defaultdict(list)
        for decision in self.decisions:
            found[decision.query, decision.epoch].append(decision)
        return {key: tuple(decisions) for key, decisions in found.items()}

    @cached_property
    def done(self) -> frozenset[str]:
        """The committed epochs (D): by the log, or by Spark's checkpoint if there is no log."""
        return self.streamed | {epoch for query, epoch in self._finals if query == BATCH}

    @cached_property
    def streamed(self) -> frozenset[str]:
        """The committed epochs of streaming queries."""
        if self.history.decisions is None:
            return self.history.noted or frozenset()
        return frozenset(epoch for query, epoch in self._finals if query != BATCH)

    @cached_property
    def _finals(self) -> frozenset[tuple[str, str]]:
        return frozenset(key for key, of_it in self.by_epoch.items() if of_it[-1].state in FINAL)

    @cached_property
    def committed(self) -> Mapping[str, Decision]:
        """The COMMITTED decision of each epoch that has one."""
        return {d.epoch: d for d in self.decisions if d.state is State.COMMITTED}

    @cached_property
    def prepared_at(self) -> Mapping[str, float]:
        """The time when an epoch's committed attempt was PREPARED, or else COMMITTED."""
        found: dict[str, float] = {}
        for decision in self.decisions:
            committed = self.committed.get(decision.epoch)
            is_decided = decision.state in (State.PREPARED, State.COMMITTED)
            if committed is not None and is_decided and decision.txn == committed.txn:
                found.setdefault(decision.epoch, decision.at)
        return found


def position_of(sight: Sighting) -> TopicPosition:
    """The position of a message."""
    return TopicPosition(sight.topic, sight.position)
