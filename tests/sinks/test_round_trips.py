"""Any DataFrame that a sink writes is read back unchanged from its topic, by Spark and SQL.

``pulsar-client`` reads the messages, ``fastavro`` and Python's ``json`` decode them.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from eos.errors import InputError
from eos.schemas import schema_of
from eos.sinks.dataframe_columns import layout_of
from eos.testing import PulsarStandalone
from tests.support.admin import call
from tests.support.frames import (
    ATOMS,
    Frame,
    contents,
    frame_of,
    frames,
    numbers,
    structs,
    types,
)
from tests.support.judge import drain
from tests.support.spark_releases import HAS_DATA_SOURCES, needs_data_sources, newer_types

NAMES = st.sampled_from(
    ["a", "A1", "_", "value", "key", "__key", "__value", "topic", "Row", "items", "null", "record"]
) | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)


def records(way: str, schema: str) -> st.SearchStrategy[StructType]:
    """Generate Spark schemas that the topic can have.

    SQL and JSON: no timestamps. They are text in such a table, so Spark itself casts them in the
    session's zone, before the writer gets a row: docs/catalog.md.
    """
    atoms = ATOMS
    if (way, schema) == ("sql", "json"):
        atoms = ATOMS.filter(lambda kind: not isinstance(kind, TimestampType | TimestampNTZType))
    return structs(types(atoms, NAMES, keys=st.just(StringType())), NAMES, most=6)


Leaf = Callable[[Any, DataType], Any]


def mapped(value: Any, kind: DataType, leaf: Leaf) -> Any:
    """Apply ``leaf`` to each single value in ``value``."""
    if value is None:
        return None
    match kind:
        case StructType():
            # JSON may omit null fields.
            return {
                one.name: mapped(value.get(one.name), one.dataType, leaf) for one in kind.fields
            }
        case ArrayType():
            return [mapped(one, kind.elementType, leaf) for one in value]
        case MapType():
            pairs = value.items() if isinstance(value, dict) else value
            return [(key, mapped(one, kind.valueType, leaf)) for key, one in pairs]
    return leaf(value, kind)


def of_rows(rows: list[dict[str, Any]], schema: StructType, leaf: Leaf) -> Any:
    """Convert rows for a comparison."""
    found = [tuple(mapped(row, schema, leaf).values()) for row in rows]
    return contents(Frame(schema, tuple(found)).to_arrow())


def of_avro(value: Any, kind: DataType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(f"{int.from_bytes(value, 'big', signed=True)}e{-kind.scale}")
    return value


def of_json(value: Any, kind: DataType) -> Any:
    """Convert values without a type in JSON to text: docs/schemas.md."""
    match kind:
        case BinaryType():
            return base64.b64decode(value, validate=True)
        case DateType() | TimestampType() | TimestampNTZType():
            return moment(value, kind)
        case FloatType() | DoubleType():
            return float(value)
    return value


MOMENT = re.compile(r"([+-]?)(\d{4,7})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)\.(\d{6})(Z?))?")
ERA = 400
"""Years after which the calendar begins again."""


def moment(text: str, kind: DataType) -> int:
    """Return days or microseconds since 1970; Python supports only the years 1 to 9999."""
    found = MOMENT.fullmatch(text)
    assert found is not None, text
    sign, year, *rest = found.groups()
    eras, in_era = divmod(int(sign + year), ERA)
    days = date(in_era + ERA, int(rest[0]), int(rest[1])).toordinal() - date(1970, 1, 1).toordinal()
    days += (eras - 1) * (date(2 * ERA, 1, 1) - date(ERA, 1, 1)).days
    assert (rest[2] is None) == isinstance(kind, DateType), text
    if rest[2] is None:
        return days
    assert bool(rest[6]) == isinstance(kind, TimestampType), text
    seconds = (int(rest[2]) * 60 + int(rest[3])) * 60 + int(rest[4])
    return (days * 86_400 + seconds) * 1_000_000 + int(rest[5])


def as_read(kind: DataType, schema: str) -> DataType:
    """Return the type that is read, by docs/schemas.md."""
    match kind:
        case ByteType() | ShortType():
            return IntegerType()
        case DateType() | TimestampType() | TimestampNTZType() if schema == "json":
            return StringType()
        # Columns that are read may be null, as with Spark's own files: another version of the
        # schema may allow it. So NOT NULL is not compared.
        case ArrayType():
            return ArrayType(as_read(kind.elementType, schema))
        case MapType():
            return MapType(kind.keyType, as_read(kind.valueType, schema))
        case StructType():
            read = [StructField(one.name, as_read(one.dataType, schema)) for one in kind.fields]
            return StructType(read)
    return kind


def unmarked(kind: StructType) -> StructType:
    """Remove the metadata, where the source marks columns that are fields."""
    return StructType([StructField(one.name, one.dataType, one.nullable) for one in kind.fields])


class RoundTrip:
    """Writes frames, and reads them back by Spark and others."""

    def __init__(
        self, spark: SparkSession, server: PulsarStandalone, make_sink: Any, folder: Path
    ) -> None:
        self.spark, self.server, self.make_sink, self.folder = spark, server, make_sink, folder

    def by_sink(self, frame: Frame, topic: str, schema: str) -> DataFrame | None:
        """Write by the sink, and read by the source; None if Spark has no sources in Python."""
        sink = self.make_sink(sink_id=topic, topic=topic, schema=schema, metadata=False)
        sink.write(self.load(frame, topic), epoch="rows")
        sink.close()
        if not HAS_DATA_SOURCES:
            return None
        options = {"serviceUrl": self.server.service_url, "topic": topic, "schema": "auto"}
        return self.spark.read.format("pulsar").options(**options).load()

    def by_sql(self, frame: Frame, topic: str, schema: str) -> DataFrame:
        """Write and read a table of the topic by SQL."""
        from eos import PulsarCatalog  # which 3.5 can't import

        log, server = str(self.folder / "log"), self.server
        catalog = PulsarCatalog(self.spark, server.service_url, server.admin_url, commit_log=log)
        self.load(frame, topic).createOrReplaceTempView("new_rows")
        catalog.create(topic, schema=schema, columns=frame.schema.toDDL())
        table = catalog.register(topic)
        self.spark.sql(f"INSERT INTO {table} WITH (epoch='rows') SELECT * FROM new_rows")
        return self.spark.sql(f"SELECT * FROM {table}")

    def load(self, frame: Frame, topic: str) -> DataFrame:
        frame.save(self.folder / topic)
        return frame_of(self.spark, self.folder / topic)

    def messages(self, topic: str, schema: str) -> list[dict[str, Any]]:
        """Return the records that consumers get; with Avro, times are numbers."""
        seen = drain(self.server.service_url, f"persistent://public/default/{topic}")
        if schema == "json":
            # Not as Python's floats, which do not have 38 digits.
            return [json.loads(one.value, parse_float=Decimal, parse_int=Decimal) for one in seen]
        path = f"/v2/schemas/public/default/{topic}/schema"
        registered = call(self.server.admin_url, "GET", path)["data"]
        definition = json.loads(re.sub(r'"logicalType": ?"[a-z-]+"', '"is": "plain"', registered))
        parsed = fastavro.parse_schema(definition)
        return [fastavro.schemaless_reader(io.BytesIO(one.value), parsed, None) for one in seen]

    def check(self, way: str, frame: Frame, topic: str, schema: str) -> None:
        """Check that the frame read back and the messages equal what was written."""
        told = f"{way} {schema} {frame.schema.json()}"
        read = (self.by_sql if way == "sql" else self.by_sink)(frame, topic, schema)
        if not frame.rows and way == "sink":
            # Without rows there is no producer, and no registered schema.
            assert read is None or (read.columns, read.count()) == (["value"], 0), told
            return
        given = contents(frame.to_arrow())
        if read is not None:
            assert unmarked(read.schema) == as_read(frame.schema, schema), told
            back = numbers(read.toArrow()).to_pylist()
            assert of_rows(back, frame.schema, of_spark(schema)) == given, told
        # Afterwards, because the judge sends its own message to mark the topic's end.
        rows = self.messages(topic, schema)
        sent = of_rows(rows, frame.schema, of_avro if schema == "avro" else of_json)
        assert sent == given, told


def of_spark(schema: str) -> Leaf:
    def leaf(value: Any, kind: DataType) -> Any:
        is_text = schema == "json" and isinstance(kind, DateType | TimestampType | TimestampNTZType)
        return moment(value, kind) if is_text else value

    return leaf


@pytest.fixture
def trip(
    spark: SparkSession,
    pulsar_standalone: PulsarStandalone,
    make_sink: Any,
    tmp_path: Path,
    spark_conf: Callable[[str, str], None],
) -> RoundTrip:
    """The session's zone is New York, which must not change times."""
    spark_conf("spark.sql.session.timeZone", "America/New_York")
    return RoundTrip(spark, pulsar_standalone, make_sink, tmp_path)


