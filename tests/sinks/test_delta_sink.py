"""DeltaSink through real Spark: each epoch is one version of the table, or none, for readers."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.errors import PySparkException

from eos import DeltaSink, all_or_nothing, failpoints
from eos.commit_log import CommitLog
from eos.committer import OpenAttempt
from eos.delta.folder import Folder
from eos.delta.participant import DeltaParticipant
from eos.errors import (
    CommitLogError,
    ConfigurationError,
    InDoubt,
    InputError,
    NewCluster,
    NewLineage,
    Retriable,
)
from eos.recovery.decide import Refused, decide
from eos.recovery.resolve import resolve
from eos.sinks import delta_sink as delta_sink_module
from eos.sinks._stage_task import StageTask
from eos.steps import AnyStep, EndingStep, Step
from tests.support.spark_releases import (
    JobFailed,
    needs_calendar_intervals,
    needs_collations,
    needs_empty_structs,
    needs_geospatial,
    needs_time,
    needs_variant,
)


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def table(tmp_path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def make_sink(tmp_path, table, name):
    def make(**options) -> DeltaSink:
        return DeltaSink(
            **{"sink_id": name, "table": table, "commit_log": str(tmp_path / "log")} | options
        )

    return make


@pytest.fixture
def states(tmp_path, name):
    log = lambda: CommitLog.open_read_only(tmp_path / "log", name).records()  # noqa: E731
    return lambda: [record.state.value for record in log() if record.epoch]


def rows(table: str) -> list[dict]:
    read = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(read, key=lambda row: str(row))


def files(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "table").rglob("*.parquet")}


def dies_behind(place: AnyStep, run) -> None:
    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        with failpoints.armed(place, die), pytest.raises(Died):
            run()


def test_an_epoch_is_one_version_and_a_rerun_of_the_key_is_skipped(spark, make_sink, table, states):
    df = spark.range(100).selectExpr("id", "cast(id AS string) AS text")
    first = make_sink().write(df, epoch="a")
    version = DeltaTable(table).version()
    again = make_sink().write(df, epoch="a")
    assert (first.status, first.records, again.status) == ("written", 100, "skipped")
    assert DeltaTable(table).version() == version == 1
    assert rows(table) == sorted(
        [{"id": n, "text": str(n)} for n in range(100)], key=lambda row: str(row)
    )
    assert states() == ["OPEN", "PREPARED", "COMMITTED"]


@pytest.mark.parametrize(
    "place",
    [Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.PREPARE, EndingStep.PART, Step.FINISH],
    ids=lambda place: place.label,
)
def test_a_death_at_any_step_loses_and_duplicates_no_rows(
    spark, make_sink, table, name, tmp_path, place
):
    df = spark.range(10).selectExpr("id")
    make_sink().write(df, epoch="a")
    dies_behind(place, lambda: make_sink().write(df, epoch="b"))
    resolve(name, commit_log=tmp_path / "log")
    assert len(rows(table)) in (10, 20)
    assert make_sink().write(df, epoch="b").records == 10
    assert [row["id"] for row in rows(table)] == sorted([*range(10), *range(10)])


def test_recovery_commits_a_prepared_epoch_without_spark(spark, make_sink, table, name, tmp_path):
    df = spark.range(10).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="a"))
    assert rows(table) == []
    (last,) = resolve(name, commit_log=tmp_path / "log")
    assert last.state == "COMMITTED"
    assert len(rows(table)) == 10
    assert resolve(name, commit_log=tmp_path / "log") == []


def test_recovery_deletes_the_files_of_an_unprepared_epoch(
    spark, make_sink, table, tmp_path, states
):
    df = spark.range(10).selectExpr("id", "cast(raise_error('order 7') AS string) AS text")
    with pytest.raises(JobFailed, match="order 7"):
        make_sink().write(df, epoch="a")
    good = spark.range(10).selectExpr("id", "'x' AS text")
    sink = make_sink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeltaParticipant, "prepare", lambda *_: _raise("broken"))
        with pytest.raises(ValueError, match="broken"):
            sink.write(good, epoch="b")
    assert files(tmp_path) == set()
    assert states() == ["OPEN", "ABORTING", "ABORTED"] * 2
    assert sink.write(good, epoch="b").records == 10


def _raise(text: str) -> None:
    raise ValueError(text)


def test_partitions_nulls_and_types_are_kept(spark, make_sink, table):
    df = spark.sql(
        "SELECT * FROM VALUES (1, 'a/b', DATE '2026-11-20', 1.5, true, array(1, 2), "
        "TIMESTAMP '2026-11-20 12:00:00.123456', CAST(12.34 AS DECIMAL(10,2))), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL) "
        "AS t(id, name, day, x, flag, list, at, money)"
    )
    make_sink(partition_by=["day", "name"]).write(df, epoch="a")
    assert DeltaTable(table).metadata().partition_columns == ["day", "name"]
    wanted = df.toPandas().astype(object).where(lambda frame: frame.notna(), None)
    found = rows(table)
    assert [row["name"] for row in found] == ["a/b", None]
    assert [str(row["day"]) for row in found] == ["2026-11-20", "None"]
    assert found[0]["money"] == wanted["money"][0]
    assert found[0]["list"] == [1, 2]
    assert found[0]["at"].astimezone().replace(tzinfo=None) == wanted["at"][0].to_pydatetime()
    assert {key: found[1][key] for key in ("x", "flag", "list", "at", "money")} == dict.fromkeys(
        ("x", "flag", "list", "at", "money")
    )


def test_columns_are_compared_by_name_and_merged_on_request(spark, make_sink, table):
    make_sink().write(spark.range(2).selectExpr("id", "'x' AS text"), epoch="a")
    wider = spark.range(2).selectExpr("id", "'y' AS text", "1.5D AS more")
    with pytest.raises(InputError, match=r"lacks more.*merge_schema"):
        make_sink().write(wider, epoch="b")
    make_sink(merge_schema=True).write(wider, epoch="b")
    assert [row["more"] for row in rows(table)] == [None, 1.5, None, 1.5] or len(rows(table)) == 4
    with pytest.raises(InputError, match=r"id is int64 in the table, and string here"):
        make_sink().write(spark.range(2).selectExpr("cast(id AS string) AS id"), epoch="c")
    make_sink().write(spark.range(2).selectExpr("cast(id AS int) AS id"), epoch="d")
    assert len(rows(table)) == 6


def test_fields_inside_of_structs_are_merged_on_request(spark, make_sink, table):
    one = (
        "id",
        "struct(id AS n) AS s",
        "array(struct(id AS n)) AS l",
        "map(id, struct(id AS n)) AS m",
    )
    more = [text.replace("AS n)", "AS n, 'x' AS more)") for text in one]
    make_sink().write(spark.range(1).selectExpr(*one), epoch="a")
    lacks = r"lacks s\.more \(string\), l\.element\.more \(string\), m\.value\.more \(string\)"
    with pytest.raises(InputError, match=f"{lacks}.*merge_schema") as caught:
        make_sink().write(spark.range(1).selectExpr(*more), epoch="b")
    assert "Cast" not in str(caught.value)
    make_sink(merge_schema=True).write(spark.range(1, 2).selectExpr(*more), epoch="b")
    make_sink().write(spark.range(2, 3).selectExpr(*one), epoch="c")
    expected = [
        {"id": n, "s": inner, "l": [inner], "m": [(n, inner)]}
        for n, x in enumerate([None, "x", None])
        for inner in [{"n": n, "more": x}]
    ]
    assert rows(table) == expected
    wider = spark.range(1).selectExpr("id", "struct('7' AS n) AS s")
    with pytest.raises(InputError, match=r"s\.n is int64 in the table, and string here.*Cast"):
        make_sink(merge_schema=True).write(wider, epoch="d")


def test_renamed_columns_are_logged_or_refused(spark, make_sink, table, caplog):
    old, new = (
        spark.range(1).selectExpr("id", "'x' AS a"),
        spark.range(1).selectExpr("id", "'x' AS b"),
    )
    make_sink().write(old, epoch="a")
    strict = make_sink(merge_schema=True, on_changed_columns="refuse")
    for df, what in [(new, "new: b; missing: a"), (old.select("id"), "missing: a")]:
        with pytest.raises(InputError, match=f"differ from .* {table}: {what}.*continue"):
            strict.write(df, epoch="b")
    strict.write(old.select("a", "id"), epoch="b")
    caplog.set_level("INFO", "eos.sinks")
    sink = make_sink(merge_schema=True)
    sink.write(new, epoch="c")
    sink.write(new, epoch="d")
    said = [one for one in caplog.records if "differ from those of table" in one.getMessage()]
    assert [one.levelname for one in said] == ["WARNING"]
    assert len(rows(table)) == 4


def test_wrong_columns_are_refused_before_an_attempt_begins(spark, make_sink, table, states):
    make_sink().write(spark.range(1).selectExpr("id"), epoch="a")
    before = states()
    for column in ("id AS other", "'x' AS id"):
        with pytest.raises(InputError, match="don't fit the Delta table"):
            make_sink().write(spark.range(1).selectExpr(column), epoch="b")
    assert set(states()[len(before) :]) <= {"FAILED"}


def test_a_column_without_a_type_is_refused(spark, make_sink):
    with pytest.raises(InputError, match=r"'nothing' has no type.*Cast"):
        make_sink().write(spark.range(2).selectExpr("id", "NULL AS nothing"), epoch="a")


def test_an_empty_epoch_does_not_change_the_table(spark, make_sink, table, states):
    make_sink().write(spark.range(0).selectExpr("id"), epoch="a")
    assert DeltaTable(table).version() == 0
    assert states() == ["OPEN", "ABORTING", "EMPTY"]


def test_rows_of_a_rerun_task_are_written_once(spark, make_sink, table, tmp_path):
    marker = tmp_path / "ran"

    def flaky(batches):
        from pyspark import TaskContext

        rows = list(batches)
        if TaskContext.get().partitionId() == 1 and not marker.exists():
            marker.write_text("")
            raise RuntimeError("lost")
        yield from rows

    df = spark.range(0, 100, 1, 4).mapInArrow(flaky, "id long")
    with_retries = make_sink(max_attempts=2)
    try:
        with_retries.write(df, epoch="a")
    except PySparkException:  # local mode does not repeat tasks
        with_retries.write(df, epoch="a")
    assert sorted(row["id"] for row in rows(table)) == list(range(100))


def test_a_stream_and_its_restart(source, make_sink, table, tmp_path):
    source.add("a", "b")
    source.run(make_sink(), tmp_path / "checkpoint")
    source.add("c")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert sorted(row["value"] for row in rows(table)) == ["a", "b", "c"]


def test_other_writers_may_write_at_the_same_time(spark, make_sink, table):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    write_deltalake(table, DeltaTable(table).to_pyarrow_table(), mode="append")
    DeltaTable(table).optimize.compact()
    make_sink().write(df, epoch="b")
    assert len(rows(table)) == 15


def test_a_recreated_table_is_refused(spark, make_sink, table):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    shutil.rmtree(table)
    with pytest.raises(
        NewCluster, match=r"There is no Delta table at.*right path \(table\).*on_new_c"
    ):
        make_sink().write(df, epoch="b")
    assert make_sink(on_new_cluster="continue").write(df, epoch="b").records == 5
    assert len(rows(table)) == 5


def test_a_replaced_table_is_refused(spark, make_sink, table):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    shutil.rmtree(table)
    df.toPandas().pipe(lambda frame: write_deltalake(table, frame))
    with pytest.raises(NewCluster, match=r"dropped and recreated.*on_new_cluster"):
        make_sink().write(df, epoch="b")


def test_an_epoch_whose_staged_files_are_gone_runs_again(spark, make_sink, table, name, tmp_path):
    df = spark.range(5).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="a"))
    DeltaTable(table).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )
    (last,) = resolve(name, commit_log=tmp_path / "log")
    assert (last.state, "gone" in str(last.reason)) == ("ABORTED", True)
    make_sink().write(df, epoch="a")
    assert len(rows(table)) == 5


def test_a_log_that_was_replaced_by_an_older_copy_is_refused(
    spark, make_sink, table, name, tmp_path
):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    shutil.copytree(tmp_path / "log", tmp_path / "older")
    make_sink().write(df, epoch="b")
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "older", tmp_path / "log")
    with pytest.raises(CommitLogError, match=r"ends before .*version 2.*older copy"):
        make_sink().write(df, epoch="b")
    assert len(rows(table)) == 10


def test_a_commit_to_an_unreadable_table_is_in_doubt_until_it_is_readable(
    spark, make_sink, table, name, tmp_path
):
    df = spark.range(5).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="a"))
    log_folder = tmp_path / "table" / "_delta_log"
    log_folder.rename(tmp_path / "hidden")
    with pytest.raises(InDoubt):
        resolve(name, commit_log=tmp_path / "log", deadline_s=1)
    (tmp_path / "hidden").rename(log_folder)
    (last,) = resolve(name, commit_log=tmp_path / "log")
    assert last.state == "COMMITTED"
    assert len(rows(table)) == 5


def test_a_second_call_with_a_key_is_skipped(spark, make_sink, table):
    df = spark.range(5).selectExpr("id")
    sink = make_sink()
    sink.write(df, epoch="a")
    assert sink.write(df, epoch="a").status == "skipped"
    assert len(rows(table)) == 5


def test_a_skipped_key_warns_of_a_table_that_was_added_later(spark, make_sink, table, caplog):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    assert make_sink().write(df, epoch="a").status == "skipped"
    assert "lacks its rows" not in caplog.text
    later = f"{table}-later"
    assert make_sink(table=later).write(df, epoch="a").status == "skipped"
    (said,) = [text for text in caplog.messages if "lacks its rows" in text]
    assert said.startswith(f"Epoch a was written earlier without {later}, which")


def test_a_wrong_option_is_refused_at_once(make_sink):
    with pytest.raises(ConfigurationError, match="'table'"):
        make_sink(table="relative/path")
    with pytest.raises(ConfigurationError, match="no option 'partitions'"):
        make_sink(partitions=["a"])


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("null AS s", "'s' has no type"),
        ("array(null) AS s", "'s.element' has no type"),
        pytest.param("struct() AS s", "'s' is a struct without fields", marks=needs_empty_structs),
        ("array(struct()) AS s", "'s.element' is a struct without fields"),
        pytest.param("parse_json('1') AS s", "'s' is a VARIANT", marks=needs_variant),
        pytest.param(
            "struct(parse_json('1') AS t) AS s", "'s.t' is a VARIANT", marks=needs_variant
        ),
        ("array(INTERVAL '1' DAY) AS s", r"'s.element' is INTERVAL DAY.*does not write"),
        ("INTERVAL '1' YEAR AS s", "'s' is INTERVAL YEAR"),
        pytest.param("make_interval(1) AS s", "'s' is INTERVAL", marks=needs_calendar_intervals),
        pytest.param(
            "TIME'12:00:00' AS s", r"'s' is TIME\(6\).*CAST\(s AS STRING\)", marks=needs_time
        ),
        pytest.param(
            "ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040') AS s",
            r"'s' is GEOMETRY\(0\).*ST_AsBinary\(s\)",
            marks=needs_geospatial,
        ),
        pytest.param(
            "map(1, ST_GeogFromWKB(X'0101000000000000000000F03F0000000000000040')) AS s",
            r"'s.value' is GEOGRAPHY\(4326\).*ST_AsBinary\(s.value\)",
            marks=needs_geospatial,
        ),
        pytest.param(
            "'a' COLLATE UNICODE_CI AS s",
            r"'s' is string collate UNICODE_CI.*CAST\(s AS STRING\)",
            marks=needs_collations,
        ),
        ("struct(1 AS a, 2 AS A) AS s", r"s\.a is there twice"),
        ("1 AS `a b`", "'a b' has a name that Spark's Delta writer refuses"),
        ("struct(1 AS `a,b`) AS s", "'s.a,b' has a name that Spark's Delta writer refuses"),
        ("id AS ID", "id is there twice"),
    ],
)
def test_columns_of_unsupported_types_are_refused(spark, spark_conf, make_sink, column, says):
    spark_conf("spark.sql.geospatial.enabled", "true")  # in 4.1 it is not
    with pytest.raises((InputError, ConfigurationError), match=says):
        make_sink().write(spark.range(1).selectExpr("id", column), epoch="a")


def test_a_vector_is_refused_and_its_array_is_written(spark, make_sink, table):
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import Vectors
    from pyspark.sql.functions import when

    df = spark.createDataFrame([(1, Vectors.dense([1.0, 2.0])), (2, None)], ["id", "v"])
    with pytest.raises(InputError, match=r"'v' has a user-defined type \(VectorUDT\).*to_array"):
        make_sink().write(df, epoch="a")
    numbers = when(df.v.isNotNull(), vector_to_array("v")).alias("v")
    make_sink().write(df.select("id", numbers), epoch="a")
    assert rows(table) == [{"id": 1, "v": [1.0, 2.0]}, {"id": 2, "v": None}]


def test_rows_without_columns_are_refused(spark, make_sink):
    with pytest.raises(InputError, match="no columns"):
        make_sink().write(spark.range(1).select(), epoch="a")


def test_odd_column_names_are_written(spark, make_sink, table):
    names = ["a.b", "c-d", "é", "x`y", "", "a/b%20", "'\""]
    df = spark.range(3).selectExpr(
        *(f"id + {at} AS `{name.replace('`', '``')}`" for at, name in enumerate(names))
    )
    make_sink(partition_by=["a.b"]).write(df, epoch="a")
    make_sink().write(
        df.select(*(f"`{name.replace('`', '``')}`" for name in names[::-1])), epoch="b"
    )
    expected = [{name: at + n for at, name in enumerate(names)} for n in range(3)]
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    key = lambda row: row["a.b"]  # noqa: E731
    assert sorted(found, key=key) == sorted(expected * 2, key=key)


def test_an_existing_column_name_that_spark_refuses_is_written(spark, make_sink, table):
    write_deltalake(table, pa.table({"c d": [1], "(z);": [2]}))
    make_sink().write(spark.range(1).selectExpr("id AS `c d`", "id AS `(z);`"), epoch="a")
    assert rows(table) == [{"c d": 0, "(z);": 0}, {"c d": 1, "(z);": 2}]


def test_null_structs_with_not_null_fields_are_written(spark, make_sink, table):
    """Spark calls a field NOT NULL if it is made of such columns, even in a nullable struct."""
    strict = spark.range(4).selectExpr(
        "id",
        "named_struct('n', id) AS whole",
        "CASE WHEN id > 1 THEN named_struct('n', id, 'in', named_struct('m', 'x')) END AS s",
        "array(CASE WHEN id > 1 THEN named_struct('n', id) END) AS l",
        "map('a', CASE WHEN id > 1 THEN named_struct('n', array(id)) END) AS m",
    )
    right = spark.range(2, 4).selectExpr("id", "named_struct('k', id, 'l', array(id)) AS r")
    make_sink().write(strict.join(right, "id", "left"), epoch="a")
    kinds = json.loads(DeltaTable(table).schema().to_json())
    assert "false" not in json.dumps(kinds)
    make_sink().write(spark.range(4, 5).selectExpr("id"), epoch="b")
    found = {row.pop("id"): row for row in rows(table)}
    none = {"whole": None, "s": None, "l": None, "m": None, "r": None}
    for n in range(4):
        some = n > 1
        assert found[n] == {
            "whole": {"n": n},
            "s": {"n": n, "in": {"m": "x"}} if some else None,
            "l": [{"n": n} if some else None],
            "m": [("a", {"n": [n]} if some else None)],
            "r": {"k": n, "l": [n]} if some else None,
        }
    assert found[4] == none


def test_a_not_null_field_accepts_null_structs_and_refuses_nulls_by_name(spark, make_sink, table):
    inner = pa.struct([pa.field("n", pa.int64(), nullable=False), ("t", pa.string())])
    item = pa.field("element", inner, nullable=False)
    columns = pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(item))])
    DeltaTable.create(table, Schema.from_arrow(columns))
    make_sink().write(
        spark.range(2)
        .selectExpr(
            "id",
            "IF(id = 0, NULL, named_struct('t', 'x', 'n', id)) AS s",
            "IF(id = 0, NULL, array(named_struct('n', id, 't', NULL))) AS l",
        )
        .selectExpr("id", "s", "CAST(l AS ARRAY<STRUCT<n BIGINT, t STRING>>) AS l"),
        epoch="a",
    )
    make_sink().write(spark.range(2, 3).selectExpr("id"), epoch="b")
    for column, path in [
        ("named_struct('n', nullif(id, 1), 't', 'x') AS s", r"s\.n"),
        ("array(named_struct('n', id, 't', 'x'), NULL) AS l", r"l\.element"),
    ]:
        with pytest.raises(InputError, match=f"'{path}' takes no nulls, and has"):
            make_sink().write(spark.range(1, 3).selectExpr("id", column), epoch="c")
    with pytest.raises(InputError, match=r"s\.n takes no nulls, and is missing here"):
        make_sink().write(spark.range(1).selectExpr("id", "struct('x' AS t) AS s"), epoch="c")
    assert rows(table) == [
        {"id": 0, "s": None, "l": None},
        {"id": 1, "s": {"n": 1, "t": "x"}, "l": [{"n": 1, "t": None}]},
        {"id": 2, "s": None, "l": None},
    ]


@pytest.mark.parametrize("place", ["{}/log", "{}/log/t", "{}", "file://{}/log/t", "{}/link/t"])
def test_a_table_and_a_log_in_one_folder_are_refused(make_sink, tmp_path, place):
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with pytest.raises(ConfigurationError, match=r"^table .* must be in separate folders"):
        make_sink(table=place.format(tmp_path))


def test_a_table_partitioned_by_all_of_its_columns_is_refused(spark, make_sink, table):
    """Its files would have no columns, and so no rows for most readers."""
    df = spark.range(3).selectExpr("id AS a", "id AS b")
    with pytest.raises(ConfigurationError, match="partitioned by all of its columns"):
        make_sink(partition_by=["a", "b"]).write(df, epoch="a")
    empty = pa.table({"a": pa.array([], pa.int64())})
    write_deltalake(table, empty, partition_by=["a"])
    with pytest.raises(ConfigurationError, match="partitioned by all of its columns"):
        make_sink().write(df.select("a"), epoch="a")
    make_sink(merge_schema=True).write(df, epoch="a")
    assert len(rows(table)) == 3


@pytest.mark.parametrize("is_live", [True, False])
def test_an_older_copy_of_the_table_is_refused(
    spark, make_sink, table, tmp_path, name, recovery, is_live
):
    df = spark.range(5).selectExpr("id")
    sink = make_sink()
    sink.write(df, epoch="a")
    shutil.copytree(table, tmp_path / "older")
    sink.write(df, epoch="b")
    shutil.move(table, tmp_path / "newest")
    shutil.copytree(tmp_path / "older", table)
    with pytest.raises(NewCluster, match="an older copy"):
        (sink if is_live else make_sink()).write(df, epoch="c")
    ended = recovery("verify", "--commit-log", tmp_path / "log")
    assert (ended.code, "is missing" in ended.out) == (1, True)
    assert make_sink(on_new_cluster="continue").write(df, epoch="d").records == 5
    assert len(rows(table)) == 10
    assert make_sink().write(df, epoch="e").records == 5


def test_recovery_commits_nothing_to_an_older_copy(
    spark, make_sink, table, tmp_path, name, recovery
):
    """With one more commit, its missing epoch would never be noticed."""
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    shutil.copytree(table, tmp_path / "older")
    make_sink().write(df, epoch="b")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="c"))
    shutil.move(table, tmp_path / "newest")
    shutil.copytree(tmp_path / "older", table)
    log = ("--commit-log", tmp_path / "log")
    ended = recovery("resolve", *log, "--apply", "--yes")
    assert (ended.code, 'on_new_cluster="continue"' in ended.out + ended.err) == (1, True)
    decided = ("--epoch", "c", "--as", "committed", "--because", "I know", "--apply", "--yes")
    assert recovery("decide", name, *log, *decided).code != 0
    assert len(rows(table)) == 5
    shutil.rmtree(table)
    shutil.move(tmp_path / "newest", table)
    assert recovery("resolve", *log, "--apply", "--yes").code == 0
    assert len(rows(table)) == 15


def test_a_constraint_added_while_a_sink_runs_is_noticed(spark, make_sink, table):
    sink = make_sink()
    sink.write(spark.range(5).selectExpr("id"), epoch="a")
    DeltaTable(table).alter.add_constraint({"small": "id < 1000"})
    with pytest.raises(ConfigurationError, match="check constraint small"):
        sink.write(spark.range(5000, 5005).selectExpr("id"), epoch="b")
    assert len(rows(table)) == 5


def test_a_file_as_table_and_a_partition_column_as_text_are_refused(
    spark, make_sink, table, tmp_path
):
    (tmp_path / "table").write_text("x")
    with pytest.raises(ConfigurationError, match="it is a file"):
        make_sink().write(spark.range(1), epoch="a")
    with pytest.raises(ConfigurationError, match=r"a list of names: \['id'\]"):
        make_sink(partition_by="id")


def test_a_storage_that_fails_in_a_task_is_named_in_one_line(
    spark, make_sink, table, tmp_path, monkeypatch
):
    """Like a full disk on the executors."""
    make_sink().write(spark.range(1), epoch="a")
    task = delta_sink_module.StageTask
    monkeypatch.setattr(delta_sink_module, "StageTask", lambda *args: Full(task(*args)))
    with pytest.raises(Retriable, match="No space left on device") as caught:
        make_sink(max_attempts=1).write(spark.range(5), epoch="b")
    assert "Traceback" not in str(caught.value)


@dataclass(frozen=True)
class Full:
    """A folder on a full disk."""

    task: StageTask

    def __call__(self, batches):
        def full(*_):
            raise OSError(28, "No space left on device")

        real, Folder.create = Folder.create, full
        try:
            yield from self.task(batches)
        finally:  # Spark's worker runs other tests, too
            Folder.create = real


@pytest.mark.parametrize("verdict", ["committed", "aborted"])
def test_decide_ends_an_epoch_of_a_lost_table(spark, make_sink, table, name, tmp_path, verdict):
    df = spark.range(5).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="a"))
    choice = {"epoch": "a", "verdict": verdict, "because": "dropped", "by": "ada"}
    with pytest.raises(Refused, match="`resolve` ends it"):
        decide(name, commit_log=tmp_path / "log", **(choice | {"verdict": "committed"}))
    shutil.rmtree(table)
    with pytest.raises(InDoubt, match=r"table does not exist.*Dropping a table deletes its staged"):
        resolve(name, commit_log=tmp_path / "log", deadline_s=1)
    decide(name, commit_log=tmp_path / "log", **choice)
    again = make_sink(on_new_cluster="continue")
    assert again.write(df, epoch="b").records == 5
    assert again.write(df, epoch="a").status == ("skipped" if verdict == "committed" else "written")


@pytest.mark.parametrize("verdict", ["committed", "aborted"])
def test_an_unreachable_output_is_waited_for_until_it_is_abandoned(
    spark, make_sink, table, name, tmp_path, verdict
):
    df = spark.range(5).selectExpr("id")
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="a"))
    (first,) = (tmp_path / "table" / "_delta_log").glob("*.json")
    text = first.read_bytes()
    first.write_bytes(b"{ damaged")
    log = {"commit_log": tmp_path / "log"}
    choice = log | {"epoch": "a", "verdict": verdict, "because": "its disk is broken", "by": "ada"}
    with pytest.raises(InDoubt, match=f"{table} does not answer.*--give-up {table}"):
        decide(name, **choice)
    with pytest.raises(
        ConfigurationError, match=f"Output elsewhere does not exist.*Its outputs: {table}"
    ):
        decide(name, **choice, give_up=["elsewhere"])
    decide(name, **choice, give_up=[table])
    first.write_bytes(text)
    status = make_sink().write(df, epoch="a").status
    assert status == ("skipped" if verdict == "committed" else "written")
    assert len(rows(table)) == (0 if verdict == "committed" else 5)


def test_an_epoch_that_can_never_be_committed_is_abandoned_and_written_again(
    spark, make_sink, table, name, tmp_path
):
    """Another writer has added a column of the same name with another type."""
    make_sink().write(spark.range(1).selectExpr("id"), epoch="0")
    wider = spark.range(5).selectExpr("id", "'x' AS n")
    dies_behind(Step.PREPARE, lambda: make_sink(merge_schema=True).write(wider, epoch="a"))
    write_deltalake(table, pa.table({"id": [7], "n": [1]}), mode="append", schema_mode="merge")
    with pytest.raises(InDoubt):
        resolve(name, commit_log=tmp_path / "log", deadline_s=1)
    decide(
        name,
        epoch="a",
        verdict="aborted",
        because="n is a number now",
        by="ada",
        commit_log=tmp_path / "log",
    )
    assert make_sink().write(spark.range(5).selectExpr("id", "id AS n"), epoch="a").records == 5
    assert len(rows(table)) == 7
    assert len(files(tmp_path)) == len(DeltaTable(table).file_uris())


def test_a_committed_epoch_can_not_be_decided_as_aborted(spark, make_sink, table, name, tmp_path):
    df = spark.range(5).selectExpr("id")
    dies_behind(EndingStep.PART, lambda: make_sink().write(df, epoch="a"))
    with pytest.raises(Refused, match="it is committed"):
        decide(
            name, epoch="a", verdict="aborted", because="x", by="ada", commit_log=tmp_path / "log"
        )
    assert len(rows(table)) == 5


def test_a_sink_without_its_log_is_refused(spark, make_sink, table, tmp_path):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(NewLineage, match=r"has written before: table .* has rows of it"):
        make_sink().write(df, epoch="a")
    with pytest.raises(NewLineage):
        make_sink(commit_log=str(tmp_path / "another log")).write(df, epoch="a")
    assert len(rows(table)) == 5
    make_sink(on_new_query="continue").write(df, epoch="b")
    assert len(rows(table)) == 10


def test_changing_the_table_and_back_is_not_taken_for_an_older_log(
    spark, make_sink, table, tmp_path
):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    make_sink().write(df, epoch="b")
    moved = str(tmp_path / "moved")
    shutil.move(table, moved)
    make_sink(table=moved).write(df, epoch="c")
    other = str(tmp_path / "other")
    make_sink(table=other).write(df, epoch="d")
    make_sink(table=moved).write(df, epoch="e")
    assert (len(rows(moved)), len(rows(other))) == (20, 5)


def test_two_spellings_of_a_table_are_the_same_table(spark, make_sink, table, name, tmp_path):
    link = tmp_path / "link"
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    link.symlink_to(table)
    make_sink(table=str(link)).write(df, epoch="b")
    assert len(rows(table)) == 10
    twice = all_or_nothing(make_sink(), make_sink(table=str(link)))
    with pytest.raises(ConfigurationError, match="Two outputs write to the same target"):
        twice.write(df, epoch="c")


def test_a_path_that_delta_misreads_is_refused(make_sink):
    with pytest.raises(ConfigurationError, match="the path contains '%'"):
        make_sink(table="/tmp/a%20b")


def test_a_partition_value_that_deltalake_can_not_read_is_refused(spark, make_sink):
    df = spark.sql("SELECT 1 AS id, CAST(-0.5 AS DECIMAL(5,2)) AS part")
    with pytest.raises(ConfigurationError, match="can't be partitioned by 'part'"):
        make_sink(partition_by=["part"]).write(df, epoch="a")


def test_recovery_handles_a_sink_without_a_topic(spark, make_sink, table, name, tmp_path, recovery):
    df = spark.range(5).selectExpr("id")
    make_sink().write(df, epoch="a")
    log = ("--commit-log", tmp_path / "log")
    verified = recovery("verify", *log)
    assert verified.code == 0
    assert f"1 committed epoch; 5 rows unchanged in delta {table}" in verified.out
    assert "messages" not in verified.out
    assert f"5 rows in delta {table}" in recovery("show", name, *log).out
    for verb in ("status", "show", "doctor"):
        args = (verb, name, *log) if verb == "show" else (verb, *log)
        assert recovery(*args).code == 0, verb
    dies_behind(Step.PREPARE, lambda: make_sink().write(df, epoch="b"))
    shown = recovery("status", *log, "--grace-s", "0")
    assert (shown.code, f"version 2 of table {table}" in shown.out) == (1, True)
    plan = recovery("resolve", name, *log)
    assert f"version 2 of table {table}" in plan.out
    assert recovery("resolve", name, *log, "--apply", "--yes").code == 0
    assert recovery("verify", *log).code == 0
    shutil.copytree(tmp_path / "log", tmp_path / "newest")
    DeltaTable(table).restore(1)
    restored = recovery("verify", *log)
    assert (restored.code, "removed by RESTORE (version 3)" in restored.out) == (1, True)
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "newest", tmp_path / "log")
    make_sink().write(df, epoch="c")
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "newest", tmp_path / "log")
    ended = recovery("verify", *log)
    assert (ended.code, "replaced by an older copy" in ended.out) == (1, True)
    shutil.rmtree(table)
    assert recovery("verify", *log).code == 2
