"""Upserts of both tables: the last change of each key, through real Spark, for plain readers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from eos import DeltaSink
from eos.delta import upserts
from eos.delta.column_rules import DECLARED
from eos.delta.opening import schema_to_json
from eos.delta.part import DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget, stage
from eos.errors import ConfigurationError, InputError
from eos.participant import Attempt, Upsert
from eos.protocol import BATCH, History, Known
from eos.recovery.resolve import resolve
from eos.sinks._upserts import IS_AMBIGUOUS, Upserts
from eos.steps import EndingStep, Step
from tests.sinks.test_delta_sink import dies_behind
from tests.support.spark_releases import needs_collations

CHANGES = "id int, name string, op string, at long, place int"


@pytest.fixture
def table(tmp_path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def make_sink(tmp_path, table, name):
    def make(**options) -> DeltaSink:
        defaults = {"sink_id": name, "table": table, "commit_log": str(tmp_path / "log")}
        return DeltaSink(**defaults | {"merge_on": ["id"]} | options)

    return make


def rows(table: str) -> list[tuple]:
    return sorted(tuple(row.values()) for row in DeltaTable(table).to_pyarrow_table().to_pylist())


def test_upserts_keep_the_last_change_of_each_key(spark, make_sink, table):
    options = {"latest_by": ["at", "place"], "delete_when": "op = 'd'"}
    first = [(1, "a", "c", 1, 0), (1, "b", "u", 2, 0), (2, "c", "c", 1, 0), (3, "d", "c", 1, 0)]
    make_sink(**options).write(spark.createDataFrame(first, CHANGES).repartition(3), epoch=1)
    assert rows(table) == [(1, "b", 2, 0), (2, "c", 1, 0), (3, "d", 1, 0)]
    then = [(1, None, "d", 5, 1), (1, "z", "u", 5, 0), (2, None, "d", 3, 0), (2, "new", "c", 4, 0)]
    make_sink(**options).write(spark.createDataFrame(then, CHANGES).repartition(3), epoch=2)
    assert rows(table) == [(2, "new", 4, 0), (3, "d", 1, 0)]
    assert not [path for path in DeltaTable(table).file_uris() if "eos-" in path]


def test_columns_that_decide_need_not_be_in_the_table(spark, make_sink, table):
    write_deltalake(table, pa.table({"id": pa.array([1], pa.int32()), "name": ["old"]}))
    sink = make_sink(latest_by=["at", "place"], delete_when="op = 'd'")
    changes = [(1, "a", "u", 1, 0), (1, "b", "u", 2, 0), (2, None, "d", 1, 0)]
    sink.write(spark.createDataFrame(changes, CHANGES), epoch=1)
    assert rows(table) == [(1, "b")]


def test_staged_files_are_deleted_after_the_merge(spark, make_sink, table, tmp_path):
    make_sink().write(spark.range(3), epoch=1)
    assert not list((tmp_path / "table").rglob("eos-*.parquet"))


def test_keys_without_an_order_are_refused(spark, make_sink, table):
    df = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c"), (2, "c")], "id int, name string")
    with pytest.raises(InputError, match=r"Keys \(id\) have several rows .* latest_by"):
        make_sink().write(df, epoch=1)
    assert rows(table) == []
    make_sink().write(df.where("id = 2"), epoch=1)
    assert rows(table) == [(2, "c")]


def test_columns_that_rows_lack_stay_as_they_are(spark, make_sink, table):
    make_sink().write(spark.sql("SELECT 1 AS id, 'a' AS name, 5 AS n"), epoch=1)
    make_sink().write(spark.sql("SELECT explode(array(1, 2)) AS id, 'b' AS name"), epoch=2)
    assert rows(table) == [(1, "b", 5), (2, "b", None)]


def test_new_columns_partitions_and_nested_values_are_merged(spark, make_sink, table):
    make = lambda: make_sink(merge_schema=True, partition_by=["day"])  # noqa: E731
    make().write(spark.sql("SELECT 1 AS id, DATE '2026-01-01' AS day, map('a', 1) AS m"), epoch=1)
    df = spark.sql(
        "SELECT explode(array(1, 2)) AS id, DATE '2026-01-02' AS day, map('b', 2) AS m, "
        "named_struct('x', array(1.5D)) AS s"
    )
    make().write(df, epoch=2)
    read = DeltaTable(table).to_pyarrow_table()
    assert sorted(read["id"].to_pylist()) == [1, 2]
    assert {str(day) for day in read["day"].to_pylist()} == {"2026-01-02"}
    assert read["s"].to_pylist() == [{"x": [1.5]}] * 2


@pytest.mark.parametrize("column", ["a`b", "__eos_delete"])
def test_names_that_a_merge_cannot_have_are_refused(spark, make_sink, column):
    with pytest.raises(InputError, match="can't be in an upsert"):
        make_sink().write(
            spark.range(1).withColumnRenamed("id", column).selectExpr("*", "1 AS id"), epoch=1
        )


def test_null_keys_and_nulls_of_required_columns_are_refused(spark, make_sink, table):
    schema = pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.string(), nullable=False)])
    write_deltalake(table, schema.empty_table())
    sink = make_sink(delete_when="op = 'd'", latest_by=["at"])
    with pytest.raises(InputError, match="'id'"):
        sink.write(spark.createDataFrame([(None, "a", "c", 1, 0)], CHANGES).drop("place"), epoch=1)
    with pytest.raises(InputError, match="'name'"):
        make_sink(delete_when="op = 'd'").write(
            spark.createDataFrame([(1, None, "c", 1, 0)], CHANGES).drop("at", "place"), epoch=2
        )
    make_sink(delete_when="op = 'd'").write(
        spark.createDataFrame([(1, None, "d", 1, 0)], CHANGES).drop("at", "place"), epoch=3
    )
    assert rows(table) == []


@pytest.mark.parametrize("step", [Step.WRITE, Step.PREPARE, EndingStep.PART])
def test_an_upsert_is_merged_once_over_a_crash(spark, make_sink, table, tmp_path, name, step):
    """Merged twice, the second row of the table would be gone after the third epoch's delete."""
    make_sink().write(spark.sql("SELECT explode(array(1, 2)) AS id, 'a' AS name"), epoch=1)
    df = spark.sql("SELECT 1 AS id, 'b' AS name")
    dies_behind(step, lambda: make_sink().write(df, epoch=2))
    resolve(name, commit_log=tmp_path / "log")
    make_sink().write(df, epoch=2)
    assert rows(table) == [(1, "b"), (2, "a")]
    versions = [entry["operation"] for entry in DeltaTable(table).history()]
    assert versions.count("MERGE") == 2


