"""Protobuf: messages are read one by one, in Python, and their fields by number, as Protobuf does.

| Protobuf | Arrow (Spark) |
|---|---|
| bool, float, double, string, bytes | the same |
| int32, sint32, sfixed32 | int32 |
| other whole numbers | int64; a row with a greater one fails |
| enum | string: the symbol; a row with an unknown one fails |
| google.protobuf.Timestamp | timestamp in UTC |
| a message, repeated, map | struct, list, map |

A field that is not there is null where the message tells that from its default, as with
``optional``; else it is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError

from eos.errors import IncompatibleSchema
from eos.schemas._derive import at
from eos.schemas._protobuf import message_class, parsed_data
from eos.schemas.reading._columns import MAX_OBJECT_BYTES, TOO_LONG, as_column
from eos.wire.avro import MAX_DEPTH, MAX_FIELDS
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.failures import Failures

_F: Final = FieldDescriptorProto
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SCALARS: Final = {
    _F.TYPE_BOOL: pa.bool_(), _F.TYPE_FLOAT: pa.float32(), _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_STRING: pa.string(), _F.TYPE_ENUM: pa.string(), _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_INT32: pa.int32(), _F.TYPE_SINT32: pa.int32(), _F.TYPE_SFIXED32: pa.int32(),
}  # fmt: skip
# Types of one family are written alike.
_FAMILIES: Final = {
    _F.TYPE_INT32: 1, _F.TYPE_INT64: 1, _F.TYPE_UINT32: 1, _F.TYPE_UINT64: 1, _F.TYPE_BOOL: 1,
    _F.TYPE_SINT32: 2, _F.TYPE_SINT64: 2, _F.TYPE_FIXED32: 3, _F.TYPE_SFIXED32: 3,
    _F.TYPE_FIXED64: 4, _F.TYPE_SFIXED64: 4, _F.TYPE_STRING: 5, _F.TYPE_BYTES: 5,
}  # fmt: skip

_Take = Callable[[Any], Any]
_MAX_CELLS: Final = 1_000_000


class ProtobufReader:
    """Reads Protobuf. See ``ColumnReader``."""

    is_record = True

    def __init__(self, reader: SchemaInfo) -> None:
        self.info = reader
        self._message = _message(reader)
        self.type: pa.DataType = _Types().struct(self._message.DESCRIPTOR, "", ())
        self._cells = _Cells()
        self._take = _taker(self._message.DESCRIPTOR, self._cells)
        self._checked: set[SchemaInfo] = set()

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, Failures]:
        """See ``ColumnReader``."""
        if writer.type == SchemaType.PROTOBUF_NATIVE and writer not in self._checked:
            _check_alike(_message(writer).DESCRIPTOR, self._message.DESCRIPTOR, "", ())
            self._checked.add(writer)
        rows: list[Any] = []
        reasons: dict[int, str] = {}
        for number, data in enumerate(values.to_pylist()):
            row = None
            try:
                row = None if data is None else self._row(data)
            except _TooMuch as error:
                reasons[number] = str(error)
            except DecodeError:
                reasons[number] = f"The value is no message {self._message.DESCRIPTOR.full_name}."
            except ValueError:
                reasons[number] = "The value has a number that is none of its enum's symbols."
            rows.append(row)
        column, bad = as_column(rows, self.type)
        reasons |= dict.fromkeys(bad, "The value has a number that its column does not take.")
        found = sorted(reasons)
        return column, Failures(np.array(found, np.int64), [reasons[one] for one in found])

    def _row(self, data: bytes) -> Any:
        if len(data) > MAX_OBJECT_BYTES:
            raise _TooMuch(TOO_LONG)
        self._cells.left = _MAX_CELLS
        return self._take(self._message.FromString(data))


class _TooMuch(Exception):
    """A value becomes more objects than there is room for; the text says so."""


class _Cells:
    """How many fields of messages may still be made of one value: two bytes may be one message."""

    left = 0

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _TooMuch(f"The value has more than {_MAX_CELLS} fields in all.")


def _message(info: SchemaInfo) -> Any:
    known = parsed_data(info.data)
    if known is None:
        raise IncompatibleSchema(
            "The registered data are no Protobuf descriptors.",
            hint="Read the values as bytes, or give ProtobufSchema.of(MyMessage).",
        )
    return message_class(*known)


class _Types:
    """Counts the columns: messages that are used again and again multiply."""

    def __init__(self) -> None:
        self._count = 0

    def struct(self, message: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        """A message; ``outer``: those that it is in."""
        self._count += len(message.fields)
        what = ""
        if message.full_name in outer:
            what = f"holds messages of its own type (at {path!r})"
        elif self._count > MAX_FIELDS:
            what = f"has more than {MAX_FIELDS} fields, with all that they hold"
        elif len(outer) >= MAX_DEPTH:
            what = f"is nested too deeply ({MAX_DEPTH} levels can be read)"
        if what:
            raise IncompatibleSchema(
                f"The message {message.full_name} {what}: no column has such a type.",
                hint="Give a schema of your own, without the fields that you can do without.",
            )
        outer = (*outer, message.full_name)
        fields = [(one.name, self._field(one, at(path, one.name), outer)) for one in message.fields]
        return pa.struct(fields)

    def _field(self, field: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        if _is_map(field):
            pair = field.message_type.fields_by_name
            key, value = self._one(pair["key"], path, outer), self._one(pair["value"], path, outer)
            return pa.map_(key, value)
        kind = self._one(field, path, outer)
        return pa.list_(kind) if field.is_repeated else kind

    def _one(self, field: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        if field.message_type is None:
            return _SCALARS.get(field.type, pa.int64())
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return self.struct(field.message_type, path, outer)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _taker(message: Any, cells: _Cells) -> _Take:
    """A function from a message to what Arrow takes."""
    fields = [(one.name, one.has_presence, _field_taker(one, cells)) for one in message.fields]
    size = len(fields) + 1

    def take(found: Any) -> dict[str, Any]:
        cells.spend(size)
        return {
            name: None if has_presence and not found.HasField(name) else of(getattr(found, name))
            for name, has_presence, of in fields
        }

    return take


def _field_taker(field: Any, cells: _Cells) -> _Take:
    if _is_map(field):
        take = _value_taker(field.message_type.fields_by_name["value"], cells)
        return lambda found: [(key, take(found[key])) for key in found]
    take = _value_taker(field, cells)
    return (lambda found: [take(one) for one in found]) if field.is_repeated else take


def _value_taker(field: Any, cells: _Cells) -> _Take:
    if field.enum_type is not None:
        symbols = {number: one.name for number, one in field.enum_type.values_by_number.items()}

        def symbol(number: int) -> str:
            if number not in symbols:
                raise ValueError
            return str(symbols[number])

        return symbol
    if field.message_type is None:
        return lambda found: found
    if field.message_type.full_name == _TIMESTAMP:
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1000
    return _taker(field.message_type, cells)


def _check_alike(writer: Any, reader: Any, path: str, outer: tuple[str, ...]) -> None:
    """Raise ``IncompatibleSchema`` when a number stands for something else."""
    if reader.full_name in outer:
        return
    known = writer.fields_by_number
    for number, field in reader.fields_by_number.items():
        if number not in known:
            continue
        where, other = at(path, field.name), known[number]
        families = [_FAMILIES.get(one.type, f"type {one.type}") for one in (other, field)]
        if families[0] != families[1] or other.is_repeated != field.is_repeated:
            raise IncompatibleSchema(
                f"The field {where!r} has the number {number}, and that one was written as another "
                "type."
            )
        if field.message_type is not None:
            inner = (other.message_type, field.message_type)
            _check_alike(*inner, where, (*outer, reader.full_name))
