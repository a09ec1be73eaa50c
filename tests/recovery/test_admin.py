"""Malformed answers of the admin API: each one raises an eos error, in all verbs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.admin import AdminClient
from eos.errors import EosError
from eos.protocol import State
from eos.recovery.checks.namespace import check_policies, check_retention
from eos.transport.auth import Auth
from tests.admin.test_client import POLICIES
from tests.protocol.epochs import changed
from tests.support.http_server import ScriptedServer, scripted_server
from tests.support.odd_answers import damaged

TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def check_namespace(admin: AdminClient) -> None:
    policies, broker = admin.policies("t/n"), admin.broker_settings()
    check_policies("t/n", policies, broker)
    check_retention("t/n", policies, broker)


def test_policies_from_pulsar_are_checked(server):
    server.give(200, json.dumps(POLICIES).encode())
    check_namespace(AdminClient(server.url(), Auth(), timeout_s=10))


def test_malformed_policies_raise_an_eos_error_or_are_checked(server):
    admin = AdminClient(server.url(), Auth(), timeout_s=10)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.one_of(damaged(POLICIES).map(json.dumps).map(str.encode), st.binary(max_size=40)))
    def check(body: bytes) -> None:
        server.give(200, body)
        with suppress(EosError):
            check_namespace(admin)

    check()


@pytest.mark.parametrize("body", [b"[1]", b'{"x": 1}', b"[" * 100_000, b'"\\u001b[2J"', b"<html>"])
@pytest.mark.parametrize("verb", ["doctor", "orphans", "heal"])
def test_malformed_answer_is_unknown_without_a_traceback(
    server, recovery, root, make_driver, pulsar_standalone, verb, body
):
    make_driver().run("0")
    server.give(200, body)
    where = ("--commit-log", root, "--service-url", pulsar_standalone.service_url)
    topic = (TOPIC,) if verb == "heal" else ()
    ended = recovery(verb, *topic, *where, "--admin-url", server.url())
    assert ended.code == 2, ended
    assert "admin API's answer" in ended.out + ended.err
    assert "Traceback" not in ended.out + ended.err
    assert "\x1b[2J" not in ended.raw + ended.err


def test_token_is_not_sent_in_plaintext_if_the_log_names_tls_brokers(
    recovery, root, make_driver, monkeypatch, server
):
    driver = make_driver()
    driver.run("0")
    last = driver.log.history.last
    claim = next(record for record in driver.records() if record.state is State.CLAIMED)
    claim = replace(claim, seq=last.seq + 1, run_id=str(uuid4()))
    driver.log.append(changed(claim, service_url="pulsar+ssl://127.0.0.1:1"))
    monkeypatch.setenv("EOS_TOKEN", "x")
    where = ("--commit-log", root, "--admin-url", server.url(), "--timeout-s", 2)
    ended = recovery("doctor", *where)
    assert ended.code == 64
    assert "sent unencrypted" in ended.err
    assert recovery("doctor", *where, "--service-url", "pulsar://127.0.0.1:1").code != 64
