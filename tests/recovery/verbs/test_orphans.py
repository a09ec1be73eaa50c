"""``orphans`` and ``heal``: transactions in no log, and pinned topics."""

from __future__ import annotations

import contextlib
import itertools
import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from types import SimpleNamespace

import pytest

from eos import failpoints
from eos.admin import AdminClient, OpenTransaction, ReadPosition
from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.errors import ConfigurationError, ConnectionLost, EosError
from eos.ids import MessageId, TopicName, TxnId
from eos.protocol import LogRecord, UnknownPart
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.verbs import blocked_readers
from eos.recovery.verbs.blocked_readers import blocked_topic
from eos.retry import Patience
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.protocol.epochs import claim
from tests.support import admin
from tests.support.http_server import scripted_server
from tests.support.judge import drain
from tests.support.logs import small_log
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


def test_epoch_that_a_driver_begins_meanwhile_is_no_orphan(
    recovery, make_driver, where, monkeypatch
):
    driver = make_driver()
    driver.run("0")
    is_begun, may_open, is_done = Event(), Event(), Event()
    listed, pause = AdminClient.open_transactions, Patience.pause
    running: list[Future[object]] = []

    def begin() -> None:
        is_begun.set()
        may_open.wait(30)

    def begin_first(self):
        """The logs are read, the transactions are not listed yet."""
        if not running:
            running.append(threads.submit(driver.run, "1"))
            assert is_begun.wait(30)
        return listed(self)

    def open_then(self):
        """The logs were read again, and OPEN is not in them yet."""
        may_open.set()
        pause(self)

    driver.during_write = lambda _: is_done.wait(30)
    monkeypatch.setattr(AdminClient, "open_transactions", begin_first)
    monkeypatch.setattr(Patience, "pause", open_then)
    with ThreadPoolExecutor() as threads, failpoints.armed(Step.BEGIN, begin):
        ended = recovery("orphans", *where, "--json")
        is_done.set()
        running[0].result(timeout=60)
    assert ended.json["owned"] >= 1
    begun = str(pulsar_part(driver.records()[-1]).txn)
    assert begun not in [one["txn"] for one in ended.json["orphans"]]


def test_transaction_that_began_after_the_list_is_open_and_pins_nothing(
    make_driver, pulsar_standalone, client
):
    driver = make_driver()
    begun = client.transaction(timeout_s=120)
    client.entry_producer(driver.topic).send(b"x", txn=begun).result(timeout=10)
    try:
        api = AdminClient(pulsar_standalone.admin_url, Auth(), timeout_s=10)
        found = blocked_topic(api, TopicName.parse(driver.topic), [], {})
    finally:
        begun.abort()
    assert found is not None
    assert (found.cause, found.txn) == ("open", str(begun.id))


def test_topic_whose_readers_advance_is_not_pinned():
    with scripted_server() as server:
        entries = itertools.count(1)

        def answer(path: str):
            position = f"7:{next(entries)}"
            if "slowTransactions" in path:
                return 200, {}, b"{}"
            last = {"lastConfirmedEntry": "7:1000", "ledgers": [{"ledgerId": 7}]}
            buffer = {"state": "Ready", "maxReadPosition": position, "ongoingTxnSize": 0}
            return 200, {}, json.dumps(last | buffer).encode()

        server.answer = answer
        api = AdminClient(server.url(), Auth(), timeout_s=10)
        assert blocked_topic(api, TopicName.parse("busy"), [], {}) is None


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


PINNED = ReadPosition(
    max_read=MessageId(1, 2),
    last_entry=MessageId(1, 9),
    first_ledger=1,
    open_transactions=1,
    is_ready=True,
)
LOADING = replace(PINNED, is_ready=False)
FREE = replace(PINNED, max_read=PINNED.last_entry)
FURTHER = replace(PINNED, max_read=MessageId(1, 5))
RUNNING = OpenTransaction(
    txn=TxnId(0, 3),
    status="OPEN",
    opened_at=datetime.now(UTC),
    ttl_s=60,
    topics=("persistent://public/default/t",),
)


