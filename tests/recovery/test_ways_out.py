"""Every state that a dead driver can leave, with its receipt topic kept, deleted, or on another
cluster, or with a terminated topic: one command repairs each, and then the query continues."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.errors import NewCluster
from eos.protocol import LogRecord, Reason, ReasonKind, State
from eos.pulsar.part import pulsar_part
from eos.steps import Step
from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.expiry import await_expiry
from tests.support.plain_driver import QUERY, PlainDriver

MANUAL = Path(__file__).parent.parent.parent / "docs" / "recovery.md"
BECAUSE = ("--because", "it is a test")
RESOLVE = (("resolve",), 0, "ABORTED")
DECIDE = (("decide", "--epoch", "1", "--as", "aborted", *BECAUSE), 0, "ABORTED")
GIVE_UP = (("decide", "--epoch", "1", "--as", "abandoned", *BECAUSE), 0, "ABANDONED")
STAYS = (("resolve", "--deadline-s", "5"), 2, "PREPARED")
WAYS = {
    "OPEN": {"there": [RESOLVE, GIVE_UP], "deleted": [RESOLVE, GIVE_UP], "other": [RESOLVE]},
    "ABORTING": {"there": [RESOLVE], "deleted": [RESOLVE], "other": [RESOLVE]},
    "PREPARED": {"there": [RESOLVE], "deleted": [STAYS, DECIDE], "other": [STAYS, DECIDE]},
    "FAILED": {"there": [GIVE_UP], "deleted": [GIVE_UP], "other": [GIVE_UP]},
    "ABORTED": {"there": [GIVE_UP], "deleted": [GIVE_UP], "other": [GIVE_UP]},
}
UNANSWERED = (("resolve", "--deadline-s", "5", "--timeout-s", "2"), 0, "ABORTED")
for state in ("OPEN", "ABORTING", "PREPARED"):
    WAYS[state]["terminated"] = [UNANSWERED]
for state in ("FAILED", "ABORTED"):
    WAYS[state]["terminated"] = [GIVE_UP]
FAILED = Reason(ReasonKind.FAILED, "a task failed")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[PulsarStandalone]:
    """Another cluster."""
    with PulsarStandalone() as running:
        yield running


def leave(driver: PlainDriver, dies_behind, state: str) -> None:
    """Epoch 1 as a dead driver leaves it."""
    if state != "FAILED":
        dies_behind(driver, Step.PREPARE if state == "PREPARED" else Step.WRITE, "1")
    log = CommitLog.open(driver.commit_log, driver.sink_id)
    claim, record = log.history.last_claim, log.history.newest(QUERY, "1")
    assert claim is not None
    if state == "FAILED":
        log.append(LogRecord.failed(claim, query_id=QUERY, epoch="1", reason=FAILED))
        return
    assert record is not None
    if state in ("ABORTING", "ABORTED"):
        record = log.append(record.advance(State.ABORTING, claim=claim, reason=FAILED))
    if state == "ABORTED":
        log.append(record.advance(State.ABORTED, claim=claim))


@pytest.mark.parametrize("place", ["there", "deleted", "other", "terminated"])
def test_each_state_has_a_remedy(
    recovery, make_driver, dies_behind, root, name, pulsar_standalone, elsewhere, client, place
):
    drivers: dict[str, PlainDriver] = {}
    for state in WAYS:  # all of them, before the time to live of each is waited for
        topic = f"persistent://public/default/{name}-{state}"
        client.entry_producer(topic, create=True).close()
        own = {"sink_id": f"{name}-{state}", "topic": topic, "commit_log": root / state}
        driver = drivers[state] = make_driver(**own, ttl_ms=5_000)
        driver.run("0")
        leave(driver, dies_behind, state)
        driver.close()
        if place == "terminated":
            # Before the broker could abort it: from now on it tries for ever.
            path = topic.replace("://", "/")
            admin.call(pulsar_standalone.admin_url, "POST", f"/v2/{path}/terminate")
    broker = elsewhere if place == "other" else pulsar_standalone
    for state, driver in drivers.items():
        record = driver.records()[-1]
        if place == "terminated":
            while record.expires_at is not None and datetime.now(UTC) < record.expires_at:
                time.sleep(0.1)
        elif pulsar_part(record).txn is not None:
            await_expiry(client, pulsar_part(record).txn)
        if place == "deleted":
            receipts = pulsar_part(record).receipt_topic.removeprefix("persistent://")
            admin.delete_topic(broker.admin_url, receipts)
        repair(recovery, make_driver, driver, broker, state, place)


def repair(recovery, make_driver, driver: PlainDriver, broker: PulsarStandalone, state, place):
    """By the commands for this state; then the query continues."""
    where = ("--commit-log", driver.commit_log, "--service-url", broker.service_url)
    # Asked by `decide`: without it, clocks might differ.
    where += ("--admin-url", broker.admin_url)
    assert recovery("status", *where).code == 1
    for (verb, *options), code, after in WAYS[state][place]:
        ended = recovery(verb, driver.sink_id, *options, *where, "--apply", "--yes", "--json")
        assert (ended.code, driver.states("1")[-1]) == (code, after), ended
    topic = f"{driver.topic}-2" if place == "terminated" else driver.topic
    with PulsarClient(broker.service_url) as there:
        there.entry_producer(topic, create=True).close()
    own = {"sink_id": driver.sink_id, "topic": topic, "commit_log": driver.commit_log}
    again = make_driver(**own, service_url=broker.service_url)
    epoch = "2" if driver.states("1")[-1] == "ABANDONED" else "1"
    assert again.run(epoch).status == "written"
    assert recovery("status", *where).code == 0


def test_empty_broker_at_the_old_address_is_never_clean(
    recovery, make_driver, root, name, elsewhere
):
    make_driver().run("0")
    where = ("--commit-log", root, "--service-url", elsewhere.service_url)
    ended = recovery("verify", name, *where, "--admin-url", elsewhere.admin_url)
    assert (ended.code, "no longer exist" in ended.out) == (1, True), ended
    doctor = recovery("doctor", name, *where, "--admin-url", elsewhere.admin_url)
    assert (doctor.code, "this is another cluster" in doctor.out) == (1, True), doctor
    checks = recovery("doctor", name, *where, "--admin-url", elsewhere.admin_url, "--json").json
    (topic,) = [one for one in checks["checks"] if one["name"] == f"topic {name}"]
    assert f"{name} does not exist: it was deleted with its messages" in topic["found"]
    assert recovery("doctor", name, *where).code == 2
    with PulsarClient(elsewhere.service_url) as there:
        there.entry_producer(f"persistent://public/default/{name}", create=True).close()
    assert recovery("doctor", name, *where, "--admin-url", elsewhere.admin_url).code == 1
    # Recreated and empty: it can't be distinguished from a trimmed topic, but it is not clean.
    # Nothing can come, so it does not wait for silence.
    verify = ("verify", name, *where, "--silence-s", "3600")
    assert recovery(*verify, "--admin-url", elsewhere.admin_url).code in (1, 2)
    assert recovery(*verify).code in (1, 2)
    with pytest.raises(NewCluster, match="on_new_cluster"):
        make_driver(service_url=elsewhere.service_url).run("1")


def test_manual_has_a_command_for_each_state():
    text = MANUAL.read_text().split("## States and commands")[1].split("\n##")[0]
    assert "commands of `eos recovery`" in text
    rows = [line for line in text.splitlines() if line.startswith("- `")]
    for state in WAYS:
        mine = [row for row in rows if f"`{state}`" in row.split(":")[0]]
        assert mine, state
        assert all(re.search(r"`(resolve|decide)\b", row) for row in mine), mine
