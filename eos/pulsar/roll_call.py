"""The roll call of one attempt: each run of a task answers before it sends its first row (I4).

Spark may run a task more than once and not say so: attempt numbers begin again with a stage that
runs again, and its events are dropped when a listener is slow. The receipt topic has one order for
everybody: the mark, the answers, the closing. The driver closes the roll call when Spark has given
it the summaries, and takes the answers between mark and closing. A run sends rows only when it has
read the topic from the mark to its own answer, and has met neither the closing nor another run of
its task. So whoever sends rows has answered before the closing, and is counted; and whoever comes
later sends nothing (I3). Answers and closing are plain messages: they are readable at once.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from eos._waiting import beside
from eos.errors import ProtocolError, RequestTimeout, TransactionPoisoned
from eos.ids import EntryPlace, MessageId
from eos.summary import Answer

if TYPE_CHECKING:
    from eos.client import Entry, EntryProducer, EntryReader, PulsarClient

KIND: Final = "eos"
"""The property that says what a message of a receipt topic is: mark, answer, closed, ..."""
CALL: Final = "uuid"
"""The property that names the roll call: the uuid of its mark."""
MARK: Final = "mark"
_ANSWER: Final = "answer"
_CLOSED: Final = "closed"
_RUN: Final = "run"
_PARTITION: Final = "partition"

MAX_CALLS_KEPT: Final = 8
"""Roll calls that one worker remembers having read: those of jobs with several sinks."""


class AnsweredBefore(TransactionPoisoned):
    """Another run of the task has answered: its rows may be in the transaction."""


@dataclass(frozen=True)
class RollCall:
    """One attempt's roll call; travels to the executors.

    ``topic`` is the receipt topic, ``mark_id`` the place of the attempt's mark in it and
    ``mark_uuid`` what the mark says.
    """

    topic: str
    mark_id: MessageId
    mark_uuid: str

    def answer(
        self, client: PulsarClient, spark_partition: int, *, timeout_s: float, parks: bool = False
    ) -> str:
        """Answer for a run of the task of ``spark_partition``; the run's id.

        Args:
            parks: keep the producer for the next answer.

        Raises:
            AnsweredBefore: another run of this task has answered.
            TransactionPoisoned: the roll call is closed.
            EosError: the answer could not be given: send nothing.
        """
        run_id = str(uuid.uuid4())
        (producer,) = client.entry_producers([self.topic], after=(None,))
        properties = {_RUN: run_id, _PARTITION: str(spark_partition)}
        progress = _progress_of(self)
        with progress.lock:
            start = progress.place  # where this process' last run stopped
            sent, reader = self._send_and_open(client, producer, start, _ANSWER, properties)
            with reader:
                if parks:
                    client.park([producer.hand_on()], None)
                else:
                    producer.abandon()
                for place, found in self._messages(reader, start, sent.place, timeout_s):
                    progress.take(place, found)
        if progress.first_run.get(spark_partition) != run_id:
            raise AnsweredBefore(
                "another run of the task has answered: its rows may be in the transaction"
            )
        if progress.closed_at is not None and progress.closed_at < sent.place:
            raise TransactionPoisoned("the driver has closed the roll call")
        return run_id

    def close(
        self, client: PulsarClient, producer: EntryProducer, *, timeout_s: float
    ) -> tuple[Answer, ...]:
        """Close the roll call; every answer that was given before, in order.

        Raises:
            TransactionPoisoned: the mark is not where it was.
            EosError: it is not known who has answered.
        """
        start, answers = self.mark_id.place, []
        sent, reader = self._send_and_open(client, producer, start, _CLOSED, {})
        with reader:
            for place, properties in self._messages(reader, start, sent.place, timeout_s):
                if place < sent.place and properties.get(KIND) == _ANSWER:
                    answers.append(_answer_of(properties))
        return tuple(answers)

    def _send_and_open(
        self,
        client: PulsarClient,
        producer: EntryProducer,
        start: EntryPlace,
        kind: str,
        properties: dict[str, str],
    ) -> tuple[MessageId, EntryReader]:
        """Send a message, and open the reader from ``start`` that will meet it: both at once, for
        both take a while, and neither needs the other."""
        opened: list[EntryReader] = []

        def open_reader() -> None:
            opened.append(client.entry_reader(self.topic, MessageId(*start)))

        try:
            sent = beside(open_reader, lambda: self._send(producer, kind, properties))
        except BaseException:
            for reader in opened:
                reader.close()
            raise
        return sent, opened[0]

    def _messages(
        self, reader: EntryReader, start: EntryPlace, end: EntryPlace, timeout_s: float
    ) -> Iterator[tuple[EntryPlace, dict[str, str]]]:
        """The topic from ``start`` to ``end``, both inclusive; {} for what is not of this call."""
        is_first = True
        # From here on: the first answer of a cold process may have taken all of it (measured).
        for entry in reader.read(time.monotonic() + timeout_s):
            place = entry.id.place
            properties = properties_of(entry)
            is_ours = properties.get(CALL) == self.mark_uuid
            if is_first and (place != start or (place == self.mark_id.place and not is_ours)):
                raise TransactionPoisoned(f"{self.topic} has lost the roll call's beginning.")
            is_first = False
            yield place, properties if is_ours else {}
            if place >= end:
                return
        raise RequestTimeout(f"{self.topic} could not be read to the end of the roll call in time.")

    def _send(self, producer: EntryProducer, kind: str, properties: dict[str, str]) -> MessageId:
        sent = producer.send(b"", properties={KIND: kind, CALL: self.mark_uuid, **properties})
        producer.flush()
        return sent.result()


@dataclass
class _Progress:
    """How far this process has read a roll call, and what it has met there.

    What was read stays true, so the next task of this process goes on from there: else each of n
    tasks would read the answers of all before it.
    """

    place: EntryPlace
    first_run: dict[int, str] = field(default_factory=dict)
    closed_at: EntryPlace | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, place: EntryPlace, properties: dict[str, str]) -> None:
        self.place = place
        if properties.get(KIND) == _ANSWER:
            answer = _answer_of(properties)
            self.first_run.setdefault(answer.spark_partition, answer.run_id)
        elif properties.get(KIND) == _CLOSED and self.closed_at is None:
            self.closed_at = place


_progress: dict[RollCall, _Progress] = {}
_progress_lock = threading.Lock()


def _progress_of(call: RollCall) -> _Progress:
    with _progress_lock:
        progress = _progress.pop(call, None) or _Progress(call.mark_id.place)
        _progress[call] = progress  # the newest one last
        while len(_progress) > MAX_CALLS_KEPT:
            del _progress[next(iter(_progress))]
    return progress


def properties_of(entry: Entry) -> dict[str, str]:
    """The properties of a message in a receipt topic; none for what can't be one of ours.

    Whoever may write to the topic may send what no reader can open; it must stop nobody.
    """
    try:
        return entry.first_properties
    except ProtocolError:
        return {}


def _answer_of(properties: dict[str, str]) -> Answer:
    """The answer in a message. One that is malformed is nobody's, and so poisons."""
    partition = properties.get(_PARTITION, "")
    number = int(partition) if partition.isascii() and partition.isdecimal() else -1
    return Answer(number, properties.get(_RUN, ""))
