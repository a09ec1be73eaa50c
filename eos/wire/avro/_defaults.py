"""The default of a field, which stands in each row when there is no column for it."""

from __future__ import annotations

import struct
from typing import Any

from eos.errors import ConfigurationError
from eos.wire.avro._types import (
    NO_DEFAULT,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
)


def encode_default(kind: AvroType, default: Any) -> bytes:
    """``default``, as a definition's JSON has it, in Avro's binary encoding.

    That of a union is one of its first branch (the specification, "Complex Types").

    Raises:
        ConfigurationError: it is not of that type.
    """
    try:
        return _encode(kind, default)
    except (TypeError, ValueError, KeyError, AttributeError, struct.error):
        raise ConfigurationError(f"The default {default!r} is not of its field's type.") from None


def _encode(kind: AvroType, value: Any) -> bytes:
    match kind:
        case Primitive(name="null"):
            return b""
        case Primitive(name="boolean"):
            return bytes([bool(value)])
        case Primitive(name="int" | "long"):
            return _long(int(value))
        case Primitive(name="float"):
            return struct.pack("<f", value)
        case Primitive(name="double"):
            return struct.pack("<d", value)
        case Primitive(name="string"):
            return _sized(value.encode())
        case Primitive() | Decimal(size=None):
            return _sized(value.encode("latin-1"))
        case Decimal() | Fixed():
            return bytes(value.encode("latin-1"))
        case Enum(symbols=symbols):
            return _long(symbols.index(value))
        case Union(branches):
            return _long(0) + _encode(branches[0], value)
        case ListOf(items):
            return _block([_encode(items, one) for one in value])
        case MapOf(values):
            return _block(
                [_sized(key.encode()) + _encode(values, one) for key, one in value.items()]
            )
        case RecordOf(fields=fields):
            found = [(field.type, value.get(field.name, field.default)) for field in fields]
            if any(one is NO_DEFAULT for _, one in found):
                raise KeyError
            return b"".join(_encode(of, one) for of, one in found)


def _long(value: int) -> bytes:
    zigzag = value << 1 ^ value >> 63
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (_long(len(items)) + b"".join(items) if items else b"") + _long(0)
