"""Committed rows, read by delta-spark; its pruning and its vacuum."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from eos.delta.target_table import TargetTable
from eos.errors import ConfigurationError, DataLost, Fatal
from tests.delta.round_trips import ODD_TABLES, TABLES, check_frame
from tests.delta.tables import appended, commit, ids, made, numbered, rows, staged
from tests.support.frames import Frame, examples, frames

pytestmark = pytest.mark.broker
Ask = Callable[..., list]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(15, 8)),
        ("real", pa.float64()),
        ("small", pa.float32()),
        ("flag", pa.bool_()),
        ("inner", pa.struct([("a", pa.int32())])),
    ]
)
ROWS = [
    {
        "text": "a b/c%d=é\"'#?:\n\\",
        "day": date(2020, 1, 2),
        "moment": datetime(2020, 1, 2, 3, 4, 5, 123456, UTC),
        "local": datetime(2020, 1, 2, 3, 4, 5, 123456),
        "money": Decimal("-0.00000001"),
        "real": 1e300,
        "small": 0.1,
        "flag": True,
        "inner": {"a": 1},
    },
    {
        "text": "z" * 40,
        "day": date(1, 1, 1),
        "moment": datetime(1, 1, 1, tzinfo=UTC),
        "local": datetime(1500, 1, 1),
        "money": Decimal("1234567.00000001"),
        "real": -0.0,
        "small": -1.5,
        "flag": False,
        "inner": {"a": -5},
    },
    {
        "text": "\U0010ffff",
        "day": date(9999, 12, 31),
        "moment": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "money": Decimal("0.00000001"),
        "real": float("nan"),
        "small": float("inf"),
        "flag": None,
        "inner": {"a": None},
    },
    {"text": None, "inner": None},
    {"text": ""},
]
LITERALS = {
    "text": "'{}'",
    "day": "DATE'{}'",
    "moment": "TIMESTAMP'{}Z'",
    "local": "TIMESTAMP_NTZ'{}'",
    "money": "{}BD",
    "real": "{}D",
    "inner.a": "{}",
}


def shown(row: dict) -> list:
    """A row in the form in which Spark's ``to_json`` in New York must return it."""
    moment, money, real, inner = (row.get(name) for name in ("moment", "money", "real", "inner"))
    return [
        row["id"],
        row.get("text"),
        str(row["day"]) if row.get("day") else None,
        None if moment is None else (moment - EPOCH) // timedelta(microseconds=1),
        str(row["local"]) if row.get("local") else None,
        None if money is None else f"{money:f}",
        None if real is None else str(real),
        row.get("flag"),
        None if inner is None else inner["a"],
    ]


READ = (
    "SELECT id, text, string(day), unix_micros(moment), string(local), string(money), "
    "string(real), flag, inner.a FROM delta.`{}` ORDER BY id"
)


def spark_literal(name: str, value: object) -> str:
    text = str(value).replace("+00:00", "").replace("\\", "\\\\").replace("'", "\\'")
    return LITERALS[name].format(text)


@pytest.mark.parametrize("partition_by", [[], ["text", "day", "moment"], ["local", "real"]])
def test_spark_reads_the_same_as_deltalake(ask, tmp_path, partition_by):
    table = made(tmp_path / "a table", COLUMNS, partition_by)
    given = [{"id": n, **row} for n, row in enumerate(ROWS)]
    appended(table, pa.RecordBatch.from_pylist(given, schema=COLUMNS))
    (by_spark,) = ask(READ.format(table.folder.uri))
    by_deltalake = [shown(row) for row in rows(table)]
    for row in (*by_spark, *by_deltalake):
        row[6] = None if row[6] is None else repr(float(row[6]))
    assert by_spark == by_deltalake
    assert [row["text"] for row in rows(table)][:4] == [row["text"] for row in ROWS][:4]


@pytest.mark.parametrize("name", LITERALS)
def test_spark_finds_every_row_by_its_value_and_leaves_files_out(ask, tmp_path, name):
    """Each row has its own file: a wrong bound would hide it from a query for its value."""
    table = made(tmp_path / "t", COLUMNS)
    top, _, field = name.partition(".")
    for n, row in enumerate(ROWS):
        one = pa.RecordBatch.from_pylist([{"id": n, **row}], schema=COLUMNS)
        appended(table, one, version=n + 1)

    def value(row):
        found = row.get(top)
        return found.get(field) if field and found else found

    wanted = {n: value(row) for n, row in enumerate(ROWS) if value(row) is not None}
    wanted = {n: found for n, found in wanted.items() if found == found}
    source = f"FROM delta.`{table.folder.uri}` WHERE {name}"
    for n, found in wanted.items():
        literal = spark_literal(name, found)
        least, same, most = ask(
            f"SELECT id {source} >= {literal}",
            f"SELECT id {source} = {literal}",
            f"SELECT id {source} <= {literal}",
        )
        assert [n] in least
        assert [n] in same
        assert [n] in most
    literal = spark_literal(name, wanted[0])
    (read,) = ask(f"files: SELECT id {source} = {literal}")
    assert read < len(ROWS)


