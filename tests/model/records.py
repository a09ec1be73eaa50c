"""Short forms of log records, and the production records that they represent.

A state of the model holds a log as a tuple of ``Entry``. Production's ``History`` of the
corresponding records interprets it; it is built once for each distinct log.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from eos.errors import CommitLogError
from eos.ids import MessageId, TxnId
from eos.protocol import History, LogRecord, Reason, ReasonKind, State
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.task_report import PartitionFigures
from tests.support.table_part import TablePart

TASKS = 2
QUERY = "6f2c7a52-9c3e-4b5f-8d0a-1b2c3d4e5f60"
_NOW = datetime(2026, 11, 20, tzinfo=UTC)
_FIGURES = (
    PartitionFigures(
        "persistent://public/default/t", ("p",), 2, 2, 2, MessageId(1, 1), MessageId(1, 2)
    ),
)
_CLAIMED = PulsarPart(
    service_url="pulsar://b:6650",
    receipt_topic="persistent://public/default/__eos-receipts-s-1",
)


class Entry(NamedTuple):
    """One record: its state, the run that wrote it, and the epoch's attempt and transaction.

    ``mark`` distinguishes transactions with the same id: ids restart on a wiped cluster.
    """

    state: State
    run: int
    epoch: int = -1
    attempt: int = 0
    txn: int = -1
    mark: int = -1
    is_expired: bool = False
    tasks: tuple[int, ...] = tuple(range(TASKS))
    """Tasks whose rows PREPARED counts."""
    has_table: bool = False
    """Whether a second output, which can't expire, has a part in it."""


Log = tuple[Entry, ...]


@cache
def record_of(entry: Entry) -> LogRecord:
    """The production record of an entry, without its position in a log."""
    table = [TablePart()] if entry.has_table else []
    claim = LogRecord.claimed(
        sink_id="s", run_id=f"run-{entry.run}", participants=[_CLAIMED, *table]
    )
    if entry.state is State.CLAIMED:
        return claim
    record = LogRecord.opened(
        claim,
        query_id=QUERY,
        epoch=str(entry.epoch),
        attempt=entry.attempt,
        opened_at=_NOW,
        participants=[
            replace(
                _CLAIMED,
                txn=TxnId(0, entry.txn),
                ttl_ms=1000,
                mark_id=MessageId(5, entry.mark),
                mark_uuid=f"00000000-0000-4000-8000-{entry.mark:012x}",
            ),
            *(replace(part, version=entry.mark) for part in table),
        ],
    )
    if entry.state in (State.PREPARED, State.COMMITTED) or entry.is_expired:
        part = replace(pulsar_part(record), receipt_id=MessageId(5, 900), partitions=_FIGURES)
        prepared = [part, *(replace(one, files=1) for one in record.participants[1:])]
        record = record.advance(State.PREPARED, claim=claim, participants=prepared)
    reason = None
    if entry.is_expired:
        reason = Reason(ReasonKind.EXPIRED, "expired")
    elif entry.state in (State.ABORTING, State.ABORTED):
        reason = Reason(ReasonKind.FAILED, "it failed")
    if entry.state in (State.OPEN, State.PREPARED):
        return record
    return record.advance(entry.state, claim=claim, reason=reason)


@cache
def history_of(log: Log) -> History | None:
    """Production's history of a log; None if production rejects the log."""
    if not log:
        return History("s")
    before = history_of(log[:-1])
    if before is None:
        return None
    try:
        history = History.of("s", map(_placed, range(1, len(log) + 1), log))
    except CommitLogError:
        return None
    return history


def _placed(seq: int, entry: Entry) -> LogRecord:
    return replace(record_of(entry), seq=seq, written_at=_NOW)


@cache
def unfinished(log: Log) -> tuple[Entry, ...]:
    """Newest entries of the epochs that recovery must end, as production decides."""
    history = history_of(log)
    assert history is not None
    return tuple(log[record.seq - 1] for record in history.unfinished)
