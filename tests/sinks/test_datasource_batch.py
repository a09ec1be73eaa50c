"""Batch jobs by ``df.write.format("pulsar")``: one transaction each, also after reruns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from eos.sinks._datasource_tasks import TaskReport
from eos.sinks.datasource_writer import PulsarBatchWriter
from eos.task_report import TaskSummary
from tests.support.judge import drain

Save = Callable[..., None]


@pytest.fixture
def save(writer_options) -> Save:
    """Write a DataFrame to this test's topic; further options by name."""

    def save(df: DataFrame, mode: str = "append", **more: Any) -> None:
        df.write.format("pulsar").mode(mode).options(**writer_options | more).save()

    return save


@pytest.fixture
def seen(pulsar_standalone, name) -> Callable[[], list[str]]:
    """The values that a plain client reads."""
    return lambda: sorted(one.value.decode() for one in drain(pulsar_standalone.service_url, name))


@pytest.fixture
def rows(spark) -> DataFrame:
    """Ten rows in four tasks."""
    return spark.range(0, 10, 1, 4).selectExpr("CAST(id AS STRING) AS value")


def states(log) -> list[str]:
    return [record.state.value for record in log() if record.epoch is not None]


def test_a_job_is_one_transaction(save, rows, seen, log):
    save(rows)
    assert seen() == [str(n) for n in range(10)]
    assert states(log) == ["OPEN", "PREPARED", "COMMITTED"]
    assert log()[-1].records == 10


def test_a_rerun_with_the_same_epoch_is_skipped(save, rows, seen, log):
    save(rows, epoch="2026-11-23")
    before = log()
    save(rows, epoch="2026-11-23")
    assert log() == before
    save(rows, epoch="2026-11-24")
    assert seen() == sorted(2 * [str(n) for n in range(10)])


def test_a_rerun_with_a_different_number_of_rows_warns(save, rows, writer_options, seen, caplog):
    save(rows, epoch="a")
    writer = PulsarBatchWriter(writer_options | {"epoch": "a"}, rows.schema, overwrite=False)
    nothing = TaskSummary(0, "", (), ()).to_json()
    for skipped in (10, 3):
        caplog.clear()
        writer.commit([TaskReport(writer._name, None, nothing, skipped=skipped)])
        assert [text for text in caplog.messages if "this job had" in text] == [
            f"epoch a of sink {writer_options['sinkId']} has 10 rows, but this job had 3: its rows "
            "are different, and none of them is written. Write them under another key"
        ][: skipped == 3]
    save(rows.limit(3), epoch="a")
    assert len(seen()) == 10


def test_a_rerun_without_an_epoch_writes_again(save, rows, seen):
    save(rows)
    save(rows)
    assert seen() == sorted(2 * [str(n) for n in range(10)])


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_job_without_rows_is_empty(save, spark, seen, log, partitions):
    none = spark.sql("SELECT 'x' AS value WHERE false")
    save(
        none if partitions == 0 else spark.range(9).selectExpr("'x' AS value").where("value = 'y'")
    )
    assert states(log) == ["OPEN", "ABORTING", "EMPTY"]


def test_a_job_whose_task_fails_writes_no_rows(save, spark, seen, log):
    rows = spark.range(0, 4000, 1, 2).selectExpr(
        "IF(id = 3999, CAST(raise_error('row 3999') AS STRING), CAST(id AS STRING)) AS value"
    )
    with pytest.raises(PySparkException, match="row 3999"):
        save(rows, epoch="1")
    assert states(log)[-2:] == ["ABORTING", "ABORTED"]
    save(spark.sql("SELECT 'again' AS value"), epoch="1")
    assert seen() == ["again"]


def test_an_invalid_row_is_refused_with_its_number(save, spark, seen, log):
    rows = spark.sql("SELECT * FROM VALUES ('a'), (NULL) AS t(value)")
    with pytest.raises(PySparkException, match=r"InputError.*value"):
        save(rows)
    assert states(log)[-2:] == ["ABORTING", "ABORTED"]
    with pytest.raises(PySparkException, match="Column 'value' is missing"):
        save(spark.range(3))


def test_invalid_modes_and_options_are_refused_with_a_fix(save, rows):
    with pytest.raises(PySparkException, match='Use mode\\("append"\\)'):
        save(rows, mode="overwrite")
    with pytest.raises(PySparkException, match="there is no option 'sinkname'"):
        save(rows, sinkName="x")
    with pytest.raises(PySparkException, match="Append"):
        save(rows, mode="errorifexists")


def test_sql_writes_too(spark, rows, writer_options, seen, name):
    rows.createOrReplaceTempView("rows_of_sql")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in writer_options.items())
    view = name.replace("-", "_")
    spark.sql(f"CREATE TEMPORARY VIEW {view} (value STRING) USING pulsar OPTIONS ({options})")
    spark.sql(f"INSERT INTO {view} SELECT value FROM rows_of_sql")
    assert seen() == [str(n) for n in range(10)]


def test_explain_opens_no_transaction(spark, writer_options, log, name, tmp_path):
    options = ", ".join(f"'{key}' = '{value}'" for key, value in writer_options.items())
    view = name.replace("-", "_")
    spark.sql(f"CREATE TEMPORARY VIEW {view} (value STRING) USING pulsar OPTIONS ({options})")
    spark.sql(f"EXPLAIN EXTENDED INSERT INTO {view} VALUES ('a')").collect()
    assert not (tmp_path / "log").exists()


def cancel_when_it_runs(context: SparkContext) -> None:
    while not context.statusTracker().getActiveJobsIds():
        time.sleep(0.1)
    context.cancelAllJobs()


def test_a_cancelled_job_is_aborted(save, spark, spark_conf, seen, log):
    def slow(batches):
        for batch in batches:
            time.sleep(0.5)
            yield batch

    rows = spark.range(0, 40, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    spark_conf("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    cancel = threading.Thread(target=cancel_when_it_runs, args=(spark.sparkContext,))
    cancel.start()
    with pytest.raises(Py4JJavaError, match="cancelled"):
        save(rows.mapInArrow(slow, "value string"), epoch="1")
    cancel.join()
    assert states(log) == ["OPEN", "ABORTING", "ABORTED"]
    save(spark.sql("SELECT 'again' AS value"), epoch="1")
    assert seen() == ["again"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.session.timeZone", "Asia/Tokyo"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "1"),
    ],
)
@pytest.mark.parametrize("schema", ["avro", "json"])
def test_session_settings_do_not_change_values(
    save, spark, spark_conf, pulsar_standalone, name, schema, key, value
):
    spark_conf(key, value)
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'a', X'01', TIMESTAMP'2026-11-23 10:00:00 UTC', MAP('k', 'v')), "
        "(2, NULL, NULL, NULL, NULL) AS t(n, text, raw, at, map)"
    )
    save(rows, schema=schema)
    read = spark.read.format("pulsar").options(
        serviceUrl=pulsar_standalone.service_url, topic=name, schema="auto"
    )
    columns = ("n", "text", "CAST(at AS TIMESTAMP) AS at", "map")  # times are text in JSON
    found = read.load().selectExpr(*columns).collect()
    assert sorted(found) == sorted(rows.selectExpr(*columns).collect())
