"""Namespaces as production has them: no auto-creation, partitioned by default, quotas."""

from __future__ import annotations

import contextlib
import time

import pytest

from eos.client import PulsarClient
from eos.errors import ConfigurationError
from eos.pulsar.part import pulsar_part
from eos.pulsar.receipts import SUBSCRIPTION
from tests.support import admin
from tests.support.judge import drain, quiet_client
from tests.support.plain_driver import rows_of


@pytest.fixture
def namespace(pulsar_standalone, name: str) -> str:
    """This test's own namespace."""
    full = f"public/{name}"
    admin.call(pulsar_standalone.admin_url, "PUT", f"/v2/namespaces/{full}", {})
    return full


def auto_creation(pulsar_standalone, namespace: str, **policy: object) -> None:
    path = f"/v2/namespaces/{namespace}/autoTopicCreation"
    admin.call(pulsar_standalone.admin_url, "POST", path, policy)


FORBIDDEN = {"allowAutoTopicCreation": False}
PARTITIONED = {
    "allowAutoTopicCreation": True,
    "topicType": "partitioned",
    "defaultNumPartitions": 2,
}


@pytest.mark.parametrize("policy", [FORBIDDEN, PARTITIONED], ids=["forbidden", "partitioned"])
def test_the_receipt_topic_is_created_under_any_auto_creation_policy(
    pulsar_standalone, make_driver, namespace, topic, policy
):
    auto_creation(pulsar_standalone, namespace, **policy)
    driver = make_driver(receipt_namespace=namespace)
    assert driver.run("0").status == "written"
    assert [r.state for r in driver.records()][:2] == ["CLAIMED", "OPEN"]
    stats = f"/v2/persistent/{pulsar_part(driver.records()[0]).receipt_topic.split('://')[1]}/stats"
    assert admin.call(pulsar_standalone.admin_url, "GET", stats)["subscriptions"][SUBSCRIPTION]
    assert [m.value for m in drain(pulsar_standalone.service_url, topic)] == rows_of("0")


def test_without_the_admin_api_the_error_names_the_command_before_the_claim(
    pulsar_standalone, make_driver, namespace
):
    auto_creation(pulsar_standalone, namespace, **FORBIDDEN)
    driver = make_driver(receipt_namespace=namespace, admin_url=None)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"pulsar-admin topics create persistent://"):
            driver.run("0")
    assert driver.records() == []


def test_without_the_admin_api_the_receipt_topic_is_still_unpartitioned(
    pulsar_standalone, make_driver, namespace
):
    auto_creation(pulsar_standalone, namespace, **PARTITIONED)
    driver = make_driver(receipt_namespace=namespace, admin_url=None)
    assert driver.run("0").status == "written"


def test_another_consumer_on_the_subscription_does_not_stop_a_driver(
    pulsar_standalone, make_driver
):
    first = make_driver()
    first.run("0")
    client = quiet_client(pulsar_standalone.service_url)
    try:
        client.subscribe(pulsar_part(first.records()[0]).receipt_topic, SUBSCRIPTION)
        first.close()
        assert make_driver().run("1").status == "written"
    finally:
        with contextlib.suppress(Exception):
            client.close()


def backlog(pulsar_standalone, receipt_topic: str) -> int:
    path = f"/v2/persistent/{receipt_topic.split('://')[1]}/stats"
    stats = admin.call(pulsar_standalone.admin_url, "GET", path)
    return stats["subscriptions"][SUBSCRIPTION]["msgBacklog"]


def await_no_backlog(pulsar_standalone, receipt_topic: str) -> int:
    deadline = time.monotonic() + 60
    while (left := backlog(pulsar_standalone, receipt_topic)) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.mark.parametrize("end", ["written", "empty", "failed"])
def test_after_the_last_call_everything_on_the_receipt_topic_is_acknowledged(
    pulsar_standalone, make_driver, end
):
    """One old message is enough for a time-based backlog quota to refuse producers."""
    driver = make_driver()
    driver.run("0", finish_later=True)
    driver.run("1", finish_later=True)
    if end == "failed":
        driver.during_write = lambda _: (_ for _ in ()).throw(ValueError())
        with pytest.raises(ValueError, match=r"^$"):
            driver.run("2", finish_later=True)
    else:
        driver.run("2", count=0 if end == "empty" else 10, finish_later=True)
    receipt_topic = pulsar_part(driver.records()[0]).receipt_topic
    driver.committer.await_finished()
    driver.close()
    # A marker after the last message counts as one (measured).
    assert await_no_backlog(pulsar_standalone, receipt_topic) <= 1


def test_a_batch_call_leaves_no_backlog_while_its_driver_lives(pulsar_standalone, make_driver):
    driver = make_driver()
    for key in ("a", "b"):
        driver.run(key, query_id="batch")
        receipt_topic = pulsar_part(driver.records()[0]).receipt_topic
        assert await_no_backlog(pulsar_standalone, receipt_topic) <= 1


def test_a_forbidden_namespace_creates_no_topic_for_rows(
    pulsar_standalone, client: PulsarClient, namespace
):
    auto_creation(pulsar_standalone, namespace, **PARTITIONED)
    full = f"persistent://{namespace}/rows"
    client.create_unpartitioned(full)
    assert client.partition_count(full) == 0
