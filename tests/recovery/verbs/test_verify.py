"""``verify`` on a real broker: clean outputs, and each kind of damage."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.delta.participant import DeltaParticipant
from eos.errors import CommitLogError
from eos.protocol import BATCH
from eos.pulsar.part import pulsar_part
from eos.recovery.audit import sink_audit as audit_module
from eos.recovery.audit.sink_audit import SinkAudit
from eos.steps import Step
from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, rows_of
from tests.testing.outputs import TableOutput


@pytest.fixture
def where(root, pulsar_standalone):
    return ("--commit-log", root, "--silence-s", 5)


def test_complete_epochs_without_duplicates_are_clean(recovery, make_driver, where, name):
    driver = make_driver()
    for epoch in range(3):
        driver.run(str(epoch), count=epoch + 1)
    ended = recovery("verify", *where, "--json")
    assert (ended.code, ended.json["findings"], ended.json["unknown"]) == (0, [], [])
    (sink,) = ended.json["sinks"]
    figures = [sink[n] for n in ("epochs", "records", "partitions", "receipts", "others")]
    assert figures == [3, 6, 1, 3, 0]
    assert (
        "Every committed epoch is there, complete, without duplicates."
        in recovery("verify", *where).out
    )
    assert recovery("verify", name, *where, "--last", 1, "--json").json["sinks"][0]["records"] == 3


def test_every_partition_of_a_partitioned_topic_is_read(
    recovery, make_driver, where, name, pulsar_standalone
):
    topic = f"{name}-p"
    admin.create_partitioned(pulsar_standalone.admin_url, topic, 3)
    driver = make_driver(topic=f"persistent://public/default/{topic}")
    driver.run("0", count=10)
    (sink,) = recovery("verify", *where, "--json").json["sinks"]
    assert (sink["partitions"], sink["records"]) == (3, 10)


def test_rows_of_other_producers_are_not_a_finding(recovery, make_driver, where, client):
    driver = make_driver()
    driver.run("0")
    producer = client.entry_producer(driver.topic)
    producer.send(b"not ours").result(timeout=10)
    producer.close()
    driver.run("1")
    ended = recovery("verify", *where, "--json")
    assert (ended.code, ended.json["sinks"][0]["others"]) == (0, 1)


def test_an_unfinished_epoch_needs_action(recovery, make_driver, dies_behind, where):
    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.PREPARE, "1")
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    assert ended.json["sinks"][0]["unfinished"][0]["epoch"] == "1"


def test_a_late_send_that_hides_a_committed_epoch_is_found(recovery, where, root, name):
    """The late-send hazard: readers no longer see a committed epoch.

    On a separate broker: another test's open transaction would delay it.
    """
    with PulsarStandalone() as broker, PulsarClient(broker.service_url) as client:
        topic = f"persistent://public/default/{name}"
        client.entry_producer(topic, create=True).close()
        driver = PlainDriver(broker.service_url, root, name, topic)
        driver.run("0")
        txn = pulsar_part(driver.records()[-1]).txn
        assert recovery("verify", *where).code == 0
        zombie = client.join(txn)
        zombie._registered.add(topic)  # a task of an earlier epoch that had registered the topic
        client.entry_producer(topic).send(b"late", txn=zombie).result(timeout=10)
        driver.run("1")
        driver.run("2")
        driver.close()
        ended = recovery("verify", *where, "--admin-url", broker.admin_url, "--json")
    assert ended.code == 1
    assert {finding["epoch"] for finding in ended.json["findings"]} == {"0"}
    (finding,) = ended.json["findings"]
    assert "0 of its 10 messages are readable" in finding["what"]
    assert finding["message_id"]


def test_deleted_topic_is_found_and_not_recreated(
    recovery, make_driver, where, name, pulsar_standalone
):
    make_driver().run("0")
    admin.delete_topic(pulsar_standalone.admin_url, f"public/default/{name}")
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    assert "the topic no longer exists; 10 messages are lost" in ended.json["findings"][0]["what"]
    topics = admin.call(pulsar_standalone.admin_url, "GET", "/v2/persistent/public/default")
    assert f"persistent://public/default/{name}" not in topics


def test_earlier_topic_of_a_sink_is_still_read(
    recovery, make_driver, where, root, name, pulsar_standalone, tmp_path
):
    driver = make_driver()
    driver.run("0")
    driver.close()
    table = TableOutput(tmp_path / "table")
    committer = Committer(CommitLog.open(root, name), [DeltaParticipant(name, table.uri)])
    committer.run_epoch(BATCH, "k", lambda begun: lambda: [table.write(begun()[0], ["a", "b"])])
    committer.close()
    ended = recovery("verify", *where, "--json")
    (sink,) = ended.json["sinks"]
    assert (ended.code, sink["epochs"], sink["records"], sink["rows"]) == (0, 2, 10, 2)
    admin.delete_topic(pulsar_standalone.admin_url, f"public/default/{name}")
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    assert "the topic no longer exists; 10 messages are lost" in ended.json["findings"][0]["what"]


def test_recreated_topic_is_distinguished_from_a_trimmed_one(
    recovery, make_driver, where, name, pulsar_standalone, client, monkeypatch
):
    monkeypatch.setattr(audit_module, "CLOCKS", timedelta(0))  # broker and driver share a clock
    driver = make_driver()
    driver.run("0")
    admin.delete_topic(pulsar_standalone.admin_url, f"public/default/{name}")
    client.entry_producer(driver.topic, create=True).close()
    driver.run("1")
    assert recovery("verify", *where).code == 2
    ended = recovery("verify", *where, "--admin-url", pulsar_standalone.admin_url, "--json")
    (finding,) = ended.json["findings"]
    assert (ended.code, finding["epoch"]) == (1, "0")
    assert "the topic was deleted, and recreated at 20" in finding["what"]
    assert "10 messages of 1 epochs are lost" in finding["what"]


def test_epochs_that_are_hardly_older_than_their_topic_are_unknown(
    recovery, make_driver, where, name, pulsar_standalone, client
):
    driver = make_driver()
    driver.run("0")
    admin.delete_topic(pulsar_standalone.admin_url, f"public/default/{name}")
    client.entry_producer(driver.topic, create=True).close()
    driver.run("1")
    ended = recovery("verify", *where, "--admin-url", pulsar_standalone.admin_url, "--json")
    assert (ended.code, ended.json["findings"]) == (2, [])
    assert "trimmed, or lost with a topic that was deleted" in ended.json["unknown"][0]
    assert "The topic was created at 20" in ended.json["unknown"][0]


def test_messages_removed_by_retention_are_distinguished_from_lost_ones(
    recovery, make_driver, where, name, pulsar_standalone, monkeypatch
):
    driver = make_driver()
    driver.run("0")
    url, path = pulsar_standalone.admin_url, f"/v2/persistent/public/default/{name}"
    admin.call(url, "PUT", f"{path}/unload")  # closes the ledger, so that it can be trimmed
    driver.run("1")
    admin.call(url, "POST", f"{path}/trim")
    assert recovery("verify", *where).code == 2
    # The topic is as old as the epoch, as far as their clocks can tell.
    ended = recovery("verify", *where, "--admin-url", url, "--json")
    assert (ended.code, ended.json["findings"]) == (2, [])
    monkeypatch.setattr(audit_module, "CLOCKS", timedelta(0))  # broker and driver share a clock
    ended = recovery("verify", *where, "--admin-url", url, "--json")
    assert (ended.code, ended.json["findings"]) == (0, [])
    assert ended.json["sinks"][0]["trimmed"] == 1


def test_blocked_readers_are_unknown(recovery, make_driver, where, client):
    driver = make_driver()
    driver.run("0")
    blocking = client.transaction(timeout_s=120)
    client.entry_producer(driver.topic).send(b"open", txn=blocking).result(timeout=10)
    driver.run("1")
    try:
        ended = recovery("verify", *where, "--json")
    finally:
        blocking.abort()
    assert ended.code == 2
    assert "reading stopped before" in ended.json["unknown"][0]


def test_a_broker_that_can_not_be_reached_is_unknown(recovery, make_driver, where):
    make_driver().run("0")
    ended = recovery(
        "verify", *where, "--service-url", "pulsar://127.0.0.1:1", "--timeout-s", 2, "--json"
    )
    assert (ended.code, ended.json["findings"]) == (2, [])
    assert "127.0.0.1" in ended.json["unknown"][0]


def send_in(client: PulsarClient, txn_id, topic: str, rows: list[bytes]) -> None:
    """Send rows in another application's transaction, as another producer."""
    producer = client.entry_producer(topic)
    txn = client.join(txn_id)
    txn.register([topic])
    for row in rows:
        producer.send(row, txn=txn)
    producer.close()


