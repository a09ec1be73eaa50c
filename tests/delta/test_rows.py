"""Random rows, with nulls at every level, are read back unchanged by ``deltalake``."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eos.delta.column_rules import local_times_in_maps, relaxed
from tests.delta.tables import commit, made, staged

Column = tuple[pa.DataType, st.SearchStrategy[Any]]
NAMES = ["a", "B", "é", "a.b", "x-y", "`q`", "element", "key", "'\""]
MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(9999, 12, 30))
LEAVES: list[Column] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=8)),
    (pa.large_string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates(date(1600, 1, 1))),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    (pa.timestamp("us"), MOMENTS),
    (pa.decimal128(7, 2), st.integers(-9999999, 9999999).map(lambda n: Decimal(n).scaleb(-2))),
]
KEYS = [LEAVES[2], LEAVES[4]]


def maybe(values: st.SearchStrategy[Any], is_nullable: bool) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values) if is_nullable else values


@st.composite
def structs(draw: Any, inner: st.SearchStrategy[Column]) -> Column:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique_by=str.lower))
    fields, values = [], {}
    for name in names:
        (kind, made_of), is_nullable = draw(inner), draw(st.booleans())
        fields.append(pa.field(name, kind, nullable=is_nullable))
        values[name] = maybe(made_of, is_nullable)
    return pa.struct(fields), st.fixed_dictionaries(values)


@st.composite
def lists(draw: Any, inner: st.SearchStrategy[Column]) -> Column:
    (kind, made_of), is_nullable = draw(inner), draw(st.booleans())
    field = pa.field("element", kind, nullable=is_nullable)
    return pa.list_(field), st.lists(maybe(made_of, is_nullable), max_size=3)


@st.composite
def maps(draw: Any, inner: st.SearchStrategy[Column]) -> Column:
    (kind, made_of), is_nullable = draw(inner), draw(st.booleans())
    key, keys = draw(st.sampled_from(KEYS))
    field = pa.field("value", kind, nullable=is_nullable)
    values = st.dictionaries(keys, maybe(made_of, is_nullable), max_size=3)
    return pa.map_(key, field), values.map(lambda found: list(found.items()))


COLUMNS: st.SearchStrategy[Column] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(structs(inner), lists(inner), maps(inner)),
    max_leaves=6,
)


@st.composite
def tables(draw: Any) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """Columns with any nesting, and rows of them."""
    columns = draw(st.lists(COLUMNS, min_size=3, max_size=8))
    named = {f"c{at}": column for at, column in enumerate(columns)}
    schema = pa.schema([(name, kind) for name, (kind, _) in named.items()])
    row = st.fixed_dictionaries(
        {name: maybe(made_of, True) for name, (_, made_of) in named.items()}
    )
    return schema, draw(st.lists(row, min_size=1, max_size=8))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(tables(), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_rows_are_read_back_unchanged(given_table, is_strict, before, behind):
    """Also in a slice, and with required fields inside nullable ones."""
    schema, given_rows = given_table
    around = [dict.fromkeys(schema.names)]
    rows = pa.RecordBatch.from_pylist(around * before + given_rows + around * behind, schema=schema)
    rows = rows.slice(before, len(given_rows))
    with tempfile.TemporaryDirectory() as folder:
        columns = schema if is_strict else relaxed(schema)
        merges = bool(local_times_in_maps(columns))  # such a table can't be created in one step
        table = made(f"{folder}/t", pa.schema([("id", pa.int64())]) if merges else columns)
        files, wanted = staged(table, rows, merge=merges)
        commit(table, files, 1, wanted, merge=merges)
        found = DeltaTable(table.folder.uri).to_pyarrow_table().select(schema.names)
        assert found.to_pylist() == rows.to_pylist()
