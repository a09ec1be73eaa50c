"""A topic and a table in one epoch, through real Spark: both have it, or none has."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.functions import struct, to_json

from eos import DeltaSink, all_or_nothing, failpoints
from eos.commit_log import CommitLog
from eos.committer import OpenAttempt
from eos.errors import ConfigurationError, TransactionPoisoned
from eos.protocol import State
from eos.recovery.resolve import resolve
from eos.sinks.delta_sink import DeltaOutput
from eos.steps import AnyStep, EndingStep, Step
from tests.support.judge import drain

PLACES = [
    Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.RECEIPT, Step.PREPARE, Step.END,
    EndingStep.PART, EndingStep.OUTCOME, Step.FINISH,
]  # fmt: skip


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def table(tmp_path) -> str:
    return str(tmp_path / "table")


def frames(df: DataFrame) -> list[DataFrame]:
    return [df.select(to_json(struct("*")).alias("value")), df]


@pytest.fixture
def make_both(make_sink, tmp_path, table, name):
    made = []

    def make(**options):
        shared = {"sink_id": name, "commit_log": str(tmp_path / "log")}
        pulsar = {key: options.pop(key) for key in ("transaction_ttl_s",) if key in options}
        made.append(
            all_or_nothing(
                make_sink(**options, **pulsar),
                DeltaSink(**shared, **options, table=table),
                frames=frames,
            )
        )
        return made[-1]

    yield make
    for sink in made:
        sink.close()


@pytest.fixture
def ids(pulsar_standalone, name, table):
    """Return the rows that readers of both outputs have."""
    topic = f"persistent://public/default/{name}"

    def read() -> tuple[list[int], list[int]]:
        messages = drain(pulsar_standalone.service_url, topic)
        in_topic = sorted(json.loads(message.value)["id"] for message in messages)
        in_table = DeltaTable(table).to_pyarrow_table()["id"].to_pylist()
        return in_topic, sorted(in_table)

    return read


def dies_behind(place: AnyStep, run) -> None:
    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        with failpoints.armed(place, die), pytest.raises(Died):
            run()


def test_an_epoch_is_in_both_outputs_and_its_rerun_is_skipped(
    spark, make_both, ids, name, tmp_path
):
    df = spark.range(100).selectExpr("id", "id % 7 AS mod")
    first = make_both().write(df, epoch="a")
    again = make_both().write(df, epoch="a")
    assert (first.status, first.records, again.status) == ("written", 200, "skipped")
    assert ids() == (list(range(100)),) * 2
    records = CommitLog.open_read_only(tmp_path / "log", name).records()
    record = next(one for one in records if one.state is State.COMMITTED)
    assert [(part.kind, part.records) for part in record.participants] == [
        ("pulsar", 100),
        ("delta", 100),
    ]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.label)
def test_recovery_after_a_death_at_any_step_leaves_both_outputs_whole_or_empty(
    spark, make_both, ids, name, tmp_path, place
):
    make_both().write(spark.range(10), epoch="a")
    more = spark.range(10, 20)
    dies_behind(place, lambda: make_both().write(more, epoch="b"))
    resolve(name, commit_log=tmp_path / "log")
    topic, table = ids()
    assert topic == table
    assert len(topic) in (10, 20)
    make_both().write(more, epoch="b")
    assert ids() == (list(range(20)),) * 2


def test_a_stream_over_restarts_with_a_death_between_the_two_commits(
    source, make_both, pulsar_standalone, table, name, tmp_path
):
    source.add("a", "b")
    source.run(make_both(), tmp_path / "checkpoint")
    source.add("c")
    sink = make_both()

    def die(df, epoch) -> None:
        dies_behind(EndingStep.PART, lambda: sink._write_batch(df, epoch))
        raise RuntimeError("the driver is gone")

    with pytest.raises(Exception, match="the driver is gone"):
        source.run(die, tmp_path / "checkpoint")
    source.add("d")
    source.run(make_both(), tmp_path / "checkpoint")
    messages = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    in_topic = [json.loads(message.value)["value"] for message in messages]
    in_table = DeltaTable(table).to_pyarrow_table()["value"].to_pylist()
    assert sorted(in_topic) == sorted(in_table) == ["a", "b", "c", "d"]


def test_the_rows_are_computed_once(spark, make_both, ids, tmp_path):
    def counted(batches):
        for batch in batches:
            with (tmp_path / "computed").open("a") as file:
                file.write("x" * batch.num_rows)
            yield batch

    df = spark.range(50).mapInArrow(counted, "id long")
    make_both().write(df, epoch="a")
    assert ids() == (list(range(50)),) * 2
    assert len((tmp_path / "computed").read_text()) == 50
    assert not df.is_cached


def test_rows_of_a_lost_executor_are_recomputed_for_both_outputs(
    spark, make_both, ids, monkeypatch
):
    """Random ids differ when rows are computed twice. (Spark's rand() keeps its seed.)"""

    def random_ids(batches):
        import random

        for batch in batches:
            ids = [random.SystemRandom().randrange(2**50) for _ in range(batch.num_rows)]
            yield pa.record_batch([pa.array(ids, pa.int64())], names=["id"])

    df = spark.range(0, 50, 1, 2).mapInArrow(random_ids, "id long")
    plan, lost = DeltaOutput.plan, []

    def lose_them_first(self, frame, context, *others):
        write = plan(self, frame, context, *others)

        def write_without_them():
            if not lost:
                lost.append(True)
                for rdd in context._jsc.getPersistentRDDs().values():
                    rdd.unpersist(True)
            return write()

        return write_without_them

    monkeypatch.setattr(DeltaOutput, "plan", lose_them_first)
    assert make_both().write(df, epoch="a").records == 100
    topic, table = ids()
    assert topic == table
    assert lost


def test_the_users_cache_is_kept(spark, make_both):
    df = spark.range(5).cache()
    make_both().write(df, epoch="a")
    assert df.is_cached
    df.unpersist()


def test_a_poisoned_transaction_leaves_no_rows_in_the_table(
    spark, make_both, ids, tmp_path, monkeypatch
):
    make_both().write(spark.range(5), epoch="a")
    sink = make_both(max_attempts=1)
    monkeypatch.setattr("eos.pulsar.participant.find_poison", lambda *_: "a test says so")
    with pytest.raises(TransactionPoisoned):
        sink.write(spark.range(5, 10), epoch="b")
    monkeypatch.undo()
    assert ids() == (list(range(5)),) * 2
    assert len(list((tmp_path / "table").glob("*.parquet"))) == len(
        DeltaTable(tmp_path / "table").file_uris()
    )


def test_an_epoch_may_have_no_rows_for_one_output(spark, make_sink, name, tmp_path, table, ids):
    def only_even(df: DataFrame) -> list[DataFrame]:
        return [df.where("false").select(to_json(struct("*")).alias("value")), df]

    log = str(tmp_path / "log")
    outputs = make_sink(), DeltaSink(sink_id=name, commit_log=log, table=table)
    sink = all_or_nothing(*outputs, frames=only_even)
    assert sink.write(spark.range(5), epoch="a").records == 5
    assert ids() == ([], list(range(5)))
    sink.close()


def test_sinks_with_different_options_are_refused(make_sink, name, table, tmp_path):
    log = str(tmp_path / "log")
    delta = DeltaSink(sink_id=name, commit_log=log, table=table)
    with pytest.raises(ConfigurationError, match=r"expire.*two sinks"):
        all_or_nothing(make_sink(), make_sink(topic=f"{name}-2"))
    with pytest.raises(ConfigurationError, match=r"different values for 'sink_id'"):
        all_or_nothing(make_sink(sink_id="other"), delta)
    with pytest.raises(ConfigurationError, match="two sinks or more"):
        all_or_nothing(delta)


def test_one_commit_log_may_be_written_in_two_ways(name, tmp_path):
    logs = [f"{tmp_path}/log", f"{tmp_path}/log/", f"file://{tmp_path}/log"]
    tables = [str(tmp_path / one) for one in "abc"]
    pairs = zip(logs, tables, strict=True)
    all_or_nothing(*(DeltaSink(sink_id=name, commit_log=log, table=table) for log, table in pairs))


def test_nesting_is_refused(name, tmp_path):
    shared = {"sink_id": name, "commit_log": str(tmp_path / "log")}
    a, b, c = (DeltaSink(**shared, table=str(tmp_path / one)) for one in "abc")
    with pytest.raises(ConfigurationError, match=r"all_or_nothing\(a, b, c\)"):
        all_or_nothing(all_or_nothing(a, b), c)


def test_one_table_twice_is_refused(spark, name, table, tmp_path):
    log = str(tmp_path / "log")
    twice = [DeltaSink(sink_id=name, commit_log=log, table=table) for _ in range(2)]
    with pytest.raises(ConfigurationError, match=r"Two outputs write to the same target.*Union"):
        all_or_nothing(*twice).write(spark.range(5), epoch="a")


def test_an_epoch_is_in_both_tables_or_in_none(spark, name, tmp_path):
    log = str(tmp_path / "log")
    tables = [str(tmp_path / "one"), str(tmp_path / "two")]

    def make():
        sinks = [DeltaSink(sink_id=name, commit_log=log, table=table) for table in tables]
        return all_or_nothing(*sinks)

    make().write(spark.range(5), epoch="a")
    dies_behind(EndingStep.PART, lambda: make().write(spark.range(5, 10), epoch="b"))
    read = lambda: [sorted(DeltaTable(t).to_pyarrow_table()["id"].to_pylist()) for t in tables]  # noqa: E731
    assert read() == [list(range(10)), list(range(5))]
    resolve(name, commit_log=log)
    assert read() == [list(range(10))] * 2


def test_frames_must_return_one_dataframe_for_each_sink(spark, make_sink, name, table, tmp_path):
    delta = DeltaSink(sink_id=name, commit_log=str(tmp_path / "log"), table=table)
    sink = all_or_nothing(make_sink(), delta, frames=lambda df: [df])
    with pytest.raises(ConfigurationError, match="1 DataFrames for 2 sinks"):
        sink.write(spark.range(5), epoch="a")
