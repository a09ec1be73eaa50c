"""What one writing task tells the driver: how much it sent where, and as whose producer.

Crosses from executors as JSON, so it stands apart from everything that only a driver needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from eos.errors import EosError, Fatal, crossed
from eos.ids import MessageId


@dataclass(frozen=True)
class PartitionFigures:
    """What was sent to one topic partition.

    ``topic`` is the partition's exact name; ``records`` counts messages, ``bytes`` is the sum of
    their value and key lengths. ``checksum``: sum modulo 2^64 over the entries of
    crc32c(the entry's values one after the other, then its keys).
    """

    topic: str
    producers: tuple[str, ...]
    records: int
    bytes: int
    checksum: int
    first_id: MessageId
    last_id: MessageId


@dataclass(frozen=True)
class TaskError:
    """Why a task did not write: the name of a class of ``eos.errors`` and its parts."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: EosError) -> TaskError:
        """What crosses of ``error``."""
        return cls(type(error).__name__, error.message, error.hint)


@dataclass(frozen=True)
class Answer:
    """One run of a task, as the roll call knows it; ``run_id`` is the run's own, a uuid."""

    spark_partition: int
    run_id: str


@dataclass(frozen=True)
class TaskSummary:
    """One task's report. ``registered``: the exact partitions it added to the transaction.
    ``run_id``: what it answered the roll call with; empty when it had no rows to send. ``counts``:
    how many partitions each topic had that its rows named. ``was_crowded``: a policy admits fewer
    producers than its process would like to keep.

    A task that must not or could not write reports ``error`` instead of raising: Spark would
    only run it again, and no second run may write into the same transaction.
    """

    spark_partition: int
    run_id: str
    registered: tuple[str, ...]
    partitions: tuple[PartitionFigures, ...]
    error: TaskError | None = None
    counts: tuple[tuple[str, int], ...] = ()
    was_crowded: bool = False

    @property
    def answer(self) -> Answer | None:
        """What it answered the roll call with; None when it had no rows to send."""
        return Answer(self.spark_partition, self.run_id) if self.run_id else None

    @property
    def records(self) -> int:
        """Messages sent by the task."""
        return sum(partition.records for partition in self.partitions)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskSummary:
        """Parse what ``to_json`` wrote.

        Raises:
            ValueError: it is not that.
        """
        try:
            row = json.loads(text)
            return cls(
                spark_partition=int(row["spark_partition"]),
                run_id=str(row["run_id"]),
                registered=tuple(row["registered"]),
                partitions=tuple(
                    PartitionFigures(
                        topic=str(part["topic"]),
                        producers=tuple(part["producers"]),
                        records=int(part["records"]),
                        bytes=int(part["bytes"]),
                        checksum=int(part["checksum"]),
                        first_id=MessageId(*part["first_id"]),
                        last_id=MessageId(*part["last_id"]),
                    )
                    for part in row["partitions"]
                ),
                error=TaskError(**row["error"]) if row["error"] else None,
                counts=tuple((str(topic), int(count)) for topic, count in row["counts"]),
                was_crowded=bool(row["was_crowded"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a task summary: {error}") from error


def merge_figures(summaries: Iterable[TaskSummary]) -> tuple[PartitionFigures, ...]:
    """All tasks' figures together, one entry for each topic partition, ordered by its name."""
    by_topic: dict[str, list[PartitionFigures]] = {}
    for summary in summaries:
        for part in summary.partitions:
            by_topic.setdefault(part.topic, []).append(part)
    return tuple(
        PartitionFigures(
            topic=topic,
            producers=tuple(sorted(name for part in parts for name in part.producers)),
            records=sum(part.records for part in parts),
            bytes=sum(part.bytes for part in parts),
            checksum=sum(part.checksum for part in parts) % 2**64,
            first_id=min(part.first_id for part in parts),
            last_id=max(part.last_id for part in parts),
        )
        for topic, parts in sorted(by_topic.items())
    )


def raise_task_error(summaries: Iterable[TaskSummary]) -> None:
    """Raise what a task reports, in its own class: bad input before what bad luck caused.

    Raises:
        EosError: a task reports one.
    """
    raised = [_rebuilt(s.error, s.spark_partition) for s in summaries if s.error is not None]
    for error in sorted(raised, key=lambda error: not isinstance(error, Fatal)):
        raise error


def _rebuilt(error: TaskError, spark_partition: int) -> EosError:
    return crossed(error.kind, f"{error.message} (Spark partition {spark_partition})", error.hint)
