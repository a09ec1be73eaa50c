"""Idle producers and readers that a stream reuses from epoch to epoch; batch jobs keep none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eos.errors import TransactionPoisoned
from eos.pulsar import _contiguous_read, receipts
from eos.pulsar.part import pulsar_part
from eos.pulsar.participant import PulsarParticipant
from tests.support import admin
from tests.support.judge import drain
from tests.support.spark_releases import needs_data_sources
from tests.transport.scripted import wait_until


def producers(log) -> list[set[str]]:
    """The producers of each committed epoch, in order."""
    return [
        {name for part in pulsar_part(record).partitions for name in part.producers}
        for record in log()
        if record.state == "COMMITTED"
    ]


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: sorted(
        m.value.decode() for m in drain(url, f"persistent://public/default/{name}")
    )


def test_a_stream_reuses_producers_while_its_epochs_are_committed(
    source, make_sink, log, values, tmp_path
):
    for number in range(6):
        source.add(str(number))
    sink = make_sink()
    source.run(lambda df, epoch: sink(df.coalesce(1), epoch), tmp_path / "checkpoint")
    used = producers(log)
    assert len(used) == 6
    assert len(set.union(*used)) < 6
    assert values() == [str(number) for number in range(6)]


def readers(broker, log) -> list[str]:
    """The subscriptions of open readers on the receipt topic."""
    (topic,) = {pulsar_part(record).receipt_topic for record in log()}
    path = topic.replace("://", "/")
    stats = admin.call(broker.admin_url, "GET", f"/v2/{path}/stats")
    return sorted(one for one in stats["subscriptions"] if one.startswith("eos-reader"))


def await_none(found: Callable[[], list[object]]) -> None:
    """Wait for less than the 30 s after which idle ones are closed: no one waits for a close."""
    wait_until(lambda: not found(), timeout_s=15)


def test_a_streams_driver_and_tasks_reuse_one_reader_each(
    source, make_sink, log, tmp_path, pulsar_standalone, monkeypatch
):
    # The driver does not replace a reader that is late.
    monkeypatch.setattr(_contiguous_read, "IDLE_READ_TIMEOUT_S", 20.0)
    for number in range(6):
        source.add(str(number))
    sink = make_sink()
    open_ones: list[list[str]] = []

    def write(df, epoch):
        sink(df.coalesce(1), epoch)
        open_ones.append(readers(pulsar_standalone, log))

    source.run(write, tmp_path / "checkpoint")
    # Spark's local mode has few workers, and the driver: each opens one reader once.
    assert len(set().union(*open_ones)) < 6
    assert len(open_ones[-1]) >= 2


def test_producers_of_an_aborted_attempt_are_not_reused(
    source, make_sink, log, values, tmp_path, monkeypatch
):
    aborted: set[str] = set()
    calls: list[object] = []
    count = PulsarParticipant.count

    def poisoned_once(self, part, written):
        calls.append(part)
        if len(calls) == 2:
            for summary in written:
                aborted.update(name for one in summary.partitions for name in one.producers)
            raise TransactionPoisoned("made up")
        return count(self, part, written)

    monkeypatch.setattr(PulsarParticipant, "count", poisoned_once)
    for number in range(4):
        source.add(str(number))
    sink = make_sink()
    source.run(lambda df, epoch: sink(df.coalesce(1), epoch), tmp_path / "checkpoint")
    assert aborted
    assert len(calls) == 5
    assert not aborted & set.union(*producers(log)[1:])
    assert values() == [str(number) for number in range(4)]


def test_a_topic_can_be_deleted_after_a_batch_without_force(
    spark, make_sink, name, log, pulsar_standalone
):
    sink = make_sink()
    sink.write(spark.range(4).selectExpr("string(id) AS value"), epoch="1")
    await_none(lambda: readers(pulsar_standalone, log))
    admin.call(pulsar_standalone.admin_url, "DELETE", f"/v2/persistent/public/default/{name}")


@needs_data_sources
def test_the_datasource_writer_keeps_no_producers(
    spark, source, writer_options, log, tmp_path, pulsar_standalone, name
):
    """Its tasks don't know which transactions are committed, so they could not reuse producers."""
    for number in range(2):
        source.add(str(number))
    files = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source.folder))
    written = files.writeStream.format("pulsar").options(**writer_options)
    checkpoint = written.option("checkpointLocation", str(tmp_path / "checkpoint"))
    checkpoint.trigger(availableNow=True).start().awaitTermination()
    assert len(producers(log)) == 2
    path = f"/v2/persistent/public/default/{name}/stats"
    await_none(lambda: admin.call(pulsar_standalone.admin_url, "GET", path)["publishers"])
    await_none(lambda: readers(pulsar_standalone, log))


def test_a_deleted_schema_is_registered_again_by_a_new_producer(
    source, make_sink, tmp_path, name, pulsar_standalone, client
):
    for number in range(3):
        source.add(str(number))
    sink = make_sink(schema="json")

    def write(df, epoch):
        if epoch == 1:
            path = f"/v2/schemas/public/default/{name}/schema?force=true"
            admin.call(pulsar_standalone.admin_url, "DELETE", path)
        sink(df.coalesce(1), epoch)

    source.run(write, tmp_path / "checkpoint")
    assert client.schema(f"persistent://public/default/{name}") is not None


@pytest.mark.slow
def test_a_stream_keeps_no_idle_producers_at_the_limit(
    source, make_sink, log, tmp_path, name, pulsar_standalone
):
    url, topic = pulsar_standalone.admin_url, f"/v2/persistent/public/default/{name}"
    admin.call(url, "PUT", f"{topic}/partitions", 2)
    admin.call(url, "POST", f"{topic}/maxProducers", 1)
    wait_until(lambda: admin.call(url, "GET", f"{topic}/maxProducers") == 1)
    for number in range(4):
        source.add(*[f"{number}-{row}" for row in range(4)])
    sink = make_sink(create_topics=False)
    source.run(lambda df, epoch: sink(df.repartition(2), epoch), tmp_path / "checkpoint")
    ended = [(r.epoch, r.attempt, r.state) for r in log() if r.state in ("COMMITTED", "ABORTED")]
    assert ended == [(str(epoch), 1, "COMMITTED") for epoch in range(4)]


@pytest.mark.slow
def test_a_stream_keeps_no_idle_readers_at_the_limit(
    source, make_sink, log, tmp_path, pulsar_standalone, monkeypatch
):
    """Idle readers block only the acknowledging consumer, which is refused then."""
    monkeypatch.setattr(receipts, "EVERY_S", 0.0)
    for number in range(5):
        source.add(*[f"{number}-{row}" for row in range(4)])
    # Different options give the workers new clients: others may have hit a limit before.
    sink = make_sink(request_timeout_s=29)
    open_ones: list[list[str]] = []

    def write(df, epoch):
        sink(df.repartition(2), epoch)
        open_ones.append(readers(pulsar_standalone, log))
        if epoch == 1:
            (topic,) = {pulsar_part(record).receipt_topic for record in log()}
            path = f"/v2/{topic.replace('://', '/')}/maxConsumers"
            admin.call(pulsar_standalone.admin_url, "POST", path, 1)
            wait_until(lambda: admin.call(pulsar_standalone.admin_url, "GET", path) == 1)

    source.run(write, tmp_path / "checkpoint")
    ended = [(r.epoch, r.attempt, r.state) for r in log() if r.state in ("COMMITTED", "ABORTED")]
    assert ended == [(str(epoch), 1, "COMMITTED") for epoch in range(5)]
    assert open_ones[1]
    await_none(lambda: readers(pulsar_standalone, log))
