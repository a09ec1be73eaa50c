"""Selects the records of a log that no later decision depends on. Pure.

Up to a horizon, records of finished epochs are dropped unless a decision may need them. Above it
all records stay, without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eos.protocol._record import UNNAMED, LogRecord, epoch_number, is_streaming
from eos.protocol._states import FINAL, OWING, UNFINISHED, State


@dataclass(frozen=True)
class ThinnedLog:
    """A log without the records that nothing depends on.

    ``horizon``: the ``seq`` up to which records may be missing. ``kept``: the number of records at
    or below it that are left. ``records``: all that stay, by ``seq``.
    """

    horizon: int
    kept: int
    records: tuple[LogRecord, ...]


def thin(records: Sequence[LogRecord], *, keep_epochs: int, horizon: int = 0) -> ThinnedLog | None:
    """Drop finished epochs beyond the ``keep_epochs`` newest; None if there is nothing to drop.

    Args:
        records: the whole present log, by ``seq``.
        keep_epochs: number of the newest finished epochs that stay in full; at least 1.
        horizon: the present one; it never moves back.
    """
    finals = [record.seq for record in records if record.state in FINAL]
    if len(finals) <= keep_epochs:
        return None
    new_horizon = finals[-keep_epochs - 1]
    if new_horizon <= horizon:
        return None
    above = [record for record in records if record.seq > new_horizon]
    below = [record for record in records if record.seq <= new_horizon]
    needed = _needed(records, below, {record.key for record in above})
    kept = [record for record in below if record.seq in needed]
    if len(kept) == len(below):
        return None
    return ThinnedLog(new_horizon, len(kept), (*kept, *above))


def _needed(
    records: Sequence[LogRecord],
    below: Sequence[LogRecord],
    keys_above: set[tuple[str, str] | None],
) -> set[int]:
    """``seq`` of each record at or below the horizon that something may depend on."""
    newest = {record.key: record for record in records if record.key is not None}
    last_final = _last_finals(below)
    needed = {below[-1].seq}  # the log's order needs a known beginning
    newest_of: dict[object, int] = {}
    for record in below:
        if record.state is State.CLAIMED:
            newest_of["claim"] = record.seq  # an append is checked against it
            continue
        assert record.key is not None
        query_id, epoch = record.key
        for part in record.participants:
            if part.begun_at is not None:
                newest_of["begun", part.key] = record.seq  # what its output is compared with
            for anchor in part.anchors:
                newest_of["anchor", part.key, anchor] = record.seq  # for Pulsar's coordinators
        if is_streaming(query_id):
            newest_of["query", query_id] = record.seq  # for the lineage
        last = newest[record.key]
        if last.state in UNFINISHED:
            needed.add(record.seq)
        elif record.key in keys_above:
            newest_of["epoch", record.key] = record.seq  # its attempts are numbered on
        # What is owed may run again, and people must see it. A batch key is skipped for ever; a
        # stream's newest final record skips everything at or below it.
        elif (
            last.seq == record.seq
            and not epoch.startswith(UNNAMED)
            and (last.state in OWING or not _is_passed(query_id, epoch, record, last_final))
        ):
            needed.add(record.seq)
    needed |= set(newest_of.values())
    # If any record of an epoch stays, its newest one stays: an older one would become its state.
    newest_below = {record.key: record.seq for record in below if record.key is not None}
    return needed | {newest_below[r.key] for r in below if r.seq in needed and r.key is not None}


def _last_finals(below: Sequence[LogRecord]) -> dict[str, int]:
    last: dict[str, int] = {}
    for record in below:
        if record.state in FINAL and record.key is not None and is_streaming(record.key[0]):
            query_id, epoch = record.key
            last[query_id] = max(last.get(query_id, -1), epoch_number(query_id, epoch))
    return last


def _is_passed(query_id: str, epoch: str, record: LogRecord, last_final: dict[str, int]) -> bool:
    """Whether a streaming query has finished a later epoch, or this one is not its newest final."""
    if not is_streaming(query_id):
        return False
    last = last_final.get(query_id, -1)
    number = epoch_number(query_id, epoch)
    return number < last or (number == last and record.state not in FINAL)
