"""Batch reads of a window are complete or an error, also with open transactions."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from eos.chaos.cluster.processes import kill_session
from eos.errors import DataLost, EosError, TopicNotFound
from eos.sources import _open_transactions
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._offsets import Offset, Span
from eos.sources._open_transactions import StandstillWatch
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format
from eos.sources._value_format import ValueFormat
from eos.sources.data_source import schema_of_source
from tests.support.judge import drain, quiet_client
from tests.transport.scripted import wait_until


def values(df):
    return [bytes(row["value"]) for row in df.select("value").collect()]


def now_ms() -> int:
    time.sleep(0.01)
    return int(time.time() * 1000)


@pytest.fixture
def admin(pulsar_standalone):
    return {"adminUrl": pulsar_standalone.admin_url}


@pytest.fixture
def held(send, client, name):
    """Sends ten messages, ten in an open transaction, ten more; returns it and its place."""
    send(*(b"0-%d" % n for n in range(10)))
    producer = client.entry_producer(name)
    txn = client.transaction(timeout_s=300)
    sent = [producer.send(b"1-%d" % n, txn=txn) for n in range(10)]
    place = sent[0].result(timeout=20)
    producer.flush()
    send(*(b"2-%d" % n for n in range(10)))
    yield txn, place
    with contextlib.suppress(EosError):  # it has ended
        txn.abort()


def test_an_end_after_an_open_transaction_is_waited_for_and_then_an_error(
    load, held, name, admin, pulsar_standalone, send
):
    txn, place = held
    moment = now_ms()
    at_once = {"endingTime": moment, "endingWaitS": 0}
    where = rf"persistent://public/default/{name} from {place.ledger}:{place.entry} on"
    named = rf"transaction \({txn.id.most},{txn.id.least}\) is open in {where}, since 20"
    with pytest.raises(Exception, match=named):
        load(**at_once, **admin).collect()
    with pytest.raises(Exception, match=rf"a transaction is open in {where} \(set adminUrl"):
        load(**at_once).collect()
    beyond = json.dumps({name: f"{place.ledger}:{place.entry + 12}"})
    with pytest.raises(Exception, match="onOpenTransaction=stop"):
        load(endingOffsets=beyond, endingWaitS=0).collect()
    first = [b"0-%d" % n for n in range(10)]
    assert values(load(**at_once, onOpenTransaction="stop")) == first
    assert values(load()) == first  # the read ends at the current end
    before = json.dumps({name: f"{place.ledger}:{place.entry}"})
    assert values(load(endingOffsets=before, endingWaitS=0)) == first
    threading.Timer(1, txn.commit).start()
    window = values(load(endingTime=moment, endingWaitS=60))
    send(b"3")
    assert values(load(startingTime=moment)) == [b"3"]
    judged = [seen.value for seen in drain(pulsar_standalone.service_url, name)]
    assert [*window, b"3"] == judged
    assert len(window) == 30


def test_markers_and_aborted_entries_at_the_end_are_not_waited_for(
    load, send, client, name, topic_admin
):
    send(b"0")
    producer = client.entry_producer(name)
    for end in ("commit", "abort"):
        txn = client.transaction()
        [producer.send(end.encode(), txn=txn).result(timeout=20) for _ in range(40)]
        getattr(txn, end)()
    producer.close()
    window = {"endingTime": now_ms(), "endingWaitS": 60}
    assert len(values(load(**window))) == 41
    topic_admin("PUT", "/unload")
    assert len(values(load(**window))) == 41


def test_delayed_messages_are_read_by_their_publish_time(load, name, pulsar_standalone):
    """As with a reader of pulsar-client; only shared subscriptions wait."""
    client = quiet_client(pulsar_standalone.service_url)
    producer = client.create_producer(name)
    producer.send(b"late", deliver_at=now_ms() + 3_600_000)
    producer.send(b"0")
    client.close()
    assert values(load(endingTime=now_ms())) == [b"late", b"0"]
    assert [seen.value for seen in drain(pulsar_standalone.service_url, name)] == [b"late", b"0"]


def test_an_end_in_the_future_is_waited_for_or_an_error(load, send):
    send(b"0")
    with pytest.raises(Exception, match=r"endingTime is 20\S+, 3\d{3} s from now"):
        load(endingTime=now_ms() + 3_600_000).collect()
    end_ms = now_ms() + 10_000
    threading.Timer(0.5, lambda: send(b"1")).start()
    assert values(load(endingTime=end_ms)) == [b"0", b"1"]
    assert now_ms() >= end_ms


def test_consecutive_windows_have_each_message_once(load, send, client, name, pulsar_standalone):
    chance = random.Random(7)
    producer = client.entry_producer(name, create=True)
    cuts, open_ones = [], []
    for n in range(60):
        if n % 12 == 11:
            cuts.append(now_ms())
            time.sleep(0.01)
        if len(open_ones) < 3 and chance.random() < 0.3:
            open_ones.append(client.transaction(timeout_s=120))
        txn = chance.choice([None, *open_ones])
        producer.send(b"%d" % n, txn=txn).result(timeout=20)
        if open_ones and chance.random() < 0.1:
            getattr(open_ones.pop(0), chance.choice(["commit", "abort"]))()
    end = now_ms()

    def settle() -> None:
        for one in open_ones:
            time.sleep(1)
            one.commit()

    settling = threading.Thread(target=settle)
    settling.start()
    read = []
    for start, stop in zip([0, *cuts], [*cuts, end], strict=True):
        read += values(load(startingTime=start, endingTime=stop))
    settling.join()
    assert read == [seen.value for seen in drain(pulsar_standalone.service_url, name)]


def planner(options) -> EpochPlanner:
    chosen = SourceOptions.parse({**options, "startingOffsets": "earliest"})
    form = ValueFormat(None, None, chosen.mode)
    return EpochPlanner(chosen, row_format(form, schema_of_source(form, metadata=False)))


def test_a_checkpoint_of_an_older_release_continues_at_the_subscription(
    send, client, name, options, caplog
):
    """It does not have the places of former topics. A checkpoint of this release has them:
    a missing topic is new, or the checkpoint was set back."""
    ids = send(b"0", b"1", b"2", b"3")
    topic = f"persistent://public/default/{name}"
    client.cursor(topic, "eos-source-1").acknowledge(ids[1])
    old = {"partitions": {}, "subscription": "eos-source-1", "version": 1}
    for checkpoint, start in ((old, ids[2]), (old | {"keepsLeft": True}, ids[0])):
        epochs = planner(options)
        try:
            with caplog.at_level(logging.WARNING, "eos.sources"):
                offset = epochs.next_offset(Offset.from_json(checkpoint))
        finally:
            epochs.close()
        assert offset.spans[topic] == Span(start.place, (start.ledger, 4))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("count", [1, 5])
def test_a_topic_recreated_under_a_running_query_is_a_loss(send, name, options, topic_admin, count):
    send(b"0", b"1", b"2")
    epochs = planner(options)
    try:
        offset = epochs.next_offset(epochs.initial())
        assert epochs.next_offset(offset) is offset
        topic_admin("DELETE", "?force=true")
        with pytest.raises((DataLost, TopicNotFound), match=name):
            epochs.next_offset(offset)
        send(*(b"new %d" % n for n in range(count)))
        for _ in range(2):
            with pytest.raises(DataLost, match=rf"{name}.*(no longer exist|recreated)"):
                epochs.next_offset(offset)
    finally:
        epochs.close()


def test_a_stream_blocked_by_an_open_transaction_warns_repeatedly(
    held, send, client, name, options, admin, caplog, monkeypatch
):
    txn, place = held
    clock = SimpleNamespace(now=0.0)
    # Only of the watch: the clock of all else continues.
    watched = SimpleNamespace(monotonic=lambda: clock.now, time=time.time, sleep=time.sleep)
    monkeypatch.setattr(_open_transactions, "time", watched)
    epochs = planner({**options, **admin})
    try:
        with caplog.at_level(logging.WARNING, "eos.sources"):
            offset = epochs.next_offset(epochs.initial())
            for clock.now, warnings in ((0.0, 0), (59.0, 0), (70.0, 1), (369.0, 1), (380.0, 2)):
                for _ in range(3):
                    offset = epochs.next_offset(offset)
                assert len(caplog.records) == warnings
            for record in caplog.records:
                assert f"transaction {txn.id} is open" in record.message
                assert f"{name} from {place.ledger}:{place.entry} on" in record.message
            caplog.clear()
            txn.commit()
            send(b"3")
            epochs._standstill = StandstillWatch(look_s=0, warn_s=0, again_s=0)
            for _ in range(3):
                offset = epochs.next_offset(offset)
            assert not caplog.records
    finally:
        epochs.close()


@pytest.mark.chaos  # it is blocked for a minute, as for users
def test_a_blocked_query_names_the_transaction_on_standard_error(
    held, pulsar_standalone, name, tmp_path
):
    txn, _ = held
    log = tmp_path / "driver.log"
    args = (pulsar_standalone.service_url, pulsar_standalone.admin_url, name, "30")
    command = [sys.executable, "-m", "tests.sources.standing_job", *args]
    with log.open("wb") as out:
        job = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until(lambda: "read nothing of" in log.read_text() or job.poll(), timeout_s=240)
        topic = f"persistent://public/default/{name}"
        assert f"transaction {txn.id} is open in {topic} from" in log.read_text()
        txn.commit()
        assert job.wait(120) == 0
    finally:
        kill_session(job.pid)
