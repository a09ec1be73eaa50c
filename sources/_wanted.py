"""Which messages a batch read wants: those of a time window, and of the query's filters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from eos.ids import EntryPlace
from eos.wire.decoding import decode_message_ids

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MS: Final = timedelta(milliseconds=1)


class Times(NamedTuple):
    """Publish times in milliseconds: ``start`` is included, ``end`` is not; None: no limit."""

    start: int | None = None
    end: int | None = None

    def within(self, other: Times) -> Times:
        """Return what both contain."""
        starts = [one.start for one in (self, other) if one.start is not None]
        ends = [one.end for one in (self, other) if one.end is not None]
        return Times(max(starts, default=None), min(ends, default=None))


ANY_TIME: Final = Times()


@dataclass(frozen=True)
class Wanted:
    """The messages that a query wants; None: any.

    ``partitions``: their indices, -1 for a topic without partitions. ``places``: by partition, the
    first entry with a wanted message id, and the place after the last one.
    """

    times: Times = ANY_TIME
    keys: frozenset[bytes] | None = None
    partitions: frozenset[int] | None = None
    places: Mapping[int, tuple[EntryPlace, EntryPlace]] | None = None

    @classmethod
    def of(cls, filters: Iterable[Any]) -> Self:
        """Parse filters of ``pyspark.sql.datasource``; those that it does not know are ignored."""
        # It may find too much, never too little: Spark applies all filters, too.
        found = cls()
        for one in filters:
            kind, values = type(one).__name__, _values(one)
            match getattr(one, "attribute", None):
                case ("__publishTime",):
                    times = found.times.within(_times(kind, values))
                    found = replace(found, times=times)
                case ("__key",) if kind in _EQUAL:
                    found = replace(found, keys=frozenset(map(bytes, values)))
                case ("__partition",) if kind in _EQUAL:
                    found = replace(found, partitions=frozenset(values))
                case ("__messageId",) if kind in _EQUAL:
                    found = replace(found, places=_places(values))
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The client's columns that ``select`` needs."""
        times = () if self.times == ANY_TIME else ("publish_time",)
        return times if self.keys is None else (*times, "key")

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages with wanted times and keys."""
        # Before values are decoded, which is what costs.
        masks = []
        start, end = self.times
        if start is not None:
            masks.append(pc.greater_equal(_numbers(batch), start))
        if end is not None:
            masks.append(pc.less(_numbers(batch), end))
        if self.keys is not None:
            keys = batch.column("key")
            masks.append(pc.is_in(keys, pa.array(sorted(self.keys), keys.type)))
        return batch.filter(reduce(pc.and_, masks)) if masks else batch


ALL: Final = Wanted()

_EQUAL: Final = frozenset({"EqualTo", "In"})


def _numbers(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("publish_time").cast(pa.int64())


def _values(one: Any) -> Collection[Any]:
    # A comparison with null, which Spark does not push, would find no row.
    value = getattr(one, "value", None)
    values = value if isinstance(value, list | tuple) else [value]
    return [value for value in values if value is not None]


def _times(kind: str, values: Collection[Any]) -> Times:
    if not values or not all(isinstance(one, datetime) and one.tzinfo for one in values):
        return ANY_TIME
    first, last = min(values) - _EPOCH, max(values) - _EPOCH
    # Columns have whole milliseconds, filters also parts of them.
    after, reaches = last // _MS + 1, -(-first // _MS)
    known = {
        "GreaterThan": Times(first // _MS + 1),
        "GreaterThanOrEqual": Times(reaches),
        "LessThan": Times(None, reaches),
        "LessThanOrEqual": Times(None, after),
    }
    return Times(reaches, after) if kind in _EQUAL else known.get(kind, ANY_TIME)


def _places(values: Collection[bytes]) -> Mapping[int, tuple[EntryPlace, EntryPlace]] | None:
    try:
        ids = decode_message_ids(pa.array(values, pa.binary()))
    except (ValueError, pa.ArrowException):
        return None  # no id of a message
    found: dict[int, list[EntryPlace]] = defaultdict(list)
    for partition, *place in zip(ids.partition, ids.ledger, ids.entry, strict=True):
        found[int(partition)].append((int(place[0]), int(place[1])))
    return {
        partition: (min(places), (max(places)[0], max(places)[1] + 1))
        for partition, places in found.items()
    }
