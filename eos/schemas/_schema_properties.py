"""The properties of a registered schema that describe the bytes of its values.

Brokers compare only a schema's type and data: a producer whose schema differs only in properties
gets the registered version, and readers decode its values by that version's properties.

- ``__AVRO_READ_OFFSET__`` (Avro): the number of framing bytes before each value. Pulsar's adaptor
  for Kafka Connect (for example Debezium's sources) sets 5: Confluent's zero byte and schema id.
  Source: ``GenericAvroReader`` of the Java client, ``KafkaSchemaWrappedSchema``.
- ``__charset`` (strings): their encoding, by Java's name. Source: ``StringSchema``.
- ``kv.encoding.type``, and ``schema.type`` and ``schema.properties`` with the prefixes ``key.`` and
  ``value.`` (pairs): the place of the key, and both schemas. Source: ``KeyValueSchemaInfo``.

All others (``__alwaysAllowNull``, ``__jsr310ConversionEnabled``, ``__PARSING_INFO__``) select
classes in Java's clients, and do not change the bytes.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Final

from eos.errors import IncompatibleSchema
from eos.wire.commands import KeyValue, SchemaInfo, SchemaType

OFFSET: Final = "__AVRO_READ_OFFSET__"
CHARSET: Final = "__charset"
UTF8: Final = "utf-8"

# Python's other codecs are not charsets, or take quadratic time (idna, punycode).
_CHARSETS: Final = re.compile(
    r"utf-(8|16|32)(-[bl]e)?|ascii|iso8859-\d+|cp\d+|gbk?|gb\d+|big5(hkscs)?|shift_jis|euc_\w+"
    r"|koi8-[ru]"
)
_AS_BYTES: Final = "Read the values as bytes."


def properties_of(info: SchemaInfo) -> dict[str, str]:
    """Return the properties by name."""
    return {pair.key: pair.value for pair in info.properties}


def part_properties(info: SchemaInfo, which: str) -> tuple[KeyValue, ...]:
    """Return the properties of a pair's ``key`` or ``value``; none if they can't be parsed."""
    try:
        found = json.loads(properties_of(info).get(f"{which}.schema.properties") or "{}")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple(KeyValue(key=str(key), value=str(value)) for key, value in found.items())


def framing_of(info: SchemaInfo) -> int:
    """Return the number of framing bytes before each value.

    Raises:
        IncompatibleSchema: the property is not a valid number of bytes.
    """
    if info.type != SchemaType.AVRO:
        return 0
    value = properties_of(info).get(OFFSET)
    if value is None and OFFSET.encode() in info.data:  # Java also reads it from the definition
        value = _in_definition(info.data)
    if value is None:
        return 0
    try:
        size = int(value)
    except ValueError:
        size = 1 << 31
    if size >= 1 << 31:
        raise IncompatibleSchema(
            f"The schema's property {OFFSET} is {value[:40]!r}, which is not a number of bytes.",
            hint=_AS_BYTES,
        )
    return max(0, size)  # as in Java


def _in_definition(data: bytes) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return str(found[OFFSET]) if isinstance(found, dict) and OFFSET in found else None


def charset_of(info: SchemaInfo) -> str:
    """Return the encoding of strings, by Python's name.

    Raises:
        IncompatibleSchema: the encoding is unknown.
    """
    value = properties_of(info).get(CHARSET)
    if value is None:
        return UTF8
    try:
        name = codecs.lookup(value).name
    except (LookupError, ValueError):
        name = ""
    if not _CHARSETS.fullmatch(name):
        raise IncompatibleSchema(
            f"The schema's property {CHARSET} is {value[:40]!r}, which is an unknown encoding.",
            hint=_AS_BYTES,
        )
    return UTF8 if name == "ascii" else name
