"""Answers of the admin API: valid ones are parsed, invalid ones raise an EosError."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.admin import AdminClient, Ledger, expiry
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.transport.auth import Auth
from tests.support.http_server import ScriptedServer, scripted_server
from tests.support.odd_answers import damaged

TOPIC = TopicName.parse("persistent://public/default/t")
TRANSACTION = {
    "txnId": "(0,7)",
    "status": "OPEN",
    "openTimestamp": 1_700_000_000_000,
    "timeoutAt": 60_000,
    "producedPartitions": {str(TOPIC): {}},
}
POLICIES = {
    "message_ttl_in_seconds": 60,
    "backlog_quota_map": {"message_age": {"policy": "producer_exception", "limitTime": 60}},
    "inactive_topic_policies": {"deleteWhileInactive": True},
    "subscription_expiration_time_minutes": 5,
    "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
    "autoTopicCreationOverride": {"allowAutoTopicCreation": False, "topicType": "partitioned"},
}
# A request, and a valid answer.
LEDGERS = {
    "lastConfirmedEntry": "9:2",
    "ledgers": [
        {"ledgerId": 7, "entries": 5, "size": 500},
        {"ledgerId": 9, "entries": 0, "size": 0},
    ],
    "currentLedgerEntries": 3,
    "currentLedgerSize": 240,
}
QUESTIONS = {
    "open transactions": (lambda admin: admin.open_transactions(), {"(0,7)": TRANSACTION}),
    "transaction": (lambda admin: admin.transaction(TxnId(0, 7)), TRANSACTION),
    "coordinators": (
        lambda admin: admin.coordinators(),
        {"0": {"state": "Ready", "lowWaterMark": 3, "ongoingTxnSize": 1}},
    ),
    "read position": (
        lambda admin: admin.read_position(TOPIC),
        {
            "state": "Ready",
            "maxReadPosition": "1:2",
            "ongoingTxnSize": 0,
            "lastConfirmedEntry": "1:-1",
            "ledgers": [{"ledgerId": 1}],
        },
    ),
    "pinned": (
        lambda admin: admin.is_open_in_buffer(TOPIC, TxnId(0, 7)),
        {"startPosition": "1:1", "aborted": False},
    ),
    "partitions": (lambda admin: admin.partitions(TOPIC), {"partitions": 3}),
    "subscriptions": (lambda admin: admin.subscriptions(TOPIC), ["a"]),
    "subscription_stats": (
        lambda admin: admin.subscription_stats(TOPIC),
        {"subscriptions": {"s": {"msgBacklog": 5, "isDurable": True, "consumers": [{}]}}},
    ),
    "topic stats": (
        lambda admin: admin.topic_stats(TOPIC, is_partitioned=True),
        {
            "storageSize": 100,
            "msgInCounter": 7,
            "publishers": [{}],
            "subscriptions": {"s": {"msgBacklog": 5, "isDurable": True, "consumers": [{}]}},
        },
    ),
    "retention": (
        lambda admin: admin.retention(TOPIC),
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    ),
    "tenants": (lambda admin: admin.tenants(), ["public"]),
    "namespaces": (lambda admin: admin.namespaces("public"), ["public/default"]),
    "topics": (lambda admin: admin.topics("public/default"), [str(TOPIC)]),
    "ledgers": (lambda admin: admin.ledgers(TOPIC), LEDGERS),
    "quotas": (lambda admin: admin.backlog_quotas(TOPIC), POLICIES["backlog_quota_map"]),
    "policies": (lambda admin: admin.policies("t/n"), POLICIES),
    "settings": (lambda admin: admin.broker_settings(), {"a": "b"}),
    "version": (lambda admin: admin.version(), {}),
    "clock": (lambda admin: admin.clock_skew_s(), {}),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def test_readers_of_a_busy_topic_are_not_behind_its_last_entry(server):
    entries = itertools.count(1)  # one for each request

    def answer(_: str):
        position = f"7:{next(entries)}"
        last = {"lastConfirmedEntry": position, "ledgers": [{"ledgerId": 7}]}
        buffer = {"state": "NoSnapshot", "maxReadPosition": position, "ongoingTxnSize": 0}
        return 200, {}, json.dumps(last | buffer).encode()

    server.answer = answer
    position = AdminClient(server.url(), Auth(), timeout_s=10).read_position(TOPIC)
    assert not position.blocks_readers


def test_topics_with_names_that_eos_does_not_accept_are_omitted(server):
    theirs = {"persistent://public/default/my events": {}, "non-persistent://public/default/x": {}}
    answer = {**TRANSACTION, "producedPartitions": {**theirs, str(TOPIC): {}}}
    server.give(200, json.dumps({"(0,7)": answer}).encode())
    (transaction,) = AdminClient(server.url(), Auth(), timeout_s=10).open_transactions()
    assert transaction.topics == (str(TOPIC),)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_valid_answer_is_parsed(server, question):
    ask, good = QUESTIONS[question]
    server.give(200, json.dumps(good).encode())
    ask(AdminClient(server.url(), Auth(), timeout_s=10))


def test_a_namespaces_topics_are_listed_once_and_without_system_topics(server):
    names = [f"{TOPIC}-partition-{n}" for n in range(3)] + [str(TOPIC), "no topic of ours"]
    names += ["persistent://public/default/__change_events", f"{TOPIC}\u202e"]
    server.give(200, json.dumps(names).encode())
    admin = AdminClient(server.url(), Auth(), timeout_s=10)
    assert admin.topics("public/default") == [TOPIC]


def test_negative_counts_from_a_hostile_producer_are_accepted(server):
    """The broker sums up the message counts that producers claim for entries, for example -1000."""
    server.give(200, json.dumps({"msgInCounter": -1000, "storageSize": 7}).encode())
    admin = AdminClient(server.url(), Auth(), timeout_s=10)
    stats = admin.topic_stats(TOPIC, is_partitioned=False)
    assert (stats.messages_in, stats.storage_bytes) == (0, 7)


def test_the_open_ledger_has_its_entry_count(server):
    server.give(200, json.dumps(LEDGERS).encode())
    assert AdminClient(server.url(), Auth(), timeout_s=10).ledgers(TOPIC) == [
        Ledger(id=7, entries=5, bytes=500),
        Ledger(id=9, entries=3, bytes=240),
    ]


@pytest.mark.parametrize("question", QUESTIONS)
def test_any_other_answer_is_parsed_or_an_eos_error(server, question):
    ask, good = QUESTIONS[question]
    admin = AdminClient(server.url(), Auth(), timeout_s=10)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.one_of(damaged(good).map(json.dumps).map(str.encode), st.binary(max_size=40)))
    def check(body: bytes) -> None:
        server.give(200, body, Date="Mon, 99 Foo 99999 99:99:99")
        with suppress(EosError):
            ask(admin)

    check()


def test_an_absurd_number_of_partitions_is_rejected_without_cost(server):
    server.give(200, b'{"partitions": 1e300}')
    with pytest.raises(EosError, match=r"partitions: .*valid integer"):
        AdminClient(server.url(), Auth(), timeout_s=10).partitions(TOPIC)
    server.give(200, b'{"partitions": 1000000000}')
    with pytest.raises(EosError, match=r"partitions: .*less than"):
        AdminClient(server.url(), Auth(), timeout_s=10).partitions(TOPIC)


def test_the_place_of_a_subscription_is_found_by_any_name(pulsar_standalone, client, name):
    admin = AdminClient(pulsar_standalone.admin_url, Auth(), timeout_s=20)
    client.create_unpartitioned(name)
    for subscription in ("plain-1_2.3", "a b*c~d+e%f/g", "größe 50%20"):
        client.subscribe_durably(name, subscription)
        assert admin.acknowledged(TopicName.parse(name), subscription) is not None


@pytest.mark.parametrize("size", ["Infinity", "1e400", "1e300", "0.5"])
def test_a_default_quota_of_any_size_is_a_quota(size):
    evicting = {"backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction"}
    found = expiry({}, {**evicting, "backlogQuotaDefaultLimitGB": size})
    assert found.evicting == ("destination_storage",)
    assert not expiry({}, {**evicting, "backlogQuotaDefaultLimitGB": "nan"}).evicting