REFUSED = [
    NullType(), DayTimeIntervalType(), YearMonthIntervalType(), VectorUDT(),
    *newer_types(VariantType=(), TimeType=(), CalendarIntervalType=()),
    *newer_types(GeometryType=(4326,), GeographyType=(4326,)),
]  # fmt: skip
ODD_TYPES = ATOMS | st.sampled_from(REFUSED)
ODD_NAMES = NAMES | st.text(max_size=3)
ODD_RECORDS = structs(types(ODD_TYPES, ODD_NAMES), ODD_NAMES, most=3)
MAY_BE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


WAYS = ["sink", pytest.param("sql", marks=needs_data_sources)]


def objections(kind: DataType) -> Iterator[str]:
    """Yield the beginnings of the messages for an unsupported type."""
    match kind:
        case StructType():
            for field in kind.fields:
                if not MAY_BE.fullmatch(field.name):
                    yield "has a name that no schema allows"
                yield from objections(field.dataType)
        case ArrayType():
            yield from objections(kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                yield "is a map with keys of"
            yield from objections(kind.keyType)
            yield from objections(kind.valueType)
        case _ if kind in REFUSED:
            yield f"is {kind.simpleString()}, which schemas can't represent"


@given(ODD_RECORDS, st.sampled_from(["avro", "json"]))
def test_a_dataframe_of_unsupported_types_is_refused(columns, schema):
    """Before a job, a transaction or a topic exists: by the types alone."""
    wrong = list(objections(columns))
    if not wrong:
        assert layout_of(columns, schema=schema_of(schema), metadata=False).record
        return
    with pytest.raises(InputError, match=r"^Column ['\"]") as caught:
        layout_of(columns, schema=schema_of(schema), metadata=False)
    assert any(reason in caught.value.message for reason in wrong)


@pytest.mark.parametrize("schema", ["avro", "json"])
@pytest.mark.parametrize("way", WAYS)
def test_any_dataframe_comes_back_unchanged(trip, name, way, schema):
    (frame,) = frames(records(way, schema), 1, 20)
    trip.check(way, frame, name, schema)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("schema", ["avro", "json"])
@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_rows_come_back_unchanged(trip, name, way, schema):
    rows = 0
    trip.check(way, Frame(StructType([StructField("a", StringType())])), f"{name}-none", schema)
    for n, frame in enumerate(frames(records(way, schema), 30, 400)):
        trip.check(way, frame, f"{name}-{n}", schema)
        rows += len(frame.rows)
    assert rows >= 10_000
