"""Maps keys to topic partitions as the Java client does, and groups rows by partition.

Source: ``JavaStringHash``, ``Murmur3Hash32`` and ``MessageRouterBase`` in
pulsar-client/src/main/java/org/apache/pulsar/client/impl.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.errors import InputError
from eos.wire.batch._batch_rows import Rows
from eos.wire.binary_columns import BinaryColumn, Int64s, key_text


class Hashing(StrEnum):
    """The hash function for keys."""

    # Java's default; the C++ client, and pulsar-client, which is based on it, have another one.
    JAVA = "java"
    MURMUR3 = "murmur3"


Int32s = npt.NDArray[np.int32]
UInt32s = npt.NDArray[np.uint32]

_INT_MAX: Final = 0x7FFFFFFF
_CHUNK_BYTES: Final = 1 << 20
_INVERSE_OF_31: Final = pow(31, -1, 2**32)
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
# So many of the longest keys are hashed one by one in the end: each block of a key depends on the
# one before it, so only different keys can be vectorized.
_FEW: Final = 8


def partitions_for_keys(
    keys: pa.Array,
    partition_count: int,
    *,
    keyless_partition: int = 0,
    hashing: Hashing = Hashing.JAVA,
) -> Int32s:
    """Return the partition (from 0) of each key, as the Java client chooses it.

    ``keys`` are strings, or binary, which are hashed as base64 text like in Java. A null is sent to
    ``keyless_partition``; the empty key is a key, with hash 0.

    Raises:
        InputError: a key is not UTF-8 (``check_rows`` finds it if the hash is not of text).
    """
    if not 0 <= keyless_partition < partition_count:
        raise ValueError(f"Partition {keyless_partition} is not one of {partition_count}.")
    # ``hash & Integer.MAX_VALUE``, modulo the number of partitions.
    hash_of = _string_hashes if hashing is Hashing.JAVA else murmur3
    hashes = hash_of(key_text(keys)) & np.uint32(_INT_MAX)
    partitions = (hashes % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = keyless_partition
    return partitions


def key_slices(keys: pa.Array, count: int) -> Int32s:
    """Return which of ``count`` slices each key (bytes) belongs to; 0 for null."""
    # A slice is a range of hashes. It is not their remainder, which determines the partition:
    # within one partition most keys would be in the same slice.
    hashes = (murmur3(BinaryColumn.of(keys)) & np.uint32(_INT_MAX)).astype(np.int64)
    return (hashes * count >> 31).astype(np.int32)


def override_partitions(partitions: Int32s, chosen: pa.Array, partition_count: int) -> Int32s:
    """Return ``partitions``, replaced by ``chosen`` (int64) where that is not null.

    Raises:
        InputError: a partition does not exist; the error names the row.
    """
    numbers = chosen.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= partition_count))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"Column 'partition' is {numbers[row]} in row {row}; the topic has {partition_count} "
            "partitions, numbered from 0.",
            hint="Use null to choose the partition by key.",
        )
    is_chosen = chosen.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_chosen, numbers, partitions).astype(np.int32)


class PartitionSlice(NamedTuple):
    """Rows ``start`` to ``stop`` (not included), which belong to ``partition``."""

    partition: int
    start: int
    stop: int


def by_partition(rows: Rows, partitions: Int32s) -> tuple[Rows, list[PartitionSlice]]:
    """Return the rows grouped by partition, in ascending order, and the slice of each partition
    that has rows. Rows of a partition keep their order.

    ``partitions``: a number, from 0, for each row.
    """
    if len(partitions) != len(rows):
        raise ValueError(f"There are {len(partitions)} partitions for {len(rows)} rows.")
    if not len(rows):
        return rows, []
    counts = np.bincount(partitions)
    used = np.flatnonzero(counts)
    if len(used) > 1:
        # numpy sorts 16-bit numbers by radix sort, in linear time.
        small = partitions.astype(np.uint16) if len(counts) <= 1 << 16 else partitions
        rows = rows.take(np.argsort(small, kind="stable"))
    ends = np.cumsum(counts)[used]
    slices = zip(used.tolist(), (ends - counts[used]).tolist(), ends.tolist(), strict=True)
    return rows, [PartitionSlice(*one) for one in slices]


def _string_hashes(keys: BinaryColumn) -> UInt32s:
    """Return ``String.hashCode()`` of each key, as an unsigned number."""
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
    """Return Java's chars of all keys, concatenated, and where each key begins and ends."""
    data = np.frombuffer(utf8, np.uint8)
    if int(data.max(initial=0)) < 0x80:
        return data, offsets
    try:
        units = np.frombuffer(str(utf8, "utf-8").encode("utf-16-le"), "<u2")
    except UnicodeDecodeError:
        raise _not_utf8() from None
    firsts = data[offsets[:-1][np.diff(offsets) > 0]]
    if bool((firsts & 0xC0 == 0x80).any()):  # the end of a key splits a character
        raise _not_utf8()
    # A character is one unit, or two when it takes four bytes (its first is then 0xF0 or more).
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum((data & 0xC0 != 0x80).astype(np.int8) + (data >= 0xF0), out=before[1:])
    return units, before[offsets]


