"""Whether rows fit a table's columns: by name, at every level, with casts that lose nothing.

Names are compared as Spark does, without regard to case. Columns and fields that rows lack are
null. These casts are made, also inside of structs, lists and maps; nothing else is:

==============================  ==========================================
from                            to
==============================  ==========================================
int8, int16, int32              a larger int
int8, int16, int32; float       double
int                             a decimal with room for all its digits
decimal                         a decimal with room before and behind the point
timestamp of any coarser unit   timestamp in microseconds
large or dictionary-encoded     the same as plain text or bytes
null                            anything
==============================  ==========================================

Whether Spark calls a column nullable depends on the plan (a literal is not), so it says nothing
about the next rows: what is added is nullable at every level, as Spark's Delta writer does it. A
table that takes no nulls somewhere is found out row by row (``conform``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from eos.errors import InputError

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
_REFUSED_IN_NAMES: Final = " ,;{}()\n\t="
"""By Spark's Delta writer: it could not write to the table any more (delta-spark 4.4)."""


def check(have: pa.Schema, table: pa.Schema, *, may_add: bool) -> pa.Schema:
    """The table's columns after rows of the schema ``have`` were appended.

    Args:
        may_add: columns that the table lacks, and fields that its structs lack, are added to it,
            behind the others (Delta's ``mergeSchema``); otherwise they are refused.

    Raises:
        InputError: they don't fit; the message names each column, with both types.
    """
    merging = _Merging(_doubled(have))
    merged = merging.fields(have, table, "")
    problems, hints = merging.problems, []
    if merging.problems:
        hints.append("Cast the columns to the table's types, or drop them.")
    if merging.added and not may_add:
        problems.append(f"the table lacks {', '.join(merging.added)}")
        hints.append("merge_schema=True adds what the table lacks; or drop the columns.")
    if problems:
        raise InputError(
            f"The rows don't fit the Delta table: {'; '.join(problems)}.", hint=" ".join(hints)
        )
    check_new_names(merging.new_names)
    return pa.schema(merged)


def compared(have: pa.Schema, table: pa.Schema) -> tuple[list[str], list[str]]:
    """The paths that only ``have`` has, and those that only ``table`` has."""
    merging = _Merging([])
    merging.fields(have, table, "")
    return [path for path, _ in merging.new_names], merging.missing


def check_names(have: pa.Schema) -> None:
    """Check the names of a table's first columns.

    Raises:
        InputError: two are one, as Spark and Delta compare names, or Spark's Delta writer could
            not write to a table with such a name.
    """
    doubled = _doubled(have)
    if doubled:
        raise InputError(
            f"The rows don't fit a Delta table: {'; '.join(doubled)}.", hint="Rename one of them."
        )
    check_new_names(_names(have, ""))


def check_new_names(paths: Iterable[tuple[str, str]]) -> None:
    """Check names that a table is to get, each with its path.

    Raises:
        InputError: see ``check_names``.
    """
    for path, name in paths:
        if "\0" in name:  # Spark's writer takes it; Arrow hands names over as texts of C
            raise InputError(
                f"Column {path!r} has a zero character in its name, where deltalake would cut it.",
                hint="Rename it.",
            )
        if set(name).intersection(_REFUSED_IN_NAMES):
            raise InputError(
                f"Column {path!r} has a name that Spark's Delta writer refuses: none of "
                f"{_REFUSED_IN_NAMES!r} may be in it.",
                hint="Rename it.",
            )


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of the type ``have`` is one of ``want``, by the casts listed above."""
    merging = _Merging([])
    merging.type(have, want, "")
    return not merging.problems and not merging.added


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with nulls allowed at every level; only a map's keys are never null."""
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
    """Columns that rows may have nulls in, at every level."""
    return pa.schema([_inside(field, is_nullable=True) for field in schema])


def changed(
    staged: Iterable[pa.Field], table: Iterable[pa.Field], above: str = ""
) -> Iterator[tuple[str, str, str]]:
    """What files that were staged for one schema can't be in a table that has another one by now.

    Returns:
        Of each column or field: its path, what it is in the table, what it is in the files.
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
    """What a nested type consists of, each with its name in a path, as Delta writes it."""
    if pa.types.is_struct(kind):
        yield from ((field.name, field) for field in kind)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield "element", kind.value_field
    elif pa.types.is_map(kind):
        yield "key", kind.key_field
        yield "value", kind.item_field


def local_times_in_maps(columns: Iterable[pa.Field]) -> list[str]:
    """The paths of maps that hold timestamps without time zone. ``deltalake`` 1.6 does not see that
    they need a feature of the table, and makes one that nobody can read."""
    return [path for one in columns for path in _local_times(one, one.name, in_map=False)]


def _local_times(one: pa.Field, path: str, *, in_map: bool) -> Iterator[str]:
    kind = one.type
    if in_map and pa.types.is_timestamp(kind) and kind.tz is None:
        yield path
    for name, child in children(kind):
        yield from _local_times(child, f"{path}.{name}", in_map=in_map or pa.types.is_map(kind))


def plain(kind: pa.DataType) -> pa.DataType:
    """The type that Delta has for it."""
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


@dataclass
class _Merging:
    """Goes through both types side by side, and collects what does not fit."""

    problems: list[str]
    added: list[str] = field(default_factory=list)
    """What the table lacks, with types."""
    new_names: list[tuple[str, str]] = field(default_factory=list)
    """The paths and names of all that is added."""
    missing: list[str] = field(default_factory=list)
    """The paths of what only the table has."""

    def fields(
        self, have: Iterable[pa.Field], want: Iterable[pa.Field], above: str
    ) -> list[pa.Field]:
        """The fields of ``want``, then those that only ``have`` has."""
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


def _doubled(have: pa.Schema) -> list[str]:
    return [f"{path} is there twice" for path in _twice([*have], "")]


def _twice(fields: list[pa.Field], above: str) -> Iterator[str]:
    names = [one.name.lower() for one in fields]
    yield from (f"{above}{name}" for name in sorted(set(names)) if names.count(name) > 1)
    for one in fields:
        inner = [child.with_name(name) for name, child in children(one.type)]
        yield from _twice(inner, f"{above}{one.name}.")


def _names(have: pa.Schema | pa.DataType, above: str) -> Iterator[tuple[str, str]]:
    """The path and the name of each column, and of each field of a struct."""
    pairs = (
        [(one.name, one) for one in have] if isinstance(have, pa.Schema) else list(children(have))
    )
    for name, one in pairs:
        yield f"{above}{name}", name
        yield from _names(one.type, f"{above}{name}.")
