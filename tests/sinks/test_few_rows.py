"""Epochs of few rows, which the driver fetches and sends by itself: guessed, and guessed wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pulsar
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from pyspark.sql.classic.dataframe import DataFrame

from eos import DeltaSink, all_or_nothing, failpoints
from eos.errors import ConnectionLost, InputError
from eos.pulsar.part import pulsar_part
from eos.sinks._few_rows import FewRows
from eos.sinks._task import WriteTask
from eos.sinks.sink import Sink
from eos.steps import TaskStep
from tests.sinks.source import Source
from tests.support import admin
from tests.support.judge import drain, quiet_client
from tests.transport.scripted import wait_until

FEW = 10


@pytest.fixture
def by_driver(monkeypatch) -> list[int]:
    """How many rows each epoch had that the driver has sent by itself."""
    seen: list[int] = []
    write_here = WriteTask.write_here

    def watched(self, client, batches):
        batches = list(batches)
        seen.append(sum(batch.num_rows for batch in batches))
        return write_here(self, client, batches)

    monkeypatch.setattr(WriteTask, "write_here", watched)
    return seen


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: sorted(
        m.value.decode() for m in drain(url, f"persistent://public/default/{name}")
    )


def rows(epoch: int, count: int) -> list[str]:
    return [f"{epoch}-{number:03}" for number in range(count)]


def run(source, sink, tmp_path, *counts: int, **options) -> list[str]:
    """Epochs of so many rows each; everything that was written."""
    written = []
    for count in counts:
        new = rows(source.count, count)
        source.add(*new)
        written += new
    source.run(sink, tmp_path / "checkpoint", **options)
    return sorted(written)


def test_behind_three_epochs_of_few_rows_the_driver_sends_those_of_the_next_one(
    source, make_sink, log, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)
    written = run(source, sink, tmp_path, 2, FEW, 1, 3, FEW, 1)
    assert values() == written
    assert by_driver == [3, FEW, 1]
    committed = [record for record in log() if record.state == "COMMITTED"]
    assert [record.records for record in committed] == [2, FEW, 1, 3, FEW, 1]
    assert len({pulsar_part(record).txn for record in committed}) == 6


def test_tasks_write_where_nobody_has_asked_for_it(source, make_sink, values, tmp_path, by_driver):
    written = run(source, make_sink(), tmp_path, 1, 1, 1, 1, 1)
    assert values() == written
    assert by_driver == []


def test_an_epoch_of_more_rows_after_all_is_written_by_tasks_and_the_next_guess_comes_later(
    source, make_sink, log, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)
    few = [1] * 5
    written = run(source, sink, tmp_path, *few, FEW + 1, *few, 1, 1, 500, 2)
    assert values() == written
    # Three before the first guess, six before the next one.
    assert by_driver == [1, 1, 1]
    assert {record.state for record in log()} == {"CLAIMED", "OPEN", "PREPARED", "COMMITTED"}


def test_an_epoch_without_rows_counts_as_few_and_is_empty(
    source, make_sink, log, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)

    def write(df, epoch):
        sink(df.filter("value != ''"), epoch)

    for lines in (["a"], [""], ["b"], [""], ["c"]):
        source.add(*lines)
    source.run(write, tmp_path / "checkpoint")
    assert values() == ["a", "b", "c"]
    assert by_driver == [0, 1]
    assert [r.state.value for r in log() if r.epoch == "3"] == ["OPEN", "ABORTING", "EMPTY"]


@pytest.mark.parametrize("partitions", [1, 3, 50])
def test_what_is_fetched_is_all_there_is_or_nothing(spark, partitions):
    few = FewRows(FEW)
    for count in (0, 1, FEW, FEW + 1, 40, 4000):
        for skewed in (False, True):
            df = spark.range(count).selectExpr("string(id) AS value")
            # All in one partition of many, or about as many in each.
            df = df.repartition(partitions, *([sf.lit(1)] if skewed else []))
            found = few.fetch(df)
            if count > FEW:
                assert found is None
            else:
                got = [value for batch in found for value in batch.column("value").to_pylist()]
                assert sorted(got) == sorted(str(number) for number in range(count))


def test_of_each_partition_one_row_more_than_are_few_is_fetched_at_most(spark, monkeypatch):
    fetched = []
    to_arrow = DataFrame.toArrow
    monkeypatch.setattr(
        DataFrame, "toArrow", lambda df: fetched.append(to_arrow(df)) or fetched[-1]
    )
    df = spark.range(4000).selectExpr("string(id) AS value").repartition(4)
    assert FewRows(FEW).fetch(df) is None
    assert [table.num_rows for table in fetched] == [4 * (FEW + 1)]


def guessing(monkeypatch, failure: Exception) -> FewRows:
    """Expects few rows, and Spark fails to fetch them."""

    def fail(_):
        raise failure

    monkeypatch.setattr(DataFrame, "toArrow", fail)
    few = FewRows(FEW)
    for _ in range(3):
        few.saw(1)
    assert few.are_expected
    return few


def test_rows_that_are_few_but_too_large_for_the_driver_are_left_to_tasks(spark, monkeypatch):
    """Tried with Spark's own refusal by hand: its limit can't be changed while it runs."""
    refusal = RuntimeError("results are bigger than spark.driver.maxResultSize (8.0 MiB)")
    few = guessing(monkeypatch, refusal)
    assert few.fetch(spark.range(1)) is None
    assert not few.are_expected


def test_behind_a_fetch_that_fails_tasks_are_asked(spark, monkeypatch):
    few = guessing(monkeypatch, ValueError("made up"))
    with pytest.raises(ValueError, match="made up"):
        few.fetch(spark.range(1))
    assert not few.are_expected


def test_an_interrupt_is_an_interrupt_whatever_spark_says_of_its_thread(spark, monkeypatch):
    def interrupted(_):
        try:
            raise KeyboardInterrupt
        finally:
            try:
                raise ValueError("a thread of Spark's")
            except ValueError:
                raise RuntimeError("something went wrong") from None

    monkeypatch.setattr(DataFrame, "toArrow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FewRows(FEW).fetch(spark.range(1))


ALL_COLUMNS = (
    "concat(value, ' of ', x) AS value",
    "concat('key ', value) AS key",
    "timestamp_millis(1000 * length(value)) AS event_time",
    "map('a', value, 'b', '') AS properties",
    "CAST(value AS BINARY) AS ordering_key",
)
RECORD = (
    "value AS text",
    "CAST(length(value) AS INT) AS number",
    "timestamp_millis(1000) AS moment",
    "array(value) AS more",
    "named_struct('in', value) AS inner",
)


def all_that_readers_see(url, topic):
    client = quiet_client(url)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        m = reader.read_next(10_000)
        found.append((m.data(), m.partition_key(), m.ordering_key(), m.event_timestamp()))
        found[-1] += (tuple(sorted(m.properties().items())),)
    client.close()
    return sorted(found)


@pytest.mark.parametrize(
    ("columns", "schema"),
    [(ALL_COLUMNS, "bytes"), (RECORD, "avro"), (RECORD, "json"), (("value",), "string")],
    ids=["all columns", "avro", "json", "string"],
)
def test_readers_see_no_difference(
    source, make_sink, name, tmp_path, by_driver, pulsar_standalone, columns, schema
):
    for number in range(4):
        source.add(*rows(0, 3 + number % 2))
    topics = [f"persistent://public/default/{name}-{who}" for who in ("tasks", "driver")]
    for topic, driver_rows in zip(topics, (0, FEW), strict=True):
        sink = make_sink(
            sink_id=topic.rsplit("/", 1)[1],
            topic=topic,
            schema=schema,
            driver_rows=driver_rows,
            commit_log=str(tmp_path / "logs"),
        )

        def write(df, epoch, sink=sink):
            sink(df.withColumn("x", sf.lit("x")).selectExpr(*columns), epoch)

        source.run(write, tmp_path / f"checkpoint-{driver_rows}")
    assert by_driver == [4]
    by_tasks, here = (
        all_that_readers_see(pulsar_standalone.service_url, topic) for topic in topics
    )
    assert len(here) == 14
    assert here == by_tasks


def test_rows_that_cannot_be_written_are_told_of_as_ever(
    source, make_sink, log, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)

    def write(df, epoch):
        sink(df.selectExpr("nullif(value, 'none') AS value"), epoch)

    for lines in (["a"], ["b"], ["c"], ["d", "none"]):
        source.add(*lines)
    with pytest.raises(StreamingQueryException, match="column 'value' is null in row 1"):
        source.run(write, tmp_path / "checkpoint")
    assert by_driver == [2]
    assert values() == ["a", "b", "c"]
    assert [r.state.value for r in log() if r.epoch == "3"] == ["OPEN", "ABORTING", "ABORTED"]


def publishers(broker, name) -> int:
    path = f"/v2/persistent/public/default/{name}/stats"
    return len(admin.call(broker.admin_url, "GET", path)["publishers"])


@pytest.mark.parametrize("place", [None, TaskStep.REGISTER, TaskStep.SEND, TaskStep.SETTLE])
def test_of_an_attempt_that_failed_no_producer_stays_open(
    spark, make_sink, name, pulsar_standalone, by_driver, place
):
    sink = make_sink(driver_rows=FEW, max_attempts=1)

    def write(epoch, value="'a'"):
        sink.write(spark.range(1).selectExpr(f"{value} AS value"), epoch=epoch)

    def fail():
        raise ConnectionLost("made up")

    for number in range(3):
        write(str(number))
    for number in range(3):
        if place is None:
            with pytest.raises(InputError, match="null in row 0"):
                write(f"failed-{number}", "string(null)")
        else:
            with failpoints.armed(place, fail), pytest.raises(ConnectionLost):
                write(f"failed-{number}")
    assert len(by_driver) == 3
    wait_until(lambda: publishers(pulsar_standalone, name) == 0)
    write("3")
    assert len(by_driver) == 4


def test_an_error_of_the_users_own_is_shown_as_it_is(
    source, make_sink, log, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)

    @sf.udf("string")
    def checked(text):
        if text == "bad":
            raise ValueError(f"order {text} has no customer")
        return text

    for lines in (["a"], ["b"], ["c"], ["bad"]):
        source.add(*lines)
    with pytest.raises(StreamingQueryException, match="order bad has no customer"):
        source.run(
            lambda df, epoch: sink(df.select(checked("value").alias("value")), epoch),
            tmp_path / "checkpoint",
        )
    assert by_driver == []
    assert values() == ["a", "b", "c"]
    assert [r.state.value for r in log() if r.epoch == "3"] == ["OPEN", "ABORTING", "ABORTED"]


@pytest.mark.parametrize("place", [TaskStep.REGISTER, TaskStep.SEND, TaskStep.SETTLE])
def test_an_attempt_that_fails_on_its_way_is_written_once_in_a_new_transaction(
    source, make_sink, log, values, tmp_path, by_driver, place
):
    sink = make_sink(driver_rows=FEW)
    written = run(source, sink, tmp_path, 1, 1, 1)
    failed = []

    def fail():
        if not failed:
            failed.append(place)
            raise ConnectionLost("made up")

    with failpoints.armed(place, fail):
        written += run(source, sink, tmp_path, 4)
    assert by_driver == [4, 4]
    assert values() == sorted(written)
    states = [record.state.value for record in log() if record.epoch == "3"]
    assert states == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]


def test_a_query_whose_state_must_not_be_computed_twice_is_left_to_tasks(
    source, make_sink, values, tmp_path, by_driver, stores
):
    stores("rocksdb-2")
    sink = make_sink(driver_rows=FEW)
    of = {"of": lambda stream: stream.dropDuplicates(["value"])}
    assert run(source, sink, tmp_path, 1, 1, 1, 1, 1, **of) == values()
    assert by_driver == []


def test_so_it_is_where_the_rows_are_of_another_session(
    spark, make_sink, values, tmp_path, by_driver
):
    """Whose settings are others than those of the query."""
    package = "org.apache.spark.sql.execution.streaming.state"
    session = spark.newSession()
    for name, value in (
        ("providerClass", f"{package}.RocksDBStateStoreProvider"),
        ("checkpointFormatVersion", "2"),
    ):
        session.conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    source = Source(session, tmp_path)
    sink = make_sink(driver_rows=FEW)

    def write(df, epoch):
        sink(spark.range(0).selectExpr("'' AS value").union(df), epoch)

    for number in range(5):
        source.add(*rows(number, 1))
    source.run(write, tmp_path / "checkpoint", of=lambda stream: stream.dropDuplicates(["value"]))
    assert len(values()) == 5
    assert by_driver == []


@pytest.mark.parametrize("store", ["hdfs-1", "rocksdb-1-changelog"])
def test_state_is_right_behind_a_wrong_guess(
    source, make_sink, name, tmp_path, by_driver, stores, store, pulsar_standalone
):
    stores(store)
    sink = make_sink(driver_rows=FEW)

    def write(df, epoch):
        sink(df.select(sf.to_json(sf.struct("value", "count")).alias("value")), epoch)

    keys = [f"key-{number}" for number in range(30)]
    epochs = [keys[:1], keys[:2], keys[:3], keys, keys[:2], keys]
    for lines in epochs:
        source.add(*lines)
    source.run(
        write, tmp_path / "checkpoint", of=lambda stream: stream.groupBy("value").count(),
        mode="update",
    )  # fmt: skip
    expected, counts = [], dict.fromkeys(keys, 0)
    for lines in epochs:
        for key in lines:
            counts[key] += 1
            expected.append((key, counts[key]))
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    found = [json.loads(one.value) for one in seen]
    assert sorted((one["value"], one["count"]) for one in found) == sorted(expected)
    assert by_driver == []


@pytest.fixture
def both(make_sink, tmp_path, name) -> Iterator[Sink]:
    """A topic and a table, all or nothing."""
    table = DeltaSink(sink_id=name, table=str(tmp_path / "table"), commit_log=str(tmp_path / "log"))
    sink = all_or_nothing(make_sink(driver_rows=FEW), table)
    yield sink
    sink.close()


def in_table(tmp_path) -> list[str]:
    return sorted(DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist())


def test_a_topic_and_a_table_hold_the_same(source, both, values, tmp_path, by_driver):
    written = run(source, both, tmp_path, 1, 2, 3, 4, 40, 5)
    assert values() == written
    assert in_table(tmp_path) == written
    assert by_driver == [4]


def test_rows_that_an_executor_has_taken_along_before_they_are_fetched_are_computed_anew(
    spark, both, values, tmp_path, by_driver, monkeypatch
):
    fetch, lost = FewRows.fetch, []

    def lose_them_first(self, rows):
        if not lost:
            lost.append(True)
            for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
                rdd.unpersist(True)
        return fetch(self, rows)

    monkeypatch.setattr(FewRows, "fetch", lose_them_first)
    df = spark.range(4).selectExpr("uuid() AS value")
    for number in range(4):
        both.write(df, epoch=str(number))
    assert lost
    assert by_driver == []
    assert len(values()) == 16
    assert in_table(tmp_path) == values()


def test_epochs_that_failed_do_not_count(spark, make_sink, by_driver):
    sink = make_sink(driver_rows=FEW)
    for number in range(3):
        with pytest.raises(InputError, match="Spark partition"):
            sink.write(spark.range(1).selectExpr("string(null) AS value"), epoch=f"bad-{number}")
    sink.write(spark.range(1).selectExpr("'a' AS value"), epoch="good")
    assert by_driver == []


def test_a_query_that_is_stopped_while_rows_are_fetched_has_not_failed(
    source, make_sink, values, tmp_path, by_driver
):
    sink = make_sink(driver_rows=FEW)
    written = run(source, sink, tmp_path, 1, 1, 1)
    is_slow = sf.udf(lambda text: time.sleep(0.4) or text, "string")
    begun = threading.Event()

    def write(df, epoch):
        begun.set()
        sink(df.select(is_slow("value").alias("value")), epoch)

    for _ in range(4):
        new = rows(source.count, 2)
        source.add(*new)
        written += new
        query = source.start(write, tmp_path / "checkpoint")
        assert begun.wait(60)
        begun.clear()
        time.sleep(0.4)
        query.stop()
        assert query.exception() is None
    source.run(sink, tmp_path / "checkpoint")
    assert values() == sorted(written)


def test_batches_of_few_rows_are_sent_by_the_driver_too(spark, make_sink, values, by_driver):
    sink = make_sink(driver_rows=FEW)
    for number in range(5):
        sink.write(spark.range(1).selectExpr(f"'{number}' AS value"), epoch=str(number))
    assert values() == [str(number) for number in range(5)]
    assert by_driver == [1, 1]
    with pytest.raises(InputError, match="null in row 0"):
        sink.write(spark.range(1).selectExpr("string(null) AS value"), epoch="5")
