"""``readCompacted``, compared with a reader of pulsar-client."""

from __future__ import annotations

import uuid
from contextlib import closing
from functools import partial

import pulsar
import pytest

from eos.errors import BrokerNotReady
from eos.retry import Patience
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._offsets import Offset
from eos.sources._open_transactions import StandstillWatch
from eos.sources._range_reader import read_range
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from tests.support.admin import call
from tests.support.judge import quiet_client


def judged(service_url: str, topic: str) -> list[tuple[str, bytes]]:
    """Remove pulsar-client's placeholders of messages that a compaction removed."""
    client = quiet_client(service_url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
        found = []
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=10_000)
            found.append((message.partition_key(), message.data()))
        return [(key, value) for key, value in found if key]
    finally:
        client.close()


@pytest.fixture
def compact(topic_admin):
    """Compacts the topic, and deletes the compacted ledgers."""

    def compact() -> None:
        topic_admin("PUT", "/compaction")
        patience = Patience(60)
        while topic_admin("GET", "/compaction")["status"] != "SUCCESS":
            assert not patience.is_over
            patience.pause()
        topic_admin("PUT", "/unload")
        topic_admin("POST", "/trim")

    return compact


def rows(frame) -> list[tuple[str, bytes]]:
    return [(row["__key"].decode(), bytes(row["value"] or b"")) for row in frame.collect()]


def test_a_compacted_topic_is_read_as_pulsar_client_reads_it(
    load, client, name, compact, pulsar_standalone
):
    columns = "value binary, __key binary"
    producer = client.producer(name, create=True)

    def send(*messages: tuple[str, bytes | None]) -> None:
        for key, value in messages:
            producer.send(value, key=key)
        producer.flush()

    for n in range(3):
        send(*((f"k{k}", b"%d" % n) for k in range(5)))
    everything = load(columns, readCompacted=True)  # not compacted yet
    assert len(rows(everything)) == 15
    send(("k1", None))
    producer.close()
    compact()
    left = rows(load(columns, readCompacted=True))
    assert left == judged(pulsar_standalone.service_url, name)
    assert sorted(left) == [(f"k{k}", b"2") for k in (0, 2, 3, 4)]
    producer = client.producer(name)
    send(("k2", b"3"), ("k9", b"3"), ("k2", b"4"))
    left = rows(load(columns, readCompacted=True))
    assert left == judged(pulsar_standalone.service_url, name)
    assert left[-3:] == [("k2", b"3"), ("k9", b"3"), ("k2", b"4")]
    assert len(left) == 7
    split = {"minPartitions": 2, "splitBy": "keys"}
    assert sorted(rows(load(columns, readCompacted=True, **split))) == sorted(left)
    with pytest.raises(Exception, match="split by keys"):
        load(readCompacted=True, minPartitions=2, adminUrl=pulsar_standalone.admin_url).collect()
    producer.close()


@pytest.mark.parametrize("after", [7, 9, None])
def test_a_compaction_meanwhile_is_noticed(client, name, pulsar_standalone, monkeypatch, after):
    """It may bring deleted keys back: apache/pulsar #26190. The broker's two answers are faked: how
    long a real compaction takes can't be chosen.
    """
    options = SourceOptions.parse(
        {
            "serviceUrl": pulsar_standalone.service_url,
            "adminUrl": pulsar_standalone.admin_url,
            "topic": name,
            "readCompacted": "true",
        }
    )
    with client.producer(name, create=True) as producer:
        producer.send(b"1", key="k")
    assert options.admin().compacted_ledger(options.topic_names[0]) is None
    with closing(EpochPlanner(options, None)) as planner:
        (one,) = planner.ranges(planner.bounded())
        form = RowFormat(planner.values(), ("value",))
    answers = iter([7, after])
    monkeypatch.setattr("eos.admin.AdminClient.compacted_ledger", lambda *_: next(answers))
    reading = read_range(options, form, one)
    assert next(reading).to_pylist() == [{"value": b"1"}]
    if after == 7:
        assert list(reading) == []
    else:
        with pytest.raises(BrokerNotReady, match="was compacted while it was read"):
            list(reading)


def test_a_broker_that_forgot_a_topics_end_hides_no_rows(client, pulsar_standalone):
    """The first topic of a namespace, compacted while the broker loads its transactions."""
    admin = partial(call, pulsar_standalone.admin_url)
    wanted = [b"%d" % n for n in range(500)]

    def compacted() -> str:
        namespace = f"public/compacted-{uuid.uuid4().hex[:8]}"
        topic, path = f"persistent://{namespace}/one", f"/v2/persistent/{namespace}/one"
        admin("PUT", f"/v2/namespaces/{namespace}")
        with client.producer(topic, create=True, max_batch_messages=100) as producer:
            for value in wanted:
                producer.send(value, key=value.decode())
            producer.flush()
            admin("PUT", f"{path}/compaction")  # at once: in time for one of two, if not busy
        patience = Patience(60)
        while admin("GET", f"{path}/compaction")["status"] != "SUCCESS":
            assert not patience.is_over
            patience.pause()
        return topic

    patience, is_forgotten = Patience(60), False
    while not is_forgotten:
        if patience.is_over:
            pytest.skip("the broker loaded each topic's transactions before it was compacted")
        topic = compacted()
        with closing(client.topic_bounds(topic)) as bounds:
            is_forgotten = bounds.last_id() is None

    def options(**more: str) -> SourceOptions:
        fixed = {"serviceUrl": pulsar_standalone.service_url, "topic": topic}
        return SourceOptions.parse({**fixed, **more})

    def values(chosen: SourceOptions, planner: EpochPlanner, offset: Offset) -> list[bytes]:
        form = RowFormat(planner.values(), ("value",))
        ranges = planner.ranges(offset)
        batches = [batch for one in ranges for batch in read_range(chosen, form, one)]
        return [value.as_py() for batch in batches for value in batch["value"]]

    for more in ({}, {"readCompacted": "true"}):
        with closing(EpochPlanner(options(**more), None)) as planner:
            assert values(options(**more), planner, planner.bounded()) == wanted
    streams = options(startingOffsets="earliest")
    with closing(EpochPlanner(streams, None)) as planner:
        planner.set_target()  # of availableNow
        assert values(streams, planner, planner.next_offset(planner.initial())) == wanted
    with closing(EpochPlanner(streams, None)) as planner:
        planner._standstill = StandstillWatch(look_s=0)
        start = planner.initial()
        assert planner.next_offset(start).spans[topic].is_empty
        assert values(streams, planner, planner.next_offset(start)) == wanted
    with closing(client.topic_bounds(topic)) as bounds:
        assert bounds.last_id() is None  # still, for who does not look


def test_options_of_batch_reads_are_refused_for_streams(run, send):
    send(b"0")
    for option, value in (("readCompacted", True), ("endingOffsets", "latest"), ("endingTime", 5)):
        with pytest.raises(Exception, match=f"{option} is for batch reads"):
            run(**{option: value})
