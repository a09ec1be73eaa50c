"""Arguments of a sink: anything but a DataFrame and a key is refused, with a fix."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum, StrEnum
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.dataframe import DataFrame

from eos.errors import ConfigurationError
from eos.sinks._arguments import batch_key, check_dataframe
from eos.sinks.spark_compat import ClassicDataFrame

try:
    import pyspark.pandas as ps
except (AttributeError, ImportError):  # 3.5 with NumPy 2, and 4.3 with pandas 3
    ps = None


class ConnectDataFrame(DataFrame):
    """Like Spark Connect's class, which needs a server."""


PANDAS = pd.DataFrame({"value": ["a"]})
CONNECTED = object.__new__(ConnectDataFrame)
# On 3.5 the class has no base class.
CONNECTED_3_5 = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()


BERLIN = ZoneInfo("Europe/Berlin")


class Day(StrEnum):
    FRIDAY = "2026-11-20"


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        ("2026-11-20", "2026-11-20"),
        (np.str_("a"), "a"),
        (Day.FRIDAY, "2026-11-20"),
        (20261120, "20261120"),
        (np.int64(7), "7"),
        (np.uint8(7), "7"),
        (Number.ONE, "1"),
        (date(2026, 11, 20), "2026-11-20"),
        (datetime(2026, 11, 20, tzinfo=UTC), "2026-11-20T00:00:00+00:00"),
        (datetime(2026, 11, 20, 1, tzinfo=BERLIN), "2026-11-20T00:00:00+00:00"),
        (datetime(2026, 11, 20, 1, 2, 3, 4, tzinfo=UTC), "2026-11-20T01:02:03.000004+00:00"),
        (pd.Timestamp("2026-11-20 01:00", tz="Europe/Berlin"), "2026-11-20T00:00:00+00:00"),
        (pd.Timestamp(1, unit="ns", tz="UTC"), "1970-01-01T00:00:00.000000001+00:00"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "2026-10-25T00:30:00+00:00"),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), "2026-10-25T01:30:00+00:00"),
    ],
)
def test_a_key_is_text_a_number_a_date_or_a_datetime(epoch, text):
    assert batch_key(epoch).text == text
    assert type(batch_key(epoch).text) is str


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "epoch",
    [
        True,
        np.True_,
        1.5,
        None,
        b"a",
        ("a",),
        Colour.RED,
        uuid.uuid4(),
        np.datetime64("2026-11-20"),
    ],
)
def test_other_keys_are_refused_with_the_allowed_types(epoch):
    with pytest.raises(ConfigurationError) as caught:
        batch_key(epoch)
    assert f", not {type(epoch).__name__}." in str(caught.value)
    assert "a str, an int, a datetime.date, or a datetime.datetime" in str(caught.value)


@pytest.mark.parametrize("epoch", [datetime(2026, 11, 20, 6), pd.Timestamp("2026-11-20")])
def test_a_datetime_without_a_time_zone_is_refused_with_a_fix(epoch):
    with pytest.raises(ConfigurationError, match=r"has no time zone.*tzinfo=UTC.*\.date\(\)"):
        batch_key(epoch)


def test_nat_is_refused():
    with pytest.raises(ConfigurationError, match="NaT"):
        batch_key(pd.NaT)


def test_the_name_of_a_job_without_a_key_is_not_for_users():
    with pytest.raises(ConfigurationError, match="jobs without a key"):
        batch_key("__eos-job-1")


def test_a_similar_key_is_refused_and_its_text_is_accepted(spark, make_sink, log):
    df = spark.sql("SELECT 'x' AS value")
    day, midnight = date(2026, 11, 20), datetime(2026, 11, 20, tzinfo=UTC)
    assert make_sink().write(df, epoch=midnight).status == "written"
    assert make_sink().write(df, epoch=midnight.astimezone(BERLIN)).status == "skipped"
    with pytest.raises(ConfigurationError, match=r'written twice.*epoch="2026-11-20T00:00:00\+00'):
        make_sink().write(df, epoch=day)
    assert (
        make_sink().write(df, epoch=day.isoformat()).status == "written"
    )  # as text it is accepted
    sink = make_sink()
    assert sink.write(df, epoch=day).status == "skipped"
    # A key that an earlier release recorded with its offset is not written again.
    local = datetime(2026, 11, 21, tzinfo=BERLIN)
    assert sink.write(df, epoch=local.isoformat()).status == "written"
    with pytest.raises(ConfigurationError, match="written twice"):
        sink.write(df, epoch=local)
    assert len([r for r in log() if r.state == "COMMITTED"]) == 3


