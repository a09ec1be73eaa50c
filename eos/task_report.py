"""The report of a writing task to the driver, as JSON: what it sent, and where."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from eos.errors import EosError, Fatal, reported_error
from eos.ids import MessageId


@dataclass(frozen=True)
class PartitionFigures:
    """Totals of the messages that were sent to one topic partition.

    ``topic`` is the partition's exact name; ``records`` counts messages, ``bytes`` is the sum of
    their value and key lengths. ``checksum``: sum modulo 2^64 over the entries of
    crc32c(the entry's values in order, then its keys).
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
    """The reason why a task did not write: the name of a class of ``eos.errors``, and its texts."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: EosError) -> TaskError:
        """The parts of ``error`` that cross to the driver."""
        return cls(type(error).__name__, error.message, error.hint)


@dataclass(frozen=True)
class Answer:
    """One run of a task in the roll call; ``run_id`` is a uuid of this run."""

    spark_partition: int
    run_id: str


@dataclass(frozen=True)
class TaskSummary:
    """The report of one task.

    Attributes:
        run_id: the task's answer to the roll call; empty if it had no rows to send.
        registered: the exact partitions that it added to the transaction.
        partition_counts: the number of partitions of each topic that its rows named.
        limit_hit: a limit of producers or readers has refused its process at least once.
    """

    spark_partition: int
    run_id: str
    registered: tuple[str, ...]
    partitions: tuple[PartitionFigures, ...]
    # Reported instead of raised: Spark would only run the task again, and no second run may write
    # into the same transaction.
    error: TaskError | None = None
    partition_counts: tuple[tuple[str, int], ...] = ()
    limit_hit: bool = False

    @property
    def answer(self) -> Answer | None:
        """The answer to the roll call; None if it had no rows to send."""
        return Answer(self.spark_partition, self.run_id) if self.run_id else None

    @property
    def records(self) -> int:
        """The number of messages that the task sent."""
        return sum(partition.records for partition in self.partitions)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskSummary:
        """Parse the output of ``to_json``.

        Raises:
            ValueError: ``text`` is something else.
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
                partition_counts=tuple(
                    (str(topic), int(n)) for topic, n in row["partition_counts"]
                ),
                limit_hit=bool(row["limit_hit"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a task summary: {error}") from error


def merge_figures(summaries: Iterable[TaskSummary]) -> tuple[PartitionFigures, ...]:
    """Return the totals of all tasks: one per topic partition, ordered by name."""
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
    """Raise the error that a task reports, if any: a ``Fatal`` one before others.

    Raises:
        EosError: a task reports one.
    """
    raised = [_rebuilt(s.error, s.spark_partition) for s in summaries if s.error is not None]
    for error in sorted(raised, key=lambda error: not isinstance(error, Fatal)):
        raise error


def _rebuilt(error: TaskError, spark_partition: int) -> EosError:
    return reported_error(
        error.kind, f"{error.message} (Spark partition {spark_partition})", error.hint
    )
