"""DataFrames with any schema and rows, drawn by hypothesis, and their comparison.

Rows are built in Arrow, where a timestamp or a date is a number: Python's types end at year 9999.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eos.sinks.spark_compat import arrow_schema

_T = TypeVar("_T")

_DAY: Final = 86_400_000_000
_YEAR_1: Final = -719_162
_YEAR_10000: Final = 2_932_897


@dataclass(frozen=True)
class Frame:
    """A Spark schema and its rows; without rows if Arrow may lack one of its types."""

    schema: StructType
    rows: tuple[tuple[Any, ...], ...] = ()

    def save(self, folder: Path) -> None:
        """Save the frame in a new folder, for ``frame_of``."""
        folder.mkdir()
        (folder / "schema.json").write_text(self.schema.json())
        if not self.rows:
            return
        rows = self.to_arrow()
        with pa.ipc.new_file(folder / "rows.arrow", rows.schema) as file:
            file.write_table(rows)

    def to_arrow(self) -> pa.Table:
        """The rows with nulls; timestamps as microseconds, dates as days since 1970."""
        columns = arrow_schema(self.schema)
        arrays = [
            pa.array([row[at] for row in self.rows], field.type) for at, field in enumerate(columns)
        ]
        return pa.Table.from_arrays(arrays, schema=columns)


def frame_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Load the frame from ``folder`` in two partitions; NOT NULL as in its schema.

    It uses ``mapInArrow``, because ``createDataFrame`` fails on a list of timestamps without rows.
    Without ``rows.arrow`` it has no rows: Arrow lacks some of Spark's types.
    """
    schema = StructType.fromJson(json.loads((folder / "schema.json").read_text()))
    path = folder / "rows.arrow"
    if not path.exists():
        return spark.createDataFrame([], schema)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                with pa.ipc.open_file(path) as file:
                    yield from file.read_all()[part::2].to_batches()

    return spark.range(0, 2, numPartitions=2).mapInArrow(read, schema)


def examples(strategy: st.SearchStrategy[_T], count: int) -> list[_T]:
    """Draw ``count`` examples at once, or fewer if there are fewer different ones.

    One topic or table with all of them costs only one Spark job.
    """
    found: list[_T] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(one: _T) -> None:
        found.append(one)

    collect()
    return found


def frames(schemas: st.SearchStrategy[StructType], count: int, rows: int) -> Iterator[Frame]:
    """Frames with ``count`` schemas, each with up to ``rows`` rows."""
    for schema in examples(schemas, count):
        yield Frame(schema, tuple(examples(_row(schema), rows)))


def _row(schema: StructType) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(_field(field) for field in schema.fields))


def _field(field: StructField) -> st.SearchStrategy[Any]:
    found = values(field.dataType)
    return st.none() | found if field.nullable else found


def _bits(count: int) -> st.SearchStrategy[int]:
    least, most = -(2 ** (count - 1)), 2 ** (count - 1) - 1
    return st.integers(least, most) | st.sampled_from([least, -1, 0, 1, most])


def _moments() -> st.SearchStrategy[int]:
    edges = [_YEAR_1 * _DAY, _YEAR_10000 * _DAY, -1, 0, 1, 999, -12_219_292_800_000_000]
    near = st.builds(lambda edge, by: edge + by, st.sampled_from(edges), st.integers(-2, 2))
    return st.integers(_YEAR_1 * _DAY, _YEAR_10000 * _DAY - 1) | near | _bits(64)


def _days() -> st.SearchStrategy[int]:
    edges = [_YEAR_1, _YEAR_10000, 0, -141_427]
    near = st.builds(lambda edge, by: edge + by, st.sampled_from(edges), st.integers(-2, 2))
    return st.integers(_YEAR_1, _YEAR_10000 - 1) | near | _bits(32)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    numbers = st.integers(-most, most) | st.sampled_from([-most, -1, 0, 1, most])
    return numbers.map(lambda number: Decimal(f"{number}e{-scale}"))


