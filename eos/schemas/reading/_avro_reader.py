"""Reads Avro and JSON values, both of which are declared in Avro's language, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.schemas._schema_properties import framing_of
from eos.schemas.reading._column_reader import MAX_CELLS, MAX_FIELD_VALUES, MAX_OBJECT_BYTES
from eos.schemas.reading._json_rows import JsonRows, check_same_text, has_wide_decimals
from eos.schemas.reading._primitive_reader import NOT_UTF8
from eos.wire.avro import (
    AvroDecoder,
    AvroType,
    Field,
    ListOf,
    MapOf,
    RecordOf,
    TooMuchAtOnce,
    Union,
    arrow_type,
    members,
    parse_definition,
)
from eos.wire.binary_columns import (
    BinaryColumn,
    Int64s,
    Mask,
    RowFailures,
    as_texts,
    joined,
    widest_item,
)
from eos.wire.commands import SchemaInfo
from eos.wire.decoding import Irregular, Spans, from_base64, gather

# The text of JSON is that of Jackson and of Spark's ``to_json``: dates and timestamps are ISO 8601,
# bytes are base64, null fields may be omitted.
_CHUNK_BYTES: Final = 8 << 20
_FEW_ROWS: Final = 128
_AS_TEXT: Final = (pa.types.is_binary, pa.types.is_date32, pa.types.is_timestamp)

_Part = tuple[Int64s, pa.Array, RowFailures]


class AvroReader:
    """Reads Avro. See ``ColumnReader``."""

    def __init__(self, reader: SchemaInfo) -> None:
        self.info = reader
        self._kind = parsed(reader)
        self.type: pa.DataType = arrow_type(self._kind)
        self.is_record = is_record(self._kind)
        self._decoders: dict[SchemaInfo, AvroDecoder] = {}

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``."""
        if writer not in self._decoders:
            self._decoders[writer] = AvroDecoder(parsed(writer), self._kind)
        values, short = _unframed(values, framing_of(writer))
        column, found = self._decoders[writer].decode(values)
        return column, RowFailures.merged([short, found]) if len(short) else found


def _unframed(values: pa.Array, size: int) -> tuple[pa.Array, RowFailures]:
    """Return ``values`` without their first ``size`` bytes; null for shorter values."""
    if not size:
        return values, RowFailures.none()
    column = BinaryColumn.of(values)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    short: Mask = valid & (column.lengths < size)
    good = valid & ~short
    # ``pc.binary_slice`` fails on shorter values (pyarrow 26).
    skip = np.where(good, size, 0)
    spans = Spans(column.offsets[:-1] + skip, column.lengths - skip)
    why = f"The value is shorter than the {size} bytes of framing that its schema names."
    return gather(np.frombuffer(column.data, np.uint8), spans, good), RowFailures.of(short, why)


def parsed(info: SchemaInfo) -> AvroType:
    """Return the type that a registered definition declares.

    Raises:
        IncompatibleSchema: the definition can't be parsed.
    """
    try:
        return parse_definition(info.data.decode())
    except (ConfigurationError, UnicodeDecodeError) as error:
        why = error.message if isinstance(error, ConfigurationError) else "It is not UTF-8."
        raise IncompatibleSchema(
            f"The registered definition is not a valid Avro definition. {why}",
            hint="Read the values as bytes, or give your own schema.",
        ) from error


def is_record(kind: AvroType) -> bool:
    """Whether ``kind`` is a record, nullable or not."""
    return isinstance(_without_null(kind), RecordOf)


def _without_null(kind: AvroType) -> AvroType:
    branches = [kind]
    if isinstance(kind, Union):
        branches = [one for n, one in enumerate(kind.branches) if n != kind.null_index]
    return branches[0] if len(branches) == 1 else kind


