"""Which topic partition a key goes to, and rows cut up by partition.

The rules are those of the Java client. Its default is ``JavaStringHash``: ``String.hashCode() &
Integer.MAX_VALUE``, modulo the number of partitions. The other one is ``Murmur3Hash32``: murmur3 of
the key's UTF-8 with seed 0, likewise. (The C++ client and what is built on it, ``pulsar-client``
for Python too, have a default of their own.) Source: ``JavaStringHash``, ``Murmur3Hash32`` and
``MessageRouterBase`` in pulsar-client/src/main/java/org/apache/pulsar/client/impl.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.errors import InputError
from eos.wire.batch._murmur3 import UInt32s, murmur3
from eos.wire.batch._rows import Rows
from eos.wire.columns import BinaryColumn, Int64s, key_text


class Hashing(StrEnum):
    """How a key becomes a number."""

    JAVA = "java"
    MURMUR3 = "murmur3"


Int32s = npt.NDArray[np.int32]

_INT_MAX: Final = 0x7FFFFFFF
_CHUNK_BYTES: Final = 1 << 20
_INVERSE_OF_31: Final = pow(31, -1, 2**32)


def partitions_for_keys(
    keys: pa.Array,
    partition_count: int,
    *,
    keyless_partition: int = 0,
    hashing: Hashing = Hashing.JAVA,
) -> Int32s:
    """The partition (from 0) of each key, where the Java client sends it.

    ``keys`` are strings, or binary ones, which go by their base64 text as in Java. A null goes
    to ``keyless_partition``; the empty key is a key, with hash 0.

    Raises:
        InputError: a key is not UTF-8 (``check_rows`` finds it where the hash is not of text).
    """
    if not 0 <= keyless_partition < partition_count:
        raise ValueError(f"partition {keyless_partition} of {partition_count}.")
    hash_of = _string_hashes if hashing is Hashing.JAVA else murmur3
    hashes = hash_of(key_text(keys)) & np.uint32(_INT_MAX)
    partitions = (hashes % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = keyless_partition
    return partitions


def key_slices(keys: pa.Array, count: int) -> Int32s:
    """Which of ``count`` slices each of the keys (bytes) belongs to; those that are null to 0.

    A slice is a range of hashes: their remainders say to which partition a key was sent, and so are
    much the same within one.
    """
    hashes = (murmur3(BinaryColumn.of(keys)) & np.uint32(_INT_MAX)).astype(np.int64)
    return (hashes * count >> 31).astype(np.int32)


def with_chosen(partitions: Int32s, chosen: pa.Array, partition_count: int) -> Int32s:
    """``partitions``, but where ``chosen`` (int64) is not null: there its number counts.

    Raises:
        InputError: there is no partition of a number; the row is named.
    """
    numbers = chosen.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= partition_count))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"column 'partition' is {numbers[row]} in row {row}; the topic has {partition_count} "
            "partitions, which count from 0.",
            hint="Leave it null where the key is to decide.",
        )
    is_chosen = chosen.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_chosen, numbers, partitions).astype(np.int32)


class PartitionSlice(NamedTuple):
    """Rows ``start`` to ``stop``, not included, go to ``partition``."""

    partition: int
    start: int
    stop: int


def by_partition(rows: Rows, partitions: Int32s) -> tuple[Rows, list[PartitionSlice]]:
    """The rows of each partition side by side, in their order, the lowest partition first; and
    where each of those that have any begins and ends.

    ``partitions``: one number from 0 on for each row.
    """
    if len(partitions) != len(rows):
        raise ValueError(f"{len(partitions)} partitions for {len(rows)} rows.")
    if not len(rows):
        return rows, []
    counts = np.bincount(partitions)
    used = np.flatnonzero(counts)
    if len(used) > 1:
        # Numbers of 16 bits are sorted by radix, in linear time.
        small = partitions.astype(np.uint16) if len(counts) <= 1 << 16 else partitions
        rows = rows.take(np.argsort(small, kind="stable"))
    ends = np.cumsum(counts)[used]
    slices = zip(used.tolist(), (ends - counts[used]).tolist(), ends.tolist(), strict=True)
    return rows, [PartitionSlice(*one) for one in slices]


def _string_hashes(keys: BinaryColumn) -> UInt32s:
    """``String.hashCode()`` of each key, as an unsigned number."""
    hashes = np.empty(len(keys), np.uint32)
    start = 0
    while start < len(keys):
        limit = keys.offsets[start] + _CHUNK_BYTES
        stop = max(start + 1, int(np.searchsorted(keys.offsets, limit, side="right")) - 1)
        offsets = keys.offsets[start : stop + 1] - keys.offsets[start]
        hashes[start:stop] = _hash_units(*_utf16_units(keys.between(start, stop), offsets))
        start = stop
    return hashes


def _utf16_units(
    utf8: pa.Buffer, offsets: Int64s
) -> tuple[npt.NDArray[np.uint8] | npt.NDArray[np.uint16], Int64s]:
    """Java's chars of all keys, one key after the other, and where each key begins and ends."""
    data = np.frombuffer(utf8, np.uint8)
    if int(data.max(initial=0)) < 0x80:
        return data, offsets
    try:
        units = np.frombuffer(str(utf8, "utf-8").encode("utf-16-le"), "<u2")
    except UnicodeDecodeError:
        raise _not_utf8() from None
    firsts = data[offsets[:-1][np.diff(offsets) > 0]]
    if bool((firsts & 0xC0 == 0x80).any()):  # a character torn apart by the end of a key
        raise _not_utf8()
    # A character is one unit, or two when it takes four bytes (its first is then 0xF0 or more).
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum((data & 0xC0 != 0x80).astype(np.int8) + (data >= 0xF0), out=before[1:])
    return units, before[offsets]


def _not_utf8() -> InputError:
    return InputError("column 'key' holds text that is not UTF-8.")


def _hash_units(units: npt.NDArray[np.uint8] | npt.NDArray[np.uint16], offsets: Int64s) -> UInt32s:
    """For each row of chars s the sum of ``s[i] * 31^(n-1-i)`` modulo 2^32.

    31 has an inverse modulo 2^32, so one running sum of ``unit[j] / 31^j`` serves all rows: a
    row's hash is the difference of the sums at its ends, times 31 to the power of its last j.
    """
    count = len(units)
    sums = np.zeros(count + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, count), dtype=np.uint32, out=sums[1:])
    starts, ends = offsets[:-1], offsets[1:]
    lasts = np.maximum(ends, 1) - 1  # for an empty row any will do: its difference is 0
    hashes: UInt32s = (sums[ends] - sums[starts]) * _powers(31, max(count, 1))[lasts]
    return hashes


def _powers(base: int, count: int) -> UInt32s:
    """``base`` to the power of 0 to count - 1, modulo 2^32."""
    if count > _CHUNK_BYTES:
        return _power_table(base, count)  # a single huge key, not worth remembering
    return _kept_power_table(base)[:count]


@lru_cache(maxsize=2)
def _kept_power_table(base: int) -> UInt32s:
    return _power_table(base, _CHUNK_BYTES)


def _power_table(base: int, count: int) -> UInt32s:
    powers = np.full(count, base, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)
