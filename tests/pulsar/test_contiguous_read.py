"""A stretch of a topic is read whole, whatever the reader that was parked has missed."""

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
from eos.errors import ConnectionLost, EosError, Fatal, TransactionPoisoned
from eos.ids import MessageId
from eos.pulsar import _contiguous_read
from eos.pulsar._contiguous_read import FAR_ENTRIES, TopicStretch
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
    """Delivers what it was told to, and then fails, or is silent until the deadline."""

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
    """Has a parked reader, and opens new ones that deliver all there is from the start on."""

    topic: list[Any]
    parked: ScriptedReader | None
    opened: list[ScriptedReader] = field(default_factory=list)

    def parked_reader(self, _topic: str) -> ScriptedReader | None:
        parked, self.parked = self.parked, None
        return parked

    def park_reader(self, reader: ScriptedReader) -> None:
        self.parked = reader

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
    was_met: bool = False,
    is_start: bool = True,
    parks: bool = True,
    ledger: int = LEDGER,
) -> list[int]:
    stretch = TopicStretch("t", (ledger, start), lambda _: is_start, was_met, keep=lambda one: one)
    met = stretch.read_to(
        client,  # type: ignore[arg-type]
        lambda: MessageId(ledger, end),
        timeout_s=5,
        parks=parks,
    )
    return [one.id.entry for one in met]


@given(
    start=st.integers(0, 20),
    length=st.integers(1, 20),
    behind=st.integers(-3, 5),
    was_met=st.booleans(),
    markers=st.sets(st.integers(0, 45)),
    lost=st.sets(st.integers(0, 45)),
    swapped=st.lists(st.integers(0, 45), max_size=2),
    at_most=st.integers(0, 45),
    fails=st.booleans(),
)
def test_nothing_is_missed_whatever_the_parked_reader_delivers(
    start, length, behind, was_met, markers, lost, swapped, at_most, fails
):
    end = start + length
    topic = [entry(n) for n in range(45) if n not in markers - {start, end}]
    begins = max(0, start - behind)
    delivers = [one for one in topic if one.id.entry >= begins and one.id.entry not in lost]
    for at in swapped:
        if at + 1 < len(delivers):
            delivers[at], delivers[at + 1] = delivers[at + 1], delivers[at]
    parked = ScriptedReader(delivers[:at_most], MessageId(LEDGER, begins), fails)
    client = ScriptedClient(topic, parked)
    expected = [one.id.entry for one in topic if start < one.id.entry <= end]
    assert read(client, start, end, was_met=was_met) == expected
    assert client.parked is (client.opened[0] if client.opened else parked)
    assert parked.is_closed == bool(client.opened)


def test_one_that_has_all_of_it_is_gone_on_with():
    topic = [entry(n) for n in range(10)]
    parked = ScriptedReader(topic[2:], MessageId(LEDGER, 2))
    client = ScriptedClient(topic, parked)
    assert read(client, 4, 8) == [5, 6, 7, 8]
    assert (client.opened, client.parked) == ([], parked)
    parked.delivers = topic[9:]
    assert read(client, 8, 9, was_met=True) == [9]
    assert client.opened == []


def test_one_that_is_behind_the_start_is_of_no_use_unless_the_start_was_met():
    topic = [entry(n) for n in range(10)]
    client = ScriptedClient(topic, ScriptedReader(topic[5:], MessageId(LEDGER, 5)))
    assert read(client, 4, 8) == [5, 6, 7, 8]
    assert len(client.opened) == 1


@pytest.mark.parametrize(
    "at",
    [
        MessageId(LEDGER - 1, 4),
        MessageId(LEDGER, 4 + 2),
        MessageId(LEDGER, 4 - FAR_ENTRIES),
        None,
    ],
)
def test_one_that_is_elsewhere_is_closed(at):
    topic = [entry(n) for n in range(10)]
    parked = ScriptedReader(topic, at)
    client = ScriptedClient(topic, parked)
    assert read(client, 4, 8, was_met=True) == [5, 6, 7, 8]
    assert (parked.is_closed, len(client.opened)) == (True, 1)


def test_who_parks_none_closes_what_is_parked():
    topic = [entry(n) for n in range(10)]
    parked = ScriptedReader(topic, MessageId(LEDGER, 0))
    client = ScriptedClient(topic, parked)
    assert read(client, 4, 8, parks=False) == [5, 6, 7, 8]
    assert (parked.is_closed, client.opened[0].is_closed, client.parked) == (True, True, None)


def test_another_message_in_the_starts_place_poisons_whoever_reads_it():
    topic = [entry(n) for n in range(10)]
    parked = ScriptedReader(topic, MessageId(LEDGER, 0))
    client = ScriptedClient(topic, parked)
    with pytest.raises(TransactionPoisoned, match="beginning"):
        read(client, 4, 8, is_start=False)
    assert (parked.is_closed, client.opened[0].is_closed, client.parked) == (True, True, None)


def test_what_is_sent_in_doubt_closes_the_parked_reader():
    parked = ScriptedReader([entry(4)], MessageId(LEDGER, 4))
    client = ScriptedClient([], parked)

    def in_doubt() -> MessageId:
        raise ConnectionLost("no receipt")

    with pytest.raises(ConnectionLost, match="no receipt"):
        TopicStretch("t", (LEDGER, 4), lambda _: True, was_met=False, keep=lambda one: one).read_to(
            client,  # type: ignore[arg-type]
            in_doubt,
            timeout_s=5,
            parks=True,
        )
    assert (parked.is_closed, client.opened, client.parked) == (True, [], None)


# --- on a real topic --------------------------------------------------------------------------


