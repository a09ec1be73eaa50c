"""Answers of the admin API that are none: every one ends in an error of ours, in all verbs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.protocol import State
from eos.transport.security import Security
from recovery.admin import Admin
from recovery.checks.namespace import check_policies, check_retention
from tests.support.http_server import ScriptedServer, scripted_server

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
# What is asked, and an answer as Pulsar gives it.
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
        lambda admin: admin.is_pinned_by(TOPIC, TxnId(0, 7)),
        {"startPosition": "1:1", "aborted": False},
    ),
    "partitions": (lambda admin: admin.partitions(TOPIC), {"partitions": 3}),
    "subscriptions": (lambda admin: admin.subscriptions(TOPIC), ["a"]),
    "quotas": (lambda admin: admin.backlog_quotas(TOPIC), POLICIES["backlog_quota_map"]),
    "policies": (
        lambda admin: (
            check_policies("t/n", admin.policies("t/n"), admin.broker_settings()),
            check_retention("t/n", admin.policies("t/n"), admin.broker_settings()),
        ),
        POLICIES,
    ),
    "settings": (lambda admin: admin.broker_settings(), {"a": "b"}),
    "version": (lambda admin: admin.version(), {}),
    "clock": (lambda admin: admin.clock_skew_s(), {}),
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e300, 0.5, -1e300, "", "x", "-1:x", "\x1b[2J"]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
NESTED = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn, good: Any) -> Any:
    """``good`` with something else at one place, or all of it something else."""
    if isinstance(good, dict) and good and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(good)))
        if draw(st.booleans()):
            return {**good, key: draw(damaged(good[key]))}
        return {**{k: v for k, v in good.items() if k != key}, draw(st.text()): good[key]}
    if isinstance(good, list) and good and draw(st.booleans()):
        return [draw(damaged(good[0]))]
    return draw(NESTED)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def test_topics_of_others_whose_names_we_do_not_take_are_left_out(server):
    theirs = {"persistent://public/default/my events": {}, "non-persistent://public/default/x": {}}
    answer = {**TRANSACTION, "producedPartitions": {**theirs, str(TOPIC): {}}}
    server.give(200, json.dumps({"(0,7)": answer}).encode())
    (transaction,) = Admin(server.url(), Security(), timeout_s=10).open_transactions()
    assert transaction.topics == (str(TOPIC),)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_as_pulsar_gives_it_is_understood(server, question):
    ask, good = QUESTIONS[question]
    server.give(200, json.dumps(good).encode())
    ask(Admin(server.url(), Security(), timeout_s=10))


@pytest.mark.parametrize("question", QUESTIONS)
def test_any_other_answer_is_an_error_of_ours_or_understood(server, question):
    ask, good = QUESTIONS[question]
    admin = Admin(server.url(), Security(), timeout_s=10)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.one_of(damaged(good).map(json.dumps).map(str.encode), st.binary(max_size=40)))
    def check(body: bytes) -> None:
        server.give(200, body, Date="Mon, 99 Foo 99999 99:99:99")
        with suppress(EosError):
            ask(admin)

    check()


def test_a_number_of_partitions_that_nobody_has_costs_nothing(server):
    server.give(200, b'{"partitions": 1e300}')
    with pytest.raises(EosError, match=r"partitions: .*valid integer"):
        Admin(server.url(), Security(), timeout_s=10).partitions(TOPIC)
    server.give(200, b'{"partitions": 1000000000}')
    with pytest.raises(EosError, match=r"partitions: .*less than"):
        Admin(server.url(), Security(), timeout_s=10).partitions(TOPIC)


@pytest.mark.parametrize("body", [b"[1]", b'{"x": 1}', b"[" * 100_000, b'"\\u001b[2J"', b"<html>"])
@pytest.mark.parametrize("verb", ["doctor", "orphans", "heal"])
def test_a_verb_that_gets_nonsense_ends_as_unknown_and_without_a_traceback(
    server, recovery, root, make_driver, pulsar_standalone, verb, body
):
    make_driver().run("0")
    server.give(200, body)
    where = ("--commit-log", root, "--service-url", pulsar_standalone.service_url)
    topic = (str(TOPIC),) if verb == "heal" else ()
    ended = recovery(verb, *topic, *where, "--admin-url", server.url())
    assert ended.code == 2, ended
    assert "admin API's answer" in ended.out + ended.err
    assert "Traceback" not in ended.out + ended.err
    assert "\x1b[2J" not in ended.raw + ended.err


def test_a_token_does_not_go_in_the_clear_where_a_log_says_that_brokers_speak_tls(
    recovery, root, make_driver, monkeypatch, server
):
    driver = make_driver()
    driver.run("0")
    last = driver.log.history.last
    claim = next(record for record in driver.records() if record.state is State.CLAIMED)
    claim = replace(claim, seq=last.seq + 1, run_id=str(uuid4()))
    driver.log.append(replace(claim, service_url="pulsar+ssl://127.0.0.1:1"))
    monkeypatch.setenv("EOS_TOKEN", "x")
    where = ("--commit-log", root, "--admin-url", server.url(), "--timeout-s", 2)
    ended = recovery("doctor", *where)
    assert ended.code == 64
    assert "in the clear" in ended.err
    assert recovery("doctor", *where, "--service-url", "pulsar://127.0.0.1:1").code != 64
