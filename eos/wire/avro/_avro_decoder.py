"""Decodes Avro data of a writer's schema as columns of a reader's: each field is read for all rows
at once.

Source: the Avro 1.12 specification, "Binary encoding" and "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.wire.avro._arrow_types import NULL, arrow_type, fits_decimal128, members, time_type_of
from eos.wire.avro._avro_cursor import Cursor, ItemBudget, TooMuchAtOnce
from eos.wire.avro._defaults import MAX_BYTES, encode_default
from eos.wire.avro._nested import (
    NULL_MEMBER,
    Branch,
    DefaultNode,
    KeyNode,
    ListNode,
    MemberNode,
    RecordNode,
    SkipNode,
    UnionNode,
)
from eos.wire.avro._scalars import (
    BooleanNode,
    BytesNode,
    DecimalNode,
    EnumNode,
    FloatNode,
    IntegerNode,
    Node,
    NullNode,
)
from eos.wire.avro._skip_row import map_entry_of, width_of
from eos.wire.avro._types import (
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
    unreadable,
)
from eos.wire.binary_columns import BinaryColumn, RowFailures, valid_rows

_CHUNK_ROWS = 1 << 14  # each may get 16 KiB of default values
_CHUNK_BYTES = 4 << 20  # items of lists take a hundred times their size while they are read

# "The writer's schema may be promoted to the reader's as follows: int is promotable to long, float,
# or double ..." (quotes are from the specification, "Schema Resolution")
_PROMOTIONS: Final = {
    "null": {"null"},
    "boolean": {"boolean"},
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "double": {"double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
_DTYPES: Final = {"float": "<f4", "double": "<f8"}
# A branch of the writer's union is compared with the reader's branches until one matches. Ordinary
# schemas need a comparison for each field or branch; each takes up to 40 us.
_MOST_COMPARISONS: Final = 100_000


class AvroDecoder:
    """Reads data of one schema (``writer``) as another one (``reader``).

    Attributes:
        type: of the resulting column.

    Raises:
        IncompatibleSchema: the schemas don't match; the error names the field.
    """

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self.type = arrow_type(reader)
        try:
            self._node = _Resolver().resolve(writer, reader, "")
        except _TooManyComparisons:
            raise IncompatibleSchema(
                "The writer's schema and the reader's have unions of too many unlike types.",
                hint="Give your own schema, without the fields that you don't need.",
            ) from None

    def decode(self, values: pa.Array) -> tuple[pa.Array, RowFailures]:
        """Decode binary ``values``, one datum each, to a column, and return the malformed rows.

        Null and malformed values are null in the column.

        Raises:
            TooMuchAtOnce: one of several values would fail because of the others.
        """
        rows = max(1, len(values) * _CHUNK_BYTES // max(1, values.nbytes))
        rows = min(rows, _CHUNK_ROWS)
        columns: list[pa.Array] = []
        failures: list[RowFailures] = []
        items = ItemBudget(values.nbytes)
        for start in range(0, len(values), rows):
            column, found = self._decode(values.slice(start, rows), items)
            if items.is_spent and len(values) > 1:
                raise TooMuchAtOnce
            columns.append(column)
            failures.append(RowFailures(found.rows + start, found.reasons))
        every = pa.concat_arrays(columns) if columns else pa.array([], self.type)
        return every, RowFailures.merged(failures)

    def _decode(self, values: pa.Array, items: ItemBudget) -> tuple[pa.Array, RowFailures]:
        cursor, where = Cursor.over(BinaryColumn.of(values), items), valid_rows(values)
        column = self._node.read(cursor, where)
        # fastavro accepts bytes after the datum.
        cursor.fail(cursor.at != cursor.limit, "", "is longer than its schema says")
        bad = np.flatnonzero(cursor.reason)
        if not len(bad):
            return column, RowFailures.none()
        if items.is_spent:
            column = pa.nulls(len(values), self.type)  # is not used, or has no other row
        else:
            column = column.take(pa.array(np.arange(len(column)), mask=cursor.reason > 0))
        texts = list(cursor.reasons)
        reasons = [texts[number - 1] for number in cursor.reason[bad].tolist()]
        return column, RowFailures(bad, reasons)


class _TooManyComparisons(Exception):
    """Raised instead of ``IncompatibleSchema``, after which another branch is tried."""


class _Resolver:
    """Resolves types to nodes, which read data of a writer's type as a reader's."""

    def __init__(self) -> None:
        # Cached, because branches of unions may use the same types.
        self._known: dict[tuple[AvroType, AvroType, str], Node | IncompatibleSchema] = {}
        self._default_bytes = 0
        self._comparisons = 0
        self._members: dict[int, tuple[tuple[AvroType, ...], dict[object, list[int]]]] = {}

    def resolve(self, writer: AvroType, reader: AvroType, path: str) -> Node:
        self._comparisons += 1
        if self._comparisons > _MOST_COMPARISONS:
            raise _TooManyComparisons
        key = (writer, reader, path)
        if key not in self._known:
            try:
                self._known[key] = self._resolve(writer, reader, path)
            except IncompatibleSchema as error:
                self._known[key] = error.with_traceback(None)  # which would keep frames alive
        found = self._known[key]
        if isinstance(found, IncompatibleSchema):
            raise found
        return found

    def _resolve(self, writer: AvroType, reader: AvroType, path: str) -> Node:
        if isinstance(writer, Union):
            return self._from_union(writer, reader, path)
        if isinstance(reader, Union):
            if writer == NULL and reader.null_index is not None:
                return DefaultNode(pa.nulls(1, arrow_type(reader)), path)
            if len(members(reader)) < 2:
                return self._branch(writer, reader, path).node
            return MemberNode(arrow_type(reader), self._branch(writer, reader, path))
        match writer, reader:
            case RecordOf(), RecordOf():
                return self._record(writer, reader, path)
            case ListOf(items), ListOf(wanted):
                item = self.resolve(items, wanted, f"{path}[]")
                return ListNode(f"{path}[]", arrow_type(reader), _sized(items, path), item)
            case MapOf(), MapOf():
                return self._map(writer, reader, path)
            case Enum(symbols=symbols), Enum(symbols=known, default=default):
                return EnumNode(path, tuple(one if one in known else default for one in symbols))
        return _scalar(writer, reader, path)

    def _record(self, writer: RecordOf, reader: RecordOf, path: str) -> Node:
        # "The ordering of fields may be different: fields are matched by name." Unlike in the
        # specification, the names of the records themselves need not match.
        written = {field.name: field for field in writer.fields}
        places: dict[str, int] = {}
        steps: list[tuple[int | None, Node]] = []
        for number, field in enumerate(reader.fields):
            known = (name for name in (field.name, *field.aliases) if name in written)
            name = next((name for name in known if name not in places), None)
            if name is None:
                steps.append((number, self._default(field, f"{path}.{field.name}")))
            else:
                places[name] = number
        # "If the writer's record contains a field with a name not present in the reader's record,
        # the writer's value for that field is ignored."
        for field in writer.fields:
            where, place = f"{path}.{field.name}", places.get(field.name)
            if place is None:
                steps.append((None, SkipNode(field.type, where)))
            else:
                steps.append((place, self.resolve(field.type, reader.fields[place].type, where)))
        return RecordNode(arrow_type(reader), tuple(steps))

    def _default(self, field: Field, path: str) -> Node:
        # "If the reader's record schema has a field with no default value, and writer's schema does
        # not have a field with the same name, an error is signalled."
        if field.default is NO_DEFAULT:
            raise IncompatibleSchema(
                f"The field {path.lstrip('.')!r} is missing in the writer's schema, and has no "
                "default in the reader's schema."
            )
        try:
            data = encode_default(field.type, field.default, path)
        except ConfigurationError as error:  # brokers accept any default
            raise IncompatibleSchema(error.message) from None
        self._default_bytes += len(data)
        if self._default_bytes > MAX_BYTES:
            raise IncompatibleSchema(
                f"The defaults of missing fields, up to {path.lstrip('.')!r}, take more than "
                f"{MAX_BYTES} bytes for each row."
            )
        one = BinaryColumn.of(pa.array([data], pa.binary()))
        cursor = Cursor.over(one, ItemBudget(len(data)))
        return DefaultNode(self.resolve(field.type, field.type, path).read(cursor, None), path)

    def _map(self, writer: MapOf, reader: MapOf, path: str) -> Node:
        kind, inner = arrow_type(reader), f"{path}{{}}"
        key = KeyNode(BytesNode(inner, pa.string()))
        value = self.resolve(writer.values, reader.values, inner)
        pair = RecordNode(pa.struct([kind.key_field, kind.item_field]), ((0, key), (1, value)))
        return ListNode(inner, kind, map_entry_of(writer), pair)

    def _from_union(self, writer: Union, reader: AvroType, path: str) -> Node:
        branches: list[Branch | None] = []
        for one in writer.branches:
            try:
                branches.append(self._branch(one, reader, path))
            except IncompatibleSchema:
                branches.append(None)
        values = [
            found for one, found in zip(writer.branches, branches, strict=True) if one != NULL
        ]
        if all(found is None for found in values or branches):
            raise unreadable(writer, reader, path)
        many = isinstance(reader, Union) and len(members(reader)) > 1
        return UnionNode(path, arrow_type(reader), many, tuple(branches))

    def _branch(self, writer: AvroType, reader: AvroType, path: str) -> Branch:
        # ``writer`` is not a union.
        if not isinstance(reader, Union):
            return Branch(0, self.resolve(writer, reader, path))
        if writer == NULL and reader.null_index is not None:
            return Branch(NULL_MEMBER, NullNode(path))
        reason: IncompatibleSchema | None = None
        for number, member in self._best_matches_first(writer, reader):
            try:
                return Branch(number, self.resolve(writer, member, path))
            except IncompatibleSchema as error:
                reason = error
        if len(members(reader)) == 1 and reason is not None:
            raise reason
        raise unreadable(writer, reader, path)

    def _best_matches_first(
        self, writer: AvroType, reader: Union
    ) -> Iterator[tuple[int, AvroType]]:
        """Yield the reader's members: first that of the writer's kind and full name, then those of
        its kind and simple name, then the others."""
        # The specification takes "the first schema in the reader's union that matches"; Java takes
        # the writer's own type before one that it can be promoted to.
        if id(reader) not in self._members:
            found = members(reader)
            groups: dict[object, list[int]] = {}
            for number, one in enumerate(found):
                for name in _full_and_simple_name(one):
                    groups.setdefault(name, []).append(number)
            self._members[id(reader)] = found, groups
        found, groups = self._members[id(reader)]
        named = (groups.get(name, ()) for name in _full_and_simple_name(writer))
        tried: set[int] = set()
        for number in chain(*named, range(len(found))):
            if number not in tried:
                tried.add(number)
                yield number, found[number]


def _sized(items: AvroType, path: str) -> AvroType:
    # Of items without bytes a list can claim any number.
    if width_of(items) == 0:
        raise IncompatibleSchema(
            f"The items of {path.lstrip('.')!r} take no bytes, and such a list can't be read.",
            hint="Give your own schema, without that field.",
        )
    return items


def _full_and_simple_name(kind: AvroType) -> tuple[object, object]:
    name = getattr(kind, "name", "")
    return (type(kind), "full", name), (type(kind), "simple", name.rpartition(".")[2])


def _scalar(writer: AvroType, reader: AvroType, path: str) -> Node:
    kind = arrow_type(reader)
    match writer, reader:
        # "Two schemas that are decimal logical types match if their scales and precisions match." A
        # greater or smaller precision is checked by value.
        case Decimal(scale=scale, size=size), Decimal(scale=wanted) if scale == wanted:
            if fits_decimal128(reader):
                return DecimalNode(path, kind, size)
            return BytesNode(path, kind, size)
        case Decimal(size=None), Primitive("bytes"):
            return BytesNode(path, kind)
        case ((Fixed(size=size) | Decimal(size=int() as size)), Fixed(size=wanted)) if (
            size == wanted
        ):
            return BytesNode(path, kind, size)
        case Primitive(), Primitive():
            return _primitive(writer, reader, path)
    raise unreadable(writer, reader, path)


def _primitive(writer: Primitive, reader: Primitive, path: str) -> Node:
    if reader.name not in _PROMOTIONS[writer.name]:
        raise unreadable(writer, reader, path)
    # A plain number is not read as a date or timestamp; a date or timestamp may be read as a
    # number.
    wanted, meaning, kind = time_type_of(reader), time_type_of(writer), arrow_type(reader)
    if wanted is not None and _family(wanted) != _family(meaning):
        raise unreadable(writer, reader, path)
    is_millis = meaning is not None and meaning.endswith("timestamp-millis")
    factor = 1000 if wanted is not None and is_millis else 1
    match writer.name:
        case "null":
            return NullNode(path)
        case "boolean":
            return BooleanNode(path)
        case "int" | "long":
            return IntegerNode(path, writer.name == "int", kind, factor)
        case "float" | "double":
            return FloatNode(path, _DTYPES[writer.name], kind)
    return BytesNode(path, kind)


def _family(time_type: str | None) -> str | None:
    # Without the unit: all timestamps are converted to microseconds.
    if time_type is not None and "timestamp-" in time_type:
        return time_type.rpartition("-")[0]
    return time_type
