"""An error in a stream as users see it: the sink's message first, and little more."""

from __future__ import annotations

import logging
import sys

import pyspark
import pytest
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from eos import DeltaSink, all_or_nothing
from eos.commit_log import CommitLog
from eos.errors import ConfigurationError, NewLineage
from eos.sinks.failures import shortened
from tests.support.processes import driver

SPARKS_WORDS = "An exception was raised by the Python Proxy. Return Message: "


@pytest.fixture
def failure(source, tmp_path):
    """Run a query that must fail; return Spark's text after its own message."""

    def run(function, checkpoint="checkpoint") -> str:
        with pytest.raises(StreamingQueryException) as caught:
            source.run(function, tmp_path / checkpoint)
        text = str(caught.value)
        assert SPARKS_WORDS in text
        return text.split(SPARKS_WORDS)[1].split("=== Streaming Query ===")[0]

    return run


def test_the_sinks_message_is_first_and_the_rest_is_short(
    spark, source, make_sink, failure, tmp_path, caplog
):
    source.add("a")
    source.run(make_sink(), tmp_path / "old")
    text = failure(make_sink(), "new")
    assert text.startswith("eos.errors.NewLineage: The sink was written by query ")
    assert "on_new_query" in text.splitlines()[0]
    assert len(text.splitlines()) < 22
    assert text.count("Traceback") == 1
    (record,) = [r for r in caplog.records if r.name == "eos.sinks.failures"]
    assert "epoch 0 of sink t-" in record.getMessage()
    assert isinstance(record.exc_info[1], NewLineage)


def test_an_error_of_the_users_own_code_is_named_in_the_first_line(
    source, make_sink, failure, name
):
    source.add("a")

    def fail(batches):
        for _ in batches:
            raise ValueError("order 7 has no customer")
        yield

    sink = make_sink()
    text = failure(lambda df, epoch: sink(df.mapInArrow(fail, "value string"), epoch))
    first = text.splitlines()[0]
    assert first.startswith(f"RuntimeError: epoch 0 of sink {name}: ")
    assert first.endswith("ValueError: order 7 has no customer")
    assert "During handling" not in text


def test_a_java_error_is_one_line_and_keeps_its_class(source, make_sink, failure, name):
    source.add("a")
    sink = make_sink()
    caught = []

    def write(df, epoch) -> None:
        try:
            sink(df.selectExpr("java_method('java.lang.Integer', 'parseInt', value) value"), epoch)
        except Py4JJavaError as error:
            caught.append(error)
            raise

    text = failure(write)
    assert "NumberFormatException" in text.splitlines()[0]
    assert text.startswith(f"RuntimeError: epoch 0 of sink {name}: org.apache.spark.SparkException")
    assert "\tat " not in text
    assert "Job aborted" in caught[0].java_exception.getMessage()


def test_a_query_that_is_stopped_within_an_epoch_ends_without_an_error(
    pulsar_standalone, tmp_path, name
):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.txt").write_text("a")
    args = (pulsar_standalone.service_url, str(tmp_path), name)
    with driver("tests.sinks.stopped_driver", *args) as process:
        out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err[-3000:]
    assert "exception: None" in out
    assert "StackOverflowError" not in err
    assert "Exception in thread" not in err
    records = CommitLog.open_read_only(tmp_path / "log", name).records()
    assert [r.state for r in records if r.epoch] == ["OPEN", "ABORTING", "ABORTED"]
    assert str(records[-1].reason).startswith("FAILED: SparkStopped")


def test_an_interrupted_call_has_the_words_that_spark_searches_for(spark):
    """As if ``stop`` came just before the sink calls Java; a real query can't reproduce it."""
    thrown = spark._jvm.java.lang.InterruptedException("stopped")
    error = Py4JJavaError("An error occurred while calling o1.collectToPython.\n", thrown)
    failure, headline = shortened(error, "epoch 0 of sink a")
    package = spark._jvm.org.apache.spark.sql.execution.streaming
    # In the package `runtime` since 4.1; py4j takes a name that is no class for a package.
    found = [getattr(one, "StreamExecution$") for one in (package, package.runtime)]
    (companion,) = [one for one in found if isinstance(one, JavaClass)]
    streaming = getattr(companion, "MODULE$")
    for said, is_interruption in ((str(failure), True), (str(headline), False)):
        spark_sees = spark._jvm.py4j.Py4JException(said)
        context = spark.sparkContext._jsc.sc()
        assert streaming.isInterruptionException(spark_sees, context) is is_interruption


@pytest.mark.parametrize("words", ["[SPARK_JOB_CANCELLED] Job 7 cancelled by", "Job 7 cancelled"])
def test_a_job_that_spark_has_cancelled_is_no_error(spark, caplog, words):
    caplog.set_level(logging.INFO, logger="eos.sinks.failures")
    thrown = spark._jvm.org.apache.spark.SparkException(f"{words} job group a")
    shortened(Py4JJavaError("An error occurred.\n", thrown), "epoch 0 of sink a")
    (record,) = [one for one in caplog.records if one.name == "eos.sinks.failures"]
    assert "Spark was stopped" in record.getMessage()


@pytest.mark.parametrize("text", ["f(a)\n^^^^", "Traceback (most recent call last):\n x\nf(a)"])
def test_the_line_of_an_error_names_it(text):
    _, headline = shortened(RuntimeError(text), "epoch 0 of sink a")
    assert str(headline) == "epoch 0 of sink a: RuntimeError: f(a)"


@pytest.fixture
def job(spark, tmp_path):
    """Write a batch, computed by a function on executors, to one table or to two."""

    def run(compute, tables=("a",)) -> None:
        log = str(tmp_path / "log")
        sinks = [
            DeltaSink(sink_id="a", table=str(tmp_path / one), commit_log=log) for one in tables
        ]
        sink = sinks[0] if len(sinks) == 1 else all_or_nothing(*sinks)
        sink.write(spark.range(1).mapInArrow(compute, "id long"), epoch="a")

    return run


@pytest.mark.parametrize("tables", ["a", "ab"], ids=["one output", "two outputs"])
def test_a_module_that_executors_lack_is_named_with_the_way_out(job, tables):
    def compute(batches):
        import not_there  # noqa: F401

        yield from batches

    with pytest.raises(ConfigurationError, match="Python has no module 'not_there'") as refused:
        job(compute, tables)
    assert "--py-files" in refused.value.hint
    assert "not_there" in str(refused.value.__cause__)


def test_executors_with_another_python_are_refused_with_the_way_out(job, spark, monkeypatch):
    driver = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")  # what it tells to the workers
    with pytest.raises(ConfigurationError, match="the executors have another one") as refused:
        job(lambda batches: batches)
    assert f"PYSPARK_PYTHON or spark.pyspark.python to a Python {driver}" in refused.value.hint


def test_an_error_of_spark_that_is_no_set_up_stays_as_it_is(job):
    def compute(batches):
        raise ValueError("order 7 has no customer")
        yield

    # On each release: those that 3.5 does not translate come from Java.
    with pytest.raises(PySparkException, match="order 7 has no customer"):
        job(compute)


def test_a_jvm_of_another_release_is_refused_before_the_first_task(job, monkeypatch, tmp_path):
    monkeypatch.setattr(pyspark, "__version__", "3.4.0")
    with pytest.raises(ConfigurationError, match=r"PySpark 3\.4\.0 runs with Spark") as refused:
        job(lambda batches: batches)
    assert "SPARK_HOME" in refused.value.hint
    assert not (tmp_path / "log").exists()
