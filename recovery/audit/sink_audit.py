"""Audits one sink: reads every partition and the receipts, and compares them with the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

from eos.cli.reports import Exit, Facts, exit_of
from eos.client import ONE_PERMIT, Entry, EntryReader, PulsarClient
from eos.errors import EosError, ProtocolError
from eos.ids import EntryPlace, MessageId, TopicName
from eos.protocol import History, LogRecord, State
from eos.pulsar.part import EMPTY_PART, PulsarPart, other_parts, pulsar_part
from eos.pulsar.receipts import receipt_mark_uuid
from eos.recovery._sink_view import Decided, Unfinished, UnwrittenEpoch, view
from eos.recovery._target import Target
from eos.recovery.audit._outputs import AuditedOutput, audit_outputs
from eos.recovery.audit.partition import (
    Attempts,
    Finding,
    PartitionAudit,
    Stray,
    by_topic,
    figures_of,
    finding_of,
)

_NOWHERE: EntryPlace = (-1, -1)

# Tolerated difference between the clocks of driver and broker, when the ages of an epoch and its
# topic are compared.
CLOCKS = timedelta(minutes=1)


class AuditedSink(Facts):
    """The figures of one sink's audit."""

    sink_id: str
    epochs: int = 0
    records: int = 0
    bytes: int = 0
    partitions: int = 0
    receipts: int = 0
    trimmed: int = 0  # parts of epochs that retention removed; they can't be checked
    others: int = 0  # messages of other producers between the epochs
    outputs: tuple[str, ...] = ()  # the current ones that are not topics
    by_output: tuple[AuditedOutput, ...] = ()  # for each of them, and for earlier ones
    newest_only: tuple[str, ...] = ()  # outputs that can't be asked about older epochs
    rows: int = 0  # unchanged ones
    changes: tuple[str, ...] = ()  # made later by others: OPTIMIZE, DELETE and the like
    is_changed: bool = False  # some of the changes affect rows (OPTIMIZE does not)
    unfinished: tuple[Unfinished, ...] = ()
    owing: tuple[UnwrittenEpoch, ...] = ()
    decided: tuple[Decided, ...] = ()