def test_rows_of_a_second_run_in_a_committed_transaction_are_found(
    recovery, make_driver, where, client, pulsar_standalone
):
    """An unnoticed second run of a task: each row twice, one run counted."""
    driver = make_driver()
    driver.during_write = lambda txn: send_in(client, txn, driver.topic, rows_of("0"))
    driver.run("0")
    driver.during_write = lambda _: None
    driver.run("1")
    assert len(drain(pulsar_standalone.service_url, driver.topic)) == 30
    for last in ((), ("--last", 2)):
        ended = recovery("verify", *where, *last, "--json")
        assert ended.code == 1
        (finding,) = ended.json["findings"]
        assert finding["epoch"] == "0"
        assert "10 messages of its transaction" in finding["what"]
        assert "were not counted by any task" in finding["what"]
    assert "Every committed epoch is there" not in recovery("verify", *where).out


def test_rows_in_a_partition_without_records_are_found(
    recovery, make_driver, where, name, client, pulsar_standalone
):
    topic = f"persistent://public/default/{name}-p"
    admin.create_partitioned(pulsar_standalone.admin_url, f"{name}-p", 3)
    driver = make_driver(topic=topic)
    other = f"{topic}-partition-2"
    driver.during_write = lambda txn: send_in(client, txn, other, [b"again"])
    driver.run("0", count=2)
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    (finding,) = ended.json["findings"]
    assert finding["topic"] == other
    assert "1 messages of its transaction" in finding["what"]


