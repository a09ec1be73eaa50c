"""What users hand to a sink: anything but a DataFrame and a key is named, with what to do."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pandas as pd
import pyarrow as pa
import pyspark.pandas as ps
import pytest
from pyspark.sql.dataframe import DataFrame

from eos.errors import ConfigurationError
from sinks._arguments import batch_key, check_dataframe


class ConnectDataFrame(DataFrame):
    """As Spark Connect's: a class of its own below PySpark's; the real one needs a server."""


PANDAS = pd.DataFrame({"value": ["a"]})
CONNECTED = object.__new__(ConnectDataFrame)


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        ("2026-11-20", "2026-11-20"),
        (20261120, "20261120"),
        (date(2026, 11, 20), "2026-11-20"),
        (datetime(2026, 11, 20, 6, 30), "2026-11-20T06:30:00"),
        (datetime(2026, 11, 20, tzinfo=UTC), "2026-11-20T00:00:00+00:00"),
        (pd.Timestamp("2026-11-20"), "2026-11-20T00:00:00"),
    ],
)
def test_a_key_is_text_a_number_or_a_date(epoch, text):
    assert batch_key(epoch) == text


@pytest.mark.parametrize("epoch", [True, 1.5, None, b"a", ("a",)])
def test_any_other_key_is_refused_with_what_is_allowed(epoch):
    with pytest.raises(ConfigurationError) as caught:
        batch_key(epoch)
    assert f"of type {type(epoch).__name__}:" in str(caught.value)
    assert "a str, an int, a datetime.date or a datetime.datetime" in str(caught.value)


def test_a_number_and_its_digits_are_one_key(spark, make_sink, log):
    df = spark.sql("SELECT 'x' AS value")
    assert make_sink().write(df, epoch=20261120).status == "written"
    assert make_sink().write(df, epoch="20261120").status == "skipped"
    assert make_sink().write(df, epoch=date(2026, 11, 20)).status == "written"
    assert [r.epoch for r in log() if r.state == "COMMITTED"] == ["20261120", "2026-11-20"]


@pytest.mark.parametrize(
    ("df", "says"),
    [
        (PANDAS, ["a pandas.DataFrame", "spark.createDataFrame(pdf)"]),
        (pa.table({"value": ["a"]}), ["a pyarrow.Table", "spark.createDataFrame(table)"]),
        (object.__new__(ps.DataFrame), ["a pyspark.pandas.DataFrame", "psdf.to_spark()"]),
        (None, ["this is None", "has to return it"]),
        ("orders", ["of type str", "spark.createDataFrame"]),
        (CONNECTED, ["Spark Connect is not supported", "classic SparkSession"]),
    ],
    ids=["pandas", "arrow", "pandas on Spark", "None", "str", "Spark Connect"],
)
def test_what_is_no_dataframe_is_named_with_what_to_do(make_sink, df, says):
    sink = make_sink()
    for call in (lambda: sink(df, 0), lambda: sink.write(df, epoch="a")):
        with pytest.raises(ConfigurationError) as caught:
            call()
        assert not [text for text in says if text not in str(caught.value)]


def test_a_dataframe_passes(spark):
    check_dataframe(spark.range(1))


def test_a_stream_is_no_batch_job(spark, make_sink):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match=r"is a stream\. Use df\.writeStream"):
        make_sink().write(stream, epoch="a")
