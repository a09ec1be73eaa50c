"""Encodes the default of a field, which is written to each row if the field has no column."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any, Final

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
    describe_type,
)

MAX_BYTES: Final = 16 * 1024  # of the defaults in a row

_WRONG: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error)


def encode_default(kind: AvroType, default: Any, path: str) -> bytes:
    """Return ``default``, a JSON value in a definition, in Avro's binary encoding.

    Raises:
        ConfigurationError: ``default`` is not of that type; the error names ``path``.
    """
    try:
        return _Encoder(path).encode(kind, default)
    except (*_WRONG, RecursionError):
        raise ConfigurationError(
            f"Field {path.lstrip('.')!r} has the type {describe_type(kind)}, but the default "
            f"{json.dumps(default)[:100]}."
        ) from None


def check_defaults(kind: AvroType) -> None:
    """Raise ``ConfigurationError`` if a default in ``kind`` is not of its field's type."""
    _check(kind, "", set())


def _check(kind: AvroType, path: str, seen: set[int]) -> None:
    match kind:
        case Union(branches):
            for branch in branches:
                _check(branch, path, seen)
        case ListOf(items):
            _check(items, f"{path}[]", seen)
        case MapOf(values):
            _check(values, f"{path}{{}}", seen)
        case RecordOf() if id(kind) not in seen:  # a record may be recursive
            seen.add(id(kind))
            for field in kind.fields:
                where = f"{path}.{field.name}"
                if field.default is not NO_DEFAULT:
                    encode_default(field.type, field.default, where)
                _check(field.type, where, seen)


class _Encoder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._left = MAX_BYTES

    def encode(self, kind: AvroType, value: Any) -> bytes:
        # Defaults of nested records can multiply.
        self._left -= len(value) if isinstance(value, str) else 1
        if self._left < 0:
            raise ConfigurationError(
                f"Field {self._path.lstrip('.')!r} has a default of more than {MAX_BYTES} bytes."
            )
        match kind:
            case Primitive(name="null"):
                return _of(value is None, b"")
            case Primitive(name="boolean"):
                return _of(isinstance(value, bool), bytes([value]))
            case Primitive(name="int" | "long" as name):
                limit = 1 << (31 if name == "int" else 63)
                fits = type(value) is int and -limit <= value < limit
                return _of(fits, _long(value))
            case Primitive(name="float" | "double" as name):
                packed = struct.pack("<f" if name == "float" else "<d", value)
                return _of(not isinstance(value, bool), packed)
            case Primitive(name="string"):
                return _sized(value.encode())
            # "Default values for bytes and fixed fields are JSON strings, where Unicode code points
            # 0-255 are mapped to unsigned 8-bit byte values 0-255."
            case Primitive() | Decimal(size=None):
                return _sized(value.encode("latin-1"))
            case Decimal(size=size) | Fixed(size=size):
                data: bytes = value.encode("latin-1")
                return _of(len(data) == size, data)
            case Enum(symbols=symbols):
                return _long(symbols.index(value))
            # "Default values for union fields correspond to the first schema that matches in the
            # union."
            case Union(branches):
                for index, branch in enumerate(branches):
                    with contextlib.suppress(*_WRONG):
                        return _long(index) + self.encode(branch, value)
                raise TypeError
            case ListOf(items):
                parts = [self.encode(items, one) for one in value]
                return _of(isinstance(value, list), _block(parts))
            case MapOf(values):
                return _block(
                    [_sized(key.encode()) + self.encode(values, one) for key, one in value.items()]
                )
            case RecordOf(fields=fields):
                found = [(field.type, value.get(field.name, field.default)) for field in fields]
                if any(one is NO_DEFAULT for _, one in found):
                    raise KeyError
                return b"".join(self.encode(of, one) for of, one in found)


def _of(is_right: bool, data: bytes) -> bytes:
    if not is_right:
        raise TypeError
    return data


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
