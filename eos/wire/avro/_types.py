"""Parses Avro's schema language: from a definition's JSON text to typed objects.

Source, also of the quotes: the Avro 1.12 specification, "Schema Declaration".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from eos.errors import ConfigurationError, IncompatibleSchema

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
MAX_DEPTH: Final = 100  # of nested records, and of data of a recursive type
# Nested types, including unions. Functions over types recurse up to four calls per level, and
# Python's limit is a thousand.
_MAX_TYPES: Final = 2 * MAX_DEPTH
_MAX_FIXED_BYTES: Final = 2**31 - 1
# Texts are found, too, because what looks like a comment in them is none.
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*"?)|/\*.*?(?:\*/|\Z)|//[^\n\r]*', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

# What Avro's reflection declares as string or int, and Jackson writes in another way.
JAVA_NUMBERS: Final = ("java.math.BigDecimal", "java.math.BigInteger")
JAVA_CHAR: Final = "java.lang.Character"
JAVA_CLASSES: Final = (*JAVA_NUMBERS, JAVA_CHAR)

NO_DEFAULT: Final = object()  # of a field without a default; None is the default null


@dataclass(frozen=True)
class Primitive:
    """One of ``PRIMITIVES``; ``logical`` is the name of its logical type, or one of
    ``JAVA_CLASSES``, if any."""

    name: str
    logical: str | None = None


@dataclass(frozen=True)
class Decimal:
    """A decimal in ``bytes``, or in ``fixed`` if there is a ``size`` in bytes, and a ``name``."""

    precision: int
    scale: int
    size: int | None = None
    name: str = ""


@dataclass(frozen=True)
class Fixed:
    """``size`` bytes. Names of types are full names: with the namespace, if any."""

    name: str
    size: int


@dataclass(frozen=True)
class Enum:
    """One of ``symbols``; readers use ``default`` for a symbol that they don't know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True)
class ListOf:
    """Avro's ``array``."""

    items: AvroType


@dataclass(frozen=True)
class MapOf:
    """Avro's ``map``: strings to values of one type."""

    values: AvroType


@dataclass(frozen=True)
class Union:
    """One of ``branches``."""

    branches: tuple[AvroType, ...]

    @property
    def null_index(self) -> int | None:
        """The number of the branch null; None if there is none."""
        return next((i for i, one in enumerate(self.branches) if one == Primitive("null")), None)


@dataclass(frozen=True)
class Field:
    """A field of a record; ``default``: a JSON value, or ``NO_DEFAULT``; ``aliases``: other names
    of the field in a writer's schema."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class RecordOf:
    """A record. Its fields are set after its creation, because it may be recursive."""

    name: str
    fields: tuple[Field, ...] = field(default=(), repr=False)


AvroType = Primitive | Decimal | Fixed | Enum | ListOf | MapOf | Union | RecordOf


def describe_type(kind: AvroType) -> str:
    """Return a short description of ``kind``."""
    match kind:
        case Primitive(name, logical):
            return logical or name
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Union(branches):
            return " or ".join(describe_type(one) for one in branches)
        case RecordOf(name):
            return f"record {name}"
        case Enum(name):
            return f"enum {name}"
        case Fixed(name):
            return f"fixed {name}"
        case ListOf(items):
            return f"array of {describe_type(items)}"
        case MapOf(values):
            return f"map of {describe_type(values)}"


def field_text(path: str) -> str:
    """Return how an error names the field at ``path``; "" is the value itself."""
    return f"The field {path.lstrip('.')!r}" if path else "The value"


def unreadable(writer: AvroType, reader: AvroType, path: str) -> IncompatibleSchema:
    """Return the error for data of ``writer``, at ``path``, that can't be read as ``reader``."""
    return IncompatibleSchema(
        f"{field_text(path)} was written as {describe_type(writer)}, which can't be read as "
        f"{describe_type(reader)}."
    )


def without_comments(definition: str) -> str:
    """Return a definition as plain JSON: without the comments that Java's parser of Avro and so
    brokers allow (measured), and without a byte order mark."""
    return _COMMENT.sub(lambda found: found[1] or " ", definition.removeprefix("\ufeff"))


