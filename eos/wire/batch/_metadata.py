"""Encodes SingleMessageMetadata, the header of each value in a batch, for many rows at once.

A batch payload has ``[size u32 big endian][SingleMessageMetadata][value]`` for each message.
Source: pulsar-common/src/main/proto/PulsarApi.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.wire.batch._batch_rows import Rows, map_offsets
from eos.wire.binary_columns import (
    BINARY_TYPES,
    BinaryColumn,
    Int64s,
    joined,
    key_text,
    numbers_of,
    valid_rows,
)
from eos.wire.byte_rows import ByteRows, varint_widths

# Tags: field number << 3 | wire type (0 varint, 2 length-delimited).
_PROPERTIES = 1 << 3 | 2
_PARTITION_KEY = 2 << 3 | 2
_PAYLOAD_SIZE = 3 << 3
_EVENT_TIME = 5 << 3
_KEY_IS_BASE64 = 6 << 3
_ORDERING_KEY = 7 << 3 | 2
_NULL_VALUE = 9 << 3
_PROPERTY_KEY = 1 << 3 | 2
_PROPERTY_VALUE = 2 << 3 | 2


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows, before they are joined.

    Attributes:
        pieces: columns whose concatenated rows are the messages of a batch.
        ends: n + 1 running sums of the messages' sizes in bytes.
        values: the values that readers get.
        keys: the keys that readers get (binary ones in base64); None without a key column.
    """

    pieces: list[pa.BinaryArray]
    ends: Int64s
    values: BinaryColumn
    keys: BinaryColumn | None


def encode_rows(rows: Rows) -> EncodedRows:
    """Encode rows of at most 2 GiB, without joining them. A null value is a tombstone."""
    values, keys, fields, sizes = _measure(rows)
    front = ByteRows(len(rows))
    front.uint32(sizes)
    first = fields[0]
    if isinstance(first, ByteRows):  # one piece less to join
        front.extend(first)
        del fields[0]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(4 + sizes + values.lengths, out=ends[1:])
    pieces = [piece.array() for piece in (front, *fields, values)]
    return EncodedRows(pieces, ends, values, keys)


def message_sizes(rows: Rows) -> Int64s:
    """Return each message's size in a batch payload, in bytes."""
    values, _, _, sizes = _measure(rows)
    return 4 + sizes + values.lengths


def _measure(
    rows: Rows,
) -> tuple[BinaryColumn, BinaryColumn | None, list[ByteRows | BinaryColumn], Int64s]:
    """Return values, keys, the metadata's fields in order, and the metadata's sizes."""
    values = BinaryColumn.of(rows.value)
    keys = None if rows.key is None else key_text(rows.key)
    fields = _encode_fields(rows, values, keys)
    sizes = np.zeros(len(rows), np.int64)
    for field in fields:
        sizes += field.lengths
    return values, keys, fields, sizes


def _encode_fields(
    rows: Rows, values: BinaryColumn, keys: BinaryColumn | None
) -> list[ByteRows | BinaryColumn]:
    # In the order of their numbers, as by the Java client.
    fields: list[ByteRows | BinaryColumn] = []
    if rows.properties is not None:
        fields.append(_encode_properties(rows.properties))
    head = ByteRows(len(rows))
    fields.append(head)
    has_key = None if rows.key is None else valid_rows(rows.key)
    if keys is not None:
        head.byte(_PARTITION_KEY, has_key)
        head.varint(keys.lengths, has_key)
        head = ByteRows(len(rows))
        fields += [keys, head]
    head.byte(_PAYLOAD_SIZE)
    head.varint(values.lengths)
    if rows.event_time_ms is not None:
        has_time = valid_rows(rows.event_time_ms)
        times = rows.event_time_ms
        if has_time is not None:
            times = times.fill_null(0)
        head.byte(_EVENT_TIME, has_time)
        head.varint(numbers_of(times, np.int64), has_time)
    if rows.key is not None and rows.key.type in BINARY_TYPES:
        head.byte(_KEY_IS_BASE64, has_key)
        head.byte(1, has_key)
    elif rows.key_is_base64 is not None:
        is_base64 = rows.key_is_base64.to_numpy(zero_copy_only=False)
        head.byte(_KEY_IS_BASE64, is_base64)
        head.byte(1, is_base64)
    if rows.ordering_key is not None:
        ordering = BinaryColumn.of(rows.ordering_key)
        has_ordering = valid_rows(rows.ordering_key)
        head.byte(_ORDERING_KEY, has_ordering)
        head.varint(ordering.lengths, has_ordering)
        fields.append(ordering)
    has_value = valid_rows(rows.value)
    if has_value is not None:
        if rows.ordering_key is not None:  # the last field is a column
            head = ByteRows(len(rows))
            fields.append(head)
        head.byte(_NULL_VALUE, ~has_value)
        head.byte(1, ~has_value)
    return fields


def _encode_properties(maps: pa.MapArray) -> BinaryColumn:
    """Encode each row's map as repeated KeyValue fields."""
    # All entries of all maps are encoded as one column. The entries of a map are adjacent in it, so
    # only the offsets change.
    offsets = map_offsets(maps)
    first, last = int(offsets[0]), int(offsets[-1])
    keys = BinaryColumn.of(maps.keys.slice(first, last - first))
    items = BinaryColumn.of(maps.items.slice(first, last - first))
    entry_sizes = 2 + varint_widths(keys.lengths) + keys.lengths
    entry_sizes += varint_widths(items.lengths) + items.lengths
    front, middle = ByteRows(len(keys)), ByteRows(len(keys))
    front.byte(_PROPERTIES)
    front.varint(entry_sizes)
    front.byte(_PROPERTY_KEY)
    front.varint(keys.lengths)
    middle.byte(_PROPERTY_VALUE)
    middle.varint(items.lengths)
    pieces = [piece.array() for piece in (front, keys, middle, items)]
    entries = BinaryColumn.of(joined(pieces))
    column = BinaryColumn(entries.offsets[offsets - first], entries.data)
    if not maps.null_count:
        return column
    # Arrow allows a null map to have entries, whose bytes must be removed.
    return BinaryColumn.of(pc.if_else(maps.is_valid(), column.array(), b""))
