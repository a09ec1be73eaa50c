"""The roll call of one attempt: did each task run once? If not, its writes are poisoned (I4)."""

# The receipt topic has one order for all readers: the mark, the answers, the closing. A run of a
# task sends rows only after it has read its own answer there, and neither the closing nor another
# run of its task before it. So every run that sends rows is counted, and a later run sends nothing
# (I3).
#
# Spark does not report how often a task ran: ``TaskContext`` shows attempt 0 again when a stage
# runs again after a fetch failure, and the events about it are dropped when listeners are slow
# (both measured, the second with the rows of both runs committed). So the runs report it.

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from eos.errors import ProtocolError, TransactionPoisoned
from eos.forking import lock_of_process
from eos.ids import EntryPlace, MessageId
from eos.pulsar._contiguous_read import ContiguousRead
from eos.task_report import Answer, TaskSummary

if TYPE_CHECKING:
    from eos.client import Entry, EntryProducer, PulsarClient
    from eos.pulsar.part import PulsarPart


KIND: Final = "eos"
"""Property with the kind of a message in a receipt topic: mark, answer, closed, ..."""
CALL: Final = "uuid"
"""Property that names the roll call: the uuid of its mark."""
MARK: Final = "mark"
_ANSWER: Final = "answer"
CLOSED: Final = "closed"
_RUN: Final = "run"
_PARTITION: Final = "partition"

_OWN: Final = frozenset((KIND, CALL, _RUN, _PARTITION))
# Limit of a property's text: uuids and words.
_MAX_CHARS: Final = 64
# Limit of a message in a receipt topic, uncompressed: those of eos have less than 4 KiB.
_MAX_BYTES: Final = 64 * 1024
_MAX_DIGITS: Final = 9

MAX_CALLS_CACHED: Final = 8
"""Roll calls whose progress one worker remembers: enough for jobs with several sinks."""


class _Message(NamedTuple):
    id: MessageId
    properties: dict[str, str]


class AnsweredBefore(TransactionPoisoned):
    """Another run of the task has answered: its rows may be in the transaction."""


@dataclass(frozen=True)
class RollCall:
    """One attempt's roll call in the receipt topic ``topic``; sent to the executors.

    ``mark_id`` is the position of the attempt's mark, ``mark_uuid`` its content.
    """

    topic: str
    mark_id: MessageId
    mark_uuid: str

    @classmethod
    def of(cls, part: PulsarPart) -> Self:
        """Return the roll call that the mark of ``part`` opened."""
        assert part.mark_id is not None
        assert part.mark_uuid is not None
        return cls(part.receipt_topic, part.mark_id, part.mark_uuid)

    def answer(
        self, client: PulsarClient, spark_partition: int, *, timeout_s: float, reuse: bool = False
    ) -> str:
        """Answer for a run of the task of ``spark_partition``, and return the run's id.

        Args:
            reuse: keep producer and reader for the next answer.

        Raises:
            AnsweredBefore: another run of this task has answered.
            TransactionPoisoned: the roll call is closed.
            EosError: the answer was not given; the task must send nothing.
        """
        run_id = str(uuid.uuid4())
        # None: idle producers that were used outside of transactions, as for an answer.
        (producer,) = client.entry_producers([self.topic], after=(None,))

        def send() -> MessageId:
            sent = self._send(producer, _ANSWER, {_RUN: run_id, _PARTITION: str(spark_partition)})
            if reuse:
                client.release_producers([producer.transfer()], None)
            else:
                producer.abandon()
            return sent

        progress = _progress_of(self)
        with progress.lock:
            reading = self._read_from(progress.place)  # where this process stopped reading
            messages = reading.read_to(client, send, timeout_s=timeout_s, reuse=reuse)
            for one in messages:
                progress.add(one.id.place, one.properties)
        if progress.first_run.get(spark_partition) != run_id:
            raise AnsweredBefore(
                "another run of the task has answered: its rows may be in the transaction"
            )
        if progress.closed_at is not None and progress.closed_at < messages[-1].id.place:
            raise TransactionPoisoned("the driver has closed the roll call")
        return run_id

    def close(
        self,
        client: PulsarClient,
        producer: EntryProducer,
        *,
        timeout_s: float,
        reuse: bool = False,
    ) -> tuple[Answer, ...]:
        """Close the roll call, and return all answers given before, in order.

        Args:
            reuse: keep the reader for the next closing.

        Raises:
            TransactionPoisoned: the mark is not where it was.
            EosError: it is not known which runs have answered.
        """
        *messages, _ = self._read_from(self.mark_id.place).read_to(
            client, lambda: self._send(producer, CLOSED, {}), timeout_s=timeout_s, reuse=reuse
        )
        found = (one.properties for one in messages)
        return tuple(_answer_of(one) for one in found if one.get(KIND) == _ANSWER)

    def _read_from(self, start: EntryPlace) -> ContiguousRead[_Message]:
        """Read the topic from ``start``: the mark, or the last message that this process read."""
        is_mark = start == self.mark_id.place
        return ContiguousRead(
            self.topic,
            start,
            is_start=lambda entry: not is_mark or bool(self._properties(entry)),
            start_was_read=not is_mark,
            extract=self._parse,
        )

    def _parse(self, entry: Entry) -> _Message | None:
        properties = self._properties(entry)
        return _Message(entry.id, properties) if properties else None

    def _properties(self, entry: Entry) -> dict[str, str]:
        """The properties of a message of this call; {} for any other message."""
        properties = properties_of(entry)
        return properties if properties.get(CALL) == self.mark_uuid else {}

    def _send(self, producer: EntryProducer, kind: str, properties: dict[str, str]) -> MessageId:
        sent = producer.send(b"", properties={KIND: kind, CALL: self.mark_uuid, **properties})
        producer.flush()
        return sent.result()


