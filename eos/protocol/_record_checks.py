"""Assertions on every record, checked before writing and after reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from eos.errors import CommitLogError, ConfigurationError
from eos.ids import check_sink_id
from eos.protocol._part import Part, Stage, require, require_carried
from eos.protocol._record import (
    RECORD_VERSION,
    LogRecord,
    ReasonKind,
    check_key,
    epoch_number,
    is_streaming,
)
from eos.protocol._states import State, is_allowed, targets

_KEY: Final = ("query_id", "epoch")
_EPOCH: Final = (*_KEY, "attempt", "opened_at")
_TOTALS: Final = ("records", "bytes", "checksum")

_REQUIRED: Final[dict[State, tuple[str, ...]]] = {
    State.CLAIMED: (),
    State.OPEN: _EPOCH,
    State.PREPARED: (*_EPOCH, *_TOTALS),
    State.COMMITTED: (*_EPOCH, *_TOTALS),
    State.ABORTING: (*_EPOCH, "reason"),
    State.ABORTED: (*_EPOCH, "reason"),
    State.EMPTY: (*_EPOCH, *_TOTALS, "reason"),
    State.FAILED: (*_KEY, "reason"),
    State.ABANDONED: (*_EPOCH, "reason"),
}
_OPTIONAL: Final = (*_EPOCH, *_TOTALS, "reason")
_MAY_HAVE_BEEN_PREPARED: Final = frozenset({State.ABORTING, State.ABORTED, State.ABANDONED})


def check_record(record: LogRecord) -> None:
    """Check one appended record (``seq`` and ``written_at`` assigned) on its own.

    Raises:
        CommitLogError: it breaks a rule; the message says which.
    """
    try:
        _check_identity(record)
        _check_presence(record)
        if record.state is not State.CLAIMED:
            _check_key(record)
        if record.attempt is not None:
            _check_attempt(record)
        _check_participants(record)
    except (ValueError, ConfigurationError) as error:
        text = error.message if isinstance(error, ConfigurationError) else str(error)
        raise refused(record, text) from None


def check_successor(previous: LogRecord | None, record: LogRecord) -> None:
    """Check an epoch's record against ``previous``, the newest one of the same (query, epoch).

    Raises:
        CommitLogError: the step is not in the transition table, or the record contradicts an
            earlier one of the attempt.
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
            require(record.attempt == 1, "the first attempt is number 1")
    except ValueError as error:
        raise refused(record, str(error)) from None


def _check_identity(record: LogRecord) -> None:
    if record.record_version > RECORD_VERSION:
        raise ValueError(
            f"record_version {record.record_version} was written by a newer release "
            f"(this one knows {RECORD_VERSION}): upgrade it"
        )
    require(record.record_version >= 1, f"record_version {record.record_version}")
    check_sink_id(record.sink_id)
    require(record.seq >= 1, f"seq is {record.seq}, it counts from 1")
    check_key(record.run_id, what="run_id")
    require(record.written_at is not None, "written_at is missing")
    _check_utc("written_at", record.written_at)


def _check_presence(record: LogRecord) -> None:
    required = _REQUIRED[record.state]
    if record.state is State.ABANDONED and record.attempt is None:
        required = _REQUIRED[State.FAILED]  # as it was before
    if record.state in _MAY_HAVE_BEEN_PREPARED and record.records is not None:
        # It was PREPARED before, and carries on that record's totals.
        required = (*required, *_TOTALS)
    if record.state is State.COMMITTED and _is_decided(record):
        required = (*required, "reason")
    for name in _OPTIONAL:
        is_there = getattr(record, name) is not None
        if is_there != (name in required):
            raise ValueError(f"{name} {'does not belong there' if is_there else 'is missing'}")


def stage_of(record: LogRecord) -> Stage:
    """Return how much the record's parts must hold."""
    if record.attempt is None:
        return Stage.CLAIMED
    if record.records is None or record.state is State.EMPTY:
        return Stage.BEGUN
    return Stage.PREPARED


def _check_participants(record: LogRecord) -> None:
    parts = record.participants
    require(bool(parts), "it names no participant")
    repeated = [key for key, n in Counter(part.key for part in parts).items() if n > 1]
    require(not repeated, f"participant {repeated[:1]} is named twice")
    check_order(parts)
    stage = stage_of(record)
    for part in parts:
        part.check(stage)
    require(stage is not Stage.PREPARED or bool(record.records), "prepared without rows")
    if stage is Stage.PREPARED and record.unknown is None:
        totals = record.with_totals()
        for name in _TOTALS:
            is_sum = getattr(record, name) == getattr(totals, name)
            require(is_sum, f"{name} is not the sum over the participants")


