"""Compares the written rows with the rows that a reader found: duplicates, missing, incomplete.

Pure, and for any way of writing: it only counts. ``eos.chaos.checker`` is for runs with a log and
message positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT", bound=Hashable)


@dataclass(frozen=True)
class Tally(Generic[RecordT]):
    """The comparison. Everything but the two totals is empty for exactly-once.

    Attributes:
        duplicates: records found too often, with the number of surplus copies.
        missing: records that were not found.
        incomplete: epochs of which some records were found and others were not.
        unknown: records that were found, and never written.
    """

    rows_in: int
    rows_out: int
    duplicates: dict[RecordT, int]
    missing: list[RecordT]
    incomplete: list[str]
    unknown: list[RecordT]


def tally(written: Mapping[str, Iterable[RecordT]], found: Iterable[RecordT]) -> Tally[RecordT]:
    """Compare ``found`` with ``written``, the records of each committed epoch."""
    epochs = {epoch: list(records) for epoch, records in written.items()}
    expected = Counter(record for records in epochs.values() for record in records)
    counts = Counter(found)
    present = {epoch: [counts[r] > 0 for r in records] for epoch, records in epochs.items()}
    return Tally(
        rows_in=expected.total(),
        rows_out=counts.total(),
        duplicates={r: n - expected[r] for r, n in counts.items() if 0 < expected[r] < n},
        missing=[record for record in expected if counts[record] == 0],
        incomplete=[epoch for epoch, flags in present.items() if any(flags) and not all(flags)],
        unknown=[record for record in counts if record not in expected],
    )