def _not_utf8() -> InputError:
    return InputError("Column 'key' has text that is not UTF-8.")


def _hash_units(units: npt.NDArray[np.uint8] | npt.NDArray[np.uint16], offsets: Int64s) -> UInt32s:
    """Return the sum of ``s[i] * 31^(n-1-i)`` modulo 2^32 for each row of chars s."""
    # 31 has an inverse modulo 2^32, so one running sum of ``unit[j] / 31^j`` is enough for all
    # rows: a row's hash is the difference of the sums at its ends, times 31 to the power of its
    # last j.
    count = len(units)
    sums = np.zeros(count + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, count), dtype=np.uint32, out=sums[1:])
    starts, ends = offsets[:-1], offsets[1:]
    lasts = np.maximum(ends, 1) - 1  # arbitrary for an empty row: its difference is 0
    hashes: UInt32s = (sums[ends] - sums[starts]) * _powers(31, max(count, 1))[lasts]
    return hashes


def _powers(base: int, count: int) -> UInt32s:
    """Return ``base`` to the power of 0 to count - 1, modulo 2^32."""
    if count > _CHUNK_BYTES:
        return _power_table(base, count)  # a single huge key, not worth caching
    return _cached_power_table(base)[:count]


@lru_cache(maxsize=2)
def _cached_power_table(base: int) -> UInt32s:
    return _power_table(base, _CHUNK_BYTES)


def _power_table(base: int, count: int) -> UInt32s:
    powers = np.full(count, base, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)


def murmur3(keys: BinaryColumn) -> UInt32s:
    """Return murmur3 (32 bits, seed 0) of each key's bytes: Appleby's MurmurHash3_x86_32."""
    data = np.frombuffer(keys.data, np.uint8)
    lengths, starts = keys.lengths, keys.offsets[:-1]
    blocks = lengths >> 2
    hashes = np.zeros(len(keys), np.uint32)
    order = np.argsort(-blocks, kind="stable")  # keys that still have blocks come first
    alone = min(_FEW, len(order))
    together = int(blocks[order[alone]]) if len(order) > alone else 0
    sorted_blocks = blocks[order]
    for block in range(together):
        active = order[: int(np.searchsorted(-sorted_blocks, -block, side="left"))]
        hashes[active] = _mix(hashes[active], _words(data, starts[active] + 4 * block))
    for key in order[:alone]:
        rest = data[starts[key] + 4 * together : starts[key] + 4 * blocks[key]]
        hashes[key] = _mix_one(int(hashes[key]), rest.view("<u4").tolist())
    hashes ^= _scrambled(_tails(data, starts + 4 * blocks, lengths & 3))
    return _finished(hashes ^ lengths.astype(np.uint32))


def _words(data: npt.NDArray[np.uint8], at: Int64s) -> UInt32s:
    """Return four bytes at each position as a number, little endian."""
    words = data[at].astype(np.uint32)
    for byte in range(1, 4):
        words |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def _tails(data: npt.NDArray[np.uint8], at: Int64s, lengths: Int64s) -> UInt32s:
    """Return the 0 to 3 bytes after the last whole word of each key."""
    tails = np.zeros(len(at), np.uint32)
    for byte in range(3):
        has = lengths > byte
        tails[has] |= data[at[has] + byte].astype(np.uint32) << np.uint32(8 * byte)
    return tails


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    rotated: UInt32s = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated


def _scrambled(words: UInt32s) -> UInt32s:
    scrambled: UInt32s = _rotated(words * np.uint32(_C1), 15) * np.uint32(_C2)
    return scrambled


def _mix(hashes: UInt32s, words: UInt32s) -> UInt32s:
    mixed: UInt32s = _rotated(hashes ^ _scrambled(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _mix_one(start: int, words: list[int]) -> int:
    """Mix the words of a single key; with Python's integers, which are faster here than numpy."""
    mixed, mask = start, 0xFFFFFFFF
    for word in words:
        scrambled = word * _C1 & mask
        scrambled = (scrambled << 15 | scrambled >> 17) * _C2 & mask
        mixed ^= scrambled
        mixed = ((mixed << 13 | mixed >> 19) & mask) * 5 + 0xE6546B64 & mask
    return mixed


def _finished(hashes: UInt32s) -> UInt32s:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes
