"""The Protobuf schema (Pulsar's ``PROTOBUF_NATIVE``, whose registered data are descriptors).

Source: ``ProtobufNativeSchemaData`` of apache/pulsar.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._protobuf_descriptor import derived_file, extended_file, why_not
from eos.schemas._schema_base import Schema, SchemaWriter, at
from eos.wire.batch import check_texts
from eos.wire.commands import SchemaInfo, SchemaType

_FILE: Final = "row.proto"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class ProtobufSchema(Schema):
    """Protobuf: of your compiled message class (``of``), or by default derived from the columns.

    Attributes:
        files: a serialised ``FileDescriptorSet``, each file after its dependencies.
        message: the full name of the message in it; "" to derive one from the columns.
    """

    files: bytes = b""
    message: str = ""

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return the schema of a compiled message class.

        Raises:
            ConfigurationError: ``message`` is not a message class.
        """
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise ConfigurationError(f"{message!r} is not a compiled Protobuf message class.")
        found: dict[str, descriptor_pb2.FileDescriptorProto] = {}

        def collect(file: Any) -> None:
            if file.name in found:
                return
            for needed in file.dependencies:
                collect(needed)
            found[file.name] = descriptor_pb2.FileDescriptorProto()
            file.CopyToProto(found[file.name])

        collect(descriptor.file)
        files = descriptor_pb2.FileDescriptorSet(file=found.values())
        return cls(files.SerializeToString(), descriptor.full_name)

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """See ``Schema``."""
        files, message = self._files(column, registered)
        found = message_class(files, message)
        why = why_not(found.DESCRIPTOR, column)
        if why and not self.message:
            raise IncompatibleSchema(
                f"The rows don't fit the topic's message: {why}",
                hint="Cast the column to the topic's type, or give it another name.",
            )
        if why:
            raise InputError(why)
        return SchemaWriter(_info(files, found), lambda values: _encode(found, values))

    @property
    def info(self) -> SchemaInfo:
        """The schema of the message class, as it is registered."""
        return _info(self.files, message_class(self.files, self.message))

    def _files(self, column: pa.DataType, registered: SchemaInfo | None) -> tuple[bytes, str]:
        if self.message:  # the user's own class is never extended
            return self.files, self.message
        if registered is not None and registered.type == SchemaType.PROTOBUF_NATIVE:
            known = parsed_data(registered.data)
            if known is not None:
                return extended_file(*known, column)
        return derived_file(column, _FILE)


def _info(files: bytes, message: Any) -> SchemaInfo:
    data = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": message.DESCRIPTOR.full_name,
        "rootFileDescriptorName": message.DESCRIPTOR.file.name,
    }
    return SchemaInfo(data=json.dumps(data).encode(), type=SchemaType.PROTOBUF_NATIVE)


def parsed_data(data: bytes) -> tuple[bytes, str] | None:
    """Return the descriptors and the message's name in registered data; None if invalid."""
    try:
        known = json.loads(data)
        files, message = base64.b64decode(known["fileDescriptorSet"]), known["rootMessageTypeName"]
        message_class(files, message)
    except (ValueError, KeyError, TypeError, RecursionError, ConfigurationError):
        return None
    return files, message


def message_class(files: bytes, message: str) -> Any:
    """Return the class of a message.

    Raises:
        ConfigurationError: the descriptors are invalid, or don't contain the message.
    """
    # A pool of its own: other versions of the message have the same name.
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in _in_order(descriptor_pb2.FileDescriptorSet.FromString(files).file):
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (TypeError, KeyError, DecodeError) as error:
        raise ConfigurationError(
            f"The Protobuf descriptors have no {message!r}: {error}."
        ) from error


def skeleton_class(files: bytes, message: str) -> Any:
    """Return the class of a message without all fields but those of messages: its objects are
    small, and show how many messages data contain."""
    found = descriptor_pb2.FileDescriptorSet.FromString(files)
    todo = [one for file in found.file for one in file.message_type]
    for file in found.file:
        del file.extension[:]  # or they are found in a message that has not declared them
    while todo:
        declared = todo.pop()
        del declared.extension[:]
        todo += declared.nested_type
        kept = [
            one for one in declared.field if one.type in (_FIELD.TYPE_MESSAGE, _FIELD.TYPE_GROUP)
        ]
        for field in kept:
            field.ClearField("oneof_index")
            field.ClearField("proto3_optional")
            if field.label == _FIELD.LABEL_REQUIRED:
                field.label = _FIELD.LABEL_OPTIONAL
        del declared.field[:], declared.oneof_decl[:]
        declared.field.extend(kept)
        declared.options.ClearField("map_entry")  # repeated messages have the same bytes
    return message_class(found.SerializeToString(), message)


