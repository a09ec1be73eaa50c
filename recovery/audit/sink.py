"""The audit of one sink: every partition and the receipts, read as the broker delivers them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from eos.cli.exit_codes import Exit, exit_of
from eos.cli.reports import Facts
from eos.client import ONE_BY_ONE, Entry, EntryReader, PulsarClient
from eos.errors import EosError, ProtocolError
from eos.ids import EntryPlace, TopicName
from eos.protocol import History, LogRecord, State
from eos.pulsar.part import EMPTY_PART, PulsarPart, other_parts, pulsar_part
from eos.pulsar.receipts import receipt_mark_uuid
from eos.recovery._sink_view import Decided, Owing, Unfinished, view
from eos.recovery._target import Target
from eos.recovery.audit._attempts import Attempts
from eos.recovery.audit._outputs import AuditedOutput, audit_outputs
from eos.recovery.audit.partition import Finding, PartitionAudit, Stray, by_topic, finding_of

_NOWHERE: EntryPlace = (-1, -1)

CLOCKS = timedelta(minutes=1)
"""How far a driver's clock may be behind the broker's: an epoch that seems older than its topic by
less than that may be younger."""


class AuditedSink(Facts):
    """What was checked of one sink."""

    sink_id: str
    epochs: int = 0
    records: int = 0
    bytes: int = 0
    partitions: int = 0
    receipts: int = 0
    trimmed: int = 0
    """Parts of epochs whose messages retention has taken away since: not checked."""
    others: int = 0
    """Messages of other producers in between."""
    outputs: tuple[str, ...] = ()
    """Those that are no topics, and that the sink writes to now."""
    by_output: tuple[AuditedOutput, ...] = ()
    """Of each of them, and of earlier ones, what was found."""
    newest_only: tuple[str, ...] = ()
    """Those of them that could only be asked what became of the newest epoch."""
    rows: int = 0
    """Rows that are in any of them as they were committed."""
    changes: tuple[str, ...] = ()
    """What others have done since with rows of committed epochs: OPTIMIZE, DELETE and the like."""
    is_changed: bool = False
    """Whether some of that changes rows, as OPTIMIZE does not."""
    unfinished: tuple[Unfinished, ...] = ()
    owing: tuple[Owing, ...] = ()
    decided: tuple[Decided, ...] = ()


class SinkAudit:
    """Reads a sink's topics and compares them with its log.

    ``findings`` is what must not be, ``unknown`` what could not be checked, ``broken`` why the log
    can't be relied on, ``facts`` the rest; all grow while ``run`` is iterated over.

    Args:
        last: only so many of the newest epochs; all when None.
        silence_s: how long a partition may yield nothing before it is given up.
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
        """Check everything; yields what it is at."""
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
        # Not of the newest record alone: a sink may have gone from a topic to a table.
        parts = (pulsar_part(record) for record in reversed(records))
        named = next((part for part in parts if part.receipt_topic), EMPTY_PART)
        if not named.receipt_topic:
            return
        attempts = Attempts(records)
        try:
            with self._target.client(named.service_url) as client:
                client.coordinators.count()  # one complaint, not one for each partition
                yield from self._check_topics(client, attempts)
                yield f"{sink_id}: receipts"
                with self._unknown_on_error(named.receipt_topic):
                    self._check_receipts(client, named.receipt_topic, attempts)
                    self._check_not_rolled_back(client, log.history, named)
        except EosError as error:
            self.unknown.append(f"the topics of sink {sink_id}: {error}")
        # A number alone may be another cluster's: what the log counts has to be there as well.
        self.findings += [
            stray.finding()
            for stray in self._strays
            if stray.is_certain or attempts.generation(stray.record) in self._seen
        ]

    def _check_outputs(self) -> None:
        try:
            looked = audit_outputs(
                self._read_log,
                self._target.access,
                timeout_s=self._target.timeout_s,
                last=self._last,
            )
        except EosError as error:
            self.unknown.append(f"the outputs of sink {self.facts.sink_id}: {error}")
            return
        self.findings += looked.findings
        self.unknown += looked.unknown
        self._count(
            newest_only=tuple(looked.newest_only),
            changes=tuple(looked.changes),
            rows=sum(one.rows for one in looked.counts),
            by_output=tuple(looked.counts),
            is_changed=looked.is_changed,
        )

    def _read_log(self) -> tuple[History, list[LogRecord]]:
        log = self._target.log(self.facts.sink_id)
        return log.history, log.records()

    def _check_topics(self, client: PulsarClient, attempts: Attempts) -> Iterator[str]:
        named = [record for record in attempts.newest if pulsar_part(record).partitions]
        committed = [record for record in named if record.state is State.COMMITTED]
        committed = committed[-(self._last or 0) :]
        chosen = by_topic(committed)
        uuids = {pulsar_part(record).mark_uuid for record in committed}
        others = by_topic(record for record in named if pulsar_part(record).mark_uuid not in uuids)
        for topic in self._partitions({*chosen, *others}, client):
            yield f"{self.facts.sink_id}: {topic}"
            with self._unknown_on_error(topic):
                mine = chosen.get(topic, [])
                audit = PartitionAudit(topic, mine, others.get(topic, []), attempts)
                # A reader would create a topic that was deleted.
                if client.exists(topic):
                    self._check_topic(client, audit)
                else:
                    self.findings += audit.all_gone()

    def _partitions(self, named: Iterable[str], client: PulsarClient) -> list[str]:
        """Every exact topic that the log names, and the other partitions of the same topics:
        a second run may have written where the one that counts had no rows."""
        found = set(named)
        for base in {TopicName.parse(name).base for name in found}:
            try:
                count = client.partition_count(str(base))
            except EosError:
                continue  # those that are named are asked for, and complained of, one by one
            found |= {str(name) for name in base.partitions(count)}
        return sorted(found)

    def _check_topic(self, client: PulsarClient, audit: PartitionAudit) -> None:
        with client.entry_reader(audit.topic, audit.start) as reader:
            missed = self._read_to_end(reader, audit)
        self._strays += audit.strays
        self._seen |= audit.seen
        oldest = self._oldest_ledger(audit.topic)
        if missed is not None and not (oldest is not None and missed[0] < oldest):
            self.unknown.append(
                f"{audit.topic}: readers do not get to {missed[0]}:{missed[1]}, nothing came "
                f"for {self._silence_s:g} s; `orphans` tells whether it is pinned."
            )
            return
        trimmed = audit.close(oldest)
        if trimmed and (anew := self._lost_with_its_topic(audit.topic, trimmed)) is not None:
            self.findings.append(anew)
        elif trimmed and (oldest is None or len(trimmed) == audit.parts):
            # A topic that was deleted and made again looks like one whose retention took it all.
            hint = "; --admin-url can tell more" if oldest is None else ""
            self.unknown.append(
                f"{audit.topic}: nothing is there any more of {len(trimmed)} epochs: trimmed, or "
                f"lost with a topic that was deleted and made again{hint}."
            )
        self.findings += audit.findings
        facts = self.facts
        self._count(
            records=facts.records + audit.records,
            bytes=facts.bytes + audit.bytes,
            partitions=facts.partitions + 1,
            trimmed=facts.trimmed + len(trimmed),
            others=facts.others + audit.others,
        )

    def _read_to_end(self, reader: EntryReader, audit: PartitionAudit) -> EntryPlace | None:
        """Read what the log names, and all that is readable now; the place that is not got to."""
        last = reader.last_id(self._target.timeout_s)
        end = max(audit.end, _NOWHERE if last is None else last.place)
        at = _NOWHERE if audit.start is None else audit.start.place
        for entry in self._entries(reader) if at <= end else ():
            at = entry.id.place
            if at <= end:
                audit.take(entry)
            if at >= end:
                return None
        return None if end == _NOWHERE or at > end else end

    def _entries(self, reader: EntryReader) -> Iterator[Entry]:
        # Each entry buys the next one a whole silence.
        while entry := next(reader.read(time.monotonic() + self._silence_s), None):
            yield entry

    def _lost_with_its_topic(self, topic: str, trimmed: list[LogRecord]) -> Finding | None:
        """Of epochs that are older than the topic nothing was trimmed: an earlier one had them."""
        admin = self._target.maybe_admin()
        if admin is None:
            return None
        made_at = admin.topic_stats(TopicName.parse(topic), is_partitioned=False).created_at
        if made_at is None:
            return None
        older = [one for one in trimmed if one.written_at and one.written_at + CLOCKS < made_at]
        if not older:
            return None
        messages = sum(
            part.records
            for record in older
            for part in pulsar_part(record).partitions
            if part.topic == topic
        )
        what = (
            f"the topic was deleted, and made anew at {made_at:%Y-%m-%dT%H:%M:%SZ}: {messages:,} "
            f"messages of {len(older):,} epochs are gone with the earlier one"
        )
        return finding_of(older[0], topic, what, None)

    def _oldest_ledger(self, topic: str) -> int | None:
        """The oldest ledger that the topic still has; None: nobody can be asked."""
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
                f"{topic}: the receipt topic does not exist any more. A driver goes on with "
                'on_new_cluster="continue" once, if this is the right cluster.'
            )
            return
        oldest = self._oldest_ledger(topic)
        if oldest is not None and end[0] < oldest:
            return  # all acknowledged, and trimmed since
        count = 0
        with client.entry_reader(topic) as reader:
            for entry in self._entries(reader):
                if (call := receipt_mark_uuid(entry)) is not None:
                    count += 1
                    record = by_uuid.get(call)
                    if record is not None and pulsar_part(record).txn == entry.txn:
                        self._check_receipt(record, entry, topic)
                if entry.id.place >= end:
                    break
            else:
                self.unknown.append(f"{topic}: its readers do not get to {end[0]}:{end[1]}.")
        self._count(receipts=count)

    def _check_not_rolled_back(
        self, client: PulsarClient, history: History, named: PulsarPart
    ) -> None:
        """A log that was replaced by an older copy looks whole; the receipts know better."""
        newer = self._newer_receipt(client, _last_begun(history, named))
        if newer is None:
            return
        # A driver that is alive may have gone on: OPEN is in the log before a receipt is sent.
        again = _last_begun(self._target.log(self.facts.sink_id).history, named)
        if again is None or again.mark_id is None:
            return
        if receipt_mark_uuid(newer) == again.mark_uuid or newer.id.place < again.mark_id.place:
            return
        self.findings.append(
            Finding(
                sink_id=self.facts.sink_id,
                query_id=None,
                epoch=None,
                topic=again.receipt_topic,
                what=f"transaction {newer.txn} was committed, and the log ends before it: it was "
                "replaced by an older copy; restore the newest one",
                message_id=str(newer.id),
            )
        )

    def _newer_receipt(self, client: PulsarClient, last: PulsarPart | None) -> Entry | None:
        """The first committed receipt behind the mark of ``last`` that is another transaction's.

        Reads what is readable now; sends nothing.
        """
        if last is None or last.mark_id is None or not client.exists(last.receipt_topic):
            return None
        with client.entry_reader(last.receipt_topic, last.mark_id, permits=ONE_BY_ONE) as reader:
            end = reader.last_id(self._target.timeout_s)
            if end is None or end.place <= last.mark_id.place:
                return None
            for entry in self._entries(reader):
                if receipt_mark_uuid(entry) not in (None, last.mark_uuid):
                    return entry
                if entry.id.place >= end.place:
                    return None
        self.unknown.append(f"{last.receipt_topic}: its readers do not get to its end.")
        return None

    def _check_receipt(self, record: LogRecord, entry: Entry, topic: str) -> None:
        if record.state is State.PREPARED:
            return  # in doubt, which is said elsewhere
        if record.state is not State.COMMITTED:
            what = f"a receipt is readable, but the log says {record.state.value}"
        elif _body(entry) != _figures(record):
            what = "the receipt has other figures than the log"
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


def _figures(record: LogRecord) -> tuple[int, int]:
    part = pulsar_part(record)
    return part.records or 0, part.checksum or 0


def _body(entry: Entry) -> tuple[Any, Any] | None:
    try:
        body = json.loads(entry.messages()[0].value or b"")
        return body["records"], body["checksum"]
    except (ProtocolError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _last_begun(history: History, named: PulsarPart) -> PulsarPart | None:
    last = history.last_begun(named.key)
    return None if last is None else pulsar_part(last)
