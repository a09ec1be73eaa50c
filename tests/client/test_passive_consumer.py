"""Consumers that only move a subscription's position, and the broker's answers."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from eos.client import PulsarClient
from eos.client._passive_consumer import PassiveConsumer, check_moved
from eos.errors import ConnectionLost, ConsumerBusy, EosError, TopicNotFound
from eos.testing import PulsarStandalone
from eos.wire.commands import AckResponse
from tests.support.admin import call

# The exception in the answer of 5.0.0-M1, with the text of its ManagedCursorImpl.
ALREADY_MOVED = (
    "org.apache.bookkeeper.mledger.ManagedLedgerException$MarkDeletingMarkedPosition: "
    "Mark deleting an already mark-deleted position. Current mark-delete: 5:3 "
    "-- attempted mark delete: 5:3"
)


def answer(error: int | None, message: str = "") -> AckResponse:
    return AckResponse(consumer_id=0, error=error, message=message)


@pytest.mark.parametrize("given", [answer(None), answer(1, ALREADY_MOVED)], ids=["moved", "again"])
def test_a_position_that_was_reached_before_counts_as_moved(given):
    check_moved(given, "Moving")


def test_other_refusals_are_errors():
    with pytest.raises(EosError, match="Moving"):
        check_moved(answer(2, "the ledger is closed"), "Moving")


def sent(client: PulsarClient, topic: str, count: int):
    producer = client.entry_producer(topic, create=True)
    ids = [producer.send(b"%d" % n).result(timeout=20) for n in range(count)]
    producer.close()
    return ids


def test_a_cursor_begins_at_the_first_entry_and_never_moves_back(client, name):
    ids = sent(client, name, 4)
    cursor = client.cursor(name, "s")
    assert cursor.place() == ids[0].place
    for at, expected in ((2, 3), (0, 3), (3, 4)):
        cursor.acknowledge(ids[at])
        assert cursor.place() == (ids[0].ledger, ids[0].entry + expected)


def test_a_subscription_that_another_process_uses_now_is_not_taken_for_a_limit(
    client, name, pulsar_standalone
):
    (first,) = sent(client, name, 1)
    with PulsarClient(pulsar_standalone.service_url) as own:
        with client.cursor(name, "s", exclusive=True), pytest.raises(ConsumerBusy):
            own.acknowledge(name, "s", first)
        assert not own.limit_hit
        own.acknowledge(name, "s", first)


def test_what_is_dropped_is_permitted_again(client, name):
    ids = sent(client, name, 40)
    consumer = PassiveConsumer(
        client.lookup, f"persistent://public/default/{name}", "d", durable=False
    )
    consumer.permit(3)
    last, deadline = None, time.monotonic() + 20
    while last is None or last.place < ids[-1].place:
        assert time.monotonic() < deadline
        last = consumer.drop_received(0.05) or last
    while consumer.ask()[0] <= ids[-1].place:  # they are acknowledged
        assert time.monotonic() < deadline
    consumer.close()
    with pytest.raises(ConnectionLost):
        consumer.drop_received(0)


def test_several_cursors_move_a_subscription_that_survives_them_and_unloads(
    client, name, pulsar_standalone: PulsarStandalone
):
    ids = sent(client, name, 4)
    one, other = client.cursor(name, "s"), client.cursor(name, "s")
    one.acknowledge(ids[0])
    other.acknowledge(ids[1])
    assert one.place() == ids[2].place
    admin = f"/v2/persistent/public/default/{name}/unload"
    call(pulsar_standalone.admin_url, "PUT", admin)
    with suppress(ConnectionLost):  # the broker may close the consumer while this call waits
        one.acknowledge(ids[2])
    one.acknowledge(ids[2])
    one.close()
    other.close()
    assert client.cursor(name, "s").place() == ids[3].place


def test_a_missing_topic_is_an_error_and_is_not_created(client, name):
    with pytest.raises(TopicNotFound):
        client.cursor(name, "s").place()
    assert not client.exists(name)
