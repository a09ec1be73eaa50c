"""Splits rows into batches and encodes their payloads, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from eos.wire.batch._batch_rows import Rows
from eos.wire.batch._compression import Auto, Compression, compress
from eos.wire.batch._message_keys import StickyKey, grouped_by_key
from eos.wire.batch._metadata import EncodedRows, encode_rows
from eos.wire.batch._row_checks import check_values
from eos.wire.binary_columns import BinaryColumn, Int64s, joined
from eos.wire.checksum import entry_checksum
from eos.wire.commands import EncryptionKeys

DEFAULT_MAX_BATCH_BYTES: Final = 1 << 20
DEFAULT_MAX_BATCH_MESSAGES: Final = 1 << 16

# Metadata is encoded for chunks of several batches: small enough for the processor's cache and
# Arrow's limit of 2 GiB, large enough that the overhead of calls is negligible.
_CHUNK_BATCHES: Final = 8
_CHUNK_BYTES_MIN: Final = 8 << 20
_CHUNK_BYTES_MAX: Final = 64 << 20
_MOST_JOINED_ALONE: Final = 2 * _CHUNK_BATCHES


@dataclass(frozen=True)
class EncodedBatch:
    """One entry for the broker.

    Attributes:
        payload: the batch payload, compressed, or a view of an Arrow buffer that contains only it,
            or it and other small batches.
        num_messages: the number of messages.
        uncompressed_bytes: the payload's length before compression.
        compression: of the payload.
        value_and_key_bytes: the sum of the lengths of values and keys, as readers get them.
        checksum: crc32c of the concatenated values, then the keys.
        sticky: the key of all its messages, if batches are split ``by_key``.
        encryption_keys, encryption_param: of an encrypted payload; then ``value_and_key_bytes`` and
            ``checksum`` are those of the payload as it is stored.
    """

    payload: memoryview
    num_messages: int
    uncompressed_bytes: int
    compression: Compression
    value_and_key_bytes: int
    checksum: int
    sticky: StickyKey | None = None
    encryption_keys: tuple[EncryptionKeys, ...] = ()
    encryption_param: bytes | None = None


def encode_batches(
    rows: Rows,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    max_batch_messages: int = DEFAULT_MAX_BATCH_MESSAGES,
    compression: Compression | Auto = Compression.NONE,
    *,
    edges: Sequence[int] = (),
    by_key: bool = False,
) -> Iterator[EncodedBatch]:
    """Split ``rows`` into batches, in order, and encode them lazily, one by one.

    A batch is filled until one of the limits (or 64 MiB) is reached, before compression. Only a
    single message that is larger than ``max_batch_bytes`` exceeds it, in its own batch;
    ``check_rows`` finds messages that the broker would reject.

    Args:
        edges: row numbers, in order, at which a new batch must begin; not with ``by_key``.
        by_key: batches contain messages of one key only. Rows keep their order within a key; keys
            are in the order of their first rows.

    Raises:
        InputError: a value is null and tombstones are not enabled (nothing has been yielded).
    """
    if max_batch_bytes < 1 or max_batch_messages < 1:
        raise ValueError("A batch must have room for a message.")
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
            cuts.pop()  # the last batch may not be full: its rows are part of the next chunk
        payloads = _Payloads(encoded, cuts)
        for first, last in pairwise(cuts):
            sticky = StickyKey.of(rows, start + first) if by_key else None
            yield _encode_batch(payloads, first, last, compression, sticky)
        start += cuts[-1]


def _last_within(ends: Int64s, start: int, limit: int) -> int:
    """Return the largest ``stop`` such that rows ``start`` to ``stop`` fit in ``limit``."""
    return int(np.searchsorted(ends, ends[start] + limit, side="right")) - 1


def _cut(ends: Int64s, max_bytes: int, max_messages: int, edges: Int64s) -> list[int]:
    """Return the row numbers at which batches begin, and the end of the last one."""
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        stop = _last_within(ends, cuts[-1], max_bytes)
        following = int(np.searchsorted(edges, cuts[-1], side="right"))
        if following < len(edges):
            stop = min(stop, int(edges[following]))
        cuts.append(max(cuts[-1] + 1, min(stop, cuts[-1] + max_messages)))
    return cuts


class _Payloads:
    def __init__(self, encoded: EncodedRows, cuts: Sequence[int]) -> None:
        self.encoded = encoded
        # Large batches are joined one by one: each is its own buffer, which is freed when the batch
        # is acknowledged. For small batches the calls would cost more than the copying: all are
        # joined at once, and their payloads are views.
        are_small = len(cuts) - 1 > _MOST_JOINED_ALONE
        self._joined = _joined(encoded, 0, cuts[-1]) if are_small else None

    def between(self, start: int, stop: int) -> memoryview:
        if self._joined is None:
            return _joined(self.encoded, start, stop)
        ends = self.encoded.ends
        return self._joined[ends[start] : ends[stop]]


def _joined(encoded: EncodedRows, start: int, stop: int) -> memoryview:
    rows = joined([piece.slice(start, stop - start) for piece in encoded.pieces])
    payload = memoryview(BinaryColumn.of(rows).data).cast("B")
    if len(payload) != encoded.ends[stop] - encoded.ends[start]:
        raise AssertionError("A batch's length differs from the sum of its messages' sizes.")
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
