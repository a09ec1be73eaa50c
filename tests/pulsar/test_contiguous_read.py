"""A topic is read without a gap, even if the idle reader has missed entries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.client import Entry, PulsarClient
from eos.errors import ConnectionLost, EosError, Fatal, RequestTimeout, TransactionPoisoned
from eos.ids import MessageId
from eos.pulsar import _contiguous_read
from eos.pulsar._contiguous_read import MAX_LAG_ENTRIES, ContiguousRead
from eos.wire import commands
from eos.wire.batch import Message
from tests.support import admin
from tests.support.hostile import send_claiming
from tests.transport.scripted import wait_until

LEDGER = 7


def entry(number: int, ledger: int = LEDGER) -> Any:
    return SimpleNamespace(id=MessageId(ledger, number))


@dataclass
class ScriptedReader:
    """Delivers the given entries, and then fails, or is silent until the deadline."""

    delivers: list[Any]
    next_id: MessageId | None = None
    fails: bool = False
    is_closed: bool = False

    def read_to(self, _last: MessageId, _deadline: float) -> Iterator[Any]:
        for one in self.delivers:
            self.next_id = MessageId(one.id.ledger, one.id.entry + 1)
            yield one
        if self.fails:
            raise ConnectionLost("cut")

    def close(self) -> None:
        self.is_closed = True

    def __enter__(self) -> ScriptedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class ScriptedClient:
    """Has an idle reader, and opens new ones that deliver all entries from the start on."""

    topic: list[Any]
    idle: ScriptedReader | None
    opened: list[ScriptedReader] = field(default_factory=list)

    def acquire_reader(self, _topic: str) -> ScriptedReader | None:
        idle, self.idle = self.idle, None
        return idle

    def release_reader(self, reader: ScriptedReader) -> None:
        self.idle = reader

    def entry_reader(self, _topic: str, start: MessageId, **_: object) -> ScriptedReader:
        self.opened.append(
            ScriptedReader([one for one in self.topic if one.id.place >= start.place])
        )
        return self.opened[-1]


def read(
    client: ScriptedClient,
    start: int,
    end: int,
    *,
    start_was_read: bool = False,
    is_start: bool = True,
    reuse: bool = True,
    ledger: int = LEDGER,
) -> list[int]:
    reading = ContiguousRead(
        "t", (ledger, start), lambda _: is_start, start_was_read, extract=lambda one: one
    )
    items = reading.read_to(
        client,  # type: ignore[arg-type]
        lambda: MessageId(ledger, end),
        timeout_s=5,
        reuse=reuse,
    )
    return [one.id.entry for one in items]


@given(
    start=st.integers(0, 20),
    length=st.integers(1, 20),
    behind=st.integers(-3, 5),
    start_was_read=st.booleans(),
    markers=st.sets(st.integers(0, 45)),
    lost=st.sets(st.integers(0, 45)),
    swapped=st.lists(st.integers(0, 45), max_size=2),
    at_most=st.integers(0, 45),
    fails=st.booleans(),
)
def test_no_entry_is_missed_with_any_behaviour_of_the_idle_reader(
    start, length, behind, start_was_read, markers, lost, swapped, at_most, fails
):
    end = start + length
    topic = [entry(n) for n in range(45) if n not in markers - {start, end}]
    begins = max(0, start - behind)
    delivers = [one for one in topic if one.id.entry >= begins and one.id.entry not in lost]
    for at in swapped:
        if at + 1 < len(delivers):
            delivers[at], delivers[at + 1] = delivers[at + 1], delivers[at]
    idle = ScriptedReader(delivers[:at_most], MessageId(LEDGER, begins), fails)
    client = ScriptedClient(topic, idle)
    expected = [one.id.entry for one in topic if start < one.id.entry <= end]
    assert read(client, start, end, start_was_read=start_was_read) == expected
    assert client.idle is (client.opened[0] if client.opened else idle)
    assert idle.is_closed == bool(client.opened)


def test_an_idle_reader_that_delivers_everything_is_reused():
    topic = [entry(n) for n in range(10)]
    idle = ScriptedReader(topic[2:], MessageId(LEDGER, 2))
    client = ScriptedClient(topic, idle)
    assert read(client, 4, 8) == [5, 6, 7, 8]
    assert (client.opened, client.idle) == ([], idle)
    idle.delivers = topic[9:]
    assert read(client, 8, 9, start_was_read=True) == [9]
    assert client.opened == []


def test_an_idle_reader_past_the_start_is_used_only_if_the_start_was_read():
    topic = [entry(n) for n in range(10)]
    client = ScriptedClient(topic, ScriptedReader(topic[5:], MessageId(LEDGER, 5)))
    assert read(client, 4, 8) == [5, 6, 7, 8]
    assert len(client.opened) == 1


@pytest.mark.parametrize(
    "at",
    [
        MessageId(LEDGER - 1, 4),
        MessageId(LEDGER, 4 + 2),
        MessageId(LEDGER, 4 - MAX_LAG_ENTRIES),
        None,
    ],
)
def test_an_idle_reader_at_another_position_is_closed(at):
    topic = [entry(n) for n in range(10)]
    idle = ScriptedReader(topic, at)
    client = ScriptedClient(topic, idle)
    assert read(client, 4, 8, start_was_read=True) == [5, 6, 7, 8]
    assert (idle.is_closed, len(client.opened)) == (True, 1)


def test_without_reuse_the_idle_reader_is_closed():
    topic = [entry(n) for n in range(10)]
    idle = ScriptedReader(topic, MessageId(LEDGER, 0))
    client = ScriptedClient(topic, idle)
    assert read(client, 4, 8, reuse=False) == [5, 6, 7, 8]
    assert (idle.is_closed, client.opened[0].is_closed, client.idle) == (True, True, None)


def test_another_message_at_the_start_poisons():
    topic = [entry(n) for n in range(10)]
    idle = ScriptedReader(topic, MessageId(LEDGER, 0))
    client = ScriptedClient(topic, idle)
    with pytest.raises(TransactionPoisoned, match="beginning"):
        read(client, 4, 8, is_start=False)
    assert (idle.is_closed, client.opened[0].is_closed, client.idle) == (True, True, None)


def test_a_sent_message_that_is_passed_over_is_an_error():
    client = ScriptedClient([entry(n) for n in range(10) if n != 8], None)
    with pytest.raises(RequestTimeout, match="has lost 7:8"):
        read(client, 4, 8)
    assert len(client.opened) == 2  # the second one reads one by one


def test_a_send_in_doubt_closes_the_idle_reader():
    idle = ScriptedReader([entry(4)], MessageId(LEDGER, 4))
    client = ScriptedClient([], idle)

    def in_doubt() -> MessageId:
        raise ConnectionLost("no receipt")

    with pytest.raises(ConnectionLost, match="no receipt"):
        ContiguousRead(
            "t", (LEDGER, 4), lambda _: True, start_was_read=False, extract=lambda one: one
        ).read_to(
            client,  # type: ignore[arg-type]
            in_doubt,
            timeout_s=5,
            reuse=True,
        )
    assert (idle.is_closed, client.opened, client.idle) == (True, [], None)


# --- on a real topic --------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch) -> None:
    """A late answer of the broker is no reason to replace an idle reader."""
    monkeypatch.setattr(_contiguous_read, "IDLE_READ_TIMEOUT_S", 15.0)


class Writer:
    """Sends plain messages to the topic, and reads those sent since the last one."""

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self.client = client
        self.producer = client.entry_producer(topic)
        self.start = self.send(b"start")
        self.start_was_read = False

    def send(self, value: bytes) -> MessageId:
        return self.producer.send(value).result(timeout=10)

    def read(self, value: bytes, *, reuse: bool = True) -> list[bytes]:
        return [one.messages()[0].value or b"" for one in self.entries(value, reuse=reuse)]

    def entries(self, value: bytes, *, reuse: bool = True) -> list[Entry]:
        reading = ContiguousRead(
            self.producer.topic,
            self.start.place,
            lambda _: True,
            start_was_read=self.start_was_read,
            extract=lambda one: one,
        )
        items = reading.read_to(self.client, lambda: self.send(value), timeout_s=20, reuse=reuse)
        self.start, self.start_was_read = items[-1].id, True
        return items


@pytest.mark.usefixtures("patient")
def test_consecutive_reads_share_one_subscription(through, proxy, receipts):
    writer = Writer(through, receipts)
    assert writer.read(b"1") == [b"1"]
    writer.send(b"2")
    assert writer.read(b"3") == [b"2", b"3"]
    assert writer.read(b"4") == [b"4"]
    assert proxy.seen[commands.Subscribe] == 1


@pytest.mark.usefixtures("patient")
def test_an_idle_reader_receives_nothing(through, receipts):
    """Otherwise each answer would be sent to each worker of the cluster, for nothing."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    reader = through.acquire_reader(receipts)
    assert reader is not None
    for _ in range(20):
        writer.send(b"x")
    through.topic_bounds(receipts).bounds()  # same connection: its answer comes after any entries
    assert not reader._queue
    through.release_reader(reader)
    assert writer.read(b"2") == [b"x"] * 20 + [b"2"]


