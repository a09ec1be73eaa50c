"""The subscription of a stream: it keeps unread entries, shows the backlog, and moves late."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from eos.errors import BrokerNotReady
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._offsets import Offset
from eos.sources._source_options import SourceOptions
from eos.sources._subscription import QuerySubscription
from tests.support.spark_releases import HAS_READ_LIMITS

# Of the last epoch, which has one entry, and the entry before, which is kept. Before PySpark 4.2
# `run` starts the query once more, and Spark then commits the last epoch, too.
AFTER_RUN = 2 if HAS_READ_LIMITS else 1


@pytest.fixture
def subscriptions(topic_admin):
    """Returns name and backlog of each durable subscription of the topic."""

    def ask():
        stats = topic_admin("GET", "/stats")["subscriptions"]
        return {name: one["msgBacklog"] for name, one in stats.items() if one["isDurable"]}

    return ask


def test_a_query_keeps_its_subscription_over_restarts(run, send, subscriptions):
    send(b"0", b"1", b"2")
    run()
    ((name, _),) = subscriptions().items()
    assert name.startswith("eos-source-")
    send(b"3")
    run()
    send(b"4")
    run()
    assert subscriptions().keys() == {name}


def test_it_moves_after_sparks_commit_except_for_one_entry(run, send, subscriptions):
    send(*(b"%d" % n for n in range(5)))
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, subscription="mine")
    assert subscriptions() == {"mine": 5}
    send(b"5")
    run(subscription="mine")  # Spark calls commit in the next epoch: here for the first one
    assert subscriptions() == {"mine": AFTER_RUN}


def test_the_checkpoint_cannot_choose_a_subscription(run, send):
    send(b"0")
    run(subscription="theirs")
    send(b"1")
    with pytest.raises(Exception, match="has the subscription 'theirs', which the query's options"):
        run()
    assert run(subscription="theirs") == {1: [b"1"]}


def test_a_removed_subscription_is_recreated(run, send, subscriptions, topic_admin):
    send(b"0", b"1", b"2")
    run(subscription="mine")
    topic_admin("DELETE", "/subscription/mine?force=true")
    send(b"3")
    assert run(subscription="mine") == {1: [b"3"]}
    assert subscriptions() == {"mine": AFTER_RUN}


def test_batch_reads_and_opted_out_streams_have_no_subscription(load, run, send, subscriptions):
    send(b"0")
    load().count()
    run(durableSubscription=False)
    assert subscriptions() == {}


def test_a_stream_from_latest_keeps_no_earlier_messages(run, send, subscriptions):
    send(*(b"%d" % n for n in range(5)))
    run(startingOffsets="latest", subscription="mine")
    assert subscriptions() == {"mine": 1}


def test_a_subscription_moved_by_another_query_warns(send, client, name, caplog):
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


def test_a_topic_unknown_to_the_checkpoint_continues_at_the_subscription(
    send, client, name, caplog
):
    """Checkpoints of releases that did not keep the places of former topics."""
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


def test_a_topic_that_was_recreated_while_the_query_runs_gets_it_at_once(
    send, options, subscriptions, topic_admin
):
    given = SourceOptions.parse(options | {"failOnDataLoss": "false", "subscription": "mine"})
    with closing(EpochPlanner(given, None)) as planner:
        send(b"0")
        offset = planner.next_offset(Offset.starting(planner.initial().ends, "mine"))
        send(b"1")
        offset = planner.next_offset(offset)
        topic_admin("DELETE", "?force=true")
        send(b"2")
        assert subscriptions() == {}
        planner.next_offset(offset)
        assert subscriptions() == {"mine": 1}


def test_it_is_created_again_while_the_topic_moves():
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
