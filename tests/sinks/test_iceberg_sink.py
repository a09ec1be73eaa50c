"""IcebergSink through real Spark: each epoch is one snapshot of the table, or none, for readers."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal

import pytest
from pyiceberg.catalog import load_catalog

from eos import DeltaSink, IcebergSink, PulsarSink, all_or_nothing, failpoints
from eos.commit_log import CommitLog
from eos.committer import OpenAttempt
from eos.errors import ConfigurationError, InputError, NewCluster
from eos.recovery.resolve import resolve
from eos.steps import AnyStep, EndingStep, Step
from tests.iceberg.tables import NAME, catalog_of


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def catalog(tmp_path):
    return catalog_of(tmp_path)


@pytest.fixture
def make_sink(tmp_path, catalog, name):
    def make(**options) -> IcebergSink:
        own = {"sink_id": name, "table": NAME, "commit_log": str(tmp_path / "log")}
        return IcebergSink(**own | {"catalog": catalog} | options)

    return make


@pytest.fixture
def states(tmp_path, name):
    log = lambda: CommitLog.open_read_only(tmp_path / "log", name).records()  # noqa: E731
    return lambda: [record.state.value for record in log() if record.epoch]


@pytest.fixture
def rows(catalog):
    """The rows by pyiceberg's own scan."""

    def read(branch: str | None = None) -> list[dict]:
        scan = load_catalog("default", **catalog).load_table(NAME).scan()
        if branch is not None:
            scan = scan.use_ref(branch)
        return sorted(scan.to_arrow().to_pylist(), key=str)

    return read


def opened(catalog):
    return load_catalog("default", **catalog).load_table(NAME)


def dies_behind(place: AnyStep, run) -> None:
    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        with failpoints.armed(place, die), pytest.raises(Died):
            run()


def test_an_epoch_is_one_snapshot_and_a_rerun_of_the_key_is_skipped(
    spark, make_sink, catalog, rows, states
):
    df = spark.range(100).selectExpr("id", "cast(id AS string) AS text")
    first = make_sink().write(df, epoch="a")
    again = make_sink().write(df, epoch="a")
    assert (first.status, first.records, again.status) == ("written", 100, "skipped")
    table = opened(catalog)
    assert len(table.snapshots()) == 1
    assert table.current_snapshot().summary["total-records"] == "100"
    assert rows() == sorted([{"id": n, "text": str(n)} for n in range(100)], key=str)
    assert states() == ["OPEN", "PREPARED", "COMMITTED"]


@pytest.mark.parametrize(
    "place",
    [Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.PREPARE, EndingStep.PART, Step.FINISH],
    ids=lambda place: place.label,
)
def test_a_death_at_any_step_loses_and_duplicates_no_rows(
    spark, make_sink, rows, name, tmp_path, place
):
    df = spark.range(10).selectExpr("id")
    make_sink().write(df, epoch="a")
    dies_behind(place, lambda: make_sink().write(df, epoch="b"))
    resolve(name, commit_log=tmp_path / "log")
    assert len(rows()) in (10, 20)
    assert make_sink().write(df, epoch="b").records == 10
    assert [row["id"] for row in rows()] == sorted([*range(10), *range(10)])


def test_a_stream_and_its_restart(source, make_sink, rows, tmp_path):
    source.add("a", "b")
    source.run(make_sink(), tmp_path / "checkpoint")
    source.add("c")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert sorted(row["value"] for row in rows()) == ["a", "b", "c"]


