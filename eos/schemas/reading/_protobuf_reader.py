"""Reads Protobuf messages one by one, in Python. Fields are matched by number, as in Protobuf.

| Protobuf | Arrow (Spark) |
|---|---|
| bool, float, double, string, bytes | the same |
| int32, sint32, sfixed32 | int32 |
| other integers | int64; a row with a greater number fails |
| enum | string: the symbol; a row with an unknown number fails |
| google.protobuf.Timestamp | timestamp in UTC |
| a message, repeated, map | struct, list, map |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError

from eos.errors import IncompatibleSchema
from eos.schemas._protobuf_schema import message_class, parsed_data, skeleton_class
from eos.schemas._schema_base import at
from eos.schemas.reading._column_reader import (
    MAX_OBJECT_BYTES,
    TOO_LONG,
    FieldBudget,
    ValueTooLarge,
    as_column,
)
from eos.wire.avro import MAX_DEPTH, MAX_FIELDS
from eos.wire.binary_columns import RowFailures, cells_of
from eos.wire.commands import SchemaInfo, SchemaType

_F: Final = FieldDescriptorProto
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SCALARS: Final = {
    _F.TYPE_BOOL: pa.bool_(), _F.TYPE_FLOAT: pa.float32(), _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_STRING: pa.string(), _F.TYPE_ENUM: pa.string(), _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_INT32: pa.int32(), _F.TYPE_SINT32: pa.int32(), _F.TYPE_SFIXED32: pa.int32(),
}  # fmt: skip
# Types of one family have the same encoding: "int32, uint32, int64, uint64, and bool are all
# compatible", and so on (Protobuf's guide, "Updating A Message Type").
_FAMILIES: Final = {
    _F.TYPE_INT32: 1, _F.TYPE_INT64: 1, _F.TYPE_UINT32: 1, _F.TYPE_UINT64: 1, _F.TYPE_BOOL: 1,
    _F.TYPE_SINT32: 2, _F.TYPE_SINT64: 2, _F.TYPE_FIXED32: 3, _F.TYPE_SFIXED32: 3,
    _F.TYPE_FIXED64: 4, _F.TYPE_SFIXED64: 4, _F.TYPE_STRING: 5, _F.TYPE_BYTES: 5,
}  # fmt: skip
# The bits of the least and the greatest number. What is read as unsigned 64 bits fails by itself if
# it was negative; all else that is too large would silently become another number.
_BITS: Final = {
    _F.TYPE_BOOL: (0, 1), _F.TYPE_INT32: (31, 31), _F.TYPE_SINT32: (31, 31),
    _F.TYPE_SFIXED32: (31, 31), _F.TYPE_UINT32: (0, 32), _F.TYPE_FIXED32: (0, 32),
    _F.TYPE_INT64: (63, 63), _F.TYPE_SINT64: (63, 63), _F.TYPE_SFIXED64: (63, 63),
    _F.TYPE_UINT64: (63, 64), _F.TYPE_FIXED64: (63, 64),
}  # fmt: skip

# Fields of messages, in a value whose messages are not counted before it is parsed.
_MAX_UNCOUNTED: Final = 1 << 24
_Converter = Callable[[Any], Any]


class ProtobufReader:
    """Reads Protobuf. See ``ColumnReader``."""

    is_record = True

    def __init__(self, reader: SchemaInfo) -> None:
        self.info = reader
        self._message = _message(reader)
        self.type: pa.DataType = _Types().struct(self._message.DESCRIPTOR, "", ())
        self._budget = FieldBudget()
        self._skeleton: Any = None
        self._width = _widest(self._message.DESCRIPTOR)
        self._convert = _message_converter(self._message.DESCRIPTOR, self._budget)
        self._checked: set[SchemaInfo] = set()

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``."""
        if writer.type == SchemaType.PROTOBUF_NATIVE and writer not in self._checked:
            _check_compatible(_message(writer).DESCRIPTOR, self._message.DESCRIPTOR, "", ())
            self._checked.add(writer)
        rows: list[Any] = []
        reasons: dict[int, str] = {}
        self._budget.begin()
        for number, data in enumerate(values.to_pylist()):
            row = None
            try:
                row = None if data is None else self._row(data)
            except ValueTooLarge as error:
                reasons[number] = str(error)
            except DecodeError:
                name = self._message.DESCRIPTOR.full_name
                reasons[number] = f"The value is not a message {name}."
            except ValueError:
                reasons[number] = "The value has a number that its enum does not define."
            rows.append(row)
        unfit = "The value has a number out of its column's range, or a text that is not UTF-8."
        return as_column(rows, self.type, reasons, unfit)

    def _row(self, data: bytes) -> Any:
        if len(data) > MAX_OBJECT_BYTES:
            raise ValueTooLarge(TOO_LONG)
        self._budget.renew()
        if len(data) // 2 * self._width > _MAX_UNCOUNTED:
            self._count(data)
            self._budget.renew()
        return self._convert(self._message.FromString(data))

    def _count(self, data: bytes) -> None:
        # A message of two bytes takes eight for each field of its type once it is parsed.
        if self._skeleton is None:
            self._skeleton = skeleton_class(*_known(self.info))
        todo = [(self._message.DESCRIPTOR, self._skeleton.FromString(data))]
        self._budget.spend(len(self._message.DESCRIPTOR.fields))
        while todo:
            kind, found = todo.pop()
            for field, inner in type(found).ListFields(found):
                of = kind.fields_by_number[field.number].message_type
                many = inner if field.is_repeated else [inner]
                # Before they become objects. Entries of maps and timestamps are no dicts later.
                if not of.GetOptions().map_entry and of.full_name != _TIMESTAMP:
                    self._budget.spend(len(of.fields) * len(many))
                if len(field.message_type.fields):
                    todo += [(of, one) for one in many]