@pytest.mark.usefixtures("patient")
def test_after_a_marker_a_new_reader_reads_everything(through, proxy, client, receipts):
    writer = Writer(through, receipts)
    writer.read(b"1")
    with client.transaction() as txn:
        client.entry_producer(receipts).send(b"committed", txn=txn)
    aborted = client.transaction()
    client.entry_producer(receipts).send(b"aborted", txn=aborted)
    aborted.abort()
    assert writer.read(b"2") == [b"committed", b"2"]
    assert proxy.seen[commands.Subscribe] == 3  # the third reader reads entry by entry
    assert writer.read(b"3") == [b"3"]
    assert proxy.seen[commands.Subscribe] == 3


@pytest.mark.usefixtures("patient")
def test_an_entry_of_many_messages_does_not_stop_an_idle_reader(through, proxy, receipts):
    """The broker counts messages, and sends nothing to a consumer without permits."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    writer.producer.send_many([Message(b"many")] * 300)
    assert writer.read(b"2") == [b"many", b"2"]
    assert writer.read(b"3") == [b"3"]
    assert proxy.seen[commands.Subscribe] == 1


@pytest.mark.usefixtures("patient")
def test_when_the_topic_moves_a_new_reader_continues(
    through, proxy, receipts, name, pulsar_standalone
):
    writer = Writer(through, receipts)
    writer.read(b"1")
    admin.call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    wait_until(lambda: not writer.producer.is_usable)
    writer.producer = through.entry_producer(receipts)
    assert writer.read(b"2") == [b"2"]
    assert proxy.seen[commands.Subscribe] == 3  # across two ledgers it reads entry by entry


@pytest.mark.usefixtures("patient")
def test_when_its_cursor_was_moved_a_new_reader_reads_the_skipped_entries(
    through, proxy, receipts, name, pulsar_standalone
):
    """``skip-all``, ``expire-messages`` and a time to live affect every subscription."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    writer.send(b"2")
    path = f"/v2/persistent/public/default/{name}"
    stats = admin.call(pulsar_standalone.admin_url, "GET", f"{path}/stats")
    (reader,) = (one for one in stats["subscriptions"] if one.startswith("eos-reader"))
    admin.call(pulsar_standalone.admin_url, "POST", f"{path}/subscription/{reader}/skip_all")
    assert writer.read(b"3") == [b"2", b"3"]
    assert proxy.seen[commands.Subscribe] == 2


