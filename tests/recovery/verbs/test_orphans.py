"""``orphans`` and ``heal``: transactions in no log, and pinned topics."""

from __future__ import annotations

import contextlib

import pytest

from eos.client import PulsarClient
from eos.pulsar.part import pulsar_part
from eos.steps import Step
from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver


@pytest.fixture
def where(root, pulsar_standalone):
    return ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)


def test_only_transactions_in_no_log_are_orphans(recovery, make_driver, dies_behind, where, client):
    driver = make_driver()
    dies_behind(driver, Step.WRITE, "0")
    owned = str(pulsar_part(driver.records()[-1]).txn)
    orphan = client.transaction(timeout_s=120)
    client.entry_producer(driver.topic).send(b"x", txn=orphan).result(timeout=10)
    try:
        ended = recovery("orphans", *where, "--json")
    finally:
        orphan.abort()
    assert ended.code == 1
    found = {one["txn"]: one for one in ended.json["orphans"]}
    assert found[str(orphan.id)]["topics"] == [driver.topic]
    assert owned not in found
    assert ended.json["owned"] >= 1
    held = {one["topic"]: one for one in ended.json["held_back"]}
    assert held[driver.topic]["cause"] == "open"


def test_an_admin_url_is_needed(recovery, make_driver, root):
    make_driver().run("0")
    ended = recovery("orphans", "--commit-log", root)
    assert ended.code == 64
    assert "--admin-url" in ended.err


@pytest.fixture
def pinned(root, name):
    """A partition pinned by a dead transaction of sink ``name``, on a separate broker: another
    test's open transaction would delay healing."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PulsarStandalone())
        client = stack.enter_context(PulsarClient(broker.service_url))
        admin.create_partitioned(broker.admin_url, name, 2)
        topic = f"persistent://public/default/{name}"
        driver = PlainDriver(broker.service_url, root, name, topic)
        stack.callback(driver.close)
        driver.run("0", count=1)  # reaches partition 0 only
        fresh = f"{topic}-partition-1"
        zombies = []

        def leave_a_zombie(txn_id) -> None:
            zombie = client.join(txn_id)
            zombie.register([fresh])
            zombies.append((zombie, client.entry_producer(fresh)))
            raise ValueError("the job failed")

        driver.during_write = leave_a_zombie
        with pytest.raises(ValueError, match="job failed"):
            driver.run("1", count=1)
        zombie, producer = zombies.pop()
        producer.send(b"too late", txn=zombie).result(timeout=10)
        driver.during_write = lambda _: None
        yield broker, driver, fresh, str(zombie.id)


@pytest.mark.broker
def test_a_pinned_partition_is_found_with_its_transaction_and_healed(recovery, pinned, root):
    broker, driver, fresh, txn = pinned
    client = PulsarClient(broker.service_url)
    where = ("--admin-url", broker.admin_url, "--service-url", broker.service_url)
    # Another application's open transaction: healing must wait for it.
    older = client.transaction(timeout_s=600)
    ended = recovery("orphans", "--commit-log", root, "--topic", driver.topic, *where, "--json")
    assert ended.code == 1
    held = {one["topic"]: one for one in ended.json["held_back"]}
    assert (held[fresh]["cause"], held[fresh]["txn"]) == ("pinned", txn)
    plan = recovery("heal", driver.topic, *where)
    assert plan.code == 1
    assert fresh in plan.out
    assert f"Transaction {older.id} is open" in plan.out
    older.abort()
    ended = recovery("heal", driver.topic, *where, "--apply", "--yes", "--json")
    assert (ended.code, ended.json["done"]) == (0, [f"{fresh}: its readers continue"])
    driver.run("1", count=2)
    assert b"1/1" in [seen.value for seen in drain(broker.service_url, driver.topic)]
    ended = recovery("heal", driver.topic, *where, "--json")
    assert (ended.code, ended.json["steps"]) == (0, [])
    client.close()


@pytest.mark.broker
def test_partition_that_stays_pinned_is_unknown(recovery, pinned):
    broker, driver, fresh, _ = pinned
    where = ("--admin-url", broker.admin_url, "--service-url", broker.service_url)
    ended = recovery("heal", fresh, *where, "--apply", "--yes", "--wait-s", 60, "--json")
    assert ended.code == 0
    assert driver.topic in ended.json["done"][0]


def test_healing_a_missing_or_unpinned_topic(recovery, make_driver, where):
    driver = make_driver()
    driver.run("0")
    at = ("--service-url", driver.service_url, *where[2:])
    ended = recovery("heal", driver.topic, *at)
    assert (ended.code, ended.out) == (0, "Nothing to do.")
    ended = recovery("heal", "persistent://public/default/none-such", *at)
    assert ended.code == 64
    assert "does not exist" in ended.err