def avro_as_read(writer: AvroType, reader: AvroType, *, by_alias: bool = True) -> pa.DataType:
    """Return the type of ``writer``'s column, with ``reader``'s names of the fields and members of
    unions that it reads. What has no such type, or is not read, is null.

    Args:
        by_alias: whether fields are found by ``reader``'s aliases, too.
    """
    as_read = partial(avro_as_read, by_alias=by_alias)
    into, written = _members(reader), _members(writer)
    if len(into) > 1 or len(written) > 1:
        found: dict[int, pa.DataType] = {}
        for one in written:
            if (number := _member_of(one, into)) is not None:
                kind = as_read(one, into[number])
                found[number] = _with_fields_of(found.get(number, kind), kind)
        if len(into) > 1:
            return pa.struct([(f"member{number}", kind) for number, kind in found.items()])
        return found.get(0, pa.null())
    match written[0], into[0]:
        case RecordOf(fields=fields), RecordOf(fields=wanted):
            read: dict[str, Field] = {}
            names = {field.name for field in fields}
            for field in wanted:  # as the decoder matches them
                aliases = field.aliases if by_alias else ()
                known = (one for one in (field.name, *aliases) if one in names)
                if name := next((one for one in known if one not in read), None):
                    read[name] = field
            return pa.struct(
                [
                    (read[one.name].name, as_read(one.type, read[one.name].type))
                    if one.name in read
                    else (one.name, pa.null())  # may be of a type that contains itself
                    for one in fields
                ]
            )
        case ListOf(items), ListOf(inner):
            return pa.list_(as_read(items, inner))
        case MapOf(values), MapOf(inner):
            return pa.map_(pa.string(), as_read(values, inner))
    return pa.null()


def _members(kind: AvroType) -> tuple[AvroType, ...]:
    return members(kind) or (kind,) if isinstance(kind, Union) else (kind,)


