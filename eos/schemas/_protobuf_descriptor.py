"""Derives a Protobuf message from the type of a column, and checks whether the two fit.

| Arrow (Spark) | Protobuf |
|---|---|
| bool | optional bool |
| int8, int16, int32 (BYTE, SHORT, INT) | optional int32 |
| int64 (LONG) | optional int64 |
| float, double | optional float, optional double |
| string, binary | optional string, optional bytes |
| timestamp with zone (TIMESTAMP) | google.protobuf.Timestamp |
| list (ARRAY) | repeated; a null list is an empty one |
| map with strings or integers as keys | map; a null map is an empty one |
| struct | a nested message |

Not supported: dates, decimals, timestamps without zone, lists of lists. Cast them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from eos.errors import IncompatibleSchema, InputError
from eos.schemas._definition import TOP_NAME
from eos.schemas._schema_base import at, check_is_record, check_names, check_new_names
from eos.wire.spark_text import sql_name

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_MAX_NUMBER: Final = 2**29 - 1
# "Field numbers 19,000 to 19,999 are reserved for the Protocol Buffers implementation."
_LIBRARYS_NUMBERS: Final = (19_000, 20_000)
# By Arrow's name of a type, without the prefix large_.
_SCALARS: Final = {
    "bool": _FIELD.TYPE_BOOL, "int8": _FIELD.TYPE_INT32, "int16": _FIELD.TYPE_INT32,
    "int32": _FIELD.TYPE_INT32, "int64": _FIELD.TYPE_INT64, "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE, "string": _FIELD.TYPE_STRING, "binary": _FIELD.TYPE_BYTES,
}  # fmt: skip
_FITTING: Final = {
    "bool": {_FIELD.TYPE_BOOL},
    "float": {_FIELD.TYPE_FLOAT, _FIELD.TYPE_DOUBLE},
    "double": {_FIELD.TYPE_DOUBLE},
    "string": {_FIELD.TYPE_STRING, _FIELD.TYPE_ENUM},  # an enum's symbol
    "binary": {_FIELD.TYPE_BYTES},
}
# A column that has negative numbers is refused when its rows are encoded.
_UNSIGNED: Final = {
    _FIELD.TYPE_UINT32, _FIELD.TYPE_UINT64, _FIELD.TYPE_FIXED32, _FIELD.TYPE_FIXED64,
}  # fmt: skip
_LONGS: Final = {_FIELD.TYPE_INT64, _FIELD.TYPE_SINT64, _FIELD.TYPE_SFIXED64} | _UNSIGNED
_INTS: Final = {_FIELD.TYPE_INT32, _FIELD.TYPE_SINT32, _FIELD.TYPE_SFIXED32} | _LONGS


def derived_file(column: pa.DataType, name: str) -> tuple[bytes, str]:
    """Return a serialised ``FileDescriptorSet`` for ``column``, and the message's name in it.

    Raises:
        InputError: a type has no counterpart; the error names the field.
    """
    check_is_record(column)
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
    _Fields(file).add(file.message_type.add(name=TOP_NAME), column, "", f".{TOP_NAME}")
    return _file_set(file), TOP_NAME


def extended_file(files: bytes, message: str, column: pa.DataType) -> tuple[bytes, str]:
    """Return the registered descriptors, extended by the fields of ``column`` that they lack.

    Raises:
        InputError: a type has no counterpart.
        IncompatibleSchema: the name of a new field is reserved, or differs from a known one by case
            only; or no number is left.
    """
    known = descriptor_pb2.FileDescriptorSet.FromString(files)
    for file in known.file:
        prefix = f"{file.package}." if file.package else ""
        for declared in file.message_type:
            if f"{prefix}{declared.name}" == message and pa.types.is_struct(column):
                _Fields(file).extend(declared, column, "", f".{message}")
                return _file_set(
                    file, [one for one in known.file if one.name != file.name]
                ), message
    return files, message


class _Fields:
    """Adds fields to the messages of a file."""

    def __init__(self, file: Any) -> None:
        self._is_proto3 = file.syntax == "proto3"
        self._names: dict[str, set[str]] = {}  # that are in use, by the message's full name

    def extend(self, declared: Any, column: pa.StructType, path: str, scope: str) -> None:
        """Add the fields that ``declared`` lacks, also to the messages in it."""
        types = {field.name: field.type_name for field in declared.field}
        nested = {f"{scope}.{one.name}": one for one in declared.nested_type}
        for field in column:
            kind, inner = field.type, nested.get(types.get(field.name, ""))
            where = at(path, field.name)
            if pa.types.is_map(kind) and inner is not None:
                value = next((one.type_name for one in inner.field if one.name == "value"), "")
                kind, inner, where = kind.item_type, nested.get(value), f"{where}{{}}"
            elif pa.types.is_list(kind):
                kind, where = kind.value_type, f"{where}[]"
            if inner is not None and not inner.options.map_entry and pa.types.is_struct(kind):
                self.extend(inner, kind, where, f"{scope}.{inner.name}")
        missing = pa.struct([field for field in column if field.name not in types])
        check_new_names(missing, types, path)
        self.add(declared, missing, path, scope)

    def add(self, declared: Any, column: pa.StructType, path: str, scope: str) -> None:
        """Add fields for all of ``column``."""
        check_names(column, path)
        new = {field.name for field in column}
        # A message's fields, oneofs, and the types in it share one space of names.
        types = {one.name for one in (*declared.nested_type, *declared.enum_type)}
        oneofs, fields = declared.oneof_decl, declared.field
        self._names[scope] = new | types | {one.name for one in (*oneofs, *fields)}
        for field in fields:
            if field.proto3_optional and oneofs[field.oneof_index].name in new:
                own = oneofs[field.oneof_index]  # its name means nothing
                own.name = self._unused(own.name, scope)
        in_use = types | {one.name for one in oneofs} | set(declared.reserved_name)
        numbers = _free_numbers(declared)
        added = []
        for field in column:
            number = next(numbers)
            if field.name in in_use or number > _MAX_NUMBER:
                raise IncompatibleSchema(
                    f"Column {at(path, field.name)!r}: the topic's message uses or reserves that "
                    "name, or all field numbers.",
                    hint="Rename the column, or write to another topic.",
                )
            label = _FIELD.LABEL_OPTIONAL
            added.append(fields.add(name=field.name, number=number, label=label))
        _check_json_names(declared, path)
        for field, made in zip(column, added, strict=True):
            self._complete(declared, made, field.type, at(path, field.name), scope)

    def _complete(self, declared: Any, made: Any, kind: pa.DataType, path: str, scope: str) -> None:
        types = pa.types
        if types.is_map(kind):
            # As protoc names the message of a map's entries.
            name = f"{_camel_case(f'_{made.name}')}Entry"
            if name in self._names[scope]:
                raise InputError(
                    f"Column {path!r}: its map's entries are called {name}, like another column or "
                    "map's.",
                    hint="Rename one of them.",
                )
            self._names[scope].add(name)
            entry = declared.nested_type.add(name=name)
            entry.options.map_entry = True
            for which, number, inner in (("key", 1, kind.key_type), ("value", 2, kind.item_type)):
                part = entry.field.add(name=which, number=number, label=_FIELD.LABEL_OPTIONAL)
                of = f"{made.name}_value"
                self._set_type(declared, part, inner, f"{path}{{}}", scope, of)
            made.label = _FIELD.LABEL_REPEATED
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f"{scope}.{entry.name}"
            return
        if types.is_list(kind) or types.is_large_list(kind):
            made.label, kind, path = _FIELD.LABEL_REPEATED, kind.value_type, f"{path}[]"
        self._set_type(declared, made, kind, path, scope, made.name)
        is_single = made.label == _FIELD.LABEL_OPTIONAL and made.type != _FIELD.TYPE_MESSAGE
        if is_single and self._is_proto3:
            # proto3's "optional" distinguishes null from 0. Such a field is in a oneof of its own.
            made.proto3_optional = True
            made.oneof_index = len(declared.oneof_decl)
            declared.oneof_decl.add(name=self._unused(f"_{made.name}", scope))

    def _set_type(
        self, declared: Any, made: Any, kind: pa.DataType, path: str, scope: str, name: str
    ) -> None:
        if pa.types.is_struct(kind):
            inner = declared.nested_type.add(name=self._unused(f"{name}_message", scope))
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f"{scope}.{inner.name}"
            self.add(inner, kind, path, made.type_name)
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_TIMESTAMP}"
        elif (scalar := str(kind).removeprefix("large_")) in _SCALARS:
            made.type = _SCALARS[scalar]
        else:
            raise InputError(
                f"Column {path!r} is {sql_name(kind)}, which a derived Protobuf message does not "
                "support.",
                hint="Cast it: a decimal or a date to string, for example.",
            )

    def _unused(self, name: str, scope: str) -> str:
        # As protoc does.
        while name in self._names[scope]:
            name = f"X{name}"
        self._names[scope].add(name)
        return name


def _free_numbers(declared: Any) -> Iterator[int]:
    """Yield the numbers after the last field's that the message does not reserve: older messages
    may have them, for fields that were dropped."""
    ranges = (*declared.reserved_range, *declared.extension_range)
    taken = sorted([(one.start, one.end) for one in ranges] + [_LIBRARYS_NUMBERS])
    number = max((field.number for field in declared.field), default=0)
    while True:
        number += 1
        for start, end in taken:
            number = end if start <= number < end else number
        yield number


def _check_json_names(declared: Any, path: str) -> None:
    # Protobuf refuses such fields, and doesn't say which.
    names: dict[str, str] = {}
    for field in declared.field:
        other = names.setdefault(field.json_name or _camel_case(field.name), field.name)
        if other != field.name:
            raise InputError(
                f"Columns {at(path, other)!r} and {at(path, field.name)!r} have the same name in "
                "Protobuf's JSON.",
                hint="Rename one of them.",
            )


def _camel_case(name: str) -> str:
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


def _file_set(file: Any, others: Iterable[Any] = ()) -> bytes:
    files = descriptor_pb2.FileDescriptorSet(file=others)
    timestamps = timestamp_pb2.DESCRIPTOR
    if any(_uses_timestamps(declared) for declared in file.message_type):
        if timestamps.name not in {one.name for one in files.file}:
            timestamps.CopyToProto(files.file.add())
        if timestamps.name not in file.dependency:
            file.dependency.append(timestamps.name)
    files.file.add().CopyFrom(file)  # after the files that it depends on
    return bytes(files.SerializeToString())


def _uses_timestamps(declared: Any) -> bool:
    return any(field.type_name == f".{_TIMESTAMP}" for field in declared.field) or any(
        _uses_timestamps(inner) for inner in declared.nested_type
    )


def why_not(descriptor: Any, column: pa.DataType, path: str = "") -> str:
    """Explain why rows of ``column`` can't be messages of ``descriptor``; "" if they can."""
    if not pa.types.is_struct(column):
        return (
            f"The value is {sql_name(column)}; the schema has the message {descriptor.full_name}."
        )
    for field in column:
        where = f"{path}.{field.name}".lstrip(".")
        declared = descriptor.fields_by_name.get(field.name)
        if declared is None:
            return f"The message {descriptor.full_name} has no field {where!r}."
        why = _why_not_field(declared, field.type, where)
        if why:
            return why
    return ""


def _why_not_field(declared: Any, kind: pa.DataType, path: str) -> str:
    types, message = pa.types, declared.message_type
    mismatch = f"Column {path!r} is {sql_name(kind)}; the message's field has another type."
    if message is not None and message.GetOptions().map_entry:
        if not types.is_map(kind):
            return mismatch
        fields = message.fields_by_name
        key = _why_not_field(fields["key"], kind.key_type, f"{path}{{}}")
        return key or _why_not_field(fields["value"], kind.item_type, f"{path}{{}}")
    if declared.is_repeated != (types.is_list(kind) or types.is_large_list(kind)):
        return mismatch
    if declared.is_repeated:
        kind = kind.value_type
    if message is None:
        return "" if _takes(declared.type, kind) else mismatch
    if message.full_name == _TIMESTAMP:
        return "" if types.is_timestamp(kind) and kind.tz is not None else mismatch
    return why_not(message, kind, path) if types.is_struct(kind) else mismatch


def _takes(declared: int, kind: pa.DataType) -> bool:
    if pa.types.is_signed_integer(kind):
        return declared in (_LONGS if kind.bit_width == 64 else _INTS)
    return declared in _FITTING.get(str(kind).removeprefix("large_"), set())