def _in_order(files: Iterable[Any]) -> list[Any]:
    # After their dependencies, as the pool needs them; Java's client stores them in reverse order.
    known = {file.name: file for file in files}
    seen: set[str] = set()
    ordered: list[Any] = []
    for root in known:
        path = [(root, iter((root,)))]  # no recursion: chains of files may be long
        while path:
            name, needed = path[-1]
            found = next((one for one in needed if one in known and one not in seen), None)
            if found is not None:
                seen.add(found)
                path.append((found, iter(known[found].dependency)))
                continue
            path.pop()
            if path:
                ordered.append(known[name])
    return ordered


def _encode(message: Any, values: pa.Array) -> pa.Array:
    # Row by row, in Python; all other schemas encode whole columns. Methods are the class's: those
    # of an object may be fields of the same name.
    check_texts(values)
    fill = _filler(message.DESCRIPTOR, "")
    encoded: list[bytes | None] = []
    kind = _in_utc(values.type)  # a local time may be before year 1
    for row in _objects(values if kind == values.type else values.cast(kind), ""):
        if row is None:
            encoded.append(None)
            continue
        made = message()
        fill(made, row)
        try:
            # Deterministic: maps are otherwise in any order.
            encoded.append(message.SerializeToString(made, deterministic=True))
        except EncodeError:
            missing = ", ".join(map(repr, _missing_fields(made)))
            raise InputError(
                f"Columns {missing} are null in a row, or missing, but the message requires them.",
                hint="Fill them (coalesce), or change the message.",
            ) from None
    return pa.array(encoded, pa.binary())


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_in_utc(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_in_utc(kind.item_type)))
    is_zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, "UTC") if is_zoned else kind


def _objects(values: pa.Array, path: str) -> list[Any]:
    try:
        return list(values.to_pylist())
    except OverflowError:
        for field in values.type if pa.types.is_struct(values.type) else ():
            _objects(values.field(field.name), at(path, field.name))  # which of them it is
        raise InputError(
            f"Column {path!r} has a timestamp outside of the years 1 to 9999.",
            hint="Protobuf has no others: make it null, or another type.",
        ) from None


def _missing_fields(message: Any) -> list[str]:
    found = type(message).FindInitializationErrors(message)
    # Map keys are data, which must not be shown.
    return sorted({re.sub(r"\[.*\]", "[]", path, flags=re.DOTALL) for path in found})


def _filler(descriptor: Any, path: str) -> Callable[[Any, dict[str, Any]], None]:
    setters: dict[str, Callable[[Any, Any], None]] = {}
    fields = descriptor.fields_by_name
    # Of a oneof's fields a message keeps the last one that was set.
    groups = [group for group in descriptor.oneofs if len(group.fields) > 1]
    oneofs = {one.name: group.name for group in groups for one in group.fields}

    def fill(message: Any, row: dict[str, Any]) -> None:
        chosen: dict[str, str] = {}
        for name, value in row.items():
            if value is None:
                continue
            if name in oneofs and (other := chosen.setdefault(oneofs[name], name)) != name:
                raise InputError(
                    f"Columns {at(path, other)!r} and {at(path, name)!r} have values in one row; "
                    f"the message takes one of them (oneof {oneofs[name]}).",
                    hint="Make the others null.",
                )
            if name not in setters:  # on first use: a message type may be recursive
                setters[name] = _setter(fields[name], at(path, name))
            try:
                setters[name](message, value)
            except (ValueError, TypeError, AttributeError):
                # The library's message would show the data.
                raise InputError(_refusal(fields[name], at(path, name))) from None

    return fill


def _refusal(field: Any, path: str) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        field = field.message_type.fields_by_name["value"]
    if field.enum_type is not None:
        names = ", ".join(one.name for one in field.enum_type.values)
        return f"Column {path!r} has a value other than {names}."
    return (
        f"Column {path!r} has a value that the message does not allow: a number out of range, or a "
        "null in a list or map."
    )


def _setter(field: Any, path: str) -> Callable[[Any, Any], None]:
    name, inner = field.name, field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return _map_setter(name, inner.fields_by_name["value"], path)
    if inner is None:
        if field.is_repeated:
            return lambda message, value: getattr(message, name).extend(value)
        return lambda message, value: setattr(message, name, value)
    fill = _inner_filler(inner, path)

    def add(message: Any, value: Any) -> None:
        for one in value:
            fill(getattr(message, name).add(), one)

    def set_one(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        type(inner).SetInParent(inner)  # an empty message is there, unlike a null
        fill(inner, value)

    return add if field.is_repeated else set_one


def _inner_filler(descriptor: Any, path: str) -> Callable[[Any, Any], None]:
    if descriptor.full_name == "google.protobuf.Timestamp":
        return lambda message, value: message.FromDatetime(value)
    return _filler(descriptor, path)


def _map_setter(name: str, value: Any, path: str) -> Callable[[Any, Any], None]:
    if value.message_type is None:
        return lambda message, pairs: getattr(message, name).update(dict(pairs))
    fill = _inner_filler(value.message_type, path)

    def put(message: Any, pairs: Any) -> None:
        for key, one in pairs:
            fill(getattr(message, name)[key], one)

    return put
