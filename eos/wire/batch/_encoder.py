"""Batch payloads: rows cut into batches, and each batch's bytes, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from eos.wire.batch._checks import check_values
from eos.wire.batch._compression import Auto, Compression, compress
from eos.wire.batch._grouping import StickyKey, grouped_by_key
from eos.wire.batch._metadata import EncodedRows, encode_rows
from eos.wire.batch._rows import Rows
from eos.wire.checksum import entry_checksum
from eos.wire.columns import BinaryColumn, Int64s, joined

DEFAULT_MAX_BATCH_BYTES: Final = 1 << 20
DEFAULT_MAX_BATCH_MESSAGES: Final = 1 << 16

# Metadata is made for a chunk of rows that holds several batches: small enough to stay in the
# cache and far from Arrow's 2 GiB, large enough that the calls' own cost disappears.
_CHUNK_BATCHES: Final = 8
_CHUNK_BYTES_MIN: Final = 8 << 20
_CHUNK_BYTES_MAX: Final = 64 << 20
_MOST_JOINED_ALONE: Final = 2 * _CHUNK_BATCHES


@dataclass(frozen=True)
class EncodedBatch:
    """One entry for the broker.

    Attributes:
        payload: the batch payload, compressed or a view of an Arrow buffer that holds nothing else,
            or other small batches.
        num_messages: how many messages it holds.
        uncompressed_bytes: the payload's length before compression.
        compression: of the payload.
        value_and_key_bytes: the sum of the values' and keys' lengths, as readers get them.
        checksum: crc32c of the values one after the other, then the keys.
        sticky: what all its messages have for a key, when it was made ``by_key``.
    """

    payload: memoryview
    num_messages: int
    uncompressed_bytes: int
    compression: Compression
    value_and_key_bytes: int
    checksum: int
    sticky: StickyKey | None = None


def encode_batches(
    rows: Rows,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    max_batch_messages: int = DEFAULT_MAX_BATCH_MESSAGES,
    compression: Compression | Auto = Compression.NONE,
    *,
    edges: Sequence[int] = (),
    by_key: bool = False,
) -> Iterator[EncodedBatch]:
    """Cut ``rows`` into batches, in order, and encode them one by one as they are asked for.

    A batch takes rows until one of the limits (or 64 MiB) is reached, before compression. Only a
    message that is larger than ``max_batch_bytes`` all by itself exceeds it, and stands alone;
    ``check_rows`` finds the ones that the broker would not take.

    Args:
        edges: row numbers, in order, at which a batch has to begin; not with ``by_key``.
        by_key: no batch holds messages of different keys. Rows keep their order within a key, and
            keys that of their first rows.

    Raises:
        InputError: a value is null and no tombstone is wanted (nothing has been yielded by then).
    """
    if max_batch_bytes < 1 or max_batch_messages < 1:
        raise ValueError("a batch needs room for a message.")
    check_values(rows)
    limit = min(max_batch_bytes, _CHUNK_BYTES_MAX)
    chunk_bytes = min(max(_CHUNK_BATCHES * limit, _CHUNK_BYTES_MIN), _CHUNK_BYTES_MAX)
    if by_key:
        rows, begins = grouped_by_key(rows)
    else:
        begins = np.array(edges, np.int64)
    bounds = rows.size_bounds()
    start = 0
    while start < len(rows):
        stop = max(start + 1, _last_within(bounds, start, chunk_bytes))
        encoded = encode_rows(rows.slice(start, stop))
        cuts = _cut(encoded.ends, limit, max_batch_messages, begins - start)
        if stop < len(rows) and len(cuts) > 2:
            cuts.pop()  # the last batch may not be full: its rows go with the next chunk
        payloads = _Payloads(encoded, cuts)
        for first, last in pairwise(cuts):
            sticky = StickyKey.of(rows, start + first) if by_key else None
            yield _encode_batch(payloads, first, last, compression, sticky)
        start += cuts[-1]


def _last_within(ends: Int64s, start: int, limit: int) -> int:
    """The largest row number ``stop`` such that rows ``start`` to ``stop`` fit in ``limit``."""
    return int(np.searchsorted(ends, ends[start] + limit, side="right")) - 1


def _cut(ends: Int64s, max_bytes: int, max_messages: int, edges: Int64s) -> list[int]:
    """The row numbers at which batches begin, and the end of the last one.

    ``edges``: row numbers, in order, at which one has to begin; those outside do not matter.
    """
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        stop = _last_within(ends, cuts[-1], max_bytes)
        following = int(np.searchsorted(edges, cuts[-1], side="right"))
        if following < len(edges):
            stop = min(stop, int(edges[following]))
        cuts.append(max(cuts[-1] + 1, min(stop, cuts[-1] + max_messages)))
    return cuts


class _Payloads:
    """The bytes of a chunk's batches.

    Large ones are joined one by one: each then is a buffer that holds nothing else, and goes when
    it is acknowledged. For small ones the call would cost more than the bytes: all are joined at
    once, and cut out of what comes.
    """

    def __init__(self, encoded: EncodedRows, cuts: Sequence[int]) -> None:
        self.encoded = encoded
        are_small = len(cuts) - 1 > _MOST_JOINED_ALONE
        self._joined = _joined(encoded, 0, cuts[-1]) if are_small else None

    def between(self, start: int, stop: int) -> memoryview:
        """Of the batch of these rows."""
        if self._joined is None:
            return _joined(self.encoded, start, stop)
        ends = self.encoded.ends
        return self._joined[ends[start] : ends[stop]]


def _joined(encoded: EncodedRows, start: int, stop: int) -> memoryview:
    rows = joined([piece.slice(start, stop - start) for piece in encoded.pieces])
    payload = memoryview(BinaryColumn.of(rows).data).cast("B")
    if len(payload) != encoded.ends[stop] - encoded.ends[start]:
        raise AssertionError("a batch's bytes are not as many as its messages' sizes say.")
    return payload


def _encode_batch(
    payloads: _Payloads,
    start: int,
    stop: int,
    compression: Compression | Auto,
    sticky: StickyKey | None,
) -> EncodedBatch:
    encoded, payload = payloads.encoded, payloads.between(start, stop)
    values = encoded.values.between(start, stop)
    keys = b"" if encoded.keys is None else encoded.keys.between(start, stop)
    smaller, used = compress(payload, compression)
    return EncodedBatch(
        payload=smaller,
        num_messages=stop - start,
        uncompressed_bytes=len(payload),
        compression=used,
        value_and_key_bytes=len(values) + len(keys),
        checksum=entry_checksum(values, keys),
        sticky=sticky,
    )
