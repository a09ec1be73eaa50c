"""The properties of a registered schema that describe the bytes of its values.

All others (``__alwaysAllowNull``, ``__jsr310ConversionEnabled``, ``__PARSING_INFO__``) select
classes in Java's clients.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Final

from eos.errors import IncompatibleSchema
from eos.wire.avro import without_comments
from eos.wire.commands import KeyValue, SchemaInfo, SchemaType

# Avro: the number of framing bytes before each value. Pulsar's adaptor for Kafka Connect (for
# example Debezium's sources) sets 5: Confluent's zero byte and schema id. Source:
# ``GenericAvroReader`` of the Java client, ``KafkaSchemaWrappedSchema``.
OFFSET: Final = "__AVRO_READ_OFFSET__"
# Strings: their encoding, by Java's name. Source: ``StringSchema``.
CHARSET: Final = "__charset"
UTF8: Final = "utf-8"

# Python's other codecs are not charsets, or take quadratic time (idna, punycode).
_CHARSETS: Final = re.compile(
    r"utf-(8|16|32)(-[bl]e)?|ascii|iso8859-\d+|cp\d+|gbk?|gb\d+|big5(hkscs)?|shift_jis|euc_\w+"
    r"|koi8-[ru]"
)
# Pairs: ``kv.encoding.type``, the place of the key; ``schema.type`` and ``schema.properties`` with
# the prefixes ``key.`` and ``value.``, both schemas. Source: ``KeyValueSchemaInfo``.
ENCODINGS: Final = ("separated", "inline")
_AS_BYTES: Final = "Read the values as bytes."
# Names in Java's SchemaType that differ from those of the protocol.
_JAVA_NAMES: Final = {SchemaType.NONE: "BYTES"}
_TYPES: Final = {**SchemaType.__members__, "BYTES": SchemaType.NONE}
_HINT: Final = (
    "Write to another topic: this one's schema was registered by a client with another byte layout."
)


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
        found = json.loads(without_comments(data.decode()))
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


def pair_info(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """Return the registry's schema of pairs of ``key`` and ``value``."""
    return SchemaInfo(
        name="KeyValue",
        type=SchemaType.KEY_VALUE,
        # The data of both schemas, each after its length (int32, big endian).
        data=_sized(key.data) + _sized(value.data),
        properties=(
            *_described("key", key),
            *_described("value", value),
            KeyValue(key="kv.encoding.type", value=encoding.upper()),
        ),
    )


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _described(which: str, info: SchemaInfo) -> tuple[KeyValue, ...]:
    kind = SchemaType(info.type)
    return (
        KeyValue(key=f"{which}.schema.name", value=info.name),
        KeyValue(key=f"{which}.schema.type", value=_JAVA_NAMES.get(kind, kind.name)),
        KeyValue(key=f"{which}.schema.properties", value=json.dumps(properties_of(info))),
    )


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


def pair_of(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo]:
    """Return the schemas of key and value.

    Raises:
        IncompatibleSchema: the registered data can't be parsed.
    """
    key, value = parts(info)
    if key is None or value is None:
        raise IncompatibleSchema(
            "The registered schema of keys and values can't be parsed.",
            hint="Read the values as bytes.",
        )
    return key, value


def check_plain(registered: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if the topic's values have framing or a charset, which no sink
    writes. The broker checks schemas of another type."""
    if registered.type != written.type:
        return
    for name, value in layout_of(registered).items():
        if name.endswith((OFFSET, CHARSET)):
            raise IncompatibleSchema(
                f"The topic's schema has the property {name}={value}, which the sink does not "
                "support.",
                hint=_HINT,
            )


def check_same_layout(named: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if the schema ``named``, which messages refer to, describes
    another byte layout than the one that is ``written``."""
    # Brokers compare only type and data of schemas, with all versions: a producer may get a version
    # whose properties describe another byte layout, and readers would silently misread its
    # messages.
    has, needs = layout_of(named), layout_of(written)
    for name in {**has, **needs}:
        if has.get(name) != needs.get(name):
            raise IncompatibleSchema(
                "The broker accepts the rows' schema as one that the topic has, but that one has "
                f"{name}={has.get(name, 'nothing')}; the sink writes {needs.get(name, 'nothing')}.",
                hint=_HINT,
            )


def layout_of(info: SchemaInfo, of: str = "") -> dict[str, str]:
    """Return the properties of a schema that describe the byte layout."""
    match info.type:
        case SchemaType.AVRO:
            size = framing_of(info)
            return {f"{of}{OFFSET}": str(size)} if size else {}
        case SchemaType.STRING:
            charset = charset_of(info)
            return {} if charset == UTF8 else {f"{of}{CHARSET}": charset}
        case SchemaType.KEY_VALUE:
            found = {"kv.encoding.type": "INLINE" if is_inline(info) else "SEPARATED"}
            for which, part in zip(("key", "value"), parts(info), strict=True):
                kind = "?" if part is None else SchemaType(part.type).name
                found[f"{which}.schema.type"] = kind
                found |= {} if part is None else layout_of(part, f"{which}'s ")
            return found
    return {}
