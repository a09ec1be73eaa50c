"""What the properties of a registered schema say of its values' bytes.

Brokers compare a schema's type and data only: a producer whose schema differs in properties alone
gets the registered version, and readers take its values for what those properties say.

- ``__AVRO_READ_OFFSET__``, of Avro: so many bytes of framing come before each value. Pulsar's
  adaptor for Kafka Connect (Debezium's sources among them) sets 5: Confluent's zero and the number
  of a schema. Source: ``GenericAvroReader`` of the Java client, ``KafkaSchemaWrappedSchema``.
- ``__charset``, of strings: their encoding, as Java names it. Source: ``StringSchema``.
- ``kv.encoding.type``, and ``schema.type`` and ``schema.properties`` behind ``key.`` and
  ``value.``, of pairs: where the key is, and what both are. Source: ``KeyValueSchemaInfo``.

All others (``__alwaysAllowNull``, ``__jsr310ConversionEnabled``, ``__PARSING_INFO__``) tell Java's
clients which classes to use, and change no byte.
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

# Not those that are no charsets of text, or that take quadratic time (idna, punycode).
_CHARSETS: Final = re.compile(
    r"utf-(8|16|32)(-[bl]e)?|ascii|iso8859-\d+|cp\d+|gbk?|gb\d+|big5(hkscs)?|shift_jis|euc_\w+"
    r"|koi8-[ru]"
)
_AS_BYTES: Final = "Read the values as bytes."


def properties_of(info: SchemaInfo) -> dict[str, str]:
    """By their names."""
    return {pair.key: pair.value for pair in info.properties}


def part_properties(info: SchemaInfo, which: str) -> tuple[KeyValue, ...]:
    """Those of the ``key`` or the ``value`` of a pair; none where they are not understood."""
    try:
        found = json.loads(properties_of(info).get(f"{which}.schema.properties") or "{}")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple(KeyValue(key=str(key), value=str(value)) for key, value in found.items())


def framing_of(info: SchemaInfo) -> int:
    """How many bytes come before each value.

    Raises:
        IncompatibleSchema: the property is no such number.
    """
    if info.type != SchemaType.AVRO:
        return 0
    said = properties_of(info).get(OFFSET)
    if said is None and OFFSET.encode() in info.data:  # Java looks in the definition too
        said = _in_definition(info.data)
    if said is None:
        return 0
    try:
        size = int(said)
    except ValueError:
        size = 1 << 31
    if size >= 1 << 31:
        raise IncompatibleSchema(
            f"The schema's property {OFFSET} is {said[:40]!r}, which is no number of bytes.",
            hint=_AS_BYTES,
        )
    return max(0, size)  # as Java takes it


def _in_definition(data: bytes) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return str(found[OFFSET]) if isinstance(found, dict) and OFFSET in found else None


def charset_of(info: SchemaInfo) -> str:
    """The encoding of strings, as Python names it.

    Raises:
        IncompatibleSchema: there is none of that name.
    """
    said = properties_of(info).get(CHARSET)
    if said is None:
        return UTF8
    try:
        name = codecs.lookup(said).name
    except (LookupError, ValueError):
        name = ""
    if not _CHARSETS.fullmatch(name):
        raise IncompatibleSchema(
            f"The schema's property {CHARSET} is {said[:40]!r}, an encoding that is unknown here.",
            hint=_AS_BYTES,
        )
    return UTF8 if name == "ascii" else name
