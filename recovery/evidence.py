"""What can be seen of an epoch from outside: all that a person has to decide by."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from rich.console import Console

from eos.client import PulsarClient
from eos.committer.counting import count
from eos.committer.receipts import ReceiptTopic
from eos.committer.witness import Witness
from eos.errors import EosError
from eos.ids import TopicName
from eos.protocol import LogRecord, MarkAnswer, WitnessAnswer
from eos.summary import PartitionFigures
from recovery.admin import Admin, OpenTransaction
from recovery.moments import Moment, moments_of, moments_table
from recovery.report import Facts, age_s, duration, escape, facts_table

_SAME_CLOCK = timedelta(minutes=10)


class AtCoordinator(StrEnum):
    """What the coordinator says of a transaction."""

    NOT_ASKED = "not asked"
    GONE = "it knows no such transaction"
    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    STRANGER = "a transaction of this number that was begun at another time: a stranger's"
    UNKNOWN = "no answer"


class PartitionEvidence(Facts):
    """One partition that the epoch wrote to. ``readable`` is None when it could not be read."""

    topic: str
    first_id: str
    last_id: str
    records: int
    readable: int | None
    is_whole: bool
    says: str


class Evidence(Facts):
    """Everything; nothing is concluded from it here."""

    sink_id: str
    moments: list[Moment]
    txn: str | None
    age_s: float | None
    ttl_left_s: float | None
    receipt_topic: str
    has_receipt_topic: bool | None
    """None: no answer."""
    mark: MarkAnswer
    witness: WitnessAnswer
    partitions: list[PartitionEvidence]
    at_coordinator: AtCoordinator

    @property
    def readable(self) -> int:
        """Messages of the transaction that readers have."""
        return sum(part.readable or 0 for part in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether readers have all of it, with the figures that PREPARED has."""
        return bool(self.partitions) and all(part.is_whole for part in self.partitions)

    def render(self, console: Console) -> None:
        """The epoch's records, then a line for each thing that was looked at."""
        console.print(f"[bold]{escape(self.sink_id)}[/]: what the log says")
        console.print(moments_table(self.moments))
        if self.txn is None:
            return
        there = {True: "is there", False: "is not there", None: "gives no answer"}
        left = self.ttl_left_s or 0.0
        life = f"{duration(left)} to live" if left >= 0 else f"over for {duration(-left)}"
        rows = [
            ("receipt topic", f"{self.receipt_topic} {there[self.has_receipt_topic]}"),
            ("mark", self.mark.value),
            ("witness", self.witness.value),
            *((part.topic, part.says) for part in self.partitions),
            ("coordinator", f"transaction {self.txn}: {self.at_coordinator.value}"),
            ("age", f"opened {duration(self.age_s)} ago; its time to live: {life}"),
        ]
        console.print("What the cluster says")
        console.print(facts_table(rows))


def gather(
    client: PulsarClient, admin: Admin | None, life: list[LogRecord], *, timeout_s: float
) -> Evidence:
    """Look at everything that may tell what became of an epoch. Ends nothing.

    Args:
        life: the records of the epoch; the last one is its state.
        timeout_s: of each thing that is looked at.

    Raises:
        EosError: the cluster can't be reached at all.
    """
    record = life[-1]
    age = left = None
    mark, witness, has_topic = MarkAnswer.NOT_ASKED, WitnessAnswer.NOT_ASKED, None
    partitions: list[PartitionEvidence] = []
    coordinator = AtCoordinator.NOT_ASKED
    if record.txn is not None:
        client.coordinators.count()
        receipts = ReceiptTopic(client, TopicName.parse(record.receipt_topic))
        asked = Witness(client, receipts)
        has_topic = _exists(receipts)
        mark = asked.find_mark(record, timeout_s=timeout_s)
        if mark is MarkAnswer.FOUND and record.receipt_id is not None:
            witness = asked.ask(record, timeout_s=timeout_s)
        partitions = [_look_at(client, record, part, timeout_s) for part in record.partitions]
        coordinator = _ask_coordinator(client, admin, record)
        age = age_s(record.opened_at) or 0.0
        left = round((record.ttl_ms or 0) / 1000 - age, 1)
    return Evidence(
        sink_id=record.sink_id,
        moments=moments_of(life),
        txn=str(record.txn) if record.txn else None,
        age_s=age,
        ttl_left_s=left,
        receipt_topic=record.receipt_topic,
        has_receipt_topic=has_topic,
        mark=mark,
        witness=witness,
        partitions=partitions,
        at_coordinator=coordinator,
    )


def _exists(receipts: ReceiptTopic) -> bool | None:
    try:
        return receipts.exists()
    except EosError:
        return None


def _look_at(
    client: PulsarClient, record: LogRecord, part: PartitionFigures, timeout_s: float
) -> PartitionEvidence:
    readable, is_whole = None, False
    try:
        counted = count(client, record, part, timeout_s=timeout_s)
    except EosError as error:
        says = f"can't be read: {error}"
    else:
        readable = counted.records if counted else 0
        is_whole = counted is not None and counted.is_equal(part)
        says = counted.difference(part) if counted else "the topic does not exist"
    if is_whole:
        says = f"all of its {part.records:,} messages are readable, with the figures of the log"
    return PartitionEvidence(
        topic=part.topic,
        first_id=str(part.first_id),
        last_id=str(part.last_id),
        records=part.records,
        readable=readable,
        is_whole=is_whole,
        says=says,
    )


def _ask_coordinator(client: PulsarClient, admin: Admin | None, record: LogRecord) -> AtCoordinator:
    assert record.txn is not None
    if admin is None:
        return AtCoordinator.NOT_ASKED
    try:
        if record.txn.most < client.coordinators.count():
            client.coordinators.connect(record.txn.most)  # else it tells nothing (measured)
        found = admin.transaction(record.txn)
    except EosError:
        return AtCoordinator.UNKNOWN
    return AtCoordinator.GONE if found is None else _says(found, record)


def _says(found: OpenTransaction, record: LogRecord) -> AtCoordinator:
    assert record.opened_at is not None
    # The numbers begin again on another cluster.
    is_own = round(found.ttl_s * 1000) == record.ttl_ms
    if not is_own or abs(found.opened_at - record.opened_at) > _SAME_CLOCK:
        return AtCoordinator.STRANGER
    status = found.status.upper()
    if status.startswith("COMMIT"):
        return AtCoordinator.COMMITTING
    return AtCoordinator.ABORTING if status.startswith("ABORT") else AtCoordinator.OPEN
