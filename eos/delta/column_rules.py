"""Checks whether rows fit a table's columns: by name, at every level, with lossless casts.

Names are compared as in Spark, without regard to case. Columns and fields that rows lack are null.
Only these casts are made, also inside structs, lists and maps:

==============================  ==========================================
from                            to
==============================  ==========================================
int8, int16, int32              a larger int
int8, int16, int32; float       double
int                             a decimal with room for all its digits
decimal                         a decimal with room on both sides of the point
timestamp of a coarser unit     timestamp in microseconds
large or dictionary-encoded     plain text or bytes
null                            anything
==============================  ==========================================

Added columns are nullable at every level. Required ones are checked row by row (``rows``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError

DELTA: Final = "Delta"
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
# Refused by Spark's Delta writer: it could not write to the table any more (delta-spark 4.4).
_REFUSED_IN_NAMES: Final = " ,;{}()\n\t="
SPARK_METADATA: Final = "SPARK::metadata::json"
"""Key in Arrow under which PySpark stores a column's metadata, as one text."""
DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a column's metadata under which Spark stores its declared type."""
_SIMPLE: Final = re.compile(r"(?:char|varchar)\((\d+)\)")


def check(
    have: pa.Schema, table: pa.Schema, *, may_add: bool, table_format: str = DELTA
) -> pa.Schema:
    """Return the table's columns after an append of rows with the schema ``have``.

    Args:
        may_add: columns and fields of structs that the table lacks are added after the others
            (Delta's ``mergeSchema``); otherwise they are refused.

    Raises:
        InputError: they don't fit; the message names each column, with both types.
    """
    matcher = _Matcher(_duplicates(have))
    merged = matcher.fields(have, table, "")
    problems, hints = matcher.problems, []
    if matcher.problems:
        hints.append("Cast the columns to the table's types, or drop them.")
    if matcher.added and not may_add:
        problems.append(f"the table lacks {', '.join(matcher.added)}")
        hints.append("merge_schema=True adds them to the table; or drop the columns.")
    if problems:
        raise InputError(
            f"The rows don't fit the {table_format} table: {'; '.join(problems)}.",
            hint=" ".join(hints),
        )
    check_new_names(matcher.new_names, table_format)
    return pa.schema(merged)


def compared(have: pa.Schema, table: pa.Schema) -> tuple[list[str], list[str]]:
    """List the paths that only ``have`` has, and those that only ``table`` has."""
    matcher = _Matcher([])
    matcher.fields(have, table, "")
    return [path for path, _ in matcher.new_names], matcher.missing


def check_names(have: pa.Schema, table_format: str = DELTA) -> None:
    """Check the names of a new table's columns.

    Raises:
        InputError: two are equal, as Spark and Delta compare names, or Spark's Delta writer could
            not write to a table with such a name.
    """
    duplicates = _duplicates(have)
    if duplicates:
        raise InputError(
            f"The rows don't fit the {table_format} table: {'; '.join(duplicates)}.",
            hint="Rename one of them.",
        )
    check_new_names(_names(have, ""), table_format)


