"""Converts typed dataclasses to protobuf messages and back.

Each command is declared once, as a frozen dataclass whose fields have their protobuf number and
kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self, dataclass_transform

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from eos.errors import ProtocolError

_PACKAGE: Final = "eos.wire"
_POOL: Final = descriptor_pool.DescriptorPool()
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_KINDS: Final = {
    "uint64": _FIELD.TYPE_UINT64,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "int32": _FIELD.TYPE_INT32,
    "bool": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
    "any_text": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}


def field(number: int, kind: str | type[WireMessage], *, default: Any = dataclasses.MISSING) -> Any:
    """Declare one field: its ``number`` and ``kind`` on the wire, and its value if absent.

    ``kind`` is a scalar's protobuf name, a message class, or ``any_text``: a string that clients
    may send in any encoding (see ``readable``). Without ``default`` the field is required; with
    ``default=()`` it is repeated. Enums are declared as ``int32``.
    """
    # protobuf would drop an enum's value that is newer than this code; a number is kept.
    return dataclasses.field(
        default=default, metadata={"number": number, "kind": kind, "repeated": default == ()}
    )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class WireMessage:
    """The base of commands and their parts. Subclasses become frozen dataclasses automatically."""

    _protobuf: Any = None
    _required: tuple[str, ...] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    _converters: ClassVar[dict[str, Callable[[Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cls.__doc__ or cls.__name__
        # To generate methods for each class took a fifth of the import of an executor's task.
        make = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)
        specs = dataclasses.fields(make(cls))  # type: ignore[arg-type]
        cls._protobuf = _register(cls)
        cls._required = tuple(s.name for s in specs if s.default is dataclasses.MISSING)
        cls._defaults = {s.name: s.default for s in specs if s.name not in cls._required}
        cls._converters = {spec.name: _converter(spec) for spec in specs}

    def __init__(self, **values: Any) -> None:
        own = vars(self)
        own.update(self._defaults, **values)
        if own.keys() != self._converters.keys():
            wrong = sorted(own.keys() ^ self._converters.keys())
            raise TypeError(f"{type(self).__name__}: fields missing or unknown: {wrong}.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self)[name] for name in self._converters))

    def __repr__(self) -> str:
        fields = (f"{name}={vars(self)[name]!r}" for name in self._converters)
        return f"{type(self).__name__}({', '.join(fields)})"

    def encode(self) -> bytes:
        """Return the bytes of this message."""
        return bytes(self.to_protobuf().SerializeToString())

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Parse ``data``.

        Raises:
            ProtocolError: ``data`` is malformed, or a required field is missing.
        """
        return cls.from_protobuf(cls.parse(data))

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Any:
        """Parse ``data`` to a protobuf message, without checking required fields.

        Raises:
            ProtocolError: ``data`` is malformed.
        """
        message = cls._protobuf()
        try:
            message.ParseFromString(bytes(data))
        except (DecodeError, ValueError) as error:
            raise ProtocolError(f"Malformed {cls.__name__}: {error}.") from None
        return message

    def to_protobuf(self) -> Any:
        """Return the protobuf message; fields with None or () stay absent."""
        message = self._protobuf()
        for name, value in vars(self).items():
            if isinstance(value, tuple):  # a repeated field
                target = getattr(message, name)
                target.extend(v.to_protobuf() if isinstance(v, WireMessage) else v for v in value)
            elif isinstance(value, WireMessage):
                getattr(message, name).CopyFrom(value.to_protobuf())
            elif value is not None:
                setattr(message, name, value)
        return message

    @classmethod
    def from_protobuf(cls, message: Any) -> Self:
        """Return the typed object of a parsed protobuf message.

        Raises:
            ProtocolError: a required field is missing, or text is not UTF-8.
        """
        converters = cls._converters
        # Only the fields that are set: an entry's metadata has many fields, and few are set.
        values = {
            descriptor.name: converters[descriptor.name](value)
            for descriptor, value in message.ListFields()
        }
        for name in cls._required:
            if name not in values:
                raise ProtocolError(f"{cls.__name__} has no {name}.")
        return cls(**values)


def _converter(spec: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    """Return a function from the protobuf library's value of a field to the dataclass's."""
    kind = spec.metadata["kind"]
    nested: type[WireMessage] | None = kind if isinstance(kind, type) else None
    texts = {"string": _text, "any_text": readable}
    convert = nested.from_protobuf if nested else texts.get(kind, lambda value: value)
    if spec.metadata["repeated"]:
        return lambda items: tuple(convert(item) for item in items)
    return convert


def readable(text: str | bytes) -> str:
    """Return a text of a parsed message; what is not UTF-8 is replaced, as Java's client does."""
    # The protobuf library returns text that is not UTF-8 as bytes, without an error.
    return text if isinstance(text, str) else text.decode(errors="replace")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ProtocolError("A text field is not UTF-8.")
    return value


def _register(cls: type[WireMessage]) -> Any:
    # The descriptor is built on import: generated code would require one protobuf version.
    needed: set[str] = set()
    file = descriptor_pb2.FileDescriptorProto(
        name=f"eos/wire/{cls.__name__}.proto", package=_PACKAGE, syntax="proto2"
    )
    descriptor = file.message_type.add(name=cls.__name__)
    for spec in dataclasses.fields(cls):  # type: ignore[arg-type]
        kind = spec.metadata["kind"]
        proto = descriptor.field.add(
            name=spec.name,
            number=spec.metadata["number"],
            label=_FIELD.LABEL_REPEATED if spec.metadata["repeated"] else _FIELD.LABEL_OPTIONAL,
        )
        if isinstance(kind, type):
            proto.type = _FIELD.TYPE_MESSAGE
            proto.type_name = f".{_PACKAGE}.{kind.__name__}"
            needed.add(f"eos/wire/{kind.__name__}.proto")
        else:
            proto.type = _KINDS[kind]
    file.dependency.extend(sorted(needed))
    _POOL.Add(file)
    found = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{cls.__name__}")
    return message_factory.GetMessageClass(found)
