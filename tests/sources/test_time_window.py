"""Time windows of batch reads, also where publish times decrease."""

from __future__ import annotations

import contextlib
import random
import re
import time

import pulsar
import pyarrow as pa
import pytest

from eos.client import PulsarClient
from eos.errors import ConfigurationError
from eos.sources._source_options import SourceOptions
from eos.sources._time_window import TimeWindow
from tests.support.judge import quiet_client

BEGIN_MS = 1_700_000_000_000
SLACK_MS = 2_000


def published_ms(service_url: str, topic: str, count: int) -> dict[bytes, int]:
    """What pulsar-client says of so many messages: their values and publish times."""
    client = quiet_client(service_url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        read = [reader.read_next(10_000) for _ in range(count)]
        return {message.data(): message.publish_timestamp() for message in read}
    finally:
        # NotConnected, now and then, if the topic was unloaded: all has been read.
        with contextlib.suppress(pulsar.NotConnected):
            client.close()


@pytest.fixture
def times_ms(
    client: PulsarClient, name: str, pulsar_standalone, monkeypatch: pytest.MonkeyPatch
) -> dict[bytes, int]:
    """Sends 300 messages, each up to ``SLACK_MS`` older than one before it; returns what
    pulsar-client says of their values and publish times, in their order."""
    chance = random.Random(5)
    clock = iter(BEGIN_MS + 100 * n - chance.randrange(SLACK_MS) for n in range(300))
    monkeypatch.setattr("time.time_ns", lambda: next(clock) * 1_000_000)
    producer = client.entry_producer(name, create=True)
    for n in range(300):
        producer.send(b"%d" % n, key=f"k{n % 7}").result(timeout=20)
    monkeypatch.undo()
    producer.close()
    found = published_ms(pulsar_standalone.service_url, name, 300)
    assert sorted(found.values()) != list(found.values())
    return found


def test_a_window_has_exactly_the_messages_published_in_it(load, times_ms):
    chance = random.Random(6)
    span = {"publishTimeSlackS": SLACK_MS / 1000}
    cuts = sorted(chance.sample(range(BEGIN_MS, BEGIN_MS + 30_000), 4))
    for start, end in zip([None, *cuts], [*cuts, None], strict=True):
        window = {"startingTime": start, "endingTime": end}
        expected = [
            value
            for value, time_ms in times_ms.items()
            if (start or 0) <= time_ms < (end or time_ms + 1)
        ]
        assert [
            bytes(row[0]) for row in load("value binary", **window, **span).collect()
        ] == expected


def test_a_slack_that_is_too_small_is_an_error(load, times_ms):
    late = {"startingTime": BEGIN_MS + 15_000, "publishTimeSlackS": 0.01}
    with pytest.raises(Exception, match=r"Set publishTimeSlackS to more than [01]:"):
        load("value binary", **late).collect()
    early = {"endingTime": BEGIN_MS + 15_000, "publishTimeSlackS": 0.01}
    with pytest.raises(Exception, match="may lack messages"):
        load("value binary", **early).collect()


@pytest.mark.parametrize("odd_ms", [0, 2**62])
def test_a_message_with_any_publish_time_has_a_way_out(odd_ms):
    times = pa.array([BEGIN_MS, odd_ms, BEGIN_MS + 1], pa.timestamp("ms", "UTC"))
    rows = pa.record_batch({"publish_time": times})
    with pytest.raises(ConfigurationError) as refused:
        TimeWindow(BEGIN_MS, BEGIN_MS + 10, 60_000).select(rows, "t")
    needed = int(re.findall(r"publishTimeSlackS to more than (\d+)", refused.value.hint)[0])
    options = {"serviceUrl": "pulsar://host:6650", "topic": "t", "publishTimeSlackS": needed + 1}
    slack_ms = SourceOptions.parse(options).publish_time_slack_ms
    found = TimeWindow(BEGIN_MS, BEGIN_MS + 10, slack_ms).select(rows, "t")
    assert found["publish_time"].cast(pa.int64()).to_pylist() == [BEGIN_MS, BEGIN_MS + 1]


def test_the_window_of_a_terminated_topic_reaches_its_end(
    load, send, client, name, topic_admin, pulsar_standalone
):
    """For a time after its last message the broker finds the beginning of its last ledger."""
    send(*(b"%d" % n for n in range(5)))
    topic_admin("PUT", "/unload")
    send(*(b"%d" % n for n in range(5, 8)))
    topic_admin("POST", "/terminate")
    topic_admin("PUT", "/unload")
    judged = published_ms(pulsar_standalone.service_url, name, 8)
    window = load("value binary", startingTime=0, endingTime=int(time.time() * 1000) + 10)
    assert [bytes(row["value"]) for row in window.collect()] == list(judged)


def test_a_terminated_topic_of_one_ledger_is_read_once_it_was_loaded_again(
    load, client, name, topic_admin, pulsar_standalone, monkeypatch
):
    """The broker can't look for a publish time in it: an error with code -14."""
    clock = iter(BEGIN_MS + 200_000 * n for n in range(9))
    monkeypatch.setattr("time.time_ns", lambda: next(clock) * 1_000_000)
    producer = client.entry_producer(name, create=True)
    for n in range(9):
        producer.send(b"%d" % n).result(timeout=20)
    monkeypatch.undo()
    producer.close()
    topic_admin("POST", "/terminate")
    topic_admin("PUT", "/unload")
    judged = published_ms(pulsar_standalone.service_url, name, 9)
    times = list(judged.values())
    for start, end in ((None, None), (times[3], None), (None, times[5]), (times[3], times[5])):
        window = {"startingTime": start, "endingTime": end}
        chosen = {option: value for option, value in window.items() if value is not None}
        expected = [
            value
            for value, time_ms in judged.items()
            if (start or 0) <= time_ms < (end or time_ms + 1)
        ]
        assert [bytes(row[0]) for row in load("value binary", **chosen).collect()] == expected
