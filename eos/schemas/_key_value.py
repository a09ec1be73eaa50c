"""The schema of key-value pairs, with a schema for each part.

Source: ``KeyValueSchemaInfo`` and ``KeyValue`` of the Java client. The registered data is the data
of both schemas, each after its length (int32, big endian). Names, types and properties of both are
in the pair's properties.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._avro_schema import AvroSchema
from eos.schemas._primitive_schema import PrimitiveSchema, name_for
from eos.schemas._schema_base import Schema, SchemaWriter
from eos.schemas._schema_properties import part_properties, properties_of
from eos.wire.binary_columns import BinaryColumn, joined
from eos.wire.byte_rows import ByteRows
from eos.wire.commands import KeyValue, SchemaInfo, SchemaType

_ENCODINGS: Final = ("separated", "inline")
# Names in Java's SchemaType that differ from those of the protocol.
_JAVA_NAMES: Final = {SchemaType.NONE: "BYTES"}
_TYPES: Final = {**SchemaType.__members__, "BYTES": SchemaType.NONE}


@dataclass(frozen=True)
class KeyValueSchema(Schema):
    """A pair of schemas; the columns are ``key`` and ``value``.

    Args:
        key, value: the schema of each; by default Avro for structs, else that of the column's type.
        encoding: the place of the key: ``separated``, as the message's key, for routing and
            compaction by it; or ``inline``, before the value. By default that of the topic's
            registered schema, or ``separated`` if there is none.

    Raises:
        ConfigurationError: a part is a pair itself, or not a schema.
    """

    key: Schema | None = None
    value: Schema | None = None
    encoding: Literal["separated", "inline"] | None = field(default=None)

    def __post_init__(self) -> None:
        for name, one in (("key", self.key), ("value", self.value)):
            if one is not None and not isinstance(one, Schema):
                raise ConfigurationError(
                    f"{name} must be a schema, such as AvroSchema() or PrimitiveSchema('int64'), "
                    f"or None for the schema of the column's type, not {one!r}."
                )
        if isinstance(self.key, KeyValueSchema) or isinstance(self.value, KeyValueSchema):
            raise ConfigurationError("A key_value schema can't contain a key_value schema.")
        if self.encoding is not None and self.encoding not in _ENCODINGS:
            raise ConfigurationError(
                f"encoding must be 'separated' or 'inline', not {self.encoding!r}."
            )

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
        """See ``Schema``; with ``inline`` the result has no column ``key``."""
        others = {name: column for name, column in rows.items() if name not in self.columns}
        pairs = [rows[name] for name in self.columns]
        encoded = encode(pa.StructArray.from_arrays(pairs, names=list(self.columns)))
        if not pa.types.is_struct(encoded.type):
            return {**others, "value": encoded}
        keys, values = encoded.flatten()
        return {**others, "key": keys, "value": values}

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """See ``Schema``. ``column`` is a struct of ``key`` and ``value``; ``encode`` returns a
        struct of their bytes, or with ``inline`` a column with both."""
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
                    "A key is null: with a key_value schema every row needs a key.",
                    hint="Filter such rows out, or fill the key.",
                )
            keys, values = key.encode(keys), value.encode(values)
            if is_inline:
                return _inline(keys, values)
            binary = [_binary(one) for one in (keys, values)]
            return pa.StructArray.from_arrays(binary, names=["key", "value"])

        return SchemaWriter(info, encode)


def pair_info(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """Return the registry's schema of pairs of ``key`` and ``value``."""
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
            "A value is null: with encoding='inline' its key would be lost.",
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
    """Return the encoding to write.

    The broker compares only the data of schemas, and would accept the other encoding as the same
    schema: readers would look for the key in the wrong place.
    """
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
    """Return the schemas of key and value of a registered pair; None for one that can't be
    parsed."""
    if registered is None or registered.type != SchemaType.KEY_VALUE:
        return None, None
    data = registered.data
    properties = properties_of(registered)
    found: list[SchemaInfo | None] = []
    for which in ("key", "value"):
        size = max(0, int.from_bytes(data[:4], "big", signed=True))  # C++ writes -1 for no data
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
    """Whether the key is part of the value; as in Java, this is the default."""
    return properties_of(info).get("kv.encoding.type", "INLINE").upper() == "INLINE"