@pytest.fixture
def heal(recovery, monkeypatch):
    """Heals a topic of this position, which has ``after``, or an error, after the empty commit."""

    def run(before: ReadPosition, after: ReadPosition | EosError = FREE, *, opened=(), apply=True):
        now: list[ReadPosition | EosError] = [before]

        def open_transactions():
            if isinstance(now[-1], EosError):
                raise now[-1]
            return list(opened) if len(now) > 1 else []

        api = SimpleNamespace(
            partitions=lambda topic: [topic],
            read_position=lambda _: now[-1],
            open_transactions=open_transactions,
            is_open_in_buffer=lambda *_: False,
        )
        coordinators = SimpleNamespace(count=lambda: 1, connect=lambda _: None)
        client = contextlib.nullcontext(SimpleNamespace(coordinators=coordinators))
        monkeypatch.setattr(Target, "admin", lambda _: api)
        monkeypatch.setattr(Target, "client", lambda *_: client)
        monkeypatch.setattr(blocked_readers, "commit_empty", lambda *_: now.append(after))
        do = ("--apply", "--yes") if apply else ()
        where = ("--service-url", "pulsar://127.0.0.1:1")
        return recovery("heal", RUNNING.topics[0], *where, "--wait-s", 0, *do, "--json")

    return run


def test_a_topic_whose_buffer_is_loading_is_unknown(heal):
    """A broker that has just started: that is when partitions are pinned."""
    plan = heal(LOADING, apply=False)
    assert (plan.code, plan.json["steps"]) == (2, [])
    assert "is loading" in plan.json["unknown"][0]


@pytest.mark.parametrize(
    ("after", "opened", "code"),
    [
        (FREE, [], 0),
        (FURTHER, [RUNNING], 0),
        (FURTHER, [], 2),
        (PINNED, [RUNNING], 2),
        (LOADING, [], 2),
        (ConnectionLost("no answer"), [], 2),
    ],
    ids=["free", "next is open", "next is dead", "a live one there", "loading", "no answer"],
)
def test_readers_continue_only_if_they_were_seen_to(heal, after, opened, code):
    ended = heal(PINNED, after, opened=opened)
    assert ended.code == code
    assert len(ended.json["done" if code == 0 else "unknown"]) == 1


def test_healing_needs_a_cluster_before_it_is_confirmed(recovery, monkeypatch):
    monkeypatch.setattr(Target, "admin", lambda _: None)
    ended = recovery("heal", "t", "--admin-url", "http://127.0.0.1:1")
    assert (ended.code, "--service-url" in ended.err) == (64, True)


def test_the_cluster_is_the_only_one_that_the_logs_name(tmp_path):
    """A sink of tables names none."""
    where = {"service_url": None, "admin_url": None, "timeout_s": 1, "auth": Auth()}
    target = Target(**where, commit_log=str(tmp_path), storage_options=None)
    small_log(tmp_path, "orders")
    table = UnknownPart(kind="table", text="{}")
    tables = LogRecord.claimed(sink_id="zebras", run_id="r", participants=[table])
    CommitLog.open(tmp_path, "zebras").append(tables)
    assert target.recorded_url() == "pulsar://localhost:6650"
    other = replace(claim(sink_id="others").participants[0], service_url="pulsar://elsewhere:6650")
    CommitLog.open(tmp_path, "others").append(
        LogRecord.claimed(sink_id="others", run_id="r", participants=[other])
    )
    both = replace(target)  # a new one reads the logs again
    with pytest.raises(ConfigurationError, match="several clusters: pulsar://elsewhere"):
        both.recorded_url()
    assert both.service_urls() == ["pulsar://elsewhere:6650", "pulsar://localhost:6650"]
    given = replace(both, service_url="pulsar://given:6650")
    assert (given.recorded_url(), given.service_urls()) == (None, ["pulsar://given:6650"])
    assert replace(target, commit_log=None).recorded_url() is None