def _message(info: SchemaInfo) -> Any:
    return message_class(*_known(info))


def _known(info: SchemaInfo) -> tuple[bytes, str]:
    known = parsed_data(info.data)
    if known is None:
        raise IncompatibleSchema(
            "The registered data are not Protobuf descriptors.",
            hint="Read the values as bytes, or give ProtobufSchema.of(MyMessage).",
        )
    return known


def _inner_messages(message: Any) -> list[Any]:
    return [one.message_type for one in message.fields if one.message_type is not None]


def _widest(message: Any) -> int:
    """Return the number of fields of the widest message in ``message``, which is not recursive."""
    seen, todo = {message.full_name: len(message.fields)}, [message]
    while todo:
        for one in _inner_messages(todo.pop()):
            if one.full_name not in seen:
                seen[one.full_name] = len(one.fields)
                todo.append(one)
    return max(seen.values())


class _Types:
    def __init__(self) -> None:
        self._count = 0

    def struct(self, message: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        # ``outer``: the messages that contain this one. All levels are counted, because nested
        # message types can multiply.
        self._count += len(message.fields)
        problem = ""
        if message.full_name in outer:
            problem = f"contains messages of its own type (at {path!r})"
        elif self._count > MAX_FIELDS:
            problem = f"has more than {MAX_FIELDS} fields, including nested ones"
        elif len(outer) >= MAX_DEPTH:
            problem = f"is nested too deeply (at most {MAX_DEPTH} levels)"
        if problem:
            raise IncompatibleSchema(
                f"The message {message.full_name} {problem}: it can't be read as a column.",
                hint="Give your own schema, without the fields that you don't need.",
            )
        outer = (*outer, message.full_name)
        fields = [(one.name, self._field(one, at(path, one.name), outer)) for one in message.fields]
        return pa.struct(fields)

    def _field(self, field: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        if _is_map(field):
            pair = field.message_type.fields_by_name
            key, value = self.one(pair["key"], path, outer), self.one(pair["value"], path, outer)
            return pa.map_(key, value)
        kind = self.one(field, path, outer)
        return pa.list_(kind) if field.is_repeated else kind

    def one(self, field: Any, path: str, outer: tuple[str, ...]) -> pa.DataType:
        if field.message_type is None:
            return _SCALARS.get(field.type, pa.int64())
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return self.struct(field.message_type, path, outer)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _message_converter(message: Any, budget: FieldBudget) -> _Converter:
    fields = [
        (one.name, one.has_presence, _field_converter(one, budget), _null(one, budget))
        for one in message.fields
    ]
    size = len(fields) + 1
    # Not the object's: it may be the name of a field.
    has_field = message_factory.GetMessageClass(message).HasField

    def convert(found: Any) -> dict[str, Any]:
        budget.spend(size)
        # A missing field is null if the message distinguishes that from the default (``optional``);
        # else it has the default.
        return {
            name: null()
            if has_presence and not has_field(found, name)
            else of(getattr(found, name))
            for name, has_presence, of, null in fields
        }

    return convert


def _null(field: Any, budget: FieldBudget) -> Callable[[], None]:
    return partial(budget.spend_cells, cells_of(_Types().one(field, "", ())))


def _field_converter(field: Any, budget: FieldBudget) -> _Converter:
    if _is_map(field):
        convert = _value_converter(field.message_type.fields_by_name["value"], budget)
        return lambda found: [(key, convert(found[key])) for key in found]
    convert = _value_converter(field, budget)
    return (lambda found: [convert(one) for one in found]) if field.is_repeated else convert


def _value_converter(field: Any, budget: FieldBudget) -> _Converter:
    if field.enum_type is not None:
        # Of several names of a number, the first one, as in Java.
        symbols = {one.number: one.name for one in reversed(field.enum_type.values)}

        def symbol(number: int) -> str:
            if number not in symbols:
                raise ValueError
            return str(symbols[number])

        return symbol
    if field.message_type is None:
        return lambda found: found
    if field.message_type.full_name == _TIMESTAMP:
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1000
    return _message_converter(field.message_type, budget)


def _check_compatible(writer: Any, reader: Any, path: str, outer: tuple[str, ...]) -> None:
    """Raise ``IncompatibleSchema`` if a field number has another type, or a narrower one, in
    ``reader``."""
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
                f"The field {where!r} has the number {number}, which was written as another type."
            )
        bits = zip(*(_BITS.get(one.type, (0, 0)) for one in (other, field)), strict=True)
        if any(written > read for written, read in bits):
            raise IncompatibleSchema(
                f"The field {where!r} was written as a type with numbers that its own lacks.",
                hint="Give your own schema, with the wider type, to read both.",
            )
        if field.message_type is not None:
            inner = (other.message_type, field.message_type)
            _check_compatible(*inner, where, (*outer, reader.full_name))


def protobuf_as_read(writer: SchemaInfo, reader: SchemaInfo) -> pa.DataType:
    """Return the type of ``writer``'s column, with ``reader``'s names of the fields that it reads.
    What has no fields, or is not read, is null."""
    return _as_read(_message(writer).DESCRIPTOR, _message(reader).DESCRIPTOR)


def _as_read(writer: Any, reader: Any) -> pa.DataType:
    fields: list[tuple[str, pa.DataType]] = []
    for one in writer.fields:
        to = reader.fields_by_number.get(one.number)
        if to is not None:
            fields.append((to.name, _field_as_read(one, to)))
        else:  # it may be of a type that contains itself; and another number may have its name
            is_taken = one.name in reader.fields_by_name
            fields.append((f"{one.name} = {one.number}" if is_taken else one.name, pa.null()))
    return pa.struct(fields)


def _field_as_read(writer: Any, reader: Any) -> pa.DataType:
    if _is_map(reader):
        values = (one.message_type.fields_by_name["value"] for one in (writer, reader))
        return pa.map_(pa.string(), _one_as_read(*values))
    kind = _one_as_read(writer, reader)
    return pa.list_(kind) if reader.is_repeated else kind


def _one_as_read(writer: Any, reader: Any) -> pa.DataType:
    if reader.message_type is None or reader.message_type.full_name == _TIMESTAMP:
        return pa.null()
    return _as_read(writer.message_type, reader.message_type)