def test_two_processes_that_merge_at_once_merge_once(tmp_path):
    """Only new keys: no file of the table is removed that would make one of them fail."""
    uri = str(tmp_path / "table")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    write_deltalake(uri, pa.table({"id": [0], "name": ["old"]}, schema=schema))
    changes = pa.table({"id": list(range(1, 101)), "name": ["x"] * 100}, schema=schema)
    mine, part = staged_upsert(uri, changes)
    other = DeltaParticipant("s", uri)
    other.attach(other.claimed(History("s"), "log"), History("s"))
    start = threading.Barrier(2)
    fates = []

    def commit(participant: DeltaParticipant) -> None:
        start.wait()
        fates.append(participant.commit(part, deadline_s=20, is_own=False).known)

    threads = [threading.Thread(target=commit, args=(one,)) for one in (mine, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fates == [Known.COMMITTED] * 2
    assert sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist()) == list(range(101))
    assert [one["operation"] for one in DeltaTable(uri).history()].count("MERGE") == 1


def staged_upsert(uri: str, rows: pa.Table) -> tuple[DeltaParticipant, DeltaPart]:
    """A driver that has staged an upsert by id, without Spark."""
    participant, upsert = DeltaParticipant("s", uri), Upsert(("id",))
    participant.attach(participant.claimed(History("s"), "log"), History("s"))
    part = participant.begin(Attempt(BATCH, "a", 1, None, False))
    target = StagingTarget(uri, participant.table.schema, upsert=upsert)
    files = stage(rows.to_batches(), target, attempt_id=str(part.attempt_id), spark_partition=0)
    text = schema_to_json(participant.table.schema)
    return participant, participant.count(part, [Staged(files, text, False, upsert)])


def without_statistics(uri: str) -> None:
    """The newest commit, as a writer leaves it that has none."""
    newest = max(Path(uri, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    newest.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("key", ["int", "text"])
@pytest.mark.parametrize(
    ("other", "has_statistics", "merges"),
    [(50, True, 1), (9, True, 1), (15, True, 2), (10, True, 2), (20, True, 2), (50, False, 2)],
)
def test_only_an_append_of_keys_that_may_be_its_own_holds_up_a_merge(
    tmp_path, monkeypatch, key, other, has_statistics, merges
):
    """Others append after the table was read, before the first commit."""
    uri = str(tmp_path / "table")
    keyed = lambda *ids: [one if key == "int" else f"key {one:03}" for one in ids]  # noqa: E731
    table = lambda name, *ids: pa.table({"id": keyed(*ids), "name": [name] * len(ids)})  # noqa: E731
    write_deltalake(uri, table("old", 12, 30))
    participant, part = staged_upsert(uri, table("new", 10, 15, 20))
    real, tried = upserts.merge, []

    def merge(*arguments):
        if not tried:
            write_deltalake(uri, table("other", other), mode="append")
            if not has_statistics:
                without_statistics(uri)
        tried.append(other)
        return real(*arguments)

    monkeypatch.setattr(upserts, "merge", merge)
    assert participant.commit(part, deadline_s=20, is_own=True).known is Known.COMMITTED
    assert len(tried) == merges
    found = {other: "other", 12: "old", 30: "old"} | dict.fromkeys([10, 15, 20], "new")
    assert rows(uri) == sorted((*keyed(one), name) for one, name in found.items())


@pytest.mark.parametrize("removed", [False, True])
def test_files_without_statistics_are_merged(tmp_path, removed):
    uri = str(tmp_path / "table")
    none = {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(uri, pa.table({"id": [10, 30], "name": ["old"] * 2}), configuration=none)
    if removed:
        without_statistics(uri)
    participant, part = staged_upsert(uri, pa.table({"id": [10, 20], "name": ["new"] * 2}))
    assert participant.commit(part, deadline_s=20, is_own=True).known is Known.COMMITTED
    assert rows(uri) == [(10, "new"), (20, "new"), (30, "old")]


def test_a_word_of_the_condition_is_not_a_column(spark, make_sink, table):
    df = spark.createDataFrame([(1, "x", "a")], "id int, d string, op string")
    make_sink(delete_when="op = 'd'").write(df, epoch=1)
    assert rows(table) == [(1, "x")]


def test_a_column_of_the_condition_in_another_case_is_left_out(spark, make_sink, table):
    df = spark.createDataFrame([(1, "a", "u"), (2, "b", "d")], "id int, name string, op string")
    make_sink(delete_when="OP = 'd'").write(df, epoch=1)
    make_sink(delete_when="Op = 'd'").write(df.where("id = 1").replace("u", "d"), epoch=2)
    assert DeltaTable(table).to_pyarrow_table().column_names == ["id", "name"]
    assert rows(table) == []


def test_rows_that_differ_in_a_column_of_the_condition_are_two_changes(spark, make_sink, table):
    write_deltalake(
        table, pa.table({"id": pa.array([9], pa.int32()), "qty": pa.array([1], pa.int32())})
    )
    df = spark.createDataFrame([(1, 5), (1, 7)], "id int, qty int")
    with pytest.raises(InputError, match="several rows"):
        make_sink(delete_when="qty = 0").write(df, epoch=1)


@pytest.mark.parametrize("kind", ["float", "double", "array<int>"])
def test_keys_whose_equality_differs_between_systems_are_refused(spark, make_sink, kind):
    with pytest.raises(InputError, match=r"merge_on|plain column"):
        make_sink().write(spark.sql(f"SELECT cast(NULL AS {kind}) AS id"), epoch=1)


@pytest.mark.parametrize("declared", ["varchar(3)", "char(3)"])
def test_keys_that_their_column_would_cut_or_pad_are_refused(spark, make_sink, table, declared):
    """Merged as two, they are one key of the table to the next merge, which then can't end."""
    column = pa.field("id", pa.string(), metadata={DECLARED: declared})
    write_deltalake(table, pa.schema([column]).empty_table())
    df = spark.createDataFrame([("abc",), ("x" if declared == "char(3)" else "abc ",)], ["id"])
    with pytest.raises(InputError, match=r"'id' of merge_on is .* padded or cut.*rtrim"):
        make_sink(max_attempts=1).write(df, epoch=1)
    make_sink().write(df.where("id = 'abc'"), epoch=2)
    assert rows(table) == [("abc",)]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_rows_that_differ_in_a_microsecond_of_a_map_are_two_changes(spark, kind):
    df = spark.range(2).selectExpr(
        "1 AS id", f"map('a', {kind} '2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id / 1e6)) m"
    )
    assert Upserts(("id",)).numbered(df, df.columns).where(IS_AMBIGUOUS).count() == 1


@needs_collations
def test_texts_are_compared_without_their_collation(spark):
    """``PostgresSink`` takes them. To Spark, rows would be one that are two to the database."""
    df = spark.sql("SELECT collate(k, 'UTF8_LCASE') AS k, 1 AS id FROM VALUES ('A'), ('a') t(k)")
    with pytest.raises(InputError, match="'k' of merge_on is STRING COLLATE UTF8_LCASE"):
        Upserts(("k",)).numbered(df, df.columns)
    found = Upserts(("id",)).numbered(df, df.columns)
    assert found.where(IS_AMBIGUOUS).count() == 1


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("delta.appendOnly", "appends only"),
        ("delta.enableChangeDataFeed", "change data feed"),
        ("delta.enableDeletionVectors", "deletion vectors"),
    ],
)
def test_tables_that_a_merge_cannot_change_are_refused_before_the_decision(
    spark, make_sink, table, name, error
):
    there = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(table, there, configuration={name: "true"})
    with pytest.raises(ConfigurationError, match=error):
        make_sink().write(spark.range(2), epoch=1)
    assert DeltaTable(table).version() == 0


@pytest.mark.parametrize(
    ("column", "value"), [("p", "DOUBLE(1)"), ("p", "FLOAT(1)"), ("p", "now()"), ("a:b", "id")]
)
def test_partitions_that_a_merge_writes_in_another_form_are_refused(
    spark, make_sink, column, value
):
    df = spark.range(2).selectExpr("id", f"{value} AS `{column}`")
    with pytest.raises(ConfigurationError, match=rf"upserts with the partition column {column} \("):
        make_sink(partition_by=[column]).write(df, epoch=1)


def test_many_partition_columns_have_a_limit_together(tmp_path):
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in "abc")])
    target = StagingTarget(str(tmp_path), schema, tuple("abc"), upsert=Upsert(("id",)))
    fits, long = (
        pa.RecordBatch.from_pylist([{"id": 1} | dict.fromkeys("abc", "x" * n)], schema)
        for n in (198, 199)
    )
    stage([fits], target, attempt_id="a", spark_partition=0)
    with pytest.raises(InputError, match="partitions: a, b, c"):
        stage([long], target, attempt_id="a", spark_partition=0)


