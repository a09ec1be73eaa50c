"""The reader on a real broker: its batches, where it begins and stops, how it continues."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from eos.client import PulsarClient, Reader
from eos.errors import ConfigurationError, DataLost, Fatal, TopicNotFound
from eos.ids import MessageId
from eos.testing import PulsarStandalone
from eos.wire.batch import Compression, Message, encode_batches, rows_from_messages
from eos.wire.decoding import COLUMNS
from tests.support.admin import call, create_partitioned, messages_out
from tests.support.receiving import WITHIN_S, readable


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def values(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    return [row["value"] for row in rows(batches)]


def send(client: PulsarClient, topic: str, *sent: bytes) -> list[MessageId]:
    """Send one entry for each of ``sent``."""
    producer = client.entry_producer(topic, create=True)
    ids = [receipt.result(timeout=20) for receipt in [producer.send(value) for value in sent]]
    producer.close()
    return ids


def numbered(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


# --- its batches --------------------------------------------------------------------------------


def test_batches_hold_the_columns_that_are_asked_for(client, name):
    producer = client.entry_producer(name, create=True)
    sent = producer.send(b"v", key="k", properties={"p": "q"}, event_time_ms=5).result(timeout=20)
    with client.reader(name, columns=tuple(COLUMNS)) as reader:
        ((row,), *_) = [batch.to_pylist() for batch in reader.read_to(reader.last_id)]
    assert (row["value"], row["key"], row["properties"]) == (b"v", b"k", [("p", "q")])
    assert row["event_time"].timestamp() == 0.005
    assert (row["ledger"], row["entry"], row["batch_index"]) == (sent.ledger, sent.entry, 0)
    assert row["producer_name"] == producer.name


@pytest.mark.parametrize("compression", Compression)
def test_large_entries_and_many_small_ones_are_read_whole(client, name, compression):
    messages = [Message(b"%07d" % n * (n % 300), key=f"{n % 7}") for n in range(20_000)]
    producer = client.entry_producer(name, create=True)
    for some in (messages[:15_000], *(messages[n : n + 10] for n in range(15_000, 20_000, 10))):
        columns = rows_from_messages(some)
        for batch in encode_batches(columns, producer.max_batch_bytes, compression=compression):
            producer.send_batch(batch)
    producer.flush()
    with client.reader(name, columns=("value", "key")) as reader:
        read = rows(reader.read_to(reader.last_id))
    assert [row["value"] for row in read] == [message.value for message in messages]
    assert [row["key"].decode() for row in read] == [message.key for message in messages]


def test_a_column_that_is_none_is_refused(client, name):
    with pytest.raises(ConfigurationError, match="Choose from value"):
        client.reader(name, columns=("__key",))


# --- transactions -------------------------------------------------------------------------------


def test_only_what_is_committed_is_read_and_gaps_are_no_end(client, name):
    producer = client.entry_producer(name, create=True)
    wanted = []
    for n in range(12):
        txn = client.transaction()
        producer.send(b"%d" % n, txn=txn).result(timeout=20)
        if n % 3:
            txn.commit()
            wanted.append(b"%d" % n)
        else:
            txn.abort()
    open_txn = client.transaction()
    producer.send(b"open", txn=open_txn).result(timeout=20)
    with client.reader(name) as reader:
        assert values(reader.read_to(reader.last_id)) == wanted
        assert not list(reader.read(idle_s=0.3))
        open_txn.commit()
        assert readable(client, reader) == [b"open"]


# --- where it begins and stops ------------------------------------------------------------------


def test_reading_stops_behind_the_end_and_goes_on_there(client, name):
    ids = send(client, name, *numbered(6))
    with client.reader(name) as reader:
        assert values(reader.read_to(ids[1])) == numbered(2)
        assert reader.next_id == MessageId(ids[1].ledger, ids[1].entry + 1)
        assert values(reader.read_to(ids[1])) == []
        assert values(reader.read_to(ids[2])) == numbered(6)[2:3]
        assert readable(client, reader) == numbered(6)[3:]


@pytest.fixture
def entry_by_entry(monkeypatch):
    """Each entry becomes a batch of its own."""
    monkeypatch.setattr("eos.wire.decoding._entry_decoder.GROUP_BYTES", 1)


def test_a_caller_who_stops_in_between_loses_nothing(client, name, entry_by_entry):
    ids = send(client, name, b"0")
    producer = client.entry_producer(name)
    for compression in (Compression.LZ4, Compression.NONE) * 3:
        messages = [Message(b"x" * 100)] * 5
        for batch in encode_batches(rows_from_messages(messages), compression=compression):
            producer.send_batch(batch).result(timeout=20)
    with client.reader(name, columns=("ledger", "entry", "batch_index")) as reader:
        end = reader.last_id
        read = []
        while reader.next_id is None or reader.next_id <= end:
            batch = next(iter(reader.read_to(end)))
            last = batch.to_pylist()[-1]
            assert reader.next_id == MessageId(last["ledger"], last["entry"] + 1)
            read.append(batch)
    assert len(read) > 1
    places = [tuple(row.values()) for row in rows(read)]
    assert places == sorted(set(places))
    assert len(places) == 31
    assert places[0][:2] == ids[0].place


def test_the_start_is_included(client, name):
    ids = send(client, name, *numbered(4))
    with client.reader(name, start=ids[2]) as reader:
        assert values(reader.read_to(reader.last_id)) == numbered(4)[2:]


def test_a_start_behind_the_end_gives_only_what_comes_after_it(client, name):
    ids = send(client, name, *numbered(3))
    with client.reader(name, start=MessageId(ids[-1].ledger, ids[-1].entry + 1)) as reader:
        assert values(reader.read_to(reader.last_id)) == []
        send(client, name, b"new")
        assert readable(client, reader) == [b"new"]


def test_an_empty_topic_has_no_last_entry(client, name):
    client.create_unpartitioned(name)
    with client.reader(name) as reader:
        assert reader.last_id is None
        assert values(reader.read_to(reader.last_id)) == []


def test_a_partition_is_read_by_its_exact_name(client, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    send(client, f"{name}-partition-1", b"one")
    with client.reader(f"{name}-partition-1") as reader:
        assert values(reader.read_to(reader.last_id)) == [b"one"]


def test_a_topic_that_is_not_there_is_an_error_and_is_not_made(client, name):
    with pytest.raises(TopicNotFound):
        client.reader(name)
    assert not client.exists(name)


# --- continuing and ending ----------------------------------------------------------------------


def test_it_goes_on_after_an_unload(client, name, pulsar_standalone):
    send(client, name, b"0")
    with client.reader(name) as reader:
        assert readable(client, reader) == [b"0"]
        call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
        send(client, name, b"1")
        assert readable(client, reader) == [b"1"]


@pytest.mark.broker
def test_it_goes_on_after_a_kill_of_the_broker(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=60) as client:
        send(client, name, *numbered(3))
        with client.reader(name) as reader:
            reading = reader.read(idle_s=60)
            assert values([next(reading)])[:1] == [b"0"]
            broker.kill()
            broker.restart()
            send(client, name, b"3")
            read = []
            while b"3" not in read:
                read += values([next(reading)])
    assert read == numbered(4)[-len(read) :]


def test_an_end_that_was_deleted_is_lost_data(pulsar_standalone, name):
    with PulsarClient(pulsar_standalone.service_url, timeout_s=2) as client:
        ids = send(client, name, *numbered(3))
        admin = f"/v2/persistent/public/default/{name}"
        call(pulsar_standalone.admin_url, "PUT", f"{admin}/unload")  # starts another ledger
        call(pulsar_standalone.admin_url, "DELETE", f"{admin}/truncate")
        reader = client.reader(name, start=ids[0])
        with reader, pytest.raises(DataLost, match="have been deleted"):
            list(reader.read_to(ids[2]))


def test_a_terminated_topic_ends(client, name, pulsar_standalone):
    send(client, name, *numbered(3))
    admin = f"/v2/persistent/public/default/{name}/terminate"
    with client.reader(name) as reader:
        reading = reader.read()
        first = next(reading)
        call(pulsar_standalone.admin_url, "POST", admin)
        assert values([first, *reading]) == numbered(3)
        assert list(reader.read()) == []


def test_a_closed_reader_says_so(client, name):
    send(client, name, b"0")
    reader = client.reader(name)
    reader.close()
    reader.close()
    with pytest.raises(Fatal, match="closed"):
        list(reader.read())


def test_of_a_short_range_the_broker_sends_no_more_than_it_has(client, name, pulsar_standalone):
    """Reading ahead would cost as much as the range itself (measured with 3,000 topics)."""
    producer = client.entry_producer(name, create=True)
    receipts = [producer.send_many([Message(b"%d" % n)] * 5)[0] for n in range(30)]
    ids = [receipt.result(timeout=20) for receipt in receipts]
    with client.reader(name, start=ids[3]) as reader:
        assert values(reader.read_to(ids[9])) == [b"%d" % n for n in range(3, 10) for _ in range(5)]
        client.topic_bounds(name).bounds()
        assert messages_out(pulsar_standalone.admin_url, name) == 35
        assert len(values(reader.read_to(ids[20]))) == 55
        assert len(readable(client, reader)) == 45


def test_a_short_range_of_large_batches_aborted_entries_and_markers_is_read_whole(
    client, name, monkeypatch
):
    """Batches take more permits than there are, the others none; the end is not readable."""
    monkeypatch.setattr(Reader, "_handle_silence", None)  # it would request the rest one by one
    producer = client.entry_producer(name, create=True)
    start = producer.send(b"first").result(timeout=20)
    aborted = client.transaction()
    for n in range(20):
        producer.send_many([Message(b"%d" % n)] * 300)
        last = producer.send(b"aborted", txn=aborted).result(timeout=20)
        with client.transaction() as txn:
            producer.send(b"committed", txn=txn)
    aborted.abort()
    producer.send(b"behind").result(timeout=20)
    assert last.entry - start.entry < 100
    with client.reader(name, start=start) as reader:
        assert len(values(reader.read_to(last))) == 1 + 20 * 300 + 19
        assert readable(client, reader) == [b"committed", b"behind"]


def send_kinds(client: PulsarClient, topic: str) -> list[MessageId]:
    """Send twelve entries, alternately of one message and of three.

    Each becomes a separate record batch, because every second one is compressed.
    """
    producer = client.entry_producer(topic, create=True)
    for n in range(12):
        messages = rows_from_messages([Message(b"%d" % n)] * (1 if n % 2 == 0 else 3))
        kind = Compression.NONE if n % 2 == 0 else Compression.LZ4
        (batch,) = encode_batches(messages, compression=kind)
        producer.send_batch(batch)
    producer.close()
    with client.reader(topic, columns=("ledger", "entry")) as reader:
        found = rows(reader.read_to(reader.last_id))
    return list(dict.fromkeys(MessageId(row["ledger"], row["entry"]) for row in found))


def test_each_message_once_of_an_entry_that_is_given_in_pieces(client, name, monkeypatch):
    """Also when the reader has to go back in the middle of the entry."""
    monkeypatch.setattr("eos.wire.decoding._message_boundaries.PIECE_MESSAGES", 7)
    monkeypatch.setattr("eos.wire.decoding._entry_decoder._MAX_BULK_MESSAGES", 7)
    ids = send(client, name, b"first")
    producer = client.entry_producer(name)
    messages = [Message(value) for value in numbered(50)]
    (batch,) = encode_batches(rows_from_messages(messages), compression=Compression.ZSTD)
    producer.send_batch(batch).result(timeout=20)
    with client.reader(name) as reader:
        end, read = reader.last_id, []
        for _ in range(3):
            read += values([next(iter(reader.read_to(end)))])
            assert reader.next_id == MessageId(ids[0].ledger, ids[0].entry + 1)
        assert values(reader.read_to(ids[0])) == []
        assert read == [b"first", *numbered(14)]
        read += values([next(iter(reader.read_to(end)))])
        assert values(reader.read_to(ids[0])) == []
        read += values(reader.read_to(end))
    assert read == [b"first", *numbered(50)]


def test_behind_a_reading_that_was_broken_off_a_bounded_one_keeps_to_its_end(
    client, name, entry_by_entry
):
    ids = send_kinds(client, name)
    with client.reader(name) as reader:
        assert next(reader.read(idle_s=5))["value"].to_pylist() == [b"0"]
        assert values(reader.read_to(None)) == []
        assert values(reader.read_to(ids[0])) == []
        assert values(reader.read_to(ids[2])) == [b"1"] * 3 + [b"2"]
        assert len(values(reader.read_to(ids[-1]))) == 24 - 5


def test_what_has_come_is_given_before_any_silence_is_measured(
    client, name, entry_by_entry, monkeypatch
):
    ids, clock = send_kinds(client, name), time.monotonic
    callers_s = 0.0
    patched = SimpleNamespace(monotonic=lambda: clock() + callers_s)
    monkeypatch.setattr("eos.client._reader.time", patched)
    with client.reader(name) as reader:
        assert next(reader.read(idle_s=5))["value"].to_pylist() == [b"0"]
        ids += send(client, name, b"more")
        given = []
        for batch in reader.read(idle_s=WITHIN_S):
            given += batch["value"].to_pylist()
            callers_s += WITHIN_S  # the caller's time does not count as idle
            if given[-1] == b"more":
                break
        assert (len(given), given[-1]) == (24, b"more")
        assert reader.next_id == MessageId(ids[-1].ledger, ids[-1].entry + 1)


@pytest.mark.parametrize("start", ["earliest", (7, 0)])
def test_a_start_that_is_no_message_id_is_refused_with_what_to_write(client, name, start):
    for reader in (client.reader, client.entry_reader):
        with pytest.raises(ConfigurationError, match="None begins at the topic's first entry"):
            reader(name, start=start)
