"""Keys and values with a schema each.

Source: ``KeyValueSchemaInfo`` and ``KeyValue`` of the Java client: the registered data is both
schemas' data, each behind its length (int32, big endian); names, types and properties of both stand
in the properties.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._avro import AvroSchema
from eos.schemas._base import Schema, SchemaWriter
from eos.schemas._primitives import PrimitiveSchema, name_for
from eos.schemas._properties import part_properties, properties_of
from eos.wire.byte_rows import ByteRows
from eos.wire.columns import BinaryColumn, joined
from eos.wire.commands import KeyValue, SchemaInfo, SchemaType

_ENCODINGS: Final = ("separated", "inline")
# How Java's SchemaType spells what SchemaType of the wire has in another way.
_JAVA_NAMES: Final = {SchemaType.NONE: "BYTES"}
_TYPES: Final = {**SchemaType.__members__, "BYTES": SchemaType.NONE}


@dataclass(frozen=True)
class KeyValueSchema(Schema):
    """A pair of schemas; the columns are ``key`` and ``value``.

    Args:
        key, value: the schema of each; by default Avro for structs, else that of the column's type.
        encoding: where the key is: ``separated``, as the message's key, so that routing and
            compaction go by it; or ``inline``, in front of the value. By default as the topic's
            registered schema has it, and ``separated`` where it has none.

    Raises:
        ConfigurationError: a pair in a pair.
    """

    key: Schema | None = None
    value: Schema | None = None
    encoding: Literal["separated", "inline"] | None = field(default=None)

    def __post_init__(self) -> None:
        for name, one in (("key", self.key), ("value", self.value)):
            if one is not None and not isinstance(one, Schema):
                raise ConfigurationError(
                    f"{name}={one!r}: it is a schema, such as AvroSchema() or "
                    "PrimitiveSchema('int64'), or nothing: then the column's type decides."
                )
        if isinstance(self.key, KeyValueSchema) or isinstance(self.value, KeyValueSchema):
            raise ConfigurationError("A key_value schema is made of two others, not of itself.")
        if self.encoding is not None and self.encoding not in _ENCODINGS:
            raise ConfigurationError(f"encoding={self.encoding!r}: it is 'separated' or 'inline'.")

    @property
    def columns(self) -> tuple[str, ...]:
        """See ``Schema``."""
        return ("key", "value")

    @property
    def json_columns(self) -> tuple[str, ...]:
        """See ``Schema``."""
        pairs = (("key", self.key), ("value", self.value))
        return tuple(name for name, one in pairs if one is not None and one.json_columns)

    def encode_columns(
        self, rows: dict[str, pa.Array], encode: Callable[[pa.Array], pa.Array]
    ) -> dict[str, pa.Array]:
        """See ``Schema``; with ``inline`` no column ``key`` is left."""
        others = {name: column for name, column in rows.items() if name not in self.columns}
        pairs = [rows[name] for name in self.columns]
        encoded = encode(pa.StructArray.from_arrays(pairs, names=list(self.columns)))
        if not pa.types.is_struct(encoded.type):
            return {**others, "value": encoded}
        keys, values = encoded.flatten()
        return {**others, "key": keys, "value": values}

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """See ``Schema``; ``column`` is a struct of ``key`` and ``value``, and ``encode`` gives one
        of their bytes, or with ``inline`` both in one."""
        encoding = _encoding(registered, self.encoding)
        is_inline = encoding == "inline"
        known_key, known_value = parts(registered)
        key = _writer(self.key, column.field("key").type, known_key)
        value = _writer(self.value, column.field("value").type, known_value)
        info = pair_info(key.info, value.info, encoding)

        def encode(pairs: pa.StructArray) -> pa.Array:
            keys, values = pairs.flatten()
            if keys.null_count:
                raise InputError(
                    "A key is null: with a key_value schema, each row has one.",
                    hint="Filter such rows out, or fill the key.",
                )
            keys, values = key.encode(keys), value.encode(values)
            if is_inline:
                return _inline(keys, values)
            binary = [_binary(one) for one in (keys, values)]
            return pa.StructArray.from_arrays(binary, names=["key", "value"])

        return SchemaWriter(info, encode)


def pair_info(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """The schema of pairs, as the registry has it."""
    return SchemaInfo(
        name="KeyValue",
        type=SchemaType.KEY_VALUE,
        data=_sized(key.data) + _sized(value.data),
        properties=(
            *_described("key", key),
            *_described("value", value),
            KeyValue(key="kv.encoding.type", value=encoding.upper()),
        ),
    )


def _writer(
    chosen: Schema | None, column: pa.DataType, registered: SchemaInfo | None
) -> SchemaWriter:
    if chosen is None:
        name = name_for(column)
        chosen = AvroSchema() if name == "avro" else PrimitiveSchema(name)
    return chosen.writer(column, registered)


def _inline(keys: pa.Array, values: pa.Array) -> pa.Array:
    if values.null_count:
        raise InputError(
            "A value is null: with encoding='inline' the key would be lost with it.",
            hint="Use encoding='separated'.",
        )
    pieces: list[pa.BinaryArray] = []
    for column in (BinaryColumn.of(keys), BinaryColumn.of(values)):
        sizes = ByteRows(len(column))
        sizes.uint32(column.lengths)
        pieces += [sizes.array(), column.array()]
    return joined(pieces)


def _binary(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _described(which: str, info: SchemaInfo) -> tuple[KeyValue, ...]:
    kind = SchemaType(info.type)
    return (
        KeyValue(key=f"{which}.schema.name", value=info.name),
        KeyValue(key=f"{which}.schema.type", value=_JAVA_NAMES.get(kind, kind.name)),
        KeyValue(key=f"{which}.schema.properties", value=json.dumps(properties_of(info))),
    )


def _encoding(registered: SchemaInfo | None, encoding: str | None) -> str:
    """The broker compares the data of schemas only, and would take the other encoding for the same
    schema: readers would look for the key in the wrong place."""
    if registered is None or registered.type != SchemaType.KEY_VALUE:
        return encoding or "separated"
    known = properties_of(registered).get("kv.encoding.type", "").lower()
    if encoding is not None and known in _ENCODINGS and known != encoding:
        raise IncompatibleSchema(
            f"The topic's pairs have the encoding {known!r}, the sink's {encoding!r}.",
            hint=f"Use KeyValueSchema(encoding={known!r}), or another topic.",
        )
    return encoding or (known if known in _ENCODINGS else "separated")


def parts(registered: SchemaInfo | None) -> tuple[SchemaInfo | None, SchemaInfo | None]:
    """The two schemas of a registered pair; None where there is none that we understand."""
    if registered is None or registered.type != SchemaType.KEY_VALUE:
        return None, None
    data = registered.data
    properties = properties_of(registered)
    found: list[SchemaInfo | None] = []
    for which in ("key", "value"):
        size = max(0, int.from_bytes(data[:4], "big", signed=True))  # C++ writes -1 for none
        is_whole = len(data) >= 4 + size
        body, data = data[4 : 4 + size], data[4 + size :]
        kind = _TYPES.get(properties.get(f"{which}.schema.type", "BYTES"))  # as in Java
        more = part_properties(registered, which)
        if is_whole and kind is not None:
            found.append(SchemaInfo(type=kind, data=body, properties=more))
        else:
            found.append(None)
    return found[0], found[1]


def is_inline(info: SchemaInfo) -> bool:
    """Whether the key stands in the value; as in Java, unless it is said to be separated."""
    return properties_of(info).get("kv.encoding.type", "INLINE").upper() == "INLINE"