@pytest.mark.parametrize("kind", ["{}", "map('k', {})", "array(struct({}))"])
@pytest.mark.parametrize("value", ["cast(X'41FF' AS string)", "date_from_unix_date(2147483647)"])
def test_values_that_a_merge_can_not_read_are_refused_before_the_decision(
    spark, make_sink, table, kind, value
):
    df = spark.range(1).selectExpr("id", f"{kind.format(value)} AS c")
    with pytest.raises(InputError, match=r"Column 'c.*' has a value that an upsert can't write"):
        make_sink(max_attempts=1, resolve_timeout_s=2).write(df, epoch=1)
    assert rows(table) == []


def test_partition_values_too_long_for_a_folder_are_refused_before_the_decision(
    spark, make_sink, table, tmp_path
):
    """An append shortens the folder's name. A merge fails, with the new value or that of a file."""
    append = DeltaSink(
        sink_id="appends", table=table, commit_log=str(tmp_path / "log"), partition_by=["p"]
    )
    fits, long = (spark.range(1).selectExpr("id", f"repeat('ё', {n}) AS p") for n in (42, 43))
    append.write(fits, epoch=1)
    make_sink().write(fits, epoch=1)
    with pytest.raises(InputError, match=r"can't write so long values of partitions: p\."):
        make_sink(max_attempts=1, resolve_timeout_s=2).write(long, epoch=2)
    append.write(long, epoch=2)
    with pytest.raises(ConfigurationError, match="so long values in the partition columns p"):
        make_sink(resolve_timeout_s=2).write(fits, epoch=3)
    assert len(rows(table)) == 2


