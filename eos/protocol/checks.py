"""Pair assertions: what every record must satisfy, checked before writing and after reading."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from eos.errors import CommitLogError, ConfigurationError
from eos.ids import MessageId, check_sink_id
from eos.protocol.keys import check_key, epoch_number, has_control_characters, is_streaming
from eos.protocol.reasons import ReasonKind
from eos.protocol.record import RECORD_VERSION, LogRecord
from eos.protocol.states import State, is_allowed, targets
from eos.summary import PartitionFigures

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
"""24 hours. A huge time to live switches off expiry for a whole coordinator (measured)."""

_KEY: Final = ("query_id", "epoch")
_EPOCH: Final = (
    *_KEY, "attempt", "txn", "ttl_ms", "opened_at", "mark_id", "mark_uuid",
)  # fmt: skip
_TOTALS: Final = ("records", "bytes", "checksum")
_FIGURES: Final = ("receipt_id", *_TOTALS)

_REQUIRED: Final[dict[State, tuple[str, ...]]] = {
    State.CLAIMED: (),
    State.OPEN: _EPOCH,
    State.PREPARED: (*_EPOCH, *_FIGURES),
    State.COMMITTED: (*_EPOCH, *_FIGURES),
    State.ABORTING: (*_EPOCH, "reason"),
    State.ABORTED: (*_EPOCH, "reason"),
    State.EMPTY: (*_EPOCH, *_TOTALS, "reason"),
    State.FAILED: (*_KEY, "reason"),
    State.ABANDONED: (*_EPOCH, "reason"),
}
_OPTIONAL: Final = (*_EPOCH, *_FIGURES, "reason")

_CARRIED: Final = ("txn", "ttl_ms", "opened_at", "mark_id", "mark_uuid", "receipt_topic")


def check_record(record: LogRecord) -> None:
    """Check one appended record (``seq`` and ``written_at`` assigned) for itself.

    Raises:
        CommitLogError: it breaks a rule; the message says which.
    """
    try:
        _check_identity(record)
        _check_presence(record)
        if record.state is not State.CLAIMED:
            _check_key(record)
        if record.txn is not None:
            _check_attempt(record)
            _check_figures(record)
    except (ValueError, ConfigurationError) as error:
        text = error.message if isinstance(error, ConfigurationError) else str(error)
        raise _broken(record, text) from None


def check_successor(previous: LogRecord | None, record: LogRecord) -> None:
    """Check an epoch's record against ``previous``, the newest one of the same (query, epoch).

    Raises:
        CommitLogError: the step is not in the transition table, or the record contradicts
            what was known of the attempt.
    """
    try:
        if record.state is State.CLAIMED:
            raise ValueError("CLAIMED belongs to a sink, not to an epoch")
        source = previous.state if previous else None
        if not is_allowed(source, record.state):
            expected = ", ".join(sorted(targets(source))) or "nothing: the epoch is done"
            raise ValueError(f"after {source or 'no record'} comes {expected}")
        if previous is not None:
            _check_same_epoch(previous, record)
        elif record.state is State.OPEN:
            _require(record.attempt == 1, "the first attempt is number 1")
    except ValueError as error:
        raise _broken(record, str(error)) from None


def _check_identity(record: LogRecord) -> None:
    if record.record_version > RECORD_VERSION:
        raise ValueError(
            f"record_version {record.record_version} was written by a newer release "
            f"(this one knows {RECORD_VERSION}): upgrade it"
        )
    _require(record.record_version == RECORD_VERSION, f"record_version {record.record_version}")
    check_sink_id(record.sink_id)
    _require(record.seq >= 1, f"seq is {record.seq}, it counts from 1")
    check_key(record.run_id, what="run_id")
    _check_service_url(record.service_url)
    check_key(record.receipt_topic, what="receipt_topic")
    _require(record.written_at is not None, "written_at is missing")
    _check_utc("written_at", record.written_at)


def _check_presence(record: LogRecord) -> None:
    required = _REQUIRED[record.state]
    if record.state is State.ABANDONED and record.txn is None:
        required = _REQUIRED[State.FAILED]  # and that is what it was before
    if record.state in (State.ABORTED, State.ABANDONED) and record.receipt_id is not None:
        # It was PREPARED before, and carries on what that record knew.
        required = (*required, *_FIGURES)
    if record.state is State.COMMITTED and _is_decided(record):
        required = (*required, "reason")
    for name in _OPTIONAL:
        is_there = getattr(record, name) is not None
        if is_there != (name in required):
            raise ValueError(f"{name} {'does not belong there' if is_there else 'is missing'}")
    has_partitions = "receipt_id" in required
    if bool(record.partitions) != has_partitions:
        raise ValueError(f"partitions {'are missing' if has_partitions else 'do not belong there'}")


def _check_key(record: LogRecord) -> None:
    assert record.query_id is not None
    assert record.epoch is not None
    check_key(record.query_id, what="query_id")
    check_key(record.epoch)
    if is_streaming(record.query_id):
        epoch_number(record.query_id, record.epoch)
    if record.state is State.ABANDONED:
        _require(_is_decided(record), "ABANDONED by nobody: its reason is not DECIDED")


def _is_decided(record: LogRecord) -> bool:
    """Whether a person decided it, where nothing could be proved."""
    return record.reason is not None and record.reason.kind is ReasonKind.DECIDED


def _check_attempt(record: LogRecord) -> None:
    assert record.attempt is not None
    assert record.ttl_ms is not None
    assert record.txn is not None
    assert record.mark_id is not None
    assert record.mark_uuid is not None
    _require(record.attempt >= 1, f"attempt is {record.attempt}, it counts from 1")
    # TxnID is two uint64, of which Delta's long holds the lower half; the broker counts from 0.
    _require(all(0 <= part < 2**63 for part in record.txn), f"txn {record.txn} is out of range")
    _require(0 < record.ttl_ms <= MAX_TTL_MS, f"ttl_ms {record.ttl_ms} is not within 24 hours")
    _check_utc("opened_at", record.opened_at)
    _check_message_id("mark_id", record.mark_id)
    if str(uuid.UUID(record.mark_uuid)) != record.mark_uuid:
        raise ValueError("mark_uuid is not a uuid in canonical form")
    if record.state is State.EMPTY and record.reason and record.reason.kind is not ReasonKind.EMPTY:
        raise ValueError(f"EMPTY has the reason {record.reason.kind}")


def _check_figures(record: LogRecord) -> None:
    if record.receipt_id is not None and record.mark_id is not None:
        _check_message_id("receipt_id", record.receipt_id)
        # Both are in one topic, and the mark was acknowledged before: ledgers and entries grow.
        if record.receipt_id[:2] <= record.mark_id[:2]:
            raise ValueError(f"receipt {record.receipt_id} is not after mark {record.mark_id}")
    for part in record.partitions:
        _check_partition(part)
    repeated = [t for t, n in Counter(p.topic for p in record.partitions).items() if n > 1]
    _require(not repeated, f"partitions name {', '.join(repeated)} twice")
    if record.records is not None:
        sums = (
            sum(part.records for part in record.partitions),
            sum(part.bytes for part in record.partitions),
            sum(part.checksum for part in record.partitions) % 2**64,
        )
        if (record.records, record.bytes, record.checksum) != sums:
            raise ValueError("records, bytes or checksum is not the sum over the partitions")


def _check_partition(part: PartitionFigures) -> None:
    check_key(part.topic, what="a partition's topic")
    _require(bool(part.producers) and all(part.producers), f"{part.topic}: producers are missing")
    _require(part.records >= 1, f"{part.topic}: {part.records} records")
    _require(part.bytes >= 0, f"{part.topic}: {part.bytes} bytes")
    _require(0 <= part.checksum < 2**64, f"{part.topic}: checksum {part.checksum} is not a uint64")
    _check_message_id(f"{part.topic}: first_id", part.first_id)
    _check_message_id(f"{part.topic}: last_id", part.last_id)
    _require(part.first_id <= part.last_id, f"{part.topic}: first_id is after last_id")


def _check_same_epoch(previous: LogRecord, record: LogRecord) -> None:
    _require(previous.sink_id == record.sink_id and previous.key == record.key, "another epoch")
    if record.state is State.OPEN:
        expected = (previous.attempt or 0) + 1
        _require(record.attempt == expected, f"attempt is {record.attempt}, not {expected}")
        _require(record.mark_uuid != previous.mark_uuid, "mark_uuid is that of the last attempt")
        return
    _require(record.attempt == previous.attempt, f"attempt is {record.attempt}")
    was_prepared = previous.state is State.PREPARED
    for name in (*_CARRIED, *((*_FIGURES, "partitions") if was_prepared else ())):
        if getattr(record, name) != getattr(previous, name):
            raise ValueError(f"{name} is not that of the attempt's last record")
    _check_step(previous, record)


def _check_step(previous: LogRecord, record: LogRecord) -> None:
    kind = record.reason.kind if record.reason else None
    is_own = record.run_id == previous.run_id
    if record.state is State.PREPARED:
        # Only the run that opened the transaction knows that every send was acknowledged (I4).
        _require(is_own, "PREPARED by a run that did not open the transaction")
    if record.state is State.ABORTING and kind is ReasonKind.EMPTY:
        _require(is_own, "found empty by a run that did not open the transaction")
    if previous.state is State.PREPARED and record.state is State.ABORTED:
        leads = kind in (ReasonKind.EXPIRED, ReasonKind.DECIDED)
        _require(leads, "after PREPARED only EXPIRED or a person leads to ABORTED")
    if previous.state is State.ABORTING and previous.reason:
        _require(kind is previous.reason.kind, f"the reason was {previous.reason.kind}")
    if record.state is State.ABORTED and previous.state is not State.PREPARED:
        _require(record.receipt_id is None, "receipt_id without PREPARED")


def _check_service_url(url: str) -> None:
    # The url stays out of every message: it might be the very thing that holds a password.
    _require("://" in url, "service_url is not a url")
    if any(char in url for char in "@?#") or has_control_characters(url):
        raise ValueError("service_url holds a user, a query or a fragment; leave credentials out")


def _check_message_id(name: str, message_id: MessageId) -> None:
    if message_id.ledger < 0 or message_id.entry < 0:
        raise ValueError(f"{name} {message_id} is not the place of a message")


def _check_utc(name: str, moment: datetime | None) -> None:
    if moment is not None and moment.utcoffset() != timedelta(0):
        raise ValueError(f"{name} is not in UTC")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _broken(record: LogRecord, why: str) -> CommitLogError:
    return CommitLogError(
        f"{record.state.value} record at seq {record.seq}: {why}.",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn,
    )