def _with_fields_of(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    if not (pa.types.is_struct(kind) and pa.types.is_struct(other)):
        return kind
    return pa.struct([*kind, *(one for one in other if kind.get_field_index(one.name) < 0)])


def _member_of(kind: AvroType, among: Sequence[AvroType]) -> int | None:
    """Return the number of the member that ``kind`` is read as, by its full or simple name."""
    alike = {n: getattr(one, "name", "") for n, one in enumerate(among) if type(one) is type(kind)}
    name = getattr(kind, "name", "")
    simple = name.rpartition(".")[2]
    named = [n for n, one in alike.items() if one == name]
    named += [n for n, one in alike.items() if one.rpartition(".")[2] == simple]
    return next(iter([*named, *alike]), None)


class JsonReader:
    """Reads JSON: Arrow parses many rows at once, Python those that Arrow rejects. See
    ``ColumnReader``."""

    def __init__(self, reader: SchemaInfo) -> None:
        self.info = reader
        self._kind = parsed(reader)
        self.type: pa.DataType = arrow_type(self._kind)  # rejects recursive types
        check_same_text(self._kind, self._kind)
        self.is_record = is_record(self._kind)
        self._rows = JsonRows(self._kind, self.type)
        self._parsed_as = _parsed_as(self.type)
        # Arrow's parser reads only records, and does not support maps or decimals of many digits.
        self._in_bulk = self.is_record and not (
            _has(pa.types.is_map, self.type) or has_wide_decimals(self._kind)
        )
        self._has_decimals = _has(pa.types.is_decimal, self.type)
        self._width = widest_item(self.type)
        self._checked: set[SchemaInfo] = set()

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``."""
        if writer not in self._checked:
            check_same_text(parsed(writer), self._kind)
            self._checked.add(writer)
        texts, bad = as_texts(values)
        simple = np.zeros(len(texts), np.bool_)
        cells = np.zeros(len(texts), np.int64)
        # At most: a list's item of two bytes has a cell for each field.
        if self._in_bulk and self._width > 1 and texts.nbytes // 2 * self._width > MAX_CELLS:
            records = pc.count_substring(texts, "{")
            items = pc.count_substring_regex(texts, r"[\[,]\s*null")  # of fields: of a record
            for found in (records, items):
                cells += self._width * pc.fill_null(found, 0).to_numpy().astype(np.int64)
        if self._in_bulk:
            # A cell with a value has a byte, at least.
            lengths = BinaryColumn.of(texts).lengths
            nulls = cells - lengths
            # Arrow's parser takes 2 s for 16 million nulls, Python 0.5 s (measured).
            is_sparse = (nulls > MAX_FIELD_VALUES) & (lengths <= MAX_OBJECT_BYTES)
            simple = _simple_rows(texts) & (nulls <= MAX_CELLS) & ~is_sparse
            if nulls[simple].sum() > MAX_CELLS:
                raise TooMuchAtOnce
        valid: Mask = texts.is_valid().to_numpy(zero_copy_only=False)
        parts = self._bulk(texts, np.flatnonzero(simple), cells)
        parts.append(self._one_by_one(texts, np.flatnonzero(valid & ~simple)))
        column = _scattered([(rows, part) for rows, part, _ in parts], len(texts), self.type)
        failed = [failures.moved(rows) for rows, _, failures in parts]
        return column, RowFailures.merged([RowFailures.of(bad, NOT_UTF8), *failed])

    def _bulk(self, texts: pa.StringArray, rows: Int64s, cells: Int64s) -> list[_Part]:
        """Parse ``rows`` in as few chunks as possible: a chunk that fails is halved."""
        parts: list[_Part] = []
        step = max(1, len(texts) * _CHUNK_BYTES // max(1, texts.nbytes))
        todo = [rows[start : start + step] for start in range(0, len(rows), step)]
        while todo:
            some = todo.pop()
            lines = texts if len(some) == len(texts) else texts.take(pa.array(some))
            try:
                parts.append((some, self._parse(lines), RowFailures.none()))
            except (pa.ArrowException, Irregular):
                few = len(some) <= _FEW_ROWS and cells[some].sum() <= MAX_FIELD_VALUES
                if few or len(some) == 1:
                    parts.append(self._one_by_one(texts, some))
                else:
                    todo += np.array_split(some, 2)
        return parts

    def _parse(self, lines: pa.StringArray) -> pa.Array:
        data = joined([lines.cast(pa.binary()), pa.repeat(pa.scalar(b"\n"), len(lines))])
        buffer = pa.py_buffer(BinaryColumn.of(data).data)
        # One block, because an object must not span two; fields that only the writer has are
        # ignored.
        table = pj.read_json(
            pa.BufferReader(buffer),
            pj.ReadOptions(use_threads=False, block_size=len(buffer) + 1),
            pj.ParseOptions(
                explicit_schema=pa.schema(list(self._parsed_as)), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(lines):
            raise Irregular
        columns = [one.combine_chunks() for one in table.columns]
        record = pa.Array.from_buffers(self._parsed_as, len(lines), [None], children=columns)
        if self._has_decimals:
            # Arrow's parser counts the digits before it applies the scale: 99999 passes as a
            # decimal(5,2), and Parquet keeps another number of it.
            record.validate(full=True)
        return _converted(record, self.type)

    def _one_by_one(self, texts: pa.StringArray, rows: Int64s) -> _Part:
        column, failures = self._rows.read(texts.take(pa.array(rows)))
        return rows, column, failures


def _simple_rows(texts: pa.StringArray) -> Mask:
    # Which rows are ``{...}`` in one line. If all rows are, and are parsed as lines, each of them
    # begins and ends an object. So if the parser finds as many objects as rows, each row is one
    # object.
    column = BinaryColumn.of(texts)
    data = np.frombuffer(column.data, np.uint8)
    simple = column.lengths >= 2
    first, last = column.offsets[:-1][simple], column.offsets[1:][simple] - 1
    simple[simple] = (data[first] == ord("{")) & (data[last] == ord("}"))
    ends = np.flatnonzero((data == ord("\n")) | (data == ord("\r")))
    simple[np.searchsorted(column.offsets, ends, side="right") - 1] = False
    return simple


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse ``kind`` as: strings for types that are converted afterwards."""
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_parsed_as(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_parsed_as(kind.value_type))
    return pa.string() if any(is_such(kind) for is_such in _AS_TEXT) else kind


def _has(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    inner = list(kind) if pa.types.is_struct(kind) else []
    if pa.types.is_list(kind):
        inner = [kind.value_field]
    return is_such(kind) or any(_has(is_such, one.type) for one in inner)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert ``column`` from the type that ``_parsed_as`` returns to ``kind``."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        children = [
            _converted(column.field(number), field.type) for number, field in enumerate(kind)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        values = _converted(column.values, kind.value_type)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=mask)
    if pa.types.is_binary(kind):
        data = column.cast(pa.binary())
        return from_base64(data, column.is_valid().to_numpy(zero_copy_only=False))
    return pc.cast(column, kind)


def _scattered(parts: list[tuple[Int64s, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    """Return one column with the rows of all parts in their places, and null in the others."""
    parts = [(rows, part) for rows, part in parts if len(rows)]
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    if not parts:
        return pa.nulls(count, kind)
    source = np.full(count, -1, np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    source[rows] = np.arange(len(rows))
    every = pa.concat_arrays([part for _, part in parts])
    return every.take(pa.array(source, mask=source < 0))