def test_a_date_is_refused_if_its_midnight_in_any_zone_is_written(spark, make_sink):
    df = spark.sql("SELECT 'x' AS value")
    sink = make_sink()
    day = datetime(2026, 11, 20, tzinfo=BERLIN)
    assert sink.write(df, epoch=day).status == "written"
    assert sink.write(df, epoch=day - timedelta(days=1)).status == "written"
    with pytest.raises(ConfigurationError, match=r'twice.*epoch="2026-11-19T23:00:00\+00:00"'):
        sink.write(df, epoch=date(2026, 11, 20))
    assert sink.write(df, epoch=date(2026, 11, 21)).status == "written"
    with pytest.raises(ConfigurationError, match="twice"):
        sink.write(df, epoch=datetime(2026, 11, 21, tzinfo=BERLIN))
    # Hours are not days.
    for hour in range(3):
        assert sink.write(df, epoch=datetime(2026, 11, 25, hour + 1, tzinfo=UTC)).records == 1
    assert sink.write(df, epoch=date(2026, 11, 25)).status == "written"


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Asia/Kathmandu", "Etc/GMT+12"])
def test_a_date_has_the_midnights_of_all_zones(zone):
    key = batch_key(datetime(2026, 11, 20, tzinfo=ZoneInfo(zone)))
    assert batch_key(date(2026, 11, 20)).midnights.count(key.text) == 1
    assert batch_key(date(9999, 12, 31)).midnights == batch_key(date(1, 1, 1)).midnights == ()


def test_a_number_and_its_digits_are_one_key(spark, make_sink, log):
    df = spark.sql("SELECT 'x' AS value")
    assert make_sink().write(df, epoch=20261120).status == "written"
    assert make_sink().write(df, epoch="20261120").status == "skipped"
    assert make_sink().write(df, epoch=date(2026, 11, 20)).status == "written"
    assert [r.epoch for r in log() if r.state == "COMMITTED"] == ["20261120", "2026-11-20"]


@pytest.mark.parametrize(
    ("df", "says"),
    [
        (PANDAS, ["not pandas.DataFrame", "spark.createDataFrame(pdf)"]),
        (pa.table({"value": ["a"]}), ["not pyarrow.Table", "spark.createDataFrame(table)"]),
        pytest.param(
            ps and object.__new__(ps.DataFrame),
            ["not pyspark.pandas.DataFrame", "psdf.to_spark()"],
            marks=pytest.mark.skipif(ps is None, reason="pyspark.pandas can't be imported"),
        ),
        (None, ["not None", "Return the DataFrame"]),
        ("orders", ["not str", "spark.createDataFrame"]),
        pytest.param(
            CONNECTED,
            ["Spark Connect is not supported", "classic SparkSession"],
            marks=pytest.mark.skipif(
                ClassicDataFrame is DataFrame,
                reason="Spark Connect's class is a subclass of DataFrame since 4.0",
            ),
        ),
        (CONNECTED_3_5, ["Spark Connect is not supported", "classic SparkSession"]),
    ],
    ids=["pandas", "arrow", "pandas on Spark", "None", "str", "Connect", "Connect of 3.5"],
)
def test_other_objects_than_dataframes_are_refused_with_a_fix(make_sink, df, says):
    sink = make_sink()
    for call in (lambda: sink(df, 0), lambda: sink.write(df, epoch="a")):
        with pytest.raises(ConfigurationError) as caught:
            call()
        assert not [text for text in says if text not in str(caught.value)]


def test_a_dataframe_is_accepted(spark):
    check_dataframe(spark.range(1))


def test_write_refuses_a_streaming_dataframe(spark, make_sink):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match=r"is streaming\. Use df\.writeStream"):
        make_sink().write(stream, epoch="a")