class SinkAudit:
    """Reads a sink's outputs and compares them with its log.

    While ``run`` is iterated over, it fills ``findings`` (errors), ``unknown`` (checks that could
    not be made), ``broken`` (a damaged log) and ``facts`` (figures).

    Args:
        last: number of newest epochs to check; all if None.
        silence_s: stop reading a partition after this time without an entry.
    """

    def __init__(self, target: Target, sink_id: str, last: int | None, silence_s: float) -> None:
        self.findings: list[Finding] = []
        self.unknown: list[str] = []
        self.broken: list[str] = []
        self.facts = AuditedSink(sink_id=sink_id)
        self._target = target
        self._last = last
        self._silence_s = silence_s
        self._strays: list[Stray] = []
        self._seen: set[int] = set()

    def run(self) -> Iterator[str]:
        """Check everything, and yield the name of each step."""
        sink_id = self.facts.sink_id
        try:
            log = self._target.log(sink_id)
            records = log.records()
        except EosError as error:
            is_broken = exit_of(error) is Exit.NEEDS_ACTION
            (self.broken if is_broken else self.unknown).append(f"the log of {sink_id}: {error}")
            return
        seen = view(log.history, records)
        self._count(
            unfinished=tuple(seen.unfinished), owing=tuple(seen.owing), decided=tuple(seen.decided)
        )
        yield f"{sink_id}: outputs"
        claim = log.history.last_claim
        asked = () if claim is None else other_parts(claim)
        self._count(outputs=tuple(f"{part.kind} {part.output}" for part in asked))
        self._check_outputs()
        committed = {record.key for record in records if record.state is State.COMMITTED}
        self._count(epochs=min(len(committed), self._last or len(committed)))
        # Not only of the newest record: the sink may have been changed from a topic to a table.
        parts = (pulsar_part(record) for record in reversed(records))
        named = next((part for part in parts if part.receipt_topic), EMPTY_PART)
        if not named.receipt_topic:
            return
        attempts = Attempts(records)
        try:
            with self._target.client(named.service_url) as client:
                client.coordinators.count()  # one error instead of one for each partition
                yield from self._check_topics(client, attempts)
                yield f"{sink_id}: receipts"
                with self._unknown_on_error(named.receipt_topic):
                    self._check_receipts(client, named.receipt_topic, attempts)
                    self._check_not_rolled_back(client, log.history, named)
        except EosError as error:
            self.unknown.append(f"the topics of sink {sink_id}: {error}")
        # The id alone may be another cluster's: entries that the log counts must be there as well.
        self.findings += [
            stray.finding()
            for stray in self._strays
            if stray.is_certain or attempts.generation(stray.record) in self._seen
        ]

    def _check_outputs(self) -> None:
        try:
            result = audit_outputs(
                self._read_log,
                self._target.access,
                timeout_s=self._target.timeout_s,
                last=self._last,
            )
        except EosError as error:
            self.unknown.append(f"the outputs of sink {self.facts.sink_id}: {error}")
            return
        self.findings += result.findings
        self.unknown += result.unknown
        self._count(
            newest_only=tuple(result.newest_only),
            changes=tuple(result.changes),
            rows=sum(one.rows for one in result.counts),
            by_output=tuple(result.counts),
            is_changed=result.is_changed,
        )

    def _read_log(self) -> tuple[History, list[LogRecord]]:
        log = self._target.log(self.facts.sink_id)
        return log.history, log.records()

    def _check_topics(self, client: PulsarClient, attempts: Attempts) -> Iterator[str]:
        named = [record for record in attempts.newest if pulsar_part(record).partitions]
        committed = [record for record in named if record.state is State.COMMITTED]
        committed = committed[-(self._last or 0) :]  # [-0:] is all of them
        chosen = by_topic(committed)
        uuids = {pulsar_part(record).mark_uuid for record in committed}
        others = by_topic(record for record in named if pulsar_part(record).mark_uuid not in uuids)
        for topic in self._partitions({*chosen, *others}, client):
            yield f"{self.facts.sink_id}: {topic}"
            with self._unknown_on_error(topic):
                mine = chosen.get(topic, [])
                audit = PartitionAudit(topic, mine, others.get(topic, []), attempts)
                # A reader would recreate a deleted topic.
                if client.exists(topic):
                    self._check_topic(client, audit)
                else:
                    self.findings += audit.all_gone()

    def _partitions(self, named: Iterable[str], client: PulsarClient) -> list[str]:
        # A repeated task may have written to partitions that the committed one did not use.
        found = set(named)
        for base in {TopicName.parse(name).base for name in found}:
            try:
                count = client.partition_count(str(base))
            except EosError:
                continue  # the named partitions are read, and report their own errors
            found |= {str(name) for name in base.partitions(count)}
        return sorted(found)

    def _check_topic(self, client: PulsarClient, audit: PartitionAudit) -> None:
        with closing(client.topic_bounds(audit.topic)) as bounds:
            last = bounds.final_bounds().last_id
        with client.entry_reader(audit.topic, audit.start) as reader:
            missed = self._read_to_end(reader, audit, last)
        self._strays += audit.strays
        self._seen |= audit.seen
        oldest = self._oldest_ledger(audit.topic)
        # An end before the oldest ledger was trimmed; another that is not reached may be pinned.
        if missed is not None and not (oldest is not None and missed[0] < oldest):
            silence = f", after {self._silence_s:g} s without an entry" if last else ""
            self.unknown.append(
                f"{audit.topic}: reading stopped before {missed[0]}:{missed[1]}{silence}; "
                "`orphans` shows whether it is pinned."
            )
            return
        trimmed = audit.close(oldest)
        self.findings += audit.findings
        if trimmed:
            self._judge_trimmed(audit, trimmed, oldest)
        facts = self.facts
        self._count(
            records=facts.records + audit.records,
            bytes=facts.bytes + audit.bytes,
            partitions=facts.partitions + 1,
            trimmed=facts.trimmed + len(trimmed),
            others=facts.others + audit.others,
        )

    def _read_to_end(
        self, reader: EntryReader, audit: PartitionAudit, last: MessageId | None
    ) -> EntryPlace | None:
        """Return the end of the log's entries and of the topic if it was not reached."""
        # To the topic's end: rows of a second run may stand after all that the log counts.
        end = max(audit.end, _NOWHERE if last is None else last.place)
        at = _NOWHERE if audit.start is None else audit.start.place
        # Nothing comes of a topic without a readable entry: all are trimmed, or it is pinned.
        for entry in self._entries(reader) if last is not None and at <= end else ():
            at = entry.id.place
            if at <= end:
                audit.take(entry)
            if at >= end:
                return None
        return None if end == _NOWHERE or at > end else end

    def _entries(self, reader: EntryReader) -> Iterator[Entry]:
        # The timeout starts again with each entry.
        while entry := next(reader.read(time.monotonic() + self._silence_s), None):
            yield entry

    def _judge_trimmed(
        self, audit: PartitionAudit, trimmed: list[LogRecord], oldest: int | None
    ) -> None:
        # Messages removed by retention are no error; those lost with their topic are: the messages
        # of an epoch that is older than its topic, which was deleted and recreated.
        topic, admin, made_at = audit.topic, self._target.maybe_admin(), None
        if admin is not None:
            made_at = admin.topic_stats(TopicName.parse(topic), is_partitioned=False).created_at
        lost, unclear = [], trimmed
        if made_at is not None:
            lost = [one for one in trimmed if _is_before(one, made_at)]
            if lost or len(trimmed) < audit.parts:
                unclear = [
                    one
                    for one in trimmed
                    if not (_is_before(one, made_at) or _is_after(one, made_at))
                ]
        if lost:
            messages = sum(figures_of(record, topic).records for record in lost)
            what = (
                f"the topic was deleted, and recreated at {made_at:%Y-%m-%dT%H:%M:%SZ}: "
                f"{messages:,} messages of {len(lost):,} epochs are lost"
            )
            self.findings.append(finding_of(lost[0], topic, what, None))
        if unclear:
            hint = "; add --admin-url to find out" if oldest is None else ""
            made = f" The topic was created at {made_at:%Y-%m-%dT%H:%M:%SZ}." if made_at else ""
            self.unknown.append(
                f"{topic}: no message is left of {len(unclear)} epochs: trimmed, or lost "
                f"with a topic that was deleted and recreated{hint}.{made}"
            )

    def _oldest_ledger(self, topic: str) -> int | None:
        admin = self._target.maybe_admin()
        return admin.read_position(TopicName.parse(topic)).first_ledger if admin else None

    def _check_receipts(self, client: PulsarClient, topic: str, attempts: Attempts) -> None:
        by_uuid = {pulsar_part(record).mark_uuid: record for record in attempts.newest}
        ends = [
            receipt_id.place
            for record in attempts.newest
            if record.state is State.COMMITTED
            and (receipt_id := pulsar_part(record).receipt_id)
            and attempts.is_newest_cluster(record)
        ]
        if not ends:
            return
        end = max(ends)
        if not client.exists(topic):
            self.unknown.append(
                f"{topic}: the receipt topic no longer exists. If this is the right cluster, start "
                'the driver with on_new_cluster="continue" once.'
            )
            return
        oldest = self._oldest_ledger(topic)
        if oldest is not None and end[0] < oldest:
            return  # all acknowledged, and trimmed
        count = 0
        with client.entry_reader(topic) as reader:
            for entry in self._entries(reader):
                if (call := receipt_mark_uuid(entry)) is not None:
                    count += 1
                    record = by_uuid.get(call)
                    # A plain message may pose as a receipt: only the transaction's own counts.
                    if record is not None and pulsar_part(record).txn == entry.txn:
                        self._check_receipt(record, entry, topic)
                if entry.id.place >= end:
                    break
            else:
                self.unknown.append(f"{topic}: reading stopped before {end[0]}:{end[1]}.")
        self._count(receipts=count)

    def _check_not_rolled_back(
        self, client: PulsarClient, history: History, named: PulsarPart
    ) -> None:
        # A receipt is committed with its transaction. One after the log's end shows that an older
        # copy replaced the log.
        newer = self._newer_receipt(client, _last_begun(history, named))
        if newer is None:
            return
        # A running driver may have continued: OPEN is in the log before a receipt is sent.
        again = _last_begun(self._target.log(self.facts.sink_id).history, named)
        if again is None or again.mark_id is None:
            return
        # The log has continued: the receipt is of its last transaction, or before that one's mark.
        if receipt_mark_uuid(newer) == again.mark_uuid or newer.id.place < again.mark_id.place:
            return
        self.findings.append(
            Finding(
                sink_id=self.facts.sink_id,
                query_id=None,
                epoch=None,
                topic=again.receipt_topic,
                what=f"transaction {newer.txn} was committed, but the log ends before it: the log "
                "was replaced by an older copy; restore the newest one",
                message_id=str(newer.id),
            )
        )

    def _newer_receipt(self, client: PulsarClient, last: PulsarPart | None) -> Entry | None:
        """The first committed receipt of another transaction after the mark of ``last``."""
        if last is None or last.mark_id is None or not client.exists(last.receipt_topic):
            return None
        with closing(client.topic_bounds(last.receipt_topic)) as bounds:
            end = bounds.final_bounds().last_id
        if end is None or end.place <= last.mark_id.place:
            return None
        # One permit: among more entries, one with a hostile count hides the others (docs/facts.md).
        with client.entry_reader(last.receipt_topic, last.mark_id, permits=ONE_PERMIT) as reader:
            for entry in self._entries(reader):
                if receipt_mark_uuid(entry) not in (None, last.mark_uuid):
                    return entry
                if entry.id.place >= end.place:
                    return None
        self.unknown.append(f"{last.receipt_topic}: reading stopped before its end.")
        return None

    def _check_receipt(self, record: LogRecord, entry: Entry, topic: str) -> None:
        if record.state is State.PREPARED:
            return  # in doubt, reported as unfinished
        if record.state is not State.COMMITTED:
            what = f"a receipt is readable, but the log says {record.state.value}"
        # A receipt carries the figures that PREPARED has.
        elif _body(entry) != _figures(record):
            what = "the receipt and the log have different figures"
        else:
            return
        self.findings.append(finding_of(record, topic, what, entry.id))

    def _count(self, **figures: Any) -> None:
        self.facts = self.facts.model_copy(update=figures)

    @contextmanager
    def _unknown_on_error(self, topic: str) -> Iterator[None]:
        try:
            yield
        except EosError as error:
            self.unknown.append(f"{topic}: {error}")


def _is_before(record: LogRecord, made_at: datetime) -> bool:
    return record.written_at is not None and record.written_at + CLOCKS < made_at


def _is_after(record: LogRecord, made_at: datetime) -> bool:
    return record.opened_at is not None and record.opened_at - CLOCKS > made_at


def _figures(record: LogRecord) -> tuple[int, int]:
    part = pulsar_part(record)
    return part.records or 0, part.checksum or 0


def _body(entry: Entry) -> tuple[Any, Any] | None:
    # Any writer of the topic may have sent this body.
    try:
        body = json.loads(entry.messages()[0].value or b"")
        return body["records"], body["checksum"]
    except (ProtocolError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _last_begun(history: History, named: PulsarPart) -> PulsarPart | None:
    last = history.last_begun(named.key)
    return None if last is None else pulsar_part(last)
