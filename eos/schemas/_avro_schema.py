"""The Avro and JSON schemas. Both are declared in Avro's schema language."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from eos.errors import ConfigurationError
from eos.schemas._definition import derive_definition, evolve_definition
from eos.schemas._schema_base import Schema, SchemaWriter
from eos.wire.avro import (
    AvroType,
    RecordOf,
    check_defaults,
    check_fits,
    encode_avro,
    parse_definition,
    without_comments,
)
from eos.wire.batch import check_texts
from eos.wire.commands import SchemaInfo, SchemaType


@dataclass(frozen=True)
class AvroSchema(Schema):
    """Avro.

    Args:
        definition: your schema, as JSON text; comments are left out. Without it one is derived from
            the columns and the topic's schema: if the columns fit the registered schema it is used
            unchanged, else it is extended.

    Raises:
        ConfigurationError: the definition is not Avro, or a default is not of its field's type.
    """

    definition: str | None = None

    type: ClassVar[SchemaType] = SchemaType.AVRO
    _as_json: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.definition is None:
            return
        if not isinstance(self.definition, str):
            raise ConfigurationError(
                f"The definition must be JSON text, not {type(self.definition).__name__}.",
                hint="Convert objects with json.dumps(definition).",
            )
        # Other clients parse it as JSON, once it is registered.
        object.__setattr__(self, "definition", without_comments(self.definition))
        kind = parse_definition(self.definition)
        if not isinstance(kind, RecordOf):
            raise ConfigurationError(
                "The definition is not a record.",
                hint="For single values choose a schema by name: 'string', 'int64' and so on.",
            )
        check_defaults(kind)

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """See ``Schema``."""
        data, kind = self._definition(column, registered)
        check_fits(kind, column, as_json=self._as_json)
        info = SchemaInfo(name="", data=data, type=self.type)
        return SchemaWriter(info, lambda values: self._encode(kind, values))

    def _definition(
        self, column: pa.DataType, registered: SchemaInfo | None
    ) -> tuple[bytes, AvroType]:
        if self.definition is not None:
            return self.definition.encode(), parse_definition(self.definition)
        made = derive_definition(column, as_json=self._as_json)
        if registered is not None and registered.type == self.type:
            made = evolve_definition(registered.data, made, column, as_json=self._as_json)
        if isinstance(made, bytes):
            return made, parse_definition(made.decode())
        text = json.dumps(made)
        return text.encode(), parse_definition(text)

    def _encode(self, kind: AvroType, values: pa.Array) -> pa.Array:
        check_texts(values)
        return encode_avro(kind, values)


@dataclass(frozen=True)
class JsonSchema(AvroSchema):
    """JSON, declared in Avro's language; Spark's ``to_json`` writes the text. See ``AvroSchema``.

    Dates and timestamps are text (ISO 8601, timestamps in UTC with microseconds), binary is
    base64, decimals are numbers; null fields are omitted, as Jackson does for Java's consumers.
    """

    _as_json: ClassVar[bool] = True
    type: ClassVar[SchemaType] = SchemaType.JSON

    @property
    def json_columns(self) -> tuple[str, ...]:
        """See ``Schema``."""
        return ("value",)

    def _encode(self, kind: AvroType, values: pa.Array) -> pa.Array:  # noqa: ARG002
        return values  # Spark has written the text
