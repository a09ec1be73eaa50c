"""JSON: bulk and row-by-row parsing give the same rows; a malformed row does not affect others."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eos.errors import IncompatibleSchema
from eos.schemas import JsonSchema
from eos.schemas.reading import check_readable
from eos.wire.commands import SchemaType
from tests.schemas.reading.reads import decode, has, logical, reasons, record, version
from tests.wire.avro.kinds import KINDS, TEXT, UTC, arrow_of, records

ITEM = record(has("x", ["null", "int"]), name="item")
DEFINITION = record(
    has("id", "long"),
    has("name", ["null", "string"], default=None),
    has("price", ["null", logical("bytes", "decimal", precision=10, scale=2)]),
    has("data", ["null", "bytes"]),
    has("day", ["null", logical("int", "date")]),
    has("at", ["null", logical("long", "timestamp-micros")]),
    has("local", ["null", logical("long", "local-timestamp-micros")]),
    has("millis", ["null", logical("long", "timestamp-millis")]),
    has("ratio", ["null", "double"]),
    has("time", ["null", logical("int", "time-millis")], default=None),
    has("flag", ["null", "boolean"]),
    has("items", ["null", {"type": "array", "items": ITEM}]),
)
JSON = version(SchemaType.JSON, DEFINITION)
MOMENT = datetime.datetime(2026, 11, 20, 12, 0, 0, 123456)
EMPTY = dict.fromkeys(field["name"] for field in DEFINITION["fields"])
ROW = {
    "id": 1,
    "name": "\u00e4\n",
    "price": decimal.Decimal("12.30"),
    "data": b"\x00\xff",
    "day": MOMENT.date(),
    "at": MOMENT.replace(tzinfo=UTC),
    "local": MOMENT,
    "millis": MOMENT.replace(tzinfo=UTC),
    "ratio": 0.1,
    "time": 5,
    "flag": True,
    "items": [{"x": 1}, {"x": None}, None],
}
TEXT_OF_ROW = (
    b'{"id":1,"name":"\\u00e4\\n","price":12.30,"data":"AP8=","day":"2026-11-20",'
    b'"at":"2026-11-20T12:00:00.123456Z","local":"2026-11-20T12:00:00.123456",'
    b'"millis":"2026-11-20T12:00:00.123456Z","ratio":0.1,"time":5,"flag":true,"unknown":[{"y":{}}],'
    b'"items":[{"x":1},{},null]}'
)


def only(**values: Any) -> dict[str, Any]:
    return EMPTY | values


def test_a_number_beyond_a_float_is_infinite_as_for_spark_and_jackson():
    # The second one is read in Python; `from_json` of Spark 4.2 gives the same (measured).
    texts = [b'{"f":1e40}', b'{"f":\n-1e40}']
    found = decode(version(SchemaType.JSON, record(has("f", "float"))), texts)
    assert reasons(found) == {}
    assert found.columns.column("f").to_pylist() == [math.inf, -math.inf]


def test_missing_fields_are_null_and_unknown_ones_are_ignored():
    found = decode(JSON, [TEXT_OF_ROW, None, b'{"id":2}'])
    assert found.columns.to_pylist() == [ROW, EMPTY, only(id=2)]
    assert reasons(found) == {}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b' { "id" : 1 } ', only(id=1)),
        (b'{"id":1,\r\n "name":\n"x"}', only(id=1, name="x")),
        (b"null", EMPTY),
        (b'\xef\xbb\xbf{"id":1}', only(id=1)),  # a byte order mark
        (b'{"id":1.0}', only(id=1)),
        (b'{"id":12e2}', only(id=1200)),
        (b'{"ratio":"NaN"}', None),
        (b'{"ratio":"-Infinity"}', only(ratio=float("-inf"))),
        (b'{"ratio":1}', only(ratio=1.0)),
        (b'{"price":1e1}', only(price=decimal.Decimal("10.00"))),
        (b'{"price":"1.5"}', only(price=decimal.Decimal("1.50"))),
        (b'{"day":4}', only(day=datetime.date(1970, 1, 5))),
        (b'{"at":1000000}', only(at=datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))),
        (b'{"millis":1000}', only(millis=datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))),
        (b'{"local":"2026-11-20T12:00:00.123456789"}', only(local=MOMENT)),
        (b'{"at":"2026-11-20T14:00:00.123456+02:00"}', only(at=MOMENT.replace(tzinfo=UTC))),
        (b'{"name":"{\\"}{"}', only(name='{"}{')),
        (b'{"day":[2026,11,20]}', only(day=MOMENT.date())),
        (b'{"local":[2026,11,20,12,0,0,123456789]}', only(local=MOMENT)),
        (b'{"local":[2026,11,20,12,0]}', only(local=MOMENT.replace(microsecond=0))),
        (b'{"millis":1795176000.123456789}', only(millis=MOMENT.replace(tzinfo=UTC))),
        (b'{"at":-0.000000001}', only(at=datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC))),
        # Java's client wrote these, and reads them so (4.2.4).
        (b'{"at":-2.250000000}', only(at=datetime.datetime(1969, 12, 31, 23, 59, 58, 250000, UTC))),
        (
            b'{"at":-1.999999999}',
            only(at=datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ),
        (
            b'{"at":-315521755.750000000}',
            only(at=datetime.datetime(1960, 1, 2, 3, 4, 5, 750000, UTC)),
        ),
        (b'{"time":[1,2,3,456000000]}', only(time=3_723_456)),
        (b'{"time":[0,1]}', only(time=60_000)),
    ],
)
def test_rows_that_arrow_rejects_are_read_in_python(text, wanted):
    found = decode(JSON, [TEXT_OF_ROW, text, TEXT_OF_ROW])
    assert reasons(found) == {}
    row = found.columns.to_pylist()[1]
    if wanted is None:
        assert row["ratio"] != row["ratio"]
    else:
        assert row == wanted
    assert found.columns.to_pylist()[0::2] == [ROW, ROW]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "The value is not JSON."),
        (b"   ", "The value is not JSON."),
        (b"{", "The value is not JSON."),
        (b'{"id":1} {"id":2}', "The value is not JSON."),
        (b'{"id":1}{"id":2}', "The value is not JSON."),
        (b'{"id":1},{"id":2}', "The value is not JSON."),
        (b'{"name":"a\nb"}', "The value is not JSON."),
        (b'{"name":"\xff"}', "The value is not UTF-8 text."),
        (b"[" * 100_000, "The value is not JSON."),
        (b"[]", "The value is not of its type."),
        (b'{"id":"1"}', "The field 'id' is not of its type."),
        (b'{"id":1.5}', "The field 'id' is not of its type."),
        (b'{"id":1e19}', "The field 'id' is not of its type."),
        (b'{"id":1e999999}', "The field 'id' is not of its type."),
        (b'{"id":true}', "The field 'id' is not of its type."),
        (b'{"id":9223372036854775808}', "The field 'id' is not of its type."),
        (b'{"name":1}', "The field 'name' is not of its type."),
        (b'{"name":"\\ud800"}', "The field 'name' is not of its type."),
        (b'{"price":1.234}', "The field 'price' is not of its type."),
        (b'{"price":123456789}', "The field 'price' is not of its type."),
        (b'{"price":123456789.00}', "The field 'price' is not of its type."),
        (b'{"data":"AP8"}', "The field 'data' is not of its type."),
        (b'{"day":"2026-13-01"}', "The field 'day' is not of its type."),
        (b'{"at":"2026-11-20T12:00:00"}', "The field 'at' is not of its type."),
        (b'{"local":"2026-11-20T12:00:00Z"}', "The field 'local' is not of its type."),
        (b'{"ratio":"high"}', "The field 'ratio' is not of its type."),
        (b'{"ratio":1e999}', "The field 'ratio' is not of its type."),
        (b'{"items":[{"x":2147483648}]}', "The field 'items[].x' is not of its type."),
        (b'{"items":[1]}', "The field 'items[]' is not of its type."),
        (b'{"day":[2026,11]}', "The field 'day' is not of its type."),
        (b'{"day":[2026,13,1]}', "The field 'day' is not of its type."),
        (b'{"day":[2026,11,20,1]}', "The field 'day' is not of its type."),
        (b'{"id":[2026,11,20]}', "The field 'id' is not of its type."),
        (b'{"local":[2026,11,20]}', "The field 'local' is not of its type."),
        (b'{"local":1.5}', "The field 'local' is not of its type."),
        (b'{"at":1e40}', "The field 'at' is not of its type."),
        (b'{"time":[1]}', "The field 'time' is not of its type."),
        (b'{"time":[24,0]}', "The field 'time' is not of its type."),
    ],
)
def test_a_malformed_row_fails_alone(text, why):
    rows = [TEXT_OF_ROW] * 40
    rows[7] = rows[23] = text
    found = decode(JSON, rows)
    assert reasons(found) == {7: why, 23: why}
    assert found.columns.to_pylist() == [EMPTY if row == text else ROW for row in rows]


@pytest.mark.parametrize("beside", [b"{}", b"{bad}"])
def test_a_zero_keeps_its_sign_whatever_is_beside_it(beside):
    """As Java writes it, and as some write it."""
    found = decode(JSON, [b'{"ratio":-0.0,"id":-0}', b'{"ratio":-0,"id":0}', beside])
    assert [math.copysign(1, one) for one in found.columns["ratio"].to_pylist()[:2]] == [-1, -1]
    assert found.columns["id"].to_pylist()[:2] == [0, 0]


@pytest.mark.parametrize(
    "pair",
    [
        (b'{"id":7}{"id":8}', b" "),
        (b'{"id":7', b'"name":"x"}'),
        (b'{"items":[', b"{}]}"),
        (b'{"unknown":', b'{"id":9}}{}'),
        (b'{"name":"', b'"}'),
    ],
)
def test_two_rows_that_form_objects_together_do_not_shift_the_others(pair):
    rows = [pair[0], *(b'{"id":%d}' % number for number in range(50)), pair[1]]
    found = decode(JSON, rows)
    assert sorted(reasons(found)) == [0, 51]
    assert found.columns["id"].to_pylist() == [None, *range(50), None]


def as_json(kind: pa.DataType, value: Any) -> Any:
    """The JSON of Spark's ``to_json``."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = ((one.name, as_json(one.type, value[one.name])) for one in kind)
        return {name: one for name, one in fields if one is not None}
    if pa.types.is_list(kind):
        return [as_json(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        return {key: as_json(kind.item_type, one) for key, one in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + (
            "Z" if value.tzinfo else ""
        )
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return Number(value) if isinstance(value, decimal.Decimal) else value


class Number(float):
    """A decimal that ``json`` writes with all its digits."""

    def __init__(self, value: decimal.Decimal) -> None:
        self._text = f"{value:f}"

    def __repr__(self) -> str:
        return self._text


def text_of(value: Any) -> bytes:
    """``json.dumps`` uses ``float.__repr__`` for numbers, so decimals are inserted afterwards."""
    numbers: list[str] = []

    def marked(one: Any) -> Any:
        if isinstance(one, Number):
            numbers.append(repr(one))
            return f"\ue000{len(numbers) - 1}\ue001"
        if isinstance(one, dict):
            return {key: marked(item) for key, item in one.items()}
        return [marked(item) for item in one] if isinstance(one, list) else one

    text = json.dumps(marked(value), ensure_ascii=False)
    for number, digits in enumerate(numbers):
        text = text.replace(f'"\ue000{number}\ue001"', digits)
    return text.encode()


@given(st.data(), st.sampled_from([1, 16]))
def test_values_written_by_spark_are_read(data, few_rows):
    kind = data.draw(records(KINDS))
    assume("\\ue00" not in json.dumps(kind.definition))
    rows = data.draw(st.lists(kind.values, max_size=6))
    wanted = arrow_of(rows, kind.arrow)
    texts = [text_of(as_json(kind.arrow, row)) for row in rows]
    with mock.patch("eos.schemas.reading._avro_reader._FEW_ROWS", few_rows):
        found = decode(version(SchemaType.JSON, kind.definition), texts)
    assert reasons(found) == {}
    names = [field.name for field in kind.arrow]
    assert [
        {name: row[name] for name in names} for row in found.columns.to_pylist()
    ] == wanted.to_pylist()


@given(st.data())
def test_bulk_and_row_by_row_parsing_fail_for_the_same_rows(data):
    texts = []
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(TEXT_OF_ROW)))
        size = data.draw(st.integers(0, 3))
        extra = data.draw(st.binary(max_size=2) | TEXT.map(str.encode))
        texts.append(TEXT_OF_ROW[:at] + extra + TEXT_OF_ROW[at + size :])
    both = []
    for in_bulk in (True, False):
        with mock.patch("eos.schemas.reading._avro_reader._FEW_ROWS", 1 if in_bulk else 1000):
            if not in_bulk:
                with mock.patch("eos.schemas.reading._avro_reader._has", return_value=True):
                    both.append(decode(JSON, texts))
            else:
                both.append(decode(JSON, texts))
    assert reasons(both[0]) == reasons(both[1])
    assert both[0].columns.to_pylist() == both[1].columns.to_pylist()


def test_a_derived_definition_reads_dates_and_timestamps_as_text():
    column = pa.struct([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    info = JsonSchema().writer(column).info
    text = b'{"day":"2026-11-20","at":"2026-11-20T12:00:00.123456Z"}'
    registered = version(SchemaType.JSON, json.loads(info.data))
    assert decode(registered, [text]).columns.to_pylist() == [json.loads(text)]
    mine = record(
        has("day", logical("int", "date")), has("at", logical("long", "timestamp-micros"))
    )
    found = decode(registered, [text], JsonSchema(json.dumps(mine)))
    assert found.columns.to_pylist() == [{"day": MOMENT.date(), "at": MOMENT.replace(tzinfo=UTC)}]


@pytest.mark.parametrize(
    ("kind", "named"),
    [("string", "long"), ({"type": "array", "items": "long"}, "long"), ("boolean", "long")],
)
def test_a_changed_field_type_is_refused_by_name(kind, named):
    mine = JsonSchema(json.dumps(record(has("id", kind))))
    with pytest.raises(IncompatibleSchema, match=f"'id' was written as {named}"):
        check_readable(mine, JSON)


def test_a_union_of_several_types_is_refused():
    with pytest.raises(IncompatibleSchema, match="JSON does not say"):
        decode(version(SchemaType.JSON, record(has("a", ["int", "string"]))), [])


def test_a_number_instead_of_an_enum_symbol_is_read_as_text():
    """pulsar-client writes so an enum whose Python values are numbers."""
    color = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
    kind = version(SchemaType.JSON, record(has("color", ["null", color])))
    found = decode(kind, [b'{"color":2}', b'{"color":"RED"}', b'{"color":true}'])
    assert [row["color"] for row in found.columns.to_pylist()] == ["2", "RED", None]
    assert reasons(found) == {2: "The field 'color' is not of its type."}


def test_a_decimal_of_more_than_38_digits_has_the_bytes_that_avro_has():
    number = logical("bytes", "decimal", precision=40, scale=2)
    wide = version(SchemaType.JSON, record(has("d", ["null", {"type": "array", "items": number}])))
    digits = "1234567890" * 3 + "12345678.5"
    texts = [b'{"d":[1.25,"-1.28",0]}', f'{{"d":[{digits},"1234"]}}'.encode(), b'{"d":[1.255]}']
    found = decode(wide, [*texts, b'{"d":null}'])
    assert reasons(found).keys() == {2}
    numbers = [
        [int.from_bytes(one, "big", signed=True) for one in row or ()]
        for row in found.columns["d"].to_pylist()
    ]
    assert numbers == [[125, -128, 0], [int(digits.replace(".", "") + "0"), 123400], [], []]
    # Arrow's parser would take text for base64.
    assert decode(wide, [b'{"d":["1234"]}']).columns["d"].to_pylist() == [[b"\1\xe2\x08"]]