class Writer:
    """Sends plain messages to the topic, and reads what was sent since the last one."""

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self.client = client
        self.producer = client.entry_producer(topic)
        self.start = self.send(b"start")
        self.was_met = False

    def send(self, value: bytes) -> MessageId:
        return self.producer.send(value).result(timeout=10)

    def read(self, value: bytes, *, parks: bool = True) -> list[bytes]:
        return [one.messages()[0].value or b"" for one in self.entries(value, parks=parks)]

    def entries(self, value: bytes, *, parks: bool = True) -> list[Entry]:
        stretch = TopicStretch(
            self.producer.topic,
            self.start.place,
            lambda _: True,
            was_met=self.was_met,
            keep=lambda one: one,
        )
        met = stretch.read_to(self.client, lambda: self.send(value), timeout_s=20, parks=parks)
        self.start, self.was_met = met[-1].id, True
        return met


def test_from_stretch_to_stretch_one_subscription_is_enough(through, proxy, receipts):
    writer = Writer(through, receipts)
    assert writer.read(b"1") == [b"1"]
    writer.send(b"2")
    assert writer.read(b"3") == [b"2", b"3"]
    assert writer.read(b"4") == [b"4"]
    assert proxy.seen[commands.Subscribe] == 1


def test_nothing_comes_to_a_reader_that_is_parked(through, receipts):
    """Else each answer would go to each worker of the cluster, for nothing."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    reader = through.parked_reader(receipts)
    assert reader is not None
    for _ in range(20):
        writer.send(b"x")
    through.tail(receipts).bounds()  # on the same connection, behind what would have come
    assert not reader._queue
    through.park_reader(reader)
    assert writer.read(b"2") == [b"x"] * 20 + [b"2"]


def test_behind_a_marker_a_new_reader_reads_all_of_it(through, proxy, client, receipts):
    writer = Writer(through, receipts)
    writer.read(b"1")
    with client.transaction() as txn:
        client.entry_producer(receipts).send(b"committed", txn=txn)
    aborted = client.transaction()
    client.entry_producer(receipts).send(b"aborted", txn=aborted)
    aborted.abort()
    assert writer.read(b"2") == [b"committed", b"2"]
    assert proxy.seen[commands.Subscribe] == 3  # the last one reads entry by entry
    assert writer.read(b"3") == [b"3"]
    assert proxy.seen[commands.Subscribe] == 3


def test_an_entry_of_many_messages_stops_no_parked_reader(through, proxy, receipts):
    """The broker counts messages, and gives nothing to who has had too many."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    writer.producer.send_many([Message(b"many")] * 300)
    assert writer.read(b"2") == [b"many", b"2"]
    assert writer.read(b"3") == [b"3"]
    assert proxy.seen[commands.Subscribe] == 1


def test_when_the_topic_moves_a_new_reader_goes_on(
    through, proxy, receipts, name, pulsar_standalone
):
    writer = Writer(through, receipts)
    writer.read(b"1")
    admin.call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    wait_until(lambda: not writer.producer.is_usable)
    writer.producer = through.entry_producer(receipts)
    assert writer.read(b"2") == [b"2"]
    assert proxy.seen[commands.Subscribe] == 3  # from one ledger to the next entry by entry


def test_when_its_cursor_was_moved_a_new_reader_reads_what_it_has_missed(
    through, proxy, receipts, name, pulsar_standalone
):
    """``skip-all``, ``expire-messages`` or a time to live: of any subscription, ours as well."""
    writer = Writer(through, receipts)
    writer.read(b"1")
    writer.send(b"2")
    path = f"/v2/persistent/public/default/{name}"
    stats = admin.call(pulsar_standalone.admin_url, "GET", f"{path}/stats")
    (ours,) = (one for one in stats["subscriptions"] if one.startswith("eos-reader"))
    admin.call(pulsar_standalone.admin_url, "POST", f"{path}/subscription/{ours}/skip_all")
    assert writer.read(b"3") == [b"2", b"3"]
    assert proxy.seen[commands.Subscribe] == 2


def test_one_that_says_nothing_is_given_up_soon(through, receipts, monkeypatch):
    monkeypatch.setattr(_contiguous_read, "PARKED_WAIT_S", 0.2)
    writer = Writer(through, receipts)
    writer.read(b"1")
    reader = through.parked_reader(receipts)
    assert reader is not None
    monkeypatch.setattr(reader, "_permit", lambda: None)
    through.park_reader(reader)
    assert writer.read(b"2") == [b"2"]
    with pytest.raises(Fatal, match="closed"):
        next(reader.read(1e9))


def test_a_stretch_without_its_start_is_not_read(through, receipts):
    writer = Writer(through, receipts)
    gone = (writer.start.ledger + 1, 0)
    with pytest.raises(EosError):
        TopicStretch(receipts, gone, lambda _: True, was_met=True, keep=lambda one: one).read_to(
            through, lambda: writer.send(b"x"), timeout_s=1, parks=True
        )
    assert through.parked_reader(receipts) is None


def test_what_a_broker_drops_because_of_a_hostile_count_is_read_all_the_same(client, receipts):
    """It drops what it has read at once, a hundred entries, where their counts add up to 0."""
    writer = Writer(client, receipts)
    values = [b"%d" % n for n in range(230)]
    for value in values[:120]:
        writer.send(value)
    send_claiming(client, receipts, -99)
    for value in values[120:]:
        writer.send(value)
    start = writer.start
    assert len(writer.entries(b"end", parks=False)) == 120 + 1 + 110 + 1
    with client.entry_reader(receipts, start) as reader:  # it does that to who asks for all at once
        last = writer.start
        met = 0
        for one in reader.read_to(last, time.monotonic() + 20):
            met += 1
            if one.id.place == last.place:
                break
    assert met == 1 + 120 + 1 + 110 + 1 - 100