def test_a_silent_idle_reader_is_soon_replaced(through, receipts, monkeypatch):
    monkeypatch.setattr(_contiguous_read, "IDLE_READ_TIMEOUT_S", 0.2)
    writer = Writer(through, receipts)
    writer.read(b"1")
    reader = through.acquire_reader(receipts)
    assert reader is not None
    monkeypatch.setattr(reader, "_permit", lambda: None)
    through.release_reader(reader)
    assert writer.read(b"2") == [b"2"]
    with pytest.raises(Fatal, match="closed"):
        next(reader.read(1e9))


def test_without_its_start_a_read_fails(through, receipts):
    writer = Writer(through, receipts)
    gone = (writer.start.ledger + 1, 0)
    with pytest.raises(EosError):
        ContiguousRead(
            receipts, gone, lambda _: True, start_was_read=True, extract=lambda one: one
        ).read_to(through, lambda: writer.send(b"x"), timeout_s=1, reuse=True)
    assert through.acquire_reader(receipts) is None


def test_entries_that_the_broker_drops_for_a_hostile_count_are_read_one_by_one(client, receipts):
    """It drops a batch of a hundred entries if their counts add up to 0."""
    writer = Writer(client, receipts)
    values = [b"%d" % n for n in range(230)]
    for value in values[:120]:
        writer.send(value)
    send_claiming(client, receipts, -99)
    for value in values[120:]:
        writer.send(value)
    start = writer.start
    assert len(writer.entries(b"end", reuse=False)) == 120 + 1 + 110 + 1
    with client.entry_reader(receipts, start) as reader:  # with permits for many, it drops them
        last = writer.start
        met = 0
        for one in reader.read_to(last, time.monotonic() + 20):
            met += 1
            if one.id.place == last.place:
                break
    assert met == 1 + 120 + 1 + 110 + 1 - 100
