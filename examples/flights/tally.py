"""Pure: what was written, what a reader saw, counted: what is there twice, missing, or half.

Counts alone, for any way of writing; ``eos.chaos.checker.check`` is for what has a log and
positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT", bound=Hashable)


@dataclass(frozen=True)
class TallyVerdict(Generic[RecordT]):
    """What is wrong with what a reader saw. Every list is empty for exactly-once.

    ``duplicates``: records at more than one position, with how many there are too many.
    ``missing``: records of committed epochs that were not seen. ``torn``: epochs of which some
    records were seen and others were not. ``invented``: seen, but never written.
    """

    rows_in: int
    rows_out: int
    duplicates: dict[RecordT, int]
    missing: list[RecordT]
    torn: list[str]
    invented: list[RecordT]

    @property
    def is_exactly_once(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.duplicates or self.missing or self.torn or self.invented)


def tally(
    written: Mapping[str, Iterable[RecordT]], seen: Iterable[RecordT]
) -> TallyVerdict[RecordT]:
    """Compare ``seen`` with ``written``, the records of each committed epoch."""
    epochs = {epoch: list(records) for epoch, records in written.items()}
    expected = Counter(record for records in epochs.values() for record in records)
    counts = Counter(seen)
    present = {epoch: [counts[r] > 0 for r in records] for epoch, records in epochs.items()}
    return TallyVerdict(
        rows_in=expected.total(),
        rows_out=counts.total(),
        duplicates={r: n - expected[r] for r, n in counts.items() if 0 < expected[r] < n},
        missing=[record for record in expected if counts[record] == 0],
        torn=[epoch for epoch, flags in present.items() if any(flags) and not all(flags)],
        invented=[record for record in counts if record not in expected],
    )
