"""Permissions: those that a role needs, and how an epoch ends when they are withdrawn."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.errors import Unauthorized
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.support import admin
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, rows_of
from tests.support.tokens import CONFIG, token

ADMIN = token("admin")
WRITER = Auth(token=token("writer"))
NAMESPACES = ("public/default", "pulsar/system")


def permissions(broker: PulsarStandalone, method: str, namespace: str) -> None:
    body = ["produce", "consume"] if method == "POST" else None
    path = f"/v2/namespaces/{namespace}/permissions/writer"
    admin.call(broker.admin_url, method, path, body, token=ADMIN)


@pytest.fixture(scope="module")
def broker() -> Iterator[PulsarStandalone]:
    config = {**CONFIG, "authorizationEnabled": "true"}
    with PulsarStandalone(config=config, admin_token=ADMIN) as running:
        yield running


@pytest.fixture
def driver(broker: PulsarStandalone, tmp_path, name: str) -> Iterator[PlainDriver]:
    """A driver whose role has the permissions of docs/operations.md, and no others."""
    for namespace in NAMESPACES:
        permissions(broker, "POST", namespace)
    topic = f"persistent://public/default/{name}"
    with PulsarClient(broker.service_url, auth=Auth(token=ADMIN)) as client:
        client.entry_producer(topic, create=True).close()
    driver = PlainDriver(
        broker.service_url,
        tmp_path / "log",
        name,
        topic,
        auth=WRITER,
        ttl_ms=20_000,
        deadline_s=10,
    )
    yield driver
    driver.close()


def values(broker: PulsarStandalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(broker.service_url, topic, token=ADMIN)]


def withdraw(broker: PulsarStandalone, topic: str) -> None:
    """Withdraw the permission, and wait until the broker has noticed."""
    permissions(broker, "DELETE", "public/default")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with PulsarClient(broker.service_url, auth=WRITER) as client:
            try:
                client.entry_producer(topic).close()
            except Unauthorized:
                return
        time.sleep(0.1)
    raise AssertionError("the role may still write")


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE])
def test_permission_withdrawn_in_mid_epoch_aborts_it_with_a_clear_error(broker, driver, step):
    driver.run("0")
    with (
        failpoints.armed(step, lambda: withdraw(broker, driver.topic)),
        pytest.raises(Unauthorized, match="permissions of its role"),
    ):
        driver.run("1")
    assert "COMMITTED" not in driver.states("1")
    assert values(broker, driver.topic) == rows_of("0")
    permissions(broker, "POST", "public/default")
    assert driver.run("1").status == "written"
    assert values(broker, driver.topic) == rows_of("0") + rows_of("1")


def test_a_role_that_may_not_look_up_the_coordinator_gets_the_topics_name(broker, driver):
    permissions(broker, "DELETE", "pulsar/system")
    with pytest.raises(Unauthorized, match="pulsar/system/transaction_coordinator_assign"):
        driver.run("0")
    assert driver.records() == []
