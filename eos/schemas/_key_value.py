"""The schema of key-value pairs, with a schema for each part.

Source: ``KeyValueSchemaInfo`` and ``KeyValue`` of the Java client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._avro_schema import AvroSchema
from eos.schemas._primitive_schema import PrimitiveSchema, name_for
from eos.schemas._schema_base import Schema, SchemaWriter
from eos.schemas._schema_properties import ENCODINGS, pair_info, parts, properties_of
from eos.wire.binary_columns import BinaryColumn, joined
from eos.wire.byte_rows import ByteRows
from eos.wire.commands import SchemaInfo, SchemaType


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
    encoding: Literal["separated", "inline"] | None = None

    def __post_init__(self) -> None:
        for name, one in (("key", self.key), ("value", self.value)):
            if one is not None and not isinstance(one, Schema):
                raise ConfigurationError(
                    f"{name} must be a schema, such as AvroSchema() or PrimitiveSchema('int64'), "
                    f"or None for the schema of the column's type, not {one!r}."
                )
        if isinstance(self.key, KeyValueSchema) or isinstance(self.value, KeyValueSchema):
            raise ConfigurationError("A key_value schema can't contain a key_value schema.")
        if self.encoding is not None and self.encoding not in ENCODINGS:
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
        """See ``Schema``."""
        others = {name: column for name, column in rows.items() if name not in self.columns}
        pairs = [rows[name] for name in self.columns]
        encoded = encode(pa.StructArray.from_arrays(pairs, names=list(self.columns)))
        if not pa.types.is_struct(encoded.type):  # ``inline``: the key is in the value
            return {**others, "value": encoded}
        keys, values = encoded.flatten()
        return {**others, "key": keys, "value": values}

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """See ``Schema``."""
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
            # A part may be encoded as text; columns of messages are binary.
            binary = [one.cast(pa.binary()) for one in (keys, values)]
            return pa.StructArray.from_arrays(binary, names=["key", "value"])

        return SchemaWriter(info, encode)


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
    # ``[size i32][key][size i32][value]``, big endian, as in Java's ``KeyValue.encode``.
    pieces: list[pa.BinaryArray] = []
    for column in (BinaryColumn.of(keys), BinaryColumn.of(values)):
        sizes = ByteRows(len(column))
        sizes.uint32(column.lengths)
        pieces += [sizes.array(), column.array()]
    return joined(pieces)


def _encoding(registered: SchemaInfo | None, encoding: str | None) -> str:
    # The broker compares only the data of schemas, and would accept the other encoding as the same
    # schema: readers would look for the key in the wrong place.
    if registered is None or registered.type != SchemaType.KEY_VALUE:
        return encoding or "separated"
    known = properties_of(registered).get("kv.encoding.type", "").lower()
    if encoding is not None and known in ENCODINGS and known != encoding:
        raise IncompatibleSchema(
            f"The topic's pairs have the encoding {known!r}, the sink's {encoding!r}.",
            hint=f"Use KeyValueSchema(encoding={known!r}), or another topic.",
        )
    return encoding or (known if known in ENCODINGS else "separated")