def check_order(parts: Sequence[Part]) -> None:
    """Check that one of the participants can decide for all of them.

    If two could expire, one might be committed and the other be gone: no order of ending them is
    all-or-nothing.

    Raises:
        ValueError: more than one can expire, or the one that can is not the first.
    """
    expiring = [index for index, part in enumerate(parts) if part.can_expire]
    if len(expiring) > 1:
        kinds = " and ".join(parts[index].kind for index in expiring)
        raise ValueError(
            f"{kinds} can both expire after they are prepared: one of them may be committed when "
            "the other has expired"
        )
    require(expiring in ([], [0]), "the participant that can expire is not the first one")


def _check_key(record: LogRecord) -> None:
    assert record.query_id is not None
    assert record.epoch is not None
    check_key(record.query_id, what="query_id")
    check_key(record.epoch)
    if is_streaming(record.query_id):
        epoch_number(record.query_id, record.epoch)
    if record.state is State.ABANDONED:
        require(_is_decided(record), "ABANDONED without a person: its reason is not DECIDED")


def _is_decided(record: LogRecord) -> bool:
    """Whether a person decided, because nothing could be proved."""
    return record.reason is not None and record.reason.kind is ReasonKind.DECIDED


def _check_attempt(record: LogRecord) -> None:
    assert record.attempt is not None
    require(record.attempt >= 1, f"attempt is {record.attempt}, it counts from 1")
    _check_utc("opened_at", record.opened_at)
    _check_utc("planned_at", record.planned_at)
    if record.state is State.EMPTY and record.reason and record.reason.kind is not ReasonKind.EMPTY:
        raise ValueError(f"EMPTY has the reason {record.reason.kind}")
    if record.state is State.EMPTY:
        none = (record.records, record.bytes, record.checksum) == (0, 0, 0)
        require(none, "records, bytes or checksum is not the sum: EMPTY has none")


def _check_same_epoch(previous: LogRecord, record: LogRecord) -> None:
    require(previous.sink_id == record.sink_id and previous.key == record.key, "another epoch")
    if record.state is State.OPEN:
        expected = (previous.attempt or 0) + 1
        require(record.attempt == expected, f"attempt is {record.attempt}, not {expected}")
        for part in record.participants:
            before = previous.part(part.key)
            if before is not None:
                part.check_new(before)
        return
    require(record.attempt == previous.attempt, f"attempt is {record.attempt}")
    was_prepared = stage_of(previous) is Stage.PREPARED
    require_carried(
        record, previous, ("opened_at", "planned_at", *(_TOTALS if was_prepared else ()))
    )
    keys = [part.key for part in record.participants]
    require(keys == [part.key for part in previous.participants], "other participants")
    for part, before in zip(record.participants, previous.participants, strict=True):
        part.check_follows(before)
    _check_step(previous, record)


def _check_step(previous: LogRecord, record: LogRecord) -> None:
    kind = record.reason.kind if record.reason else None
    is_own = record.run_id == previous.run_id
    if record.state is State.PREPARED:
        # Only the run that opened the transaction knows that every send was acknowledged (I4).
        require(is_own, "PREPARED by a run that did not open the transaction")
    if record.state is State.ABORTING and kind is ReasonKind.EMPTY:
        require(is_own, "found empty by a run that did not open the transaction")
    if previous.state is State.PREPARED and record.state in (State.ABORTED, State.ABORTING):
        leads = kind in (ReasonKind.EXPIRED, ReasonKind.DECIDED)
        require(leads, f"after PREPARED only EXPIRED or a person leads to {record.state}")
        # The other prepared parts must be aborted, and the log must say so first.
        several = len(record.participants) > 1
        require(several is (record.state is State.ABORTING), f"{record.state} after PREPARED")
    if previous.state is State.ABORTING and previous.reason:
        require(kind is previous.reason.kind, f"the reason was {previous.reason.kind}")
    if record.state in (State.ABORTED, State.ABORTING) and stage_of(previous) is Stage.BEGUN:
        require(record.records is None, "figures without PREPARED")


def _check_utc(name: str, moment: datetime | None) -> None:
    if moment is not None and moment.utcoffset() != timedelta(0):
        raise ValueError(f"{name} is not in UTC")


def refused(record: LogRecord, why: str) -> CommitLogError:
    """Return the error for a record that breaks a rule."""
    return CommitLogError(
        f"{record.state.value} record at seq {record.seq}: {why}.", **record.context
    )