def test_sparks_vacuum_keeps_committed_files_and_deletes_staged_ones(ask, tmp_path):
    table = made(tmp_path / "t")
    appended(table, numbered(0, 1))
    files, schema = staged(table, numbered(1, 1))
    commit(table, files, 2, schema)
    late, _ = staged(table, numbered(2, 1))
    ask(f"VACUUM delta.`{table.folder.uri}` RETAIN 0 HOURS")
    assert ids(table) == [0, 1]
    assert table.missing([*files, *late]) == list(late)


def test_spark_keeps_our_identifier_where_identifiers_expire(ask, tmp_path):
    table = TargetTable(str(tmp_path / "t"))
    ask(
        f"CREATE TABLE delta.`{tmp_path / 't'}` (id LONG, name STRING) USING delta TBLPROPERTIES "
        "('delta.setTransactionRetentionDuration' = 'interval 30 days', "
        "'delta.checkpointInterval' = '1')"
    )
    table.check_writable()
    appended(table, numbered(0, 1))
    ask(f"INSERT INTO delta.`{tmp_path / 't'}` VALUES (1, 'by Spark')")
    assert list((tmp_path / "t" / "_delta_log").glob("*.checkpoint*.parquet"))
    assert table.committed_version("eos/orders") == 1


def test_a_table_that_spark_replaced_is_another_one(ask, tmp_path):
    table = made(tmp_path / "t")
    table_id = table.table_id
    files, schema = staged(table, numbered(0, 1))
    ask(f"CREATE OR REPLACE TABLE delta.`{tmp_path / 't'}` USING delta AS SELECT 7L AS id")
    with pytest.raises(Fatal, match="is another one"):
        table.commit(files, "eos/orders", 1, table_id=table_id, schema=schema)
    assert ids(table) == [7]


def test_a_constraint_set_by_spark_is_found(ask, tmp_path):
    table = made(tmp_path / "t")
    ask(f"ALTER TABLE delta.`{tmp_path / 't'}` ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(ConfigurationError, match="check constraint positive"):
        table.check_writable()


@pytest.mark.release
def test_a_history_that_spark_changes_is_read_at_its_first_version(ask, tmp_path):
    """A query keeps its version, regardless of later changes by Delta's own writer."""
    from tests.sources import histories  # which 3.5 can't import

    source, past = tmp_path / "source", tmp_path / "past"
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)] * 4
    table = histories.rows(0, *times)
    write_deltalake(source, table)
    ask(f"CREATE TABLE delta.`{past}` USING delta PARTITIONED BY (__topic) AS "
        f"SELECT * FROM delta.`{source}`")  # fmt: skip
    mine = ("__topic", "__eventTime")
    expected = table.select(["value", *mine]).to_pylist()
    assert histories.read(past, *mine) == expected
    span = histories.begun(past, *mine)
    of_it = f"delta.`{past}`"
    for change in (
        f"DELETE FROM {of_it} WHERE value = X'30'",
        f"OPTIMIZE {of_it}",
        f"MERGE INTO {of_it} t USING (SELECT X'31' AS v) s ON t.value = s.v "
        "WHEN MATCHED THEN UPDATE SET value = X'FF'",
        f"ALTER TABLE {of_it} ADD COLUMN more INT",
        f"RESTORE TABLE {of_it} TO VERSION AS OF 1",
        f"ALTER TABLE {of_it} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        f"DELETE FROM {of_it} WHERE value = X'32'",
        f"ALTER TABLE {of_it} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        f"ALTER TABLE {of_it} RENAME COLUMN __eventTime TO other",
    ):
        ask(change)
        assert histories.read_again(past, span, *mine) == expected, change
    with pytest.raises(ConfigurationError, match="can't be read by this source"):
        histories.begun(past)
    ask(f"VACUUM {of_it} RETAIN 0 HOURS")
    with pytest.raises(DataLost, match="was the table vacuumed"):
        histories.read_again(past, span)


def test_any_dataframe_is_the_same_in_both_tables(ask, tmp_path):
    for n, frame in enumerate(frames(TABLES, 2, 20)):
        check_frame(ask, frame, tmp_path / f"frame-{n}")


def test_a_type_or_a_name_that_sparks_writer_refuses_is_refused(ask, tmp_path):
    for n, schema in enumerate(examples(ODD_TABLES, 3)):
        check_frame(ask, Frame(schema), tmp_path / f"frame-{n}")


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_ten_thousand_rows_are_the_same_in_both_tables(ask, tmp_path):
    rows = 0
    for n, frame in enumerate(frames(TABLES, 30, 400)):
        if check_frame(ask, frame, tmp_path / f"frame-{n}"):
            rows += len(frame.rows)
    assert rows >= 10_000


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_two_hundred_odd_schemas_are_refused_by_both_or_neither(ask, tmp_path):
    for n, schema in enumerate(examples(ODD_TABLES, 200)):
        check_frame(ask, Frame(schema), tmp_path / f"frame-{n}")
