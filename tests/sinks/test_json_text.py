"""JSON text that is made column by column, read back by Python's own parser."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.sinks._arrow_columns import json_text

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(max_size=5),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.date32(): st.dates(),
}


def or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate a type and its values, which contain those of ``inner``."""

    def of_list(one: Any) -> Any:
        kind, values = one
        return pa.list_(kind), st.lists(or_null(values), max_size=3)

    def of_map(one: Any) -> Any:
        kind, values = one
        pairs = st.dictionaries(TEXTS, or_null(values), max_size=3)
        return pa.map_(pa.string(), kind), pairs.map(lambda pairs: list(pairs.items()))

    def of_struct(fields: Any) -> Any:
        names = [f'f"{index}\n' for index in range(len(fields))]
        kind = pa.struct(list(zip(names, [kind for kind, _ in fields], strict=True)))
        values = [or_null(values) for _, values in fields]
        return kind, st.fixed_dictionaries(dict(zip(names, values, strict=True)))

    structs = st.lists(inner, min_size=1, max_size=3).map(of_struct)
    return inner.map(of_list) | inner.map(of_map) | structs


KINDS = st.recursive(st.sampled_from(list(LEAVES.items())), nested, max_leaves=4)


def expected(value: Any, kind: pa.DataType) -> Any:
    """Return what the parser must find."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        given = ((f.name, expected(value[f.name], f.type)) for f in kind)
        return {name: one for name, one in given if one is not None}
    if pa.types.is_map(kind):
        return {key: expected(one, kind.item_type) for key, one in value}
    if pa.types.is_list(kind):
        return [expected(one, kind.value_type) for one in value]
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    if pa.types.is_floating(kind) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + "Z" * (kind.tz is not None)
    return value.isoformat() if pa.types.is_date(kind) else value


@given(st.data())
def test_a_parser_reads_each_value_back(data):
    kind, values = data.draw(KINDS)
    rows = data.draw(st.lists(or_null(values), max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    array = pa.array(rows, kind).slice(start)
    texts = json_text(array)
    assert texts.type == pa.string()
    found = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    assert found == [expected(row, kind) for row in rows[start:]]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.0, pa.float64(), "1.0"),
        (-0.0, pa.float64(), "-0.0"),
        (1e300, pa.float64(), "1e+300"),
        (0.1, pa.float32(), "0.1"),
        ("ä\u2028/", pa.string(), '"ä\u2028/"'),
        ("\x00\x1f\t", pa.string(), '"\\u0000\\u001f\\t"'),
        (datetime(1, 1, 1), pa.timestamp("us"), '"0001-01-01T00:00:00.000000"'),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"), None),
    ],
)
def test_texts_equal_sparks(value, kind, text):
    wanted = text or '"2026-01-01T00:00:00.000000Z"'
    assert json_text(pa.array([value], kind)).to_pylist() == [wanted]