_REALS: Final = [
    0.0,
    -0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    5e-324,
    1.7976931348623157e308,
]
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "\0", " ", "null", '"', "\\", "\u2028", "\U0010ffff" * 40, "é" * 33]
)
_OF_TYPE: Final[dict[type[DataType], Callable[[Any], st.SearchStrategy[Any]]]] = {
    BooleanType: lambda _: st.booleans(),
    ByteType: lambda _: _bits(8),
    ShortType: lambda _: _bits(16),
    IntegerType: lambda _: _bits(32),
    LongType: lambda _: _bits(64),
    FloatType: lambda _: st.floats(width=32) | st.sampled_from(_REALS[:5]),
    DoubleType: lambda _: st.floats() | st.sampled_from(_REALS),
    DecimalType: lambda kind: _decimals(kind.precision, kind.scale),
    StringType: lambda _: _TEXT,
    BinaryType: lambda _: st.binary(max_size=12),
    DateType: lambda _: _days(),
    TimestampType: lambda _: _moments(),
    TimestampNTZType: lambda _: _moments(),
}


def values(kind: DataType) -> st.SearchStrategy[Any]:
    """Values of a type, as ``pyarrow`` accepts them; with nulls inside if the type allows them."""
    match kind:
        case StructType():
            names = kind.names
            return _row(kind).map(lambda row: dict(zip(names, row, strict=True)))
        case ArrayType():
            items = values(kind.elementType)
            return st.lists(st.none() | items if kind.containsNull else items, max_size=3)
        case MapType():
            items = values(kind.valueType)
            items = st.none() | items if kind.valueContainsNull else items
            # Spark has each key once. To it, NaN equals itself, and -0.0 equals 0.0.
            pairs = st.lists(st.tuples(values(kind.keyType), items), max_size=3)
            return pairs.map(lambda found: _first_of_each_key(found))
    return _OF_TYPE[type(kind)](kind)


def _first_of_each_key(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for key, value in pairs:
        found.setdefault(repr(key).replace("-0.0", "0.0"), (key, value))
    return list(found.values())


def types(
    atoms: st.SearchStrategy[DataType],
    names: st.SearchStrategy[str],
    *,
    keys: st.SearchStrategy[DataType] | None = None,
    not_in_maps: type[DataType] | None = None,
) -> st.SearchStrategy[DataType]:
    """Types, nested up to a few levels.

    Args:
        keys: types of map keys; None allows any type.
        not_in_maps: a type that maps must not contain, at any level.
    """

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        of_maps = inner.filter(lambda kind: not not_in_maps or not has_type(kind, not_in_maps))
        # Spark allows no map in the keys of a map.
        plain = of_maps.filter(lambda kind: not has_type(kind, MapType))
        key = plain if keys is None else keys
        return st.one_of(
            st.builds(ArrayType, inner, st.booleans()),
            st.builds(MapType, key, of_maps, st.booleans()),
            structs(inner, names, most=3),
        )

    return st.recursive(atoms, nested, max_leaves=5)


def has_type(kind: DataType, wanted: type[DataType]) -> bool:
    """Whether ``kind`` is of the type ``wanted`` or contains it."""
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    return isinstance(kind, wanted) or any(has_type(one, wanted) for one in inner)


_METADATA: Final = st.sampled_from([None, None, {"comment": "é"}, {"n": 1, "l": [1.5, 2.5]}])
"""Metadata of columns; most have none."""


def structs(
    kinds: st.SearchStrategy[DataType], names: st.SearchStrategy[str], *, most: int
) -> st.SearchStrategy[StructType]:
    """Structs of 1 to ``most`` fields with names that differ for Spark."""
    fields = st.builds(StructField, names, kinds, st.booleans(), _METADATA)
    unique = st.lists(fields, min_size=1, max_size=most, unique_by=lambda one: one.name.lower())
    return unique.map(StructType)


_DECIMALS: Final = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
ATOMS: Final[st.SearchStrategy[DataType]] = st.sampled_from(list(_OF_TYPE)).flatmap(
    lambda kind: _DECIMALS if kind is DecimalType else st.just(kind())
)
"""Every Spark type with a single value that a Delta table or a schema can have."""


def contents(rows: pa.Table) -> Counter[str]:
    """Count each row, bit by bit: -0.0 differs from 0.0, and timestamps are numbers."""
    columns = [column.to_pylist() for column in numbers(rows).columns]
    return Counter(map(repr, zip(*columns, strict=True)))


def numbers(rows: pa.Table) -> pa.Table:
    """``rows`` with timestamps and dates as numbers, at every level."""
    columns = [column.cast(_as_numbers(column.type)) for column in rows.columns]
    return pa.Table.from_arrays(columns, names=rows.schema.names)


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_as_numbers(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_as_numbers(kind.key_type)),
            kind.item_field.with_type(_as_numbers(kind.item_type)),
        )
    return kind