TYPES = """
SELECT 1L AS id, CAST(2 AS SMALLINT) AS small, 'a/b c' AS name, DATE '2026-11-20' AS day,
  1.5D AS x, CAST(0.5 AS FLOAT) AS f, true AS flag, TIMESTAMP '2026-11-20 12:00:00.123456Z' AS ts,
  TIMESTAMP_NTZ '2026-11-20 12:00:00' AS ntz, CAST(-12.34 AS DECIMAL(10,2)) AS money,
  CAST(1 AS DECIMAL(38, 5)) AS big, X'00FF' AS bytes,
  struct('in' AS a, array(1, 2) AS b) AS nested, map('k', struct(1 AS v)) AS dict,
  array(array('q')) AS lists, 'odd' AS `odd name.x`
"""
ROW = {
    "id": 1,
    "small": 2,
    "name": "a/b c",
    "day": dt.date(2026, 11, 20),
    "x": 1.5,
    "f": 0.5,
    "flag": True,
    "ts": dt.datetime(2026, 11, 20, 12, 0, 0, 123456, dt.UTC),
    "ntz": dt.datetime(2026, 11, 20, 12),
    "money": Decimal("-12.34"),
    "big": Decimal("1.00000"),
    "bytes": b"\x00\xff",
    "nested": {"a": "in", "b": [1, 2]},
    "dict": [("k", {"v": 1})],
    "lists": [["q"]],
    "odd name.x": "odd",
}


@pytest.mark.parametrize(
    "partition_by",
    [
        [],
        ["day(ts)", "bucket(4, id)", "truncate(1, name)"],
        ["hour(ts)", "bucket(4, name)", "money"],
        ["year(day)", "month(ntz)", "truncate(10, money)", "flag"],
        ["day", "ts", "bytes", "bucket(2, money)", "f"],
        ["bucket(4, ts)", "nested.a", "truncate(10, id)", "bucket(4, bytes)", "small"],
        ["day(ts)", "bucket(2, ts)"],
    ],
    ids=str,
)
def test_types_and_nulls_are_kept_in_every_partitioning(
    spark, make_sink, catalog, rows, partition_by
):
    full = spark.sql(TYPES)
    nulls = full.selectExpr(
        *(f"CAST(NULL AS {one.dataType.simpleString()}) AS `{one.name}`" for one in full.schema)
    )
    make_sink(partition_by=partition_by).write(full.unionAll(nulls), epoch="a")
    # pyiceberg 0.12 reads a null map as an empty one, from any writer.
    assert rows() == sorted([ROW, {**dict.fromkeys(ROW), "dict": []}], key=str)
    table = opened(catalog)
    assert len(table.spec().fields) == len(partition_by)
    for files in (table.inspect.files(), table.inspect.entries(), table.inspect.partitions()):
        assert files.num_rows
    assert table.scan(row_filter="id = 1").to_arrow().num_rows == 1
    assert table.scan(row_filter="id = 2").to_arrow().num_rows == 0
    assert table.scan(row_filter="day = '2026-11-20' and name = 'a/b c'").to_arrow().num_rows == 1


def test_files_are_pruned_by_partitions_and_bounds(spark, make_sink, catalog):
    days = spark.range(10).selectExpr("id", "date_add(DATE '2026-01-01', CAST(id AS INT)) AS d")
    make_sink(partition_by=["day(d)"]).write(days, epoch="a")
    make_sink().write(days.selectExpr("id + 100 AS id", "d"), epoch="b")
    table = opened(catalog)
    assert len(list(table.scan().plan_files())) == 20
    assert len(list(table.scan(row_filter="d = '2026-01-03'").plan_files())) == 2
    assert len(list(table.scan(row_filter="id = 105").plan_files())) == 1


