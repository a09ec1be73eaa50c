"""The evidence about an epoch: what the log, the outputs and the cluster show."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from rich.console import Console

from eos.admin import AdminClient, OpenTransaction
from eos.cli.reports import Facts, age_s, ago, duration, escape, facts_table
from eos.client import PulsarClient
from eos.committer.participants import opened
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.participant import Access
from eos.protocol import History, Known, LogRecord, UnknownPart
from eos.pulsar.end_rules import MarkAnswer, WitnessAnswer
from eos.pulsar.part import PulsarPart, other_parts, pulsar_part
from eos.pulsar.receipts import ReceiptTopic
from eos.pulsar.recount import recount
from eos.pulsar.witness import Witness
from eos.recovery._timeline import TimelineEntry, timeline_of, timeline_table
from eos.task_report import PartitionFigures

SAME_CLOCK = timedelta(minutes=10)  # clocks of two machines differ by less


class AtCoordinator(StrEnum):
    """The coordinator's answer about a transaction."""

    NOT_ASKED = "not asked"
    GONE = "not known to the coordinator"
    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    OTHER_TRANSACTION = "another transaction with this id, begun at another time"
    UNKNOWN = "no answer"


class PartitionEvidence(Facts):
    """A partition that the epoch wrote to."""

    topic: str
    first_id: str
    last_id: str
    records: int
    readable: int | None  # None: it could not be read
    is_whole: bool  # with the figures in PREPARED
    says: str


class OutputEvidence(Facts):
    """The answer of an output that is not a topic."""

    kind: str
    output: str
    says: str
    known: Known
    is_provable: bool  # it exists: `resolve` ends its part or proves the outcome
    has_answered: bool  # also: "the output does not exist"


