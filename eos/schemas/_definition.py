"""Derives the Avro definition of a column from its type, and extends a registered one.

| Arrow (Spark) | Avro | JSON's definition, if different |
|---|---|---|
| bool (BOOLEAN) | boolean | |
| int8, int16, int32 (BYTE, SHORT, INT) | int | |
| int64 (LONG) | long | |
| float, double | float, double | |
| string | string | |
| binary | bytes | |
| decimal(p, s) | bytes, logical type decimal(p, s) | |
| date32 (DATE) | int, logical type date | string |
| timestamp with zone (TIMESTAMP) | long, logical type timestamp-micros | string |
| timestamp without (TIMESTAMP_NTZ) | long, logical type local-timestamp-micros | string |
| list (ARRAY) | array | |
| map with string keys | map | |
| struct | record | |

Every field is nullable: its type is a union with null, its default is null.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._schema_base import at, check_is_record, check_names, check_new_names
from eos.wire.avro import (
    NO_DEFAULT,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    check_fits,
    describe_type,
    fits_decimal128,
    has_members,
    parse_definition,
    without_comments,
)
from eos.wire.spark_text import sql_name

TOP_NAME: Final = "Row"
_NULL: Final = Primitive("null")
_NAMED: Final = (RecordOf, Enum, Fixed, Decimal)


def derive_definition(column: pa.DataType, *, as_json: bool) -> Any:
    """Return the definition of ``column``, as JSON objects.

    Args:
        as_json: for a JSON schema, in which dates and timestamps are text.

    Raises:
        InputError: Avro does not have the type, or does not allow the name.
    """
    check_is_record(column)
    return _Derivation(as_json).record(column, TOP_NAME, "")


class _Derivation:
    def __init__(self, as_json: bool, names: Iterable[str] = ()) -> None:
        self._as_json = as_json
        self._names = set(names)  # that are taken

    def record(self, column: pa.StructType, name: str, path: str) -> dict[str, Any]:
        check_names(column, path)
        made = {"type": "record", "name": self._unused(name)}
        return {**made, "fields": [self._field(field, name, path) for field in column]}

    def _field(self, field: pa.Field, record: str, path: str) -> dict[str, Any]:
        kind = self._type(field.type, f"{record}_{field.name}", at(path, field.name))
        # Spark's nullability depends on the plan (a literal is not nullable), and a field that was
        # required once can't be dropped later.
        return {"name": field.name, "type": nullable(kind), "default": None}

    def _unused(self, name: str) -> str:
        # "A schema or protocol may not contain multiple definitions of a fullname."
        number = 1
        while (found := name if number == 1 else f"{name}_{number}") in self._names:
            number += 1
        self._names.add(found)
        return found

    def _type(self, column: pa.DataType, name: str, path: str) -> Any:
        types = pa.types
        if types.is_struct(column):
            return self.record(column, name, path)
        if types.is_list(column) or types.is_large_list(column):
            items = self._type(column.value_type, name, f"{path}[]")
            return {"type": "array", "items": _as_declared(items, column.value_field)}
        if types.is_map(column):
            if not (types.is_string(column.key_type) or types.is_large_string(column.key_type)):
                raise InputError(
                    f"Column {path!r} is a map with keys of {sql_name(column.key_type)}; keys "
                    "must be STRING.",
                    hint=f"Cast the keys: transform_keys({path}, (k, v) -> CAST(k AS STRING)).",
                )
            values = self._type(column.item_type, name, f"{path}{{}}")
            return {"type": "map", "values": _as_declared(values, column.item_field)}
        scalar = self._scalar(column)
        if scalar is None:
            raise InputError(
                f"Column {path!r} is {sql_name(column)}, which schemas can't represent.",
                hint="Cast it, to string for example, or drop it.",
            )
        return scalar

    def _scalar(self, column: pa.DataType) -> Any:
        types = pa.types
        if types.is_timestamp(column) and not self._as_json:
            zoned = "timestamp-micros" if column.tz is not None else "local-timestamp-micros"
            return {"type": "long", "logicalType": zoned}
        if types.is_date32(column) and not self._as_json:
            return {"type": "int", "logicalType": "date"}
        if types.is_decimal128(column):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": column.precision,
                "scale": column.scale,
            }
        known = {
            "bool": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long",
            "float": "float", "double": "double", "string": "string", "large_string": "string",
            "binary": "bytes", "large_binary": "bytes",
        }  # fmt: skip
        is_text = types.is_timestamp(column) or types.is_date32(column)
        return "string" if is_text else known.get(str(column))


def _as_declared(kind: Any, field: pa.Field) -> Any:
    # Items are nullable only if Spark's are: collections of Java classes have no nulls.
    return nullable(kind) if field.nullable else kind


def nullable(kind: Any) -> list[Any]:
    """Return a union of null and ``kind``; ``kind`` itself if it is a union."""
    return kind if isinstance(kind, list) else ["null", kind]


def evolve_definition(registered: bytes, made: Any, column: pa.DataType, *, as_json: bool) -> Any:
    """Return the registered definition unchanged, as bytes, if ``column`` can be written with it;
    else an extended one, as JSON objects, with the registered names, documentation and defaults.

    Fields that ``column`` lacks are kept if they have a default. New ones are nullable, so that
    readers of either definition understand all messages.

    Args:
        made: the definition that was derived from ``column``.
        as_json: as for ``derive_definition``.

    Raises:
        IncompatibleSchema: a number would change its meaning, or a column's name differs from a
            field's by case only.
    """
    try:
        kind = parse_definition(registered.decode())
    except (ConfigurationError, UnicodeDecodeError):
        return made
    if _fits(kind, column, as_json):
        return registered
    for extends_shared in (True, False):
        try:
            merged = _Extension(registered, as_json, extends_shared).to(column)
        except IncompatibleSchema:
            if not extends_shared:
                raise
            continue  # perhaps only two uses of one type differ
        with contextlib.suppress(ConfigurationError):
            if _fits(parse_definition(json.dumps(merged)), column, as_json):
                return merged
    return made


def _fits(kind: AvroType, column: pa.DataType, as_json: bool) -> bool:
    try:
        check_fits(kind, column, as_json=as_json)
    except InputError:
        return False
    return True


_Both = tuple[Any, AvroType]  # a definition as JSON objects, and parsed


class _Extension:
    """``extends_shared``: whether a type changes where it is used by name, and so in all places;
    else such a use gets a type of its own."""

    def __init__(self, registered: bytes, as_json: bool, extends_shared: bool) -> None:
        self._as_json = as_json
        self._extends_shared = extends_shared
        self._root = [json.loads(without_comments(registered.decode()))]
        self._kind = parse_definition(registered.decode())
        # By full names. Records are changed in place, for all of their uses.
        self._defined: dict[str, Any] = {}
        self._find_defined(self._root[0], self._kind)

    def to(self, column: pa.DataType) -> Any:
        # Readers match records by names, so new ones must not have a registered one.
        names = {name.rpartition(".")[2] for name in self._defined}
        made = _Derivation(self._as_json, names).record(column, TOP_NAME, "")
        self._root[0], kind = self._of((self._root[0], self._kind), made, column, "")
        self._define_at_first_use(self._root, 0, kind, set())
        return self._root[0]

    def _find_defined(self, declared: Any, kind: AvroType) -> None:
        if isinstance(declared, dict) and "name" in declared and isinstance(kind, _NAMED):
            self._defined[kind.name] = declared
        for holder, key, inner in _parts(declared, kind):
            self._find_defined(holder[key], inner)

    def _define_at_first_use(self, holder: Any, key: Any, kind: AvroType, seen: set[str]) -> None:
        # The field that defined a type may have been dropped.
        declared = holder[key]
        defines = isinstance(declared, dict) and "name" in declared
        is_use = defines or isinstance(declared, str)
        if is_use and isinstance(kind, _NAMED) and kind.name in self._defined:
            if defines and kind.name in seen:
                holder[key] = kind.name
            elif not defines and kind.name not in seen:
                space, _, name = kind.name.rpartition(".")
                holder[key] = {**self._defined[kind.name], "name": name, "namespace": space}
            seen.add(kind.name)
        for inner in _parts(holder[key], kind):
            self._define_at_first_use(*inner, seen)

    def _of(self, both: _Both, made: Any, column: pa.DataType, path: str) -> _Both:
        # ``both`` with the changes that ``column`` needs. ``made`` was derived from it.
        declared, kind = both
        if _fits(kind, column, self._as_json):
            return both
        inner = _inner(made)
        match kind, declared:
            case Union(branches), list() if not self._as_json and has_members(kind, column):
                members = zip(inner["fields"], column, strict=True)
                return _union(
                    one if one[1] == _NULL else self._member(one, *next(members), path)
                    for one in zip(declared, branches, strict=True)
                )
            case Union(branches), list():
                pairs = list(zip(declared, branches, strict=True))
                for index, (_, branch) in enumerate(pairs):
                    if _is_same_container(branch, column):
                        pairs[index] = self._of(pairs[index], inner, column, path)
                        return _union(pairs)
                    _check_meaning(branch, inner, path)
                return _both(made)
            case RecordOf(), {"type": "record"} if pa.types.is_struct(column):
                return self._record(declared, kind, inner, column, path)
            case RecordOf(name), str() if pa.types.is_struct(column) and self._extends_shared:
                self._record(self._defined[name], kind, inner, column, path)
                return both
            case ListOf(items), {"type": "array"} if pa.types.is_list(column):
                item = declared["items"], items
                item = self._of(item, inner["items"], column.value_type, f"{path}[]")
                return {**declared, "items": item[0]}, ListOf(item[1])
            case MapOf(values), {"type": "map"} if pa.types.is_map(column):
                value = declared["values"], values
                value = self._of(value, inner["values"], column.item_type, f"{path}{{}}")
                return {**declared, "values": value[0]}, MapOf(value[1])
        _check_meaning(kind, inner, path)
        return _both(inner)

    def _member(self, both: _Both, made: Any, column: pa.Field, path: str) -> _Both:
        return self._of(both, made["type"], column.type, at(path, column.name))

    def _record(
        self, declared: Any, kind: RecordOf, made: Any, column: pa.StructType, path: str
    ) -> _Both:
        new = {field["name"]: field for field in made["fields"]}
        changed: dict[str, tuple[Any, Field]] = {}
        for field, parsed in zip(declared["fields"], kind.fields, strict=True):
            name, before = field["name"], json.dumps(field["type"])
            if name not in new:
                continue
            both, child = (field["type"], parsed.type), column.field(name).type
            both = self._of(both, new[name]["type"], child, at(path, name))
            field = {**field, "type": both[0]}
            # The registered default need not be of the changed type.
            if json.dumps(both[0]) != before and field.get("default") is not None:
                del field["default"]
            changed[name] = (
                field,
                replace(parsed, type=both[1], default=field.get("default", NO_DEFAULT)),
            )
        # A recursive record may have got fields meanwhile.
        names = [field.name for field in kind.fields]
        missing = [field for field in column if field.name not in names]
        check_new_names(missing, names, path)
        fields = [
            changed.get(parsed.name, (field, parsed))
            for field, parsed in zip(declared["fields"], kind.fields, strict=True)
            if parsed.name in new or "default" in field
        ]
        for one in missing:
            field = new[one.name]
            fields.append((field, Field(one.name, _both(field["type"])[1], None)))
        declared["fields"] = [field for field, _ in fields]
        kind.fields = tuple(parsed for _, parsed in fields)
        return declared, kind


def _parts(declared: Any, kind: AvroType) -> Iterator[tuple[Any, Any, AvroType]]:
    """Yield where ``declared``, parsed as ``kind``, has other types: an object, the key in it, and
    the parsed type."""
    match kind, declared:
        case _, {"type": dict() | list()} if "name" not in declared:
            yield declared, "type", kind
        case Union(branches), list():
            yield from ((declared, number, branch) for number, branch in enumerate(branches))
        case ListOf(items), {"items": _}:
            yield declared, "items", items
        case MapOf(values), {"values": _}:
            yield declared, "values", values
        case RecordOf(fields=fields), {"fields": list() as every}:
            for holder, field in zip(every, fields, strict=True):
                yield holder, "type", field.type


def _both(made: Any) -> _Both:
    return made, parse_definition(json.dumps(made))


def _union(branches: Iterable[_Both]) -> _Both:
    pairs = list(branches)
    return [declared for declared, _ in pairs], Union(tuple(kind for _, kind in pairs))


def _check_meaning(kind: AvroType, made: Any, path: str) -> None:
    """Raise ``IncompatibleSchema`` if readers would misinterpret a number."""
    # The broker checks compatibility, and knows the topic's strategy. But Avro's rules ignore
    # logical types: it accepts another decimal scale, or microseconds instead of milliseconds, and
    # readers read the numbers in the old meaning.
    new = parse_definition(json.dumps(made))
    (base, old), (new_base, meaning) = _meaning(kind), _meaning(new)
    if base and base == new_base and old != meaning:
        hint = "Cast the column to what the topic has, or give it another name."
        if isinstance(kind, Decimal) and not fits_decimal128(kind):
            hint = (
                f"Cast it to DECIMAL(38,{kind.scale}), and write with PulsarSink or "
                "format('pulsar'): Spark's tables have bytes there, because it has no such decimal."
            )
        raise IncompatibleSchema(
            f"Column {path!r}: the topic has {describe_type(kind)}, the rows have "
            f"{describe_type(new)}. Brokers may let this pass, and readers would misread the "
            "numbers.",
            hint=hint,
        )


def _meaning(kind: AvroType) -> tuple[str, object]:
    # How a number is stored, and its meaning.
    match kind:
        case Decimal(scale=scale):
            return "bytes", scale
        case Primitive("bytes" | "string"):
            return "bytes", None
        case Primitive("int" | "long", logical):
            return "whole", logical
    return "", None


def _is_same_container(kind: AvroType, column: pa.DataType) -> bool:
    types = pa.types
    return (
        (isinstance(kind, RecordOf) and types.is_struct(column))
        or (isinstance(kind, ListOf) and types.is_list(column))
        or (isinstance(kind, MapOf) and types.is_map(column))
    )


def _inner(made: Any) -> Any:
    return made[1] if isinstance(made, list) else made
