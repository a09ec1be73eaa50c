"""The columns of the source as Spark's, and those that a query chooses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from eos.errors import ConfigurationError
from eos.sinks import spark_compat
from eos.sources._row_format import ENCRYPTION, METADATA, RowFormat, check_names
from eos.sources._value_format import MALFORMED_REASON, MALFORMED_VALUE, Mode, ValueFormat

# Key and value in the metadata of Spark's columns; see `eos.sinks._message_names`.
ORIGIN: Final = "pulsar"
FIELD: Final = "field"

OWN_COLUMNS: Final = {
    field.name: field.dataType
    for field in spark_compat.spark_schema(
        pa.schema([(name, column.type) for name, column in (METADATA | ENCRYPTION).items()])
    )
}
"""The message's own columns, ``METADATA`` and ``ENCRYPTION``, with their types in Spark."""


def schema_of_source(
    values: ValueFormat, *, metadata: bool | Collection[str] = False
) -> StructType:
    """Return the columns of the source, unless the query chooses others.

    Args:
        metadata: which of ``METADATA`` follow the values' columns: all, none, or these.

    Raises:
        ConfigurationError: a field of the values has the name of one of them.
    """
    fields = list(_value_fields(values))
    chosen = METADATA if metadata is True else metadata or ()
    check_names([field.name for field in fields], chosen)
    return StructType(fields + [_metadata_field(name) for name in OWN_COLUMNS if name in chosen])


def _metadata_field(name: str) -> StructField:
    # Sinks recognise these columns under any name: keys, whose kind they need to know, and columns
    # that must not become fields of a value.
    return StructField(name, OWN_COLUMNS[name], metadata={ORIGIN: name})


def _value_fields(values: ValueFormat) -> StructType:
    try:
        found = spark_compat.spark_schema(values.schema)
    except PySparkException as error:
        raise ConfigurationError(
            f"Spark has no type for the values: {error}.",
            hint='Read them as bytes, schema="bytes", and decode them in the query.',
        ) from None
    if not values.is_record:
        return found
    return StructType(
        [
            # Without this mark sinks would use it as the whole value, or as the message's own.
            StructField(field.name, field.dataType, metadata={ORIGIN: FIELD})
            if field.name == "value" or field.name.startswith("__")
            else field
            for field in found
        ]
    )


def row_format(
    values: ValueFormat, schema: StructType, *, metadata: bool | Collection[str] = False
) -> RowFormat:
    """Return the format for ``schema``: a user's, or that of ``schema_of_source``.

    Args:
        metadata: as of ``schema_of_source``. ``schema`` may have others of ``METADATA``, if no
            field has their names.

    Raises:
        ConfigurationError: ``schema`` has an unknown column, a wrong type, or one without nulls; or
            it does not show which messages are malformed, and these would become rows.
    """
    known = {
        field.name: field.dataType for field in schema_of_source(values, metadata=metadata)
    } | {name: kind for name, kind in OWN_COLUMNS.items() if name not in values.schema.names}
    for field in schema:
        if field.name not in known:
            raise ConfigurationError(
                f"Column {field.name!r} does not exist; columns are: {', '.join(known)}."
            )
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise ConfigurationError(
                f"Column {field.name!r} is of type {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}.",
                hint="If the topic's schema has just changed, load it again.",
            )
        # Otherwise Spark believes it: from 4.2 on tasks fail, before that rows are left out.
        is_known = spark_compat.arrow_type(field.dataType).equals(
            spark_compat.arrow_type(known[field.name])
        )
        if not (field.nullable and is_known):
            raise ConfigurationError(
                f"Column {field.name!r} is declared NOT NULL, or a part of it is; messages may "
                "have nulls there.",
                hint="Leave NOT NULL out of the schema; filter the nulls afterwards.",
            )
    form = RowFormat(values, tuple(field.name for field in schema))
    is_permissive = values.mode is Mode.PERMISSIVE and not values.is_raw
    is_shown = MALFORMED_VALUE in form.fields or MALFORMED_REASON in form.fields
    # A malformed message would be a row of nulls, like one whose fields are null.
    if is_permissive and form.fields and not is_shown:
        raise ConfigurationError(
            f"mode=permissive needs a column that shows malformed messages: {MALFORMED_REASON} or "
            f"{MALFORMED_VALUE}.",
            hint="Name it in .schema(...); or PulsarCatalog.register(topic, table='...', "
            f"mode='permissive', metadata=['{MALFORMED_REASON}']). Or set mode=dropmalformed.",
        )
    return form