def test_readable_rows_of_an_attempt_that_the_log_calls_aborted_are_found(
    recovery, make_driver, dies_behind, where, client
):
    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.WRITE, "1")
    client.join(pulsar_part(driver.records()[-1]).txn).commit()  # by its id, as any client can
    driver.close()
    make_driver().run("1")
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    (finding,) = ended.json["findings"]
    assert finding["epoch"] == "1"
    assert "10 messages of attempt 1, which is aborted, are readable" in finding["what"]


def test_unwritten_epoch_needs_action_and_abandoned_one_is_shown(
    recovery, make_driver, dies_behind, where, root, name
):
    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.WRITE, "1")
    assert recovery("resolve", name, "--commit-log", root, "--apply", "--yes").code == 0
    ended = recovery("verify", *where)
    assert ended.code == 1
    assert "later epochs are refused until it is written" in ended.out
    assert recovery("verify", *where, "--json").json["findings"] == []
    give_up = ("--epoch", "1", "--as", "abandoned", "--because", "test data")
    given_up = recovery("decide", name, *give_up, "--commit-log", root, "--apply", "--yes")
    assert given_up.code == 0
    ended = recovery("verify", *where)
    assert ended.code == 0
    assert "epoch 1 ABANDONED, decided by a person" in ended.out


def test_forged_receipt_is_ignored(recovery, make_driver, where, client):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    producer = client.entry_producer(pulsar_part(record).receipt_topic)
    for properties in (
        {"eos": "receipt", "uuid": pulsar_part(record).mark_uuid},
        {"eos": "receipt"},
    ):
        producer.send(b"{", properties=properties)
    producer.close()
    driver.run("1")
    ended = recovery("verify", *where, "--json")
    assert (ended.code, ended.json["sinks"][0]["receipts"]) == (0, 2)


@pytest.mark.parametrize("left", [1, 2])
def test_a_log_that_was_replaced_by_an_older_copy_is_found(
    recovery, make_driver, where, root, tmp_path, left
):
    driver = make_driver()
    driver.run("0")
    shutil.copytree(root, tmp_path / "copy")
    for epoch in range(1, left + 1):
        driver.run(str(epoch))
    assert recovery("verify", *where).code == 0
    shutil.rmtree(root)
    shutil.move(tmp_path / "copy", root)
    ended = recovery("verify", *where, "--json")
    assert ended.code == 1
    (finding,) = ended.json["findings"]
    assert "the log ends before it" in finding["what"]
    assert "restore the newest one" in finding["what"]
    with pytest.raises(CommitLogError, match="rolled back"):
        make_driver().run("1")
    assert recovery("status", *where[:2]).code == 0  # not FAILED: the log itself can't show it


def test_running_driver_is_not_mistaken_for_an_older_copy(
    recovery, make_driver, where, monkeypatch
):
    driver = make_driver()
    driver.run("0")
    epochs = iter(range(1, 9))
    look = SinkAudit._newer_receipt

    def overtaken(*args):
        driver.run(str(next(epochs)))
        return look(*args)

    monkeypatch.setattr(SinkAudit, "_newer_receipt", overtaken)
    ended = recovery("verify", *where, "--json")
    assert (ended.code, ended.json["findings"]) == (0, [])
    assert next(epochs) > 1