def test_columns_are_compared_by_name_and_added_on_request(spark, make_sink, rows, catalog):
    make_sink().write(spark.range(1).selectExpr("id", "struct(id AS n) AS s"), epoch="a")
    wider = spark.range(1, 2).selectExpr("struct(id AS n, 'x' AS m) AS s", "1.5D AS more", "id")
    with pytest.raises(InputError, match=r"Iceberg table: .*lacks s.m.*more.*merge_schema"):
        make_sink().write(wider, epoch="b")
    make_sink(merge_schema=True).write(wider, epoch="b")
    assert rows() == sorted(
        [
            {"id": 0, "s": {"n": 0, "m": None}, "more": None},
            {"id": 1, "s": {"n": 1, "m": "x"}, "more": 1.5},
        ],
        key=str,
    )
    with pytest.raises(InputError, match=r"id is int64 in the table, and string here"):
        make_sink().write(spark.range(2).selectExpr("cast(id AS string) AS id"), epoch="c")
    make_sink().write(spark.range(2).selectExpr("cast(id AS int) AS ID"), epoch="d")
    assert len(rows()) == 4
    with opened(catalog).update_schema() as change:
        change.rename_column("more", "most")
        change.delete_column("s")
    make_sink().write(spark.range(9, 10).selectExpr("id", "2.5D AS most"), epoch="e")
    assert {"id": 9, "most": 2.5} in rows()
    assert {"id": 1, "most": 1.5} in rows()


def test_a_driver_that_ends_before_open_adds_no_column(spark, make_sink, catalog):
    def die() -> None:
        raise Died

    make_sink().write(spark.range(1), epoch="a")
    wider = spark.range(1).selectExpr("id", "'x' AS more")
    with failpoints.armed(Step.BEGIN, die), pytest.raises(Died):
        make_sink(merge_schema=True).write(wider, epoch="b")
    assert opened(catalog).schema().column_names == ["id"]


def test_comments_are_kept(spark, make_sink, catalog):
    df = spark.sql("SELECT 1 AS id").withMetadata("id", {"comment": "the key"})
    make_sink().write(df, epoch="a")
    more = df.withColumn("n", df.id).withMetadata("n", {"comment": "new"})
    make_sink(merge_schema=True).write(more, epoch="b")
    assert [one.doc for one in opened(catalog).schema().fields] == ["the key", "new"]


def test_required_columns_refuse_nulls_by_name(spark, make_sink, catalog):
    make_sink().write(spark.range(1).selectExpr("id", "'x' AS name"), epoch="a")
    with opened(catalog).update_schema(allow_incompatible_changes=True) as change:
        change.update_column("name", required=True)
    df = spark.range(2).selectExpr("id", "CAST(NULL AS STRING) AS name")
    with pytest.raises(InputError, match=r"'name' takes no nulls, and has \d here"):
        make_sink().write(df, epoch="b")
    make_sink().write(spark.range(2).selectExpr("id", "'y' AS name"), epoch="b")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("null AS s", "'s' has no type"),
        ("INTERVAL '1' DAY AS s", "'s' is INTERVAL DAY, which IcebergSink does not write"),
        ("parse_json('1') AS s", "'s' is a VARIANT, which IcebergSink does not write"),
    ],
)
def test_types_that_iceberg_lacks_are_refused_by_name(spark, make_sink, column, says):
    with pytest.raises(InputError, match=says):
        make_sink().write(spark.range(1).selectExpr("id", column), epoch="a")


def test_a_branch_gets_the_rows_and_main_does_not(spark, make_sink, rows, catalog):
    df = spark.range(3).selectExpr("id")
    make_sink().write(df, epoch="a")
    with pytest.raises(ConfigurationError, match=r"has no branch audit.*CREATE BRANCH"):
        make_sink(branch="audit").write(df, epoch="b")
    table = opened(catalog)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    make_sink(branch="audit").write(df, epoch="b")
    assert (len(rows()), len(rows("audit"))) == (3, 6)
    make_sink().write(df, epoch="c")
    assert (len(rows()), len(rows("audit"))) == (6, 6)


def test_a_table_that_was_recreated_is_refused(spark, make_sink, catalog, rows):
    df = spark.range(3).selectExpr("id")
    make_sink().write(df, epoch="a")
    load_catalog("default", **catalog).drop_table(NAME)
    with pytest.raises(
        NewCluster, match=r"There is no Iceberg table default\.shop\.orders.* catalog and table \("
    ):
        make_sink().write(df, epoch="b")
    make_sink(on_new_cluster="continue").write(df, epoch="b")
    assert len(rows()) == 3


