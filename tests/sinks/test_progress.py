"""Log lines of the driver about epochs, and about a sink whose topic was changed."""

from __future__ import annotations

import logging

import pytest

from eos.sinks._progress import log_job
from tests.support.admin import create_partitioned


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="eos.sinks._progress")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "eos.sinks._progress"]


@pytest.mark.parametrize(("level", "shown"), [(logging.WARNING, "WARNING"), (logging.INFO, "INFO")])
def test_the_line_about_a_job_is_shown_whatever_is_logged(caplog, level, shown):
    """From PySpark 4.1 on a worker's root logger has a handler, and shows warnings only."""
    caplog.set_level(level, logger="eos.sinks._progress")
    log_job(2, "orders", "one")
    assert [record.levelname for record in caplog.records] == [shown]


def test_each_epoch_logs_its_rows_bytes_and_time(spark, make_sink, lines, name):
    df = spark.range(12345).selectExpr("repeat('x', 100) AS value")
    result = make_sink().write(df, epoch="a")
    (line,) = lines()
    assert line.startswith(f"epoch a of sink {name}: 12,345 rows, 1.2 MB, ")
    assert line.endswith(f" s, transaction {result.txn}")
    make_sink().write(df, epoch="a")
    _, skipped = lines()
    assert "written before (rows: 12,345): nothing is written now" in skipped


def test_another_topic_of_a_known_sink_warns_with_both_names(
    spark, make_sink, caplog, name, pulsar_standalone
):
    create_partitioned(pulsar_standalone.admin_url, name, 3)
    df = spark.range(10).selectExpr("cast(id as string) AS value")
    make_sink().write(df, epoch="a")
    make_sink().write(df, epoch="b")
    # The broker may close a producer: then the epoch runs again, which these two say.
    of_a_rerun = ("eos.retry", "eos.pulsar.stuck_partitions")
    assert not [one for one in caplog.records if one.name not in of_a_rerun]
    make_sink(topic=f"{name}-new").write(df, epoch="c")
    (record,) = [one for one in caplog.records if one.name == "eos.sinks._progress"]
    assert record.levelname == "WARNING"
    old = f"persistent://public/default/{name}"
    assert f"sink {name} wrote to {old} until now, and continues with {old}-new" in (
        record.getMessage()
    )
