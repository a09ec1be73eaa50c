"""Listeners of real sinks, on real Spark, compared with Spark's own events."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming import StreamingQueryListener

from eos import DeltaSink, PulsarSink, all_or_nothing
from eos.errors import ConfigurationError, InputError, NewLineage
from eos.events import StateChanged
from eos.metrics import PrometheusListener
from tests.support.watched import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


class Progress(StreamingQueryListener):
    """A user's listener of Spark's events."""

    def __init__(self) -> None:
        self.seen = []

    def onQueryStarted(self, event):  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event):  # noqa: N802
        self.seen.append(event.progress)

    def onQueryTerminated(self, event):  # noqa: N802
        pass


@pytest.fixture
def progress(spark):
    listener = Progress()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_a_listener_gets_the_events_of_each_epoch(source, make_sink, notes, tmp_path, name):
    registry = CollectorRegistry()
    sink = make_sink(listeners=[notes, PrometheusListener(registry)])
    source.add("a", "b")
    source.add("c")
    query = source.run(sink, tmp_path / "checkpoint")
    sink.close()
    ends = [(e.epoch, e.outcome, e.records, e.bytes) for e in notes.ends]
    assert ends == [("0", "committed", 2, 2), ("1", "committed", 1, 1)]
    assert {end.query_id for end in notes.ends} == {query.id}
    assert all(end.transaction for end in notes.ends)
    epoch = ["OPEN", "PREPARED", "COMMITTED"]
    assert notes.states == ["CLAIMED", *epoch, *epoch]
    assert notes.steps.count("finish") == 2
    labels = {"sink": name}
    assert registry.get_sample_value("eos_rows_total", {**labels, "kind": "pulsar"}) == 3
    assert registry.get_sample_value("eos_epoch_duration_seconds_count", labels) == 2
    in_doubt = {**labels, "state": "in_doubt"}
    assert registry.get_sample_value("eos_unfinished_transactions", in_doubt) == 0


def test_a_listener_gets_errors_before_the_claim(source, make_sink, notes, tmp_path):
    source.add("a")
    source.run(make_sink(), tmp_path / "one")
    sink = make_sink(listeners=[notes])
    with pytest.raises(StreamingQueryException, match="new checkpoint"):
        source.run(sink, tmp_path / "another")
    sink.close()
    (end,) = notes.ends
    assert (end.outcome, end.attempts, end.transaction) == ("failed", 0, None)
    assert notes.steps == ["claim!"]
    assert NewLineage.__name__ not in str(end.reason)
    assert "a new query" in str(end.reason)


def test_a_listener_gets_refused_rows_as_an_aborted_epoch(spark, make_sink, notes):
    sink = make_sink(listeners=[notes])
    df = spark.range(3).selectExpr("CASE WHEN id < 2 THEN 'secret-row' END AS value")
    with pytest.raises(InputError):
        sink.write(df, epoch="a")
    sink.close()
    (end,) = notes.ends
    assert (end.outcome, end.attempts, end.reason.kind) == ("aborted", 1, "INPUT")
    assert notes.states == ["CLAIMED", "OPEN", "ABORTING", "ABORTED"]
    assert "secret-row" not in repr(notes.events)


def test_listeners_of_both_outputs_get_the_events(spark, make_sink, notes, tmp_path, name):
    other = Notes()
    table = DeltaSink(
        sink_id=name,
        commit_log=str(tmp_path / "log"),
        table=str(tmp_path / "table"),
        listeners=[other, notes],
    )
    both = all_or_nothing(
        make_sink(listeners=[notes]),
        table,
        frames=lambda df: [df.selectExpr("cast(id AS string) AS value"), df],
    )
    both.write(spark.range(5), epoch="a")
    both.close()
    assert notes.states == other.states == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]
    assert len(notes.ends) == 1, "one that is given twice is told once"
    written = next(e.written for e in reversed(notes.events) if isinstance(e, StateChanged))
    assert [(one.kind, one.records) for one in written] == [("pulsar", 5), ("delta", 5)]


def test_a_listener_of_a_table_gets_the_events(spark, notes, tmp_path):
    sink = DeltaSink(
        sink_id="t",
        commit_log=str(tmp_path / "log"),
        table=str(tmp_path / "table"),
        listeners=[notes],
    )
    result = sink.write(spark.range(5), epoch="a")
    sink.close()
    assert result.steps_s["write"] > 0
    assert [(end.outcome, end.records) for end in notes.ends] == [("committed", 5)]


@pytest.mark.parametrize("listeners", [[object()], [Notes], "x", print])
def test_other_objects_than_listeners_are_refused(listeners, tmp_path):
    with pytest.raises(ConfigurationError, match="'listeners'"):
        PulsarSink(
            sink_id="orders",
            service_url="pulsar://127.0.0.1:1",
            topic="t",
            commit_log=str(tmp_path),
            listeners=listeners,
        )


def test_sparks_progress_has_the_same_query_and_epoch(
    spark, source, make_sink, notes, progress, tmp_path
):
    """Measured: an observation before ``writeStream`` is in the event. One within the function
    is not, but its ``Observation`` has the result."""
    inner = []
    sink = make_sink(listeners=[notes])

    def write(df, epoch):
        observation = Observation()
        sink(df.observe("inner", lit(1).alias("n")).observe(observation, count("*")), epoch)
        inner.append(observation.get)

    source.add("a", "b")
    source.add("c")
    counted = count(lit(1)).alias("rows")
    source.run(write, tmp_path / "checkpoint", of=lambda rows: rows.observe("read", counted))
    sink.close()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = {(str(p.id), str(p.batchId)): p for p in progress.seen if p.numInputRows}
    told = {(end.query_id, end.epoch): end for end in notes.ends}
    assert seen.keys() == told.keys()
    rows = {key: p.observedMetrics["read"]["rows"] for key, p in seen.items()}
    assert rows == {key: end.records for key, end in told.items()}
    assert all(p.observedMetrics.keys() == {"read"} for p in seen.values())
    assert [list(one.values()) for one in inner] == [[2], [1]]
    assert {p.sink.numOutputRows for p in seen.values()} == {-1}