def parse_definition(definition: str) -> AvroType:
    """Return the type that an Avro definition declares.

    Raises:
        ConfigurationError: the definition is not JSON, or not Avro; the error says where.
    """
    definition = without_comments(definition)
    try:
        declared = json.loads(definition)
    except (ValueError, RecursionError):
        # The bare name of a primitive type is a definition, too, although it is not JSON.
        declared = definition.strip()
        if declared not in PRIMITIVES:
            raise ConfigurationError("The Avro definition is not JSON.") from None
    try:
        if _SURROGATE.search(definition):
            # An unpaired surrogate, which only JSON allows: names of columns can't have them.
            json.dumps(declared, ensure_ascii=False).encode()
        return _Parser().type(declared, "", "")
    except UnicodeEncodeError:
        raise ConfigurationError("The Avro definition has text that is not Unicode.") from None
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> ConfigurationError:
    return ConfigurationError(
        f"The Avro definition is nested too deeply: at most {_MAX_TYPES} levels are supported."
    )


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._depths: dict[int, tuple[AvroType, int]] = {}  # by id; has the type to keep it alive

    def type(self, declared: Any, namespace: str, path: str) -> AvroType:
        # ``namespace``: of names without one; ``path``: for error messages.
        match declared:
            case str():
                return self._by_name(declared, namespace, path)
            case list():
                branches = tuple(self.type(one, namespace, path) for one in declared)
                return self._measured(self._union(branches, path), branches)
            case {"type": dict() | list() as inner} if "name" not in declared:
                return self.type(inner, namespace, path)
            case {"type": "record" | "error"}:
                return self._record(declared, namespace, path)
            case {"type": "array", "items": items}:
                item = self.type(items, namespace, path + "[]")
                return self._measured(ListOf(item), [item])
            case {"type": "map", "values": values}:
                value = self.type(values, namespace, path + "{}")
                return self._measured(MapOf(value), [value])
            case {"type": "enum", "symbols": list() as symbols} if _are_names(symbols):
                default = declared.get("default")
                known = default if default in symbols else None
                return self._define(declared, namespace, path, Enum("", tuple(symbols), known))
            # "size: an integer, specifying the number of bytes per value (required)."
            case {"type": "fixed", "size": int() as size} if 0 <= size <= _MAX_FIXED_BYTES:
                decimal = _decimal(declared, size)
                return self._define(declared, namespace, path, decimal or Fixed("", size))
            case {"type": "bytes"}:
                return _decimal(declared, None) or Primitive("bytes")
            case {"type": str() as name} if name in PRIMITIVES:
                logical, java_class = declared.get("logicalType"), declared.get("java-class")
                if java_class in JAVA_CLASSES:
                    logical = java_class
                return Primitive(name, logical if isinstance(logical, str) else None)
            case {"type": str() as name}:
                return self._by_name(name, namespace, path)
        raise _invalid(path, f"{json.dumps(declared)[:100]}, which is not a type")

    def _measured(self, kind: AvroType, inner: Iterable[AvroType]) -> AvroType:
        """Return ``kind``, which contains ``inner``, if it does not have too many levels."""
        # A type that is not complete yet, such as the record itself, counts as 0 levels.
        known = (self._depths.get(id(one)) for one in inner)
        depth = 1 + max((found[1] for found in known if found), default=0)
        if depth > _MAX_TYPES:
            raise _too_deep()
        self._depths[id(kind)] = kind, depth
        return kind

    def _union(self, branches: tuple[AvroType, ...], path: str) -> Union:
        # "Unions may not immediately contain other unions."
        if any(isinstance(one, Union) for one in branches) or not branches:
            raise _invalid(path, "a union that is empty or contains a union")
        # "Unions may not contain more than one schema with the same type, except for the named
        # types record, fixed and enum."
        seen: set[str] = set()
        for one in branches:
            name = _kind_of(one)
            if name in seen:
                raise _invalid(path, f"a union that has {name} twice")
            seen.add(name)
        return Union(branches)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        # "A name must be defined before it is used."
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise _invalid(path, f"{name!r}, which is not defined before")
        return known

    def _record(self, declared: Any, namespace: str, path: str) -> AvroType:
        record = RecordOf("")
        self._define(declared, namespace, path, record)
        inside = _namespace(declared, namespace)
        fields = declared.get("fields")
        if not isinstance(fields, list):
            raise _invalid(path, "a record without fields")
        found: list[Field] = []
        for one in fields:
            if not (isinstance(one, dict) and isinstance(one.get("name"), str) and "type" in one):
                raise _invalid(path, "a field without name or type")
            where = f"{path}.{one['name']}".lstrip(".")
            kind = self.type(one["type"], inside, where)
            default, aliases = one.get("default", NO_DEFAULT), one.get("aliases", [])
            if not isinstance(aliases, list):
                raise _invalid(where, "aliases that are not a list")
            found.append(Field(one["name"], kind, default, tuple(map(str, aliases))))
        # "It is an error to define multiple fields or enum symbols with the same name in a single
        # type."
        if len({one.name for one in found}) < len(found):
            raise _invalid(path, "a record with two fields of the same name")
        record.fields = tuple(found)
        return self._measured(record, [one.type for one in found])

    def _define(self, declared: Any, namespace: str, path: str, made: AvroType) -> AvroType:
        name = declared.get("name")
        if not isinstance(name, str) or not name:
            raise _invalid(path, f"{declared['type']} without a name")
        full = _full_name(name, _namespace(declared, namespace))
        # "A schema or protocol may not contain multiple definitions of a fullname."
        if full in self._named:
            raise _invalid(path, f"{full!r}, which is already defined")
        match made:
            case RecordOf():
                made.name = full
            case Enum() | Fixed() | Decimal():
                made = replace(made, name=full)
        self._named[full] = made
        return made


def _kind_of(kind: AvroType) -> str:
    match kind:
        case Primitive(name) | Fixed(name) | Enum(name) | RecordOf(name):
            return name
        case ListOf():
            return "array"
        case MapOf():
            return "map"
        case Decimal(name=name) if name:
            return name
    return "bytes"  # a decimal


def _are_names(symbols: list[Any]) -> bool:
    return bool(symbols) and all(isinstance(one, str) for one in symbols)


def _decimal(declared: dict[str, Any], size: int | None) -> Decimal | None:
    # "If a logical type is invalid, for example a decimal with scale greater than its precision,
    # then implementations should ignore the logical type and use the underlying Avro type."
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    is_decimal = declared.get("logicalType") == "decimal"
    if is_decimal and isinstance(precision, int) and isinstance(scale, int):
        return Decimal(precision, scale, size) if 0 <= scale <= precision else None
    return None


def _namespace(declared: dict[str, Any], outer: str) -> str:
    # "If the name specified contains a dot, then it is assumed to be a fullname, and any namespace
    # also specified is ignored."
    name = str(declared.get("name", ""))
    if "." in name:
        return name.rpartition(".")[0]
    own = declared.get("namespace")
    return own if isinstance(own, str) else outer


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _invalid(path: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"The Avro definition has {problem} (at {path or 'its top'}).")