class Evidence(Facts):
    """All evidence about one epoch, without conclusions."""

    sink_id: str
    moments: list[TimelineEntry]
    txn: str | None
    age_s: float | None
    ttl_left_s: float | None
    receipt_topic: str
    has_receipt_topic: bool | None  # None: no answer
    mark: MarkAnswer
    witness: WitnessAnswer
    obstacle: str = ""  # why the receipt topic did not answer
    partitions: list[PartitionEvidence]
    outputs: list[OutputEvidence]
    at_coordinator: AtCoordinator

    @property
    def readable(self) -> int:
        """Number of readable messages of the transaction."""
        return sum(part.readable or 0 for part in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether all messages are readable, with the figures in PREPARED."""
        return bool(self.partitions) and all(part.is_whole for part in self.partitions)

    def render(self, console: Console) -> None:
        """The epoch's records, then a line for each piece of evidence."""
        console.print(f"[bold]{escape(self.sink_id)}[/], log")
        console.print(timeline_table(self.moments))
        if self.outputs:
            console.print("Outputs")
            console.print(facts_table([(one.output, one.says) for one in self.outputs]))
        if self.txn is None:
            return
        exists = {True: "exists", False: "does not exist", None: "does not answer"}
        left = self.ttl_left_s or 0.0
        expiry = f"expires in {duration(left)}" if left >= 0 else f"expired {duration(-left)} ago"
        rows = [
            ("receipt topic", f"{self.receipt_topic} {exists[self.has_receipt_topic]}"),
            ("mark", self.mark.value),
            ("witness", self.witness.value),
            *([("receipt topic's error", self.obstacle)] if self.obstacle else []),
            *((part.topic, part.says) for part in self.partitions),
            ("coordinator", f"transaction {self.txn}: {self.at_coordinator.value}"),
            ("age", f"opened {ago(self.age_s)}; {expiry}"),
        ]
        console.print("Cluster")
        console.print(facts_table(rows))


def gather(
    client: PulsarClient | None,
    admin: AdminClient | None,
    records: list[LogRecord],
    outputs: list[OutputEvidence],
    *,
    timeout_s: float,
) -> Evidence:
    """Collect all evidence about an epoch. Ends nothing.

    Args:
        client: of the cluster; None if the epoch has no topic.
        records: of the epoch, in order.
        outputs: the answers of its other outputs.
        timeout_s: of each query.

    Raises:
        EosError: the cluster can't be reached at all.
    """
    record = records[-1]
    age = left = None
    mark, witness, has_topic = MarkAnswer.NOT_ASKED, WitnessAnswer.NOT_ASKED, None
    obstacle = ""
    partitions: list[PartitionEvidence] = []
    coordinator = AtCoordinator.NOT_ASKED
    part = pulsar_part(record)
    if part.txn is not None and client is not None:
        client.coordinators.count()  # raises if the cluster can't be reached at all
        receipts = ReceiptTopic(client, TopicName.parse(part.receipt_topic))
        asked = Witness(client, receipts)
        has_topic = _exists(receipts)
        mark = asked.find_mark(part, timeout_s=timeout_s)
        # Without the mark it is another cluster, or one without its history: no answer counts.
        if mark is MarkAnswer.FOUND and part.receipt_id is not None:
            witness = asked.ask(part, timeout_s=timeout_s)
        obstacle = asked.obstacle
        partitions = [_partition_evidence(client, part, one, timeout_s) for one in part.partitions]
        coordinator = _ask_coordinator(client, admin, record, part.txn)
        age = age_s(record.opened_at)
        left = -(age_s(record.expires_at) or 0.0)
    return Evidence(
        sink_id=record.sink_id,
        moments=timeline_of(records),
        txn=part.txn_id,
        age_s=age,
        ttl_left_s=left,
        receipt_topic=part.receipt_topic,
        has_receipt_topic=has_topic,
        mark=mark,
        witness=witness,
        obstacle=obstacle,
        partitions=partitions,
        outputs=outputs,
        at_coordinator=coordinator,
    )


def ask_outputs(
    record: LogRecord, history: History, access: Access, *, timeout_s: float
) -> list[OutputEvidence]:
    """Ask the outputs that are not topics about an epoch."""
    found = []
    for part in other_parts(record):
        if part.begun_at is None and not isinstance(part, UnknownPart):
            continue  # the epoch has nothing there
        known, is_provable, has_answered = Known.UNKNOWN, False, False
        # An error is evidence too: it is shown, and counts as no answer.
        try:
            with opened(record.sink_id, part, access) as participant:
                missing = participant.missing(part, history)
                fate = participant.outcome(part, timeout_s=timeout_s)
        except EosError as error:
            says = f"no answer: {error.message}"
        else:
            known, is_provable, has_answered = fate.known, missing is None, True
            says = missing or f"{known.value}: {fate.why}".rstrip(": ")
        found.append(
            OutputEvidence(
                kind=part.kind,
                output=part.output,
                says=says,
                known=known,
                is_provable=is_provable,
                has_answered=has_answered,
            )
        )
    return found


def _exists(receipts: ReceiptTopic) -> bool | None:
    try:
        return receipts.exists()
    except EosError:
        return None  # not False: no answer proves nothing


def _partition_evidence(
    client: PulsarClient, of: PulsarPart, part: PartitionFigures, timeout_s: float
) -> PartitionEvidence:
    readable, is_whole = None, False
    try:
        counted = recount(client, of, part, timeout_s=timeout_s)
    except EosError as error:
        says = f"not readable: {error}"
    else:
        readable = counted.records if counted else 0
        is_whole = counted is not None and counted.matches(part)
        says = counted.difference(part) if counted else "the topic does not exist"
    if is_whole:
        says = f"all of its {part.records:,} messages are readable, with the figures in the log"
    return PartitionEvidence(
        topic=part.topic,
        first_id=str(part.first_id),
        last_id=str(part.last_id),
        records=part.records,
        readable=readable,
        is_whole=is_whole,
        says=says,
    )


def _ask_coordinator(
    client: PulsarClient, admin: AdminClient | None, record: LogRecord, txn: TxnId
) -> AtCoordinator:
    if admin is None:
        return AtCoordinator.NOT_ASKED
    try:
        if txn.most < client.coordinators.count():
            client.coordinators.connect(txn.most)  # otherwise it reports nothing (measured)
        found = admin.transaction(txn)
    except EosError:
        return AtCoordinator.UNKNOWN
    # An id that the coordinator has forgotten says nothing: it was committed, aborted or expired.
    return AtCoordinator.GONE if found is None else _status(found, record)


def _status(found: OpenTransaction, record: LogRecord) -> AtCoordinator:
    assert record.opened_at is not None
    # Another cluster reuses the same ids, at other times.
    is_own = round(found.ttl_s * 1000) == pulsar_part(record).ttl_ms
    if not is_own or abs(found.opened_at - record.opened_at) > SAME_CLOCK:
        return AtCoordinator.OTHER_TRANSACTION
    status = found.status.upper()
    if status.startswith("COMMIT"):
        return AtCoordinator.COMMITTING
    return AtCoordinator.ABORTING if status.startswith("ABORT") else AtCoordinator.OPEN
