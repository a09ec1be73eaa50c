"""PulsarSink with stateful queries, and with the user's job groups and threads."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException

from eos import failpoints
from eos.errors import TransactionPoisoned
from eos.steps import Step
from tests.sinks.test_stateful import counts, tokens
from tests.support.judge import drain

KEYS = ["a", "b", "c", "d"]


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: [m.value.decode() for m in drain(url, f"persistent://public/default/{name}")]


@pytest.fixture
def job(source, make_sink, tmp_path):
    """Runs a query whose rows have the state before and after them."""

    def run(*, by_key: bool = False) -> None:
        sink = make_sink(max_attempts=2)

        def call(df, epoch) -> None:
            rows = df.selectExpr("concat_ws(' ', key, new, old) AS value")
            if by_key:
                sink.write(rows, epoch=f"of {epoch}")
            else:
                sink(rows, epoch)

        source.add(*KEYS)
        source.run(call, tmp_path / "checkpoint", tokens, "update")

    return run


def check_chain(values: list[str], epochs: int) -> None:
    """Check that each key has one row in each epoch, with the state after its previous row."""
    chains = defaultdict(list)
    for value in values:
        key, new, *old = value.split(" ")
        chains[key].append((old[0] if old else "", new))
    assert sorted(chains) == KEYS
    for chain in chains.values():
        assert [old for old, _ in chain] == ["", *(new for _, new in chain[:-1])]
        assert len(chain) == epochs


def poison_once():
    """Fail the first attempt after all its rows were sent."""
    left = [TransactionPoisoned("for this test")]

    def fail() -> None:
        if left:
            raise left.pop()

    return failpoints.armed(Step.WRITE, fail)


@pytest.mark.parametrize("name_of_stores", ["hdfs-1", "rocksdb-2-changelog"])
def test_a_stateful_query_continues_after_a_skipped_epoch(
    source, make_sink, values, stores, tmp_path, name_of_stores
):
    stores(name_of_stores)
    fails_at = [1]

    def call(df, epoch) -> None:
        make_sink()(df.selectExpr("concat(value, ' ', count) AS value"), epoch)
        if epoch in fails_at:
            fails_at.remove(epoch)
            raise RuntimeError("before the checkpoint")

    def run() -> None:
        source.run(call, tmp_path / "checkpoint", counts, "update")

    for _ in range(3):
        source.add(*KEYS)
    with pytest.raises(StreamingQueryException, match="before the checkpoint"):
        run()
    run()
    assert sorted(values()) == [f"{key} {n}" for key in KEYS for n in (1, 2, 3)]


def test_an_epoch_that_runs_twice_keeps_the_state_of_its_written_rows(job, stores, values):
    stores("hdfs-1")
    job()
    with poison_once():
        job()
    job()
    check_chain(values(), 3)


@pytest.mark.parametrize("by_key", [False, True])
def test_an_epoch_with_state_format_2_does_not_run_twice(job, stores, values, by_key):
    stores("rocksdb-2-changelog")
    job(by_key=by_key)
    with poison_once(), pytest.raises(StreamingQueryException, match="for this test"):
        job(by_key=by_key)
    job(by_key=by_key)  # the repeated epoch, and the next one
    check_chain(values(), 3)


def test_a_second_call_in_one_epoch_is_an_error_in_any_job_group(
    source, make_sink, values, spark, tmp_path
):
    source.add("a")
    sink = make_sink()

    def twice(df, epoch) -> None:
        spark.sparkContext.setJobGroup("one", "the user's own")
        sink(df, epoch)
        spark.sparkContext.setJobGroup("two", "the user's own")
        sink(df, epoch)

    with pytest.raises(StreamingQueryException, match="called twice for one epoch"):
        source.run(twice, tmp_path / "checkpoint")
    assert values() == ["a"]


def test_sinks_work_in_the_users_threads(source, make_sink, pulsar_standalone, name, tmp_path):
    ids = [f"{name}-{n}" for n in range(2)]
    sinks = [make_sink(sink_id=sink_id, topic=sink_id) for sink_id in ids]

    def write_all(df, epoch) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda sink: sink(df, epoch), sinks))

    for value in ("a", "b"):
        source.add(value)
        source.run(write_all, tmp_path / "checkpoint")
    for topic in ids:
        seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{topic}")
        assert [message.value for message in seen] == [b"a", b"b"]
