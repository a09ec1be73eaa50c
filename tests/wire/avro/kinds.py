"""Avro definitions with their column types and values, and ``fastavro`` to compare with."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

UTC = datetime.UTC
NAMES = itertools.count()


@dataclass(frozen=True)
class Kind:
    """An Avro definition with its Arrow type and values."""

    definition: Any
    arrow: pa.DataType
    values: st.SearchStrategy[Any]


def as_is(definition: Any, arrow: pa.DataType, values: st.SearchStrategy[Any]) -> Kind:
    return Kind(definition, arrow, values)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


MOMENTS = st.datetimes(
    datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC)
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = [
    as_is("boolean", pa.bool_(), st.booleans()),
    as_is("int", pa.int8(), st.integers(-128, 127)),
    as_is("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    as_is("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    as_is("long", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    as_is("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    as_is("double", pa.float64(), st.floats(allow_nan=False)),
    as_is("double", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    as_is("string", pa.string(), TEXT),
    as_is("string", pa.large_string(), TEXT),
    as_is("bytes", pa.binary(), st.binary(max_size=8)),
    as_is(logical("int", "date"), pa.date32(), st.dates(datetime.date(1800, 1, 1))),
    as_is(logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), MOMENTS),
    as_is(
        logical("long", "local-timestamp-micros"),
        pa.timestamp("us"),
        st.datetimes(datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1)),
    ),
]


@st.composite
def decimals(draw: st.DrawFn) -> Kind:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    values = st.integers(-limit, limit).map(
        lambda one: decimal.Decimal(one).scaleb(-scale, decimal.Context(prec=76))
    )
    definition = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }
    if draw(st.booleans()):
        definition |= {"type": "fixed", "name": f"n{next(NAMES)}", "size": 17}
    return Kind(definition, pa.decimal128(precision, scale), values)


@st.composite
def enums(draw: st.DrawFn) -> Kind:
    symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
    definition = {"type": "enum", "name": f"n{next(NAMES)}", "symbols": symbols}
    return Kind(definition, pa.string(), st.sampled_from(symbols))


@st.composite
def fixeds(draw: st.DrawFn) -> Kind:
    size = draw(st.integers(0, 20))
    definition = {"type": "fixed", "name": f"n{next(NAMES)}", "size": size}
    return Kind(definition, pa.binary(), st.binary(min_size=size, max_size=size))


def lists(items: Kind) -> Kind:
    return Kind(
        {"type": "array", "items": items.definition},
        pa.list_(items.arrow),
        st.lists(items.values, max_size=4),
    )


def maps(values: Kind) -> Kind:
    return Kind(
        {"type": "map", "values": values.definition},
        pa.map_(pa.string(), values.arrow),
        st.dictionaries(TEXT, values.values, max_size=4),
    )


@st.composite
def nullables(draw: st.DrawFn, inner: Kind) -> Kind:
    if isinstance(inner.definition, list):
        return inner
    branches = ["null", inner.definition]
    order = draw(st.sampled_from([1, -1]))
    return Kind(branches[::order], inner.arrow, st.none() | inner.values)


@st.composite
def records(draw: st.DrawFn, kinds: st.SearchStrategy[Kind]) -> Kind:
    fields = draw(st.lists(kinds, max_size=5))
    names = [f"f{number}" for number in range(len(fields))]
    definition = {
        "type": "record",
        "name": f"n{next(NAMES)}",
        "fields": [
            {"name": name, "type": field.definition}
            for name, field in zip(names, fields, strict=True)
        ],
    }
    values = st.fixed_dictionaries(
        {name: field.values for name, field in zip(names, fields, strict=True)}
    )
    arrow = pa.struct([(name, field.arrow) for name, field in zip(names, fields, strict=True)])
    return Kind(definition, arrow, values)


LEAVES = st.sampled_from(SCALARS) | decimals() | enums() | fixeds()
KINDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lists), inner.map(maps), inner.flatmap(nullables), records(inner)
    ),
    max_leaves=8,
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, pa.Array, list[Any]]:
    kind = draw(KINDS)
    rows = draw(st.lists(st.none() | kind.values, max_size=12))
    if isinstance(kind.definition, list):
        rows = [row for row in rows if row is not None]  # a null row is no row
    return kind.definition, arrow_of(rows, kind.arrow), rows


def arrow_of(rows: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_for_arrow(row, kind) for row in rows], kind)


def _for_arrow(value: Any, kind: pa.DataType) -> Any:
    """pyarrow accepts maps as lists of pairs, at any level."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _for_arrow(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_list(kind):
        return [_for_arrow(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _for_arrow(value[field.name], field.type) for field in kind}
    return value


def oracle(definition: Any, row: Any) -> bytes:
    parsed = fastavro.parse_schema(definition, {})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, row)
    return out.getvalue()
