"""The subscription of a stream: it keeps what is not read, shows the backlog, and moves late."""

from __future__ import annotations

import logging

import pytest

from eos.errors import BrokerNotReady
from eos.sources._subscription import QuerySubscription


@pytest.fixture
def subscriptions(topic_admin):
    """Name and backlog of each durable subscription of the topic."""

    def ask():
        stats = topic_admin("GET", "/stats")["subscriptions"]
        return {name: one["msgBacklog"] for name, one in stats.items() if one["isDurable"]}

    return ask


def test_a_query_has_one_of_its_own_over_restarts(run, send, subscriptions):
    send(b"0", b"1", b"2")
    run()
    ((name, _),) = subscriptions().items()
    assert name.startswith("eos-source-")
    send(b"3")
    run()
    send(b"4")
    run()
    assert subscriptions().keys() == {name}


def test_it_moves_behind_what_spark_has_committed_but_for_one_entry(run, send, subscriptions):
    send(*(b"%d" % n for n in range(5)))
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, subscription="mine")
    assert subscriptions() == {"mine": 5}
    send(b"5")
    run(subscription="mine")  # commit is called with the next epoch: of the first one here
    assert subscriptions() == {"mine": 2}


def test_one_that_was_removed_is_made_again(run, send, subscriptions, topic_admin):
    send(b"0", b"1", b"2")
    run(subscription="mine")
    topic_admin("DELETE", "/subscription/mine?force=true")
    send(b"3")
    assert run(subscription="mine") == {1: [b"3"]}
    assert subscriptions() == {"mine": 2}


def test_a_batch_read_leaves_nothing_behind_nor_does_a_stream_that_wants_none(
    load, run, send, subscriptions
):
    send(b"0")
    load().count()
    run(durableSubscription=False)
    assert subscriptions() == {}


def test_a_stream_from_the_end_keeps_nothing_from_before(run, send, subscriptions):
    send(*(b"%d" % n for n in range(5)))
    run(startingOffsets="latest", subscription="mine")
    assert subscriptions() == {"mine": 1}


def test_one_that_another_query_has_moved_on_is_told(send, client, name, caplog):
    ids = send(b"0", b"1", b"2", b"3")
    client.cursor(name, "mine").acknowledge(ids[3])
    topic = f"persistent://public/default/{name}"
    with caplog.at_level(logging.WARNING, "eos.sources"):
        QuerySubscription("mine", client, timeout_s=20).keep({topic: (ids[0].ledger, 2)})
    (record,) = caplog.records
    assert "moved by another query with the same subscription, by time to live" in record.message
    assert record.topic == topic
    caplog.clear()
    QuerySubscription("mine", client, timeout_s=20).keep({topic: (ids[0].ledger, 4)})
    assert not caplog.records


def test_a_topic_of_which_the_checkpoint_knows_nothing_goes_on_at_the_querys_own_subscription(
    send, client, name, caplog
):
    """Checkpoints of releases that forgot the places of topics that the query had left."""
    ids = send(b"0", b"1", b"2", b"3")
    topic, first = f"persistent://public/default/{name}", (ids[0].ledger, 0)
    for subscription, is_own in (("eos-source-1", True), ("mine", False)):
        client.cursor(name, subscription).acknowledge(ids[2])
        kept = QuerySubscription(subscription, client, timeout_s=20)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "eos.sources"):
            for _ in range(2):
                places = kept.keep({topic: first}, unknown=[topic])
                assert places == {topic: ids[3].place if is_own else first}
        (record,) = caplog.records
        assert ("has read" in record.message) == is_own


def test_a_topic_that_moves_meanwhile_is_asked_again():
    """Measured at unloads: "Consumer not found", "Subscription is fenced"."""

    class Refused:
        """A cursor that the broker refuses at first."""

        def __init__(self):
            self.refusals = 2
            self.places = []

        def place(self):
            if self.refusals:
                self.refusals -= 1
                raise BrokerNotReady("Consumer not found")
            return 7, 0

        def acknowledge(self, last):
            self.places.append(last.place)

    class Cursors:
        def cursor(self, name, subscription):
            return refused

    refused = Refused()
    QuerySubscription("mine", Cursors(), timeout_s=20).keep({"t": (7, 5)})
    assert refused.places == [(7, 3)]