def test_several_files_of_a_task_are_closed_by_size(spark, make_sink, catalog, rows):
    df = spark.range(0, 200_000, 1, 1).selectExpr("id", "sha2(cast(id AS string), 256) AS text")
    make_sink(file_bytes=1024 * 1024).write(df, epoch="a")
    assert opened(catalog).inspect.files().num_rows > 3
    assert len(rows()) == 200_000


def test_an_epoch_in_two_tables_is_finished_by_the_recovery_tool_without_spark(
    spark, make_sink, rows, tmp_path, name, catalog
):
    from deltalake import DeltaTable

    path, log = str(tmp_path / "delta"), str(tmp_path / "log")
    delta = DeltaSink(sink_id=name, table=path, commit_log=log)
    both = all_or_nothing(delta, make_sink())
    df = spark.range(10).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: both.write(df, epoch="a"))
    assert (rows(), DeltaTable(path).to_pyarrow_table().num_rows) == ([], 0)
    code = "import sys; sys.modules['pyspark'] = None\nfrom eos.recovery.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "resolve", name, "--commit-log", log, "--apply", "--yes"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (len(rows()), DeltaTable(path).to_pyarrow_table().num_rows) == (10, 10)


@pytest.mark.parametrize("place", [Step.PREPARE, EndingStep.PART], ids=lambda place: place.label)
def test_an_epoch_in_a_topic_and_a_table_is_finished_in_both(
    spark, make_sink, rows, pulsar_standalone, tmp_path, name, place
):
    log = str(tmp_path / "log")
    topic = PulsarSink(
        sink_id=name,
        service_url=pulsar_standalone.service_url,
        topic=name,
        commit_log=log,
        create_topics=True,
        schema="json",
    )
    both = all_or_nothing(topic, make_sink())
    df = spark.range(10).selectExpr("id")
    dies_behind(place, lambda: both.write(df, epoch="a"))
    assert rows() == []
    both.close()
    (last,) = resolve(name, commit_log=log)
    assert last.state == "COMMITTED"
    assert len(rows()) == 10


def test_credentials_are_shown_nowhere(make_sink, tmp_path):
    secret = "hunter2-hunter2"
    uri = f"postgresql+psycopg2://eos:{secret}@127.0.0.1:1/catalog"
    catalog = {"type": "sql", "uri": uri, "s3.secret-access-key": secret, "warehouse": "s3://b/w"}
    sink = make_sink(catalog=catalog)
    (output,) = sink.outputs()
    claim = output.participant.claimed.__self__.table.address.recorded
    assert claim == {"type": "sql", "warehouse": "s3://b/w"}
    for shown in (repr(sink), repr(sink.options), repr(output.participant.table)):
        assert secret not in shown
    with pytest.raises(Exception, match="opening its catalog failed") as caught:
        output.traces()
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "orders"}, "namespace and a name"),
        ({"partition_by": "day(ts)"}, "must be a list"),
        ({"partition_by": ["weeks(ts)"]}, "not a transform"),
        ({"catalog_name": "a.b"}, "catalog_name"),
        ({"compression": "lz4"}, "compression"),
    ],
)
def test_wrong_options_are_refused_by_name(make_sink, options, says):
    with pytest.raises(ConfigurationError, match=says):
        make_sink(**options)


def test_without_pyiceberg_the_extra_is_named():
    code = (
        "import sys, importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'pyiceberg' else real(name, *a)\n"
        "sys.modules['pyiceberg'] = None\n"
        "from eos import IcebergSink, DeltaSink\n"
        "from eos.errors import ConfigurationError\n"
        "try: IcebergSink(sink_id='a', table='a.b', commit_log='/tmp/x')\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pyiceberg[sql-sqlite]" in done.stdout