def test_an_empty_key_of_a_partition_column_is_refused(spark, make_sink):
    """It is null to Delta, as an append writes it, and no merge finds it again."""
    df = spark.createDataFrame([("", 1)], "id string, n int")
    with pytest.raises(InputError, match=r"'id' takes no nulls, and .* no empty text"):
        make_sink(partition_by=["id"]).write(df, epoch=1)


_KEYS = {
    "decimal(38,10)": ["1.5", "12345678901234567890.0000000001", "-3"],
    "date": ["0001-01-01", "2026-01-01", "9999-12-31"],
    "timestamp": ["0001-01-02 00:00:00.000001", "2026-10-25 00:30:00.123456", "9999-01-01"],
    "string": ["", "a'b", "ü%\\ \n"],
    "binary": ["", "a\\x00", "ü"],
    "boolean": ["true", "false"],
    "bigint": ["-9223372036854775808", "0", "9223372036854775807"],
}


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("kind", _KEYS)
def test_keys_of_any_plain_type_are_found_again(spark, make_sink, table, kind, is_partitioned):
    if is_partitioned and kind in ("binary", "decimal(38,10)", "timestamp"):
        pytest.skip("no table is partitioned by these, or can't be merged")
    sink = make_sink(
        merge_on=["k"], delete_when="gone", partition_by=["k"] if is_partitioned else []
    )
    keys = [key for key in _KEYS[kind] if key or not is_partitioned]
    df = spark.createDataFrame([(key, n) for n, key in enumerate(keys)], "k string, n int")
    df = df.selectExpr(f"cast(k AS {kind}) AS k", "n")
    sink.write(df.selectExpr("k", "n", "false AS gone"), epoch=1)
    sink.write(df.selectExpr("k", "n + 10 AS n", "n = 0 AS gone"), epoch=2)
    found = DeltaTable(table).to_pyarrow_table()["n"].to_pylist()
    assert sorted(found) == [n + 10 for n in range(1, len(keys))]


def test_an_epoch_that_changes_nothing_is_recorded(spark, make_sink, table):
    sink = make_sink(delete_when="op = 'd'")
    columns = "id int, name string, op string"
    sink.write(spark.createDataFrame([(1, "a", "u")], columns), epoch=1)
    sink.write(spark.createDataFrame([(7, None, "d")], columns), epoch=2)
    make_sink(delete_when="op = 'd'").write(
        spark.createDataFrame([(1, "b", "u")], columns), epoch=3
    )
    assert rows(table) == [(1, "b")]