@dataclass
class _Progress:
    """How far this process has read a roll call, and the answers and closing that it found."""

    # The process's next task starts from here: otherwise each of n tasks would read the answers of
    # all tasks before it.
    place: EntryPlace
    first_run: dict[int, str] = field(default_factory=dict)
    closed_at: EntryPlace | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, place: EntryPlace, properties: dict[str, str]) -> None:
        self.place = place
        if properties.get(KIND) == _ANSWER:
            answer = _answer_of(properties)
            self.first_run.setdefault(answer.spark_partition, answer.run_id)
        elif properties.get(KIND) == CLOSED and self.closed_at is None:
            self.closed_at = place


_progress: dict[RollCall, _Progress] = {}  # per process: a worker runs many tasks
_progress_lock = lock_of_process()
os.register_at_fork(after_in_child=_progress.clear)


def _progress_of(call: RollCall) -> _Progress:
    with _progress_lock:
        progress = _progress.pop(call, None) or _Progress(call.mark_id.place)
        _progress[call] = progress  # the newest one last
        while len(_progress) > MAX_CALLS_CACHED:
            del _progress[next(iter(_progress))]
    return progress


def properties_of(entry: Entry) -> dict[str, str]:
    """Return the properties of a receipt topic's message that eos uses; {} if it is not valid."""
    # Other writers to the topic may send messages that no reader can decode, or that expand from a
    # few KB to many MB. Such a message must not stop anything, and is not decoded.
    if max(len(entry.payload), entry.metadata.uncompressed_size or 0) > _MAX_BYTES:
        return {}
    try:
        found = entry.first_properties
    except ProtocolError:
        return {}
    return {name: text for name, text in found.items() if name in _OWN and len(text) <= _MAX_CHARS}


def _answer_of(properties: dict[str, str]) -> Answer:
    """The answer in a message. A malformed one matches no summary, and so poisons."""
    partition = properties.get(_PARTITION, "")
    is_number = partition.isascii() and partition.isdecimal() and len(partition) <= _MAX_DIGITS
    return Answer(int(partition) if is_number else -1, properties.get(_RUN, ""))


def find_poison(summaries: Sequence[TaskSummary], answers: Sequence[Answer]) -> str | None:
    """Return why these writes must not be committed, or None if they may be. Pure.

    Args:
        summaries: of the runs whose results Spark accepted.
        answers: all answers given before the roll call was closed.
    """
    failed = next(filter(None, map(_poison_of_task, summaries)), None)
    if failed is not None:
        return failed
    twice = _first_twice(summary.spark_partition for summary in summaries)
    if twice is not None:
        return f"more than one summary of Spark partition {twice}"
    counts: dict[str, int] = {}
    for topic, count in (pair for summary in summaries for pair in summary.partition_counts):
        if counts.setdefault(topic, count) != count:
            return f"{topic} got more partitions meanwhile: a key may have gone to two of them"
    # Each run that may have sent anything, and no other run, must have its summary here.
    expected = Counter(answer for summary in summaries if (answer := summary.answer) is not None)
    given = Counter(answers)
    unheard = next(iter(expected - given), None)
    if unheard is not None:
        return f"the answer of Spark partition {unheard.spark_partition} is not in the roll call"
    extra = next(iter(given - expected), None)
    if extra is not None:
        return (
            f"the task of Spark partition {extra.spark_partition} ran more than once: rows may be "
            "there twice"
        )
    return None


def _first_twice(numbers: Iterable[int]) -> int | None:
    return next((number for number, count in Counter(numbers).items() if count > 1), None)


def _poison_of_task(summary: TaskSummary) -> str | None:
    where = f"task of Spark partition {summary.spark_partition}"
    if summary.error is not None:
        return f"{where}: {summary.error.message}"
    sent_to = {partition.topic for partition in summary.partitions}
    if sent_to != set(summary.registered):
        return f"{where} did not send exactly to the partitions that it registered"
    if sent_to and summary.answer is None:
        return f"{where} sent rows without an answer in the roll call"
    return None
