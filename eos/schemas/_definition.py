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

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.wire.avro import (
    AvroType,
    Decimal,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    check_fits,
    describe_type,
    has_members,
    parse_definition,
)
from eos.wire.spark_text import sql_name

TOP_NAME: Final = "Row"
_NULL: Final = Primitive("null")
# Names must "start with [A-Za-z_]" and "subsequently contain only [A-Za-z0-9_]" (Avro 1.12,
# "Names").
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def derive_definition(column: pa.DataType, *, as_json: bool) -> Any:
    """Return the definition of ``column``, as JSON objects.

    Args:
        as_json: for a JSON schema, in which dates and timestamps are text.

    Raises:
        InputError: Avro does not have the type, or does not allow the name.
    """
    check_is_record(column)
    return _Derivation(as_json).record(column, TOP_NAME, "")


def check_is_record(column: pa.DataType) -> None:
    """Raise ``InputError`` if values of that type are not records."""
    if not pa.types.is_struct(column):
        raise InputError(
            f"The value is {sql_name(column)}, but a schema of records needs a struct.",
            hint="Leave out the column 'value' to write whole rows, or make it a struct: "
            "struct(a, b) AS value.",
        )


class _Derivation:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._names: set[str] = set()

    def record(self, column: pa.StructType, name: str, path: str) -> dict[str, Any]:
        check_names(column, path)
        name = self._unused(name)
        fields = [self._field(field, name, path) for field in column]
        return {"type": "record", "name": name, "fields": fields}

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


def check_names(column: pa.StructType, path: str) -> None:
    """Raise ``InputError`` for a name that Avro and Protobuf don't allow, or a duplicate (Spark
    ignores case)."""
    names = [field.name for field in column]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise InputError(
                f"Column {at(path, name)!r} has a name that no schema allows.",
                hint="Rename it: a name has letters, digits and _, and does not begin with a "
                "digit.",
            )
    lower = [name.lower() for name in names]
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"Two columns are called {at(path, twice)!r}.", hint="Drop or rename one of them."
        )


def check_new_names(new: Iterable[pa.Field], known: Iterable[str], path: str) -> None:
    """Raise ``IncompatibleSchema`` if one of the new fields differs from a known one by case only:
    consumers would miss its values there, and Spark can't tell the two apart."""
    lower = {name.lower(): name for name in known}
    for field in new:
        if field.name.lower() in lower:
            theirs = lower[field.name.lower()]
            raise IncompatibleSchema(
                f"Column {at(path, field.name)!r}: the topic's field is called {theirs!r}.",
                hint="Rename the column to it, or give it another name.",
            )


def nullable(kind: Any) -> list[Any]:
    """Return a union of null and ``kind``; ``kind`` itself if it is a union."""
    return kind if isinstance(kind, list) else ["null", kind]


def at(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name


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
    extension = _Extension(as_json)
    if extension.fits(kind, column):
        return registered
    merged = extension.of(json.loads(registered), kind, made, column, "")
    try:
        check_fits(parse_definition(json.dumps(merged)), column, as_json=as_json)
    except (ConfigurationError, InputError):
        return made  # a type that was changed or dropped is used by name elsewhere
    return merged


class _Extension:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def fits(self, kind: AvroType, column: pa.DataType) -> bool:
        try:
            check_fits(kind, column, as_json=self._as_json)
        except InputError:
            return False
        return True

    def of(self, declared: Any, kind: AvroType, made: Any, column: pa.DataType, path: str) -> Any:
        # ``declared`` (parsed: ``kind``) with the changes that ``column`` needs. ``made`` was
        # derived from it.
        if self.fits(kind, column):
            return declared
        inner = _inner(made)
        match kind, declared:
            case Union(branches), list() if not self._as_json and has_members(kind, column):
                members = zip(inner["fields"], column, strict=True)
                return [
                    one if branch == _NULL else self._member(one, branch, *next(members), path)
                    for one, branch in zip(declared, branches, strict=True)
                ]
            case Union(branches), list():
                for index, branch in enumerate(branches):
                    if _is_same_container(branch, column):
                        changed = self.of(declared[index], branch, inner, column, path)
                        return [*declared[:index], changed, *declared[index + 1 :]]
                    _check_meaning(branch, inner, path)
                return made
            case RecordOf(), {"type": "record"} if pa.types.is_struct(column):
                return self._record(declared, kind, inner, column, path)
            case ListOf(items), {"type": "array"} if pa.types.is_list(column):
                parts = (declared["items"], items, inner["items"], column.value_type)
                return {**declared, "items": self.of(*parts, f"{path}[]")}
            case MapOf(values), {"type": "map"} if pa.types.is_map(column):
                parts = (declared["values"], values, inner["values"], column.item_type)
                return {**declared, "values": self.of(*parts, f"{path}{{}}")}
        _check_meaning(kind, inner, path)
        return inner

    def _member(self, declared: Any, kind: AvroType, made: Any, column: pa.Field, path: str) -> Any:
        return self.of(declared, kind, made["type"], column.type, at(path, column.name))

    def _record(
        self, declared: Any, kind: RecordOf, made: Any, column: pa.StructType, path: str
    ) -> Any:
        new = {field["name"]: field for field in made["fields"]}
        fields: list[Any] = []
        for field, parsed in zip(declared["fields"], kind.fields, strict=True):
            name = field["name"]
            wanted = new.pop(name, None)
            if wanted is None:
                if "default" in field:
                    fields.append(field)
                continue
            parts = (field["type"], parsed.type, wanted["type"], column.field(name).type)
            changed = self.of(*parts, at(path, name))
            # The registered default need not be of the changed type.
            if changed is not field["type"] and "default" in field and field["default"] is not None:
                field = {key: one for key, one in field.items() if key != "default"}
            fields.append({**field, "type": changed})
        names = [field.name for field in kind.fields]
        check_new_names([field for field in column if field.name in new], names, path)
        return {**declared, "fields": [*fields, *new.values()]}


def _check_meaning(kind: AvroType, made: Any, path: str) -> None:
    """Raise ``IncompatibleSchema`` if readers would misinterpret a number."""
    # The broker checks compatibility, and knows the topic's strategy. But Avro's rules ignore
    # logical types: it accepts another decimal scale, or microseconds instead of milliseconds, and
    # readers read the numbers in the old meaning.
    new = parse_definition(json.dumps(made))
    (base, old), (new_base, meaning) = _meaning(kind), _meaning(new)
    if base and base == new_base and old != meaning:
        raise IncompatibleSchema(
            f"Column {path!r}: the topic has {describe_type(kind)}, the rows have "
            f"{describe_type(new)}. Brokers may let this pass, and readers would misread the "
            "numbers.",
            hint="Cast the column to what the topic has, or give it another name.",
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
