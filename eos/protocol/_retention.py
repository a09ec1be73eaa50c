"""Selects the records of a log that no later decision depends on. Pure.

Up to a horizon, records of finished epochs are dropped unless a decision may need them. Above it
all records stay, without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eos.protocol._history import History
from eos.protocol._record import UNNAMED, LogRecord, epoch_number
from eos.protocol._states import FINAL, OWING, UNFINISHED, State

KEEP_CLAIMS: Final = 1_000
"""Number of the newest claims that stay: a run that has lost the sink must not claim it again."""


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
    newest_below = {record.key: record.seq for record in below if record.key is not None}
    history = History.of(below[-1].sink_id, below, horizon=below[-1].seq)
    needed = {below[-1].seq}  # the log's order needs a known beginning
    needed.update(record.seq for record in history.evidence)
    needed.update([r.seq for r in records if r.state is State.CLAIMED][-KEEP_CLAIMS:])
    for record in below:
        if record.key is None:
            continue
        state = newest[record.key].state
        if state in UNFINISHED:
            needed.add(record.seq)
        elif record.key in keys_above:
            needed.add(newest_below[record.key])  # its attempts are numbered on
        # What is owed may run again, and people must see it. A batch key is skipped for ever; a
        # stream's newest final record skips everything at or below it.
        elif not record.key[1].startswith(UNNAMED) and (
            state in OWING or not _is_passed(history, record.key)
        ):
            needed.add(newest_below[record.key])
    # If any record of an epoch stays, its newest one stays: an older one would become its state.
    return needed | {newest_below[r.key] for r in below if r.seq in needed and r.key is not None}


def _is_passed(history: History, key: tuple[str, str]) -> bool:
    """Whether a streaming query has finished a later epoch."""
    last = history.last_committed_epoch(key[0])
    return last is not None and epoch_number(*key) < last