def check_new_names(paths: Iterable[tuple[str, str]], table_format: str = DELTA) -> None:
    """Check names that a table would get, each with its path; raises as ``check_names``."""
    for path, name in paths:
        if "\0" in name:  # Spark's writer accepts it; Arrow passes names as C strings
            raise InputError(
                f"Column {path!r} has a zero character in its name, which Arrow would cut off.",
                hint="Rename it.",
            )
        if table_format == DELTA and set(name).intersection(_REFUSED_IN_NAMES):
            raise InputError(
                f"Column {path!r} has a name that Spark's Delta writer refuses: it must contain "
                f"none of {_REFUSED_IN_NAMES!r}.",
                hint="Rename it.",
            )


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of type ``have`` is also one of ``want``, by the casts listed above."""
    matcher = _Matcher([])
    matcher.type(have, want, "")
    return not matcher.problems and not matcher.added


def nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type with nulls allowed at every level; only a map's keys are never null."""
    if pa.types.is_struct(kind):
        return pa.struct([_inside(field, is_nullable=True) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_inside(kind.value_field, is_nullable=True))
    if pa.types.is_map(kind):
        return pa.map_(
            _inside(kind.key_field, is_nullable=False), _inside(kind.item_field, is_nullable=True)
        )
    return kind


def relaxed(schema: pa.Schema) -> pa.Schema:
    """Return the columns with nulls allowed at every level."""
    return pa.schema([_inside(field, is_nullable=True) for field in schema])


def changed(
    staged: Iterable[pa.Field], table: Iterable[pa.Field], above: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Find fields of files staged for one schema that no longer fit the table's present schema.

    Returns:
        Of each column or field: its path, its state in the table, its state in the files.
    """
    now = {one.name.lower(): one for one in table}
    for then in staged:
        found, path = now.get(then.name.lower()), f"{above}{then.name}"
        if found is not None:
            yield from _changed(then, found, path)


def _changed(then: pa.Field, now: pa.Field, path: str) -> Iterator[tuple[str, str, str]]:
    pairs = list(zip(children(then.type), children(now.type), strict=False))
    if now.name != then.name:
        yield path, f"called {now.name}", f"called {then.name}"
    elif then.nullable and not now.nullable:
        yield path, "NOT NULL", "nullable"
    elif then.type.id != now.type.id or (not pairs and then.type != now.type):
        yield path, str(now.type), str(then.type)
    elif pa.types.is_struct(then.type):
        yield from changed(then.type, now.type, f"{path}.")
    else:
        for (name, one), (_, other) in pairs:
            yield from _changed(one.with_name(name), other.with_name(name), f"{path}.{name}")


def children(kind: pa.DataType) -> Iterator[tuple[str, pa.Field]]:
    """Yield the fields of a nested type, each with its name in a path, as Delta writes it."""
    if pa.types.is_struct(kind):
        yield from ((field.name, field) for field in kind)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield "element", kind.value_field
    elif pa.types.is_map(kind):
        yield "key", kind.key_field
        yield "value", kind.item_field


def local_times_in_maps(columns: Iterable[pa.Field]) -> list[str]:
    """List the paths of maps that hold timestamps without time zone."""
    # deltalake 1.6 overlooks that they need a table feature, and creates an unreadable table.
    return [path for one in columns for path in _local_times(one, one.name, in_map=False)]


def _local_times(one: pa.Field, path: str, *, in_map: bool) -> Iterator[str]:
    kind = one.type
    if in_map and pa.types.is_timestamp(kind) and kind.tz is None:
        yield path
    for name, child in children(kind):
        yield from _local_times(child, f"{path}.{name}", in_map=in_map or pa.types.is_map(kind))


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that Delta has for it."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field)
    return kind


def is_enforced(declared: str) -> bool:
    """Whether the declared type belongs to a whole text column, and not to a part of it."""
    return _SIMPLE.fullmatch(declared) is not None


def unsupported_length(column: Mapping[str, Any], name: str) -> str | None:
    """Describe a declared length that is not supported: inside a struct, list or map."""
    declared = column["metadata"].get(DECLARED)
    is_supported = declared is None or is_enforced(declared)
    return None if is_supported else f"column {name} declared as {declared}"


def declared_text(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the texts of ``array`` as Spark's writers store them in the column.

    Raises:
        InputError: one is longer than declared.
    """
    # CHAR(n) and VARCHAR(n) are text in Delta's schema, with a length that only writers enforce:
    # Spark's refuse longer text, and cut off trailing spaces beyond the length. CHAR is padded when
    # it is read (delta-spark 4.4 stores "a" in CHAR(3) unchanged). deltalake commits any text.
    declared = _declared(field)
    found = _SIMPLE.fullmatch(declared)
    if found is None:
        return array
    length = int(found[1])
    longest = pc.max(pc.utf8_length(pc.utf8_rtrim(array, " "))).as_py() or 0
    if longest > length:
        raise InputError(
            f"Column {field.name!r} is {declared}, and has text of {longest} characters here.",
            hint=f"Cut it: left({field.name}, {length}).",
        )
    return pc.utf8_slice_codeunits(array, 0, length)


def check_key(given: pa.Array, field: pa.Field) -> None:
    """Check keys, none of them null, against the column's declared length.

    Raises:
        InputError: writers cut one of them, or readers pad it: two keys would become one.
    """
    declared = _declared(field)
    found = _SIMPLE.fullmatch(declared)
    if found is None:
        return
    least = int(found[1]) if declared.startswith("char") else 0
    shortest = pc.min(pc.utf8_length(pc.utf8_rtrim(given, " "))).as_py()
    if shortest < least or pc.max(pc.utf8_length(given)).as_py() > int(found[1]):
        raise InputError(
            f"Column {field.name!r} of merge_on is {declared}, and has a key here that would be "
            "padded or cut.",
            hint=f"Trim it: rtrim({field.name}). A column of keys that are shorter can't be CHAR.",
        )


def _declared(field: pa.Field) -> str:
    return str((field.metadata or {}).get(DECLARED.encode(), b""), "utf-8")


@dataclass
class _Matcher:
    """Walks both types in parallel, and collects the differences."""

    problems: list[str]
    added: list[str] = field(default_factory=list)
    """Fields that the table lacks, with types."""
    new_names: list[tuple[str, str]] = field(default_factory=list)
    """The paths and names of all added fields."""
    missing: list[str] = field(default_factory=list)
    """The paths of fields that only the table has."""

    def fields(
        self, have: Iterable[pa.Field], want: Iterable[pa.Field], above: str
    ) -> list[pa.Field]:
        """Return the fields of ``want``, then those that only ``have`` has."""
        given = {one.name.lower(): one for one in have}
        merged = []
        for known in want:
            mine, path = given.pop(known.name.lower(), None), f"{above}{known.name}"
            if mine is not None:
                merged.append(known.with_type(self.type(mine.type, known.type, path)))
                continue
            self.missing.append(path)
            if not known.nullable:
                self.problems.append(f"{path} takes no nulls, and is missing here")
            merged.append(known)
        for new in given.values():
            # As in Spark's Delta writer. Whether Spark calls a column nullable depends on the plan
            # (a literal is not), and does not hold for the next rows.
            path, kind = f"{above}{new.name}", nullable(plain(new.type))
            self.added.append(f"{path} ({kind})")
            self.new_names += [(path, new.name), *_names(new.type, f"{path}.")]
            merged.append(new.with_type(kind).with_nullable(True))
        return merged

    def type(self, have: pa.DataType, want: pa.DataType, path: str) -> pa.DataType:
        have = plain(have)
        if pa.types.is_struct(have) and pa.types.is_struct(want):
            return pa.struct(self.fields(have, want, f"{path}."))
        if pa.types.is_list(have) and pa.types.is_list(want):
            return pa.list_(self.inside(have.value_field, want.value_field, f"{path}.element"))
        if pa.types.is_map(have) and pa.types.is_map(want):
            return pa.map_(
                self.inside(have.key_field, want.key_field, f"{path}.key"),
                self.inside(have.item_field, want.item_field, f"{path}.value"),
            )
        if not _leaf_fits(have, want):
            self.problems.append(f"{path} is {want} in the table, and {have} here")
        return want

    def inside(self, have: pa.Field, want: pa.Field, path: str) -> pa.Field:
        return want.with_type(self.type(have.type, want.type, path))


def _leaf_fits(have: pa.DataType, want: pa.DataType) -> bool:
    if have == want or pa.types.is_null(have):
        return True
    if pa.types.is_signed_integer(have):
        if pa.types.is_signed_integer(want):
            return bool(have.bit_width <= want.bit_width)
        if pa.types.is_decimal(want):
            return bool(_DIGITS[have.bit_width] <= want.precision - want.scale)
        return bool(pa.types.is_float64(want) and have.bit_width <= 32)
    if pa.types.is_float32(have):
        return bool(pa.types.is_float64(want))
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        room = want.precision - want.scale >= have.precision - have.scale
        return bool(want.scale >= have.scale and room)
    return False


def _inside(one: pa.Field, *, is_nullable: bool) -> pa.Field:
    return one.with_type(nullable(plain(one.type))).with_nullable(is_nullable)


def _duplicates(have: pa.Schema) -> list[str]:
    return [f"{path} is there twice (ignoring case)" for path in _twice([*have], "")]


def _twice(fields: list[pa.Field], above: str) -> Iterator[str]:
    names = [one.name.lower() for one in fields]
    yield from (f"{above}{name}" for name in sorted(set(names)) if names.count(name) > 1)
    for one in fields:
        inner = [child.with_name(name) for name, child in children(one.type)]
        yield from _twice(inner, f"{above}{one.name}.")


def _names(have: pa.Schema | pa.DataType, above: str) -> Iterator[tuple[str, str]]:
    """Yield path and name of each column, and of each field of a struct."""
    pairs = (
        [(one.name, one) for one in have] if isinstance(have, pa.Schema) else list(children(have))
    )
    for name, one in pairs:
        yield f"{above}{name}", name
        yield from _names(one.type, f"{above}{name}.")
