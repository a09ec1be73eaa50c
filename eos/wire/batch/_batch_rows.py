"""The rows of a writing task as Arrow columns, before they are encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eos.errors import InputError
from eos.wire.binary_columns import (
    BINARY_TYPES,
    STRING_TYPES,
    Int64s,
    array_of,
    numbers_of,
    offsets_of,
)
from eos.wire.from_python import PROPERTIES, bytes_column, maps_column, numbers_column

_COLUMNS = ("value", "key", "event_time_ms", "properties", "ordering_key", "key_is_base64")

# Upper bounds of SingleMessageMetadata without the columns' bytes: the batch's size field and
# payload_size; then each field's tag and length (a length takes at most 5 bytes).
_MESSAGE_BOUND = 4 + 6
_KEY_BOUND = 6 + 2 + 4  # and its base64 flag and padding
_EVENT_TIME_BOUND = 11
_ORDERING_KEY_BOUND = 6
_PROPERTY_BOUND = 18
_NULL_VALUE_BOUND = 2


class Message(NamedTuple):
    """One message as Python objects."""

    value: bytes | None  # None is a tombstone, with which a compacted topic drops the key
    key: str | bytes | None = None  # bytes are written in base64, like the Java client's keyBytes
    event_time_ms: int | None = None
    properties: Mapping[str, str] | None = None
    ordering_key: bytes | None = None


@dataclass(frozen=True)
class Rows:
    """Columns of equal length; a null in an optional column means that the message has no such
    field.

    Columns:
        value: binary or string, 32 or 64 bit offsets; a null is a tombstone, which requires
            ``tombstones``.
        key: string, or binary (written in base64 like the Java client's keyBytes).
        key_is_base64: boolean without nulls, for string keys: which of them are base64 of bytes;
            see ``text_keys``.
        event_time_ms: int64, milliseconds since 1970, not negative.
        properties: map of string to string.
        ordering_key: binary.

    Attributes:
        keyless_tombstones: a tombstone needs no key.

    Raises:
        InputError: a column has another type or another length.
    """

    value: pa.Array
    key: pa.Array | None = None
    event_time_ms: pa.Array | None = None
    properties: pa.MapArray | None = None
    ordering_key: pa.Array | None = None
    tombstones: bool = False
    key_is_base64: pa.BooleanArray | None = None
    keyless_tombstones: bool = False

    def __post_init__(self) -> None:
        either = BINARY_TYPES | STRING_TYPES
        _check_type("value", self.value, self.value.type in either, "binary or string")
        if self.key is not None:
            _check_type("key", self.key, self.key.type in either, "string or binary")
        if self.event_time_ms is not None:
            right = self.event_time_ms.type == pa.int64()
            _check_type("event_time", self.event_time_ms, right, "int64 (milliseconds)")
        if self.properties is not None:
            kind = self.properties.type
            right = pa.types.is_map(kind) and {kind.key_type, kind.item_type} <= STRING_TYPES
            _check_type("properties", self.properties, right, "map<string, string>")
        if self.ordering_key is not None:
            right = self.ordering_key.type in BINARY_TYPES
            _check_type("ordering_key", self.ordering_key, right, "binary")
        for name, column in self._columns().items():
            if len(column) != len(self.value):
                raise InputError(
                    f"Column {name!r} has {len(column)} rows, 'value' has {len(self.value)}."
                )

    def __len__(self) -> int:
        return len(self.value)

    def _columns(self) -> dict[str, pa.Array]:
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows ``start`` to ``stop`` (not included), without a copy."""
        return self._each(lambda column: column.slice(start, stop - start))

    def take(self, indices: Int64s) -> Rows:
        """Return a copy of the rows at ``indices``, in that order."""
        chosen = array_of(indices)
        return self._each(lambda column: column.take(chosen))

    def _each(self, of: Callable[[pa.Array], pa.Array]) -> Rows:
        return replace(self, **{name: of(column) for name, column in self._columns().items()})

    def size_bounds(self) -> Int64s:
        """Return n + 1 running sums: rows i to j take at most ``bounds[j] - bounds[i]`` bytes in a
        batch, and less if fields of the metadata are short."""
        bounds, fixed = _extents(self.value), _MESSAGE_BOUND
        if self.value.null_count:
            fixed += _NULL_VALUE_BOUND
        if self.key is not None:
            extents = _extents(self.key)
            bounds += extents * 4 // 3 if self.key.type in BINARY_TYPES else extents
            fixed += _KEY_BOUND
        if self.event_time_ms is not None:
            fixed += _EVENT_TIME_BOUND
        if self.ordering_key is not None:
            bounds += _extents(self.ordering_key)
            fixed += _ORDERING_KEY_BOUND
        if self.properties is not None:
            bounds += _map_extents(self.properties)
        return bounds + np.arange(len(self) + 1) * fixed


def _check_type(name: str, column: pa.Array, right: bool, wanted: str) -> None:
    if not right:
        raise InputError(f"Column {name!r} must be {wanted}, not {column.type}.")


def _extents(column: pa.Array) -> Int64s:
    offsets = offsets_of(column)
    extents: Int64s = offsets - offsets[0]
    return extents


def _map_extents(maps: pa.MapArray) -> Int64s:
    rows = map_offsets(maps)
    entries = offsets_of(maps.keys)[rows] + offsets_of(maps.items)[rows] + rows * _PROPERTY_BOUND
    extents: Int64s = entries - entries[0]
    return extents


def map_offsets(maps: pa.MapArray) -> Int64s:
    """Return the n + 1 offsets of the maps' entries in ``maps.keys`` and ``maps.items``."""
    if len(maps) == 0:
        return np.zeros(1, np.int64)
    offsets: Int64s = numbers_of(maps.offsets, np.int32).astype(np.int64)
    return offsets


def rows_from_messages(messages: Sequence[Message]) -> Rows:
    """Return columns of Python objects, without columns that no message uses.

    Raises:
        InputError: an object has the wrong type, or keys of type str and bytes are mixed.
    """
    for message in messages:
        # Arrow would accept text as UTF-8; the caller must choose the encoding.
        if not isinstance(message.value, bytes | bytearray | memoryview | None):
            raise InputError(
                f"A message's value must be bytes, not {type(message.value).__name__}.",
                hint='Encode it, for example text.encode("utf-8").',
            )
    keys = [message.key for message in messages]
    if any(isinstance(key, str) for key in keys) and any(isinstance(key, bytes) for key in keys):
        raise InputError("Keys of messages that are sent together must be all str or all bytes.")
    key_type = pa.binary() if any(isinstance(key, bytes) for key in keys) else pa.string()
    return Rows(
        value=_column("value", [message.value for message in messages], pa.binary()),
        tombstones=True,
        key=_optional("key", keys, key_type),
        event_time_ms=_optional("event_time", [m.event_time_ms for m in messages], pa.int64()),
        properties=_optional("properties", [m.properties for m in messages], PROPERTIES),
        ordering_key=_optional("ordering_key", [m.ordering_key for m in messages], pa.binary()),
    )


def _column(name: str, items: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        if kind == PROPERTIES:
            return maps_column(items)
        return numbers_column(items) if kind == pa.int64() else bytes_column(items, kind)
    except (AttributeError, TypeError, ValueError, OverflowError):
        # Not chained, because the error's message would show the data.
        raise InputError(f"A message's {name} can't be written as {kind}.") from None


def _optional(name: str, items: list[Any], kind: pa.DataType) -> pa.Array | None:
    return None if all(item is None for item in items) else _column(name, items, kind)
