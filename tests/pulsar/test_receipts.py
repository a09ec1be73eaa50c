"""The witness on a real topic: which outcomes it can prove, and which it can't."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest

from eos.chaos.cluster.proxy import FaultProxy, FrameAction
from eos.client import PulsarClient
from eos.errors import ConnectionLost, Fatal
from eos.failpoints import armed
from eos.ids import MessageId
from eos.participant import Attempt
from eos.protocol import LogRecord
from eos.pulsar.end_rules import MarkAnswer, WitnessAnswer
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.pulsar.receipts import ReceiptAcks, ReceiptTopic
from eos.pulsar.roll_call import RollCall
from eos.pulsar.witness import Witness
from eos.steps import Step
from eos.task_report import TaskError, TaskSummary
from eos.wire import commands
from tests.protocol.epochs import changed
from tests.support.admin import call
from tests.support.hostile import ODD_COUNTS, send_claiming, send_odd_text


def fresh_mark(driver) -> LogRecord:
    """A record with a mark that was just sent, and without a receipt."""
    driver.committer.claim()
    begun = driver.participant.begin(Attempt("q", "0", 1, None, has_expired=False))
    driver.participant._answers(RollCall.of(begun))
    driver.run("0")
    return changed(
        driver.records()[-1], txn=begun.txn, mark_id=begun.mark_id, mark_uuid=begun.mark_uuid
    )


def ask(driver, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
    return driver.participant._witness.ask(pulsar_part(record), timeout_s=timeout_s)


def test_a_receipt_between_mark_and_sentinel_proves_a_commit(make_driver):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.READABLE


def test_mark_then_sentinel_without_a_receipt_is_a_proof_of_absence(make_driver):
    driver = make_driver()
    record = fresh_mark(driver)
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


@pytest.mark.parametrize(
    ("moved", "from_the_mark", "answer"),
    [(1, False, WitnessAnswer.READABLE), (2, True, WitnessAnswer.HISTORY_GONE)],
    ids=["one reader was moved", "a ledger is lost"],
)
def test_readers_that_pass_over_the_receipt_prove_no_absence(
    make_driver, monkeypatch, moved, from_the_mark, answer
):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    part, opened = pulsar_part(record), []
    first = (
        part.mark_id._replace(entry=part.mark_id.entry + 1) if from_the_mark else part.receipt_id
    )
    read_from = Witness._read_from

    def passing_over(self, part):
        reader = read_from(self, part)
        read = reader.read
        opened.append(reader)
        if len(opened) <= moved:
            lost = range(first.entry, part.receipt_id.entry + 1)
            reader.read = lambda end: (one for one in read(end) if one.id.entry not in lost)
        return reader

    monkeypatch.setattr(Witness, "_read_from", passing_over)
    assert ask(driver, record, timeout_s=20) is answer
    assert len(opened) == 2


def test_one_reader_that_passes_over_a_newer_commit_does_not_hide_it(make_driver, monkeypatch):
    driver = make_driver()
    driver.run("0")
    older = pulsar_part(driver.records()[-1])
    driver.run("1")
    newer = pulsar_part(driver.records()[-1])
    read_from, opened = Witness._read_from, []

    def passing_over(self, part):
        reader = read_from(self, part)
        read = reader.read
        opened.append(reader)
        if len(opened) == 1:
            reader.read = lambda end: (one for one in read(end) if one.id != newer.receipt_id)
        return reader

    monkeypatch.setattr(Witness, "_read_from", passing_over)
    witness = driver.participant._witness
    assert newer.receipt_id is not None
    assert str(newer.receipt_id) in witness.commits_after(older, [older.mark_uuid], timeout_s=20)
    both = [older.mark_uuid, newer.mark_uuid]
    assert witness.commits_after(older, both, timeout_s=20) is None


@pytest.mark.parametrize("count", ODD_COUNTS)
def test_entries_with_odd_counts_do_not_hide_mark_or_sentinel(make_driver, client, count):
    driver = make_driver()
    record = fresh_mark(driver)
    for _ in range(3):
        send_claiming(client, pulsar_part(record).receipt_topic, count)
    part = pulsar_part(record)
    assert driver.participant._witness.find_mark(part, timeout_s=20) is MarkAnswer.FOUND
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def test_an_absence_cannot_be_forged_by_having_the_broker_drop_the_receipt(make_driver, client):
    """The broker delivers none of a hundred entries whose counts add up to 0."""
    driver = make_driver()
    driver.committer.claim()

    def send(count: int) -> None:
        producer = client.entry_producer(driver.participant._receipt_topic.name)
        for _ in range(count):
            producer.send(b"")
        producer.close()

    with armed(Step.OPEN, lambda: send(120)):
        driver.run("0")
    record = driver.records()[-1]
    send_claiming(client, pulsar_part(record).receipt_topic, -98)
    send(200)
    sentinel = driver.participant._receipt_topic.send_sentinel()
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.READABLE
    part, met = pulsar_part(record), set()
    with client.entry_reader(part.receipt_topic, part.mark_id) as reader:
        for entry in reader.read(time.monotonic() + 20):
            met.add(entry.id.place)
            if entry.id.place >= sentinel.place:
                break
    assert part.receipt_id.place not in met  # with permits for many entries, it is dropped


def test_a_sentinel_that_is_not_read_proves_nothing(make_driver, client: PulsarClient):
    """An open transaction on the topic hides the sentinel, and might hide a receipt."""
    driver = make_driver()
    record = fresh_mark(driver)
    foreign = client.transaction(timeout_s=60)
    client.entry_producer(pulsar_part(record).receipt_topic).send(b"", txn=foreign).result(
        timeout=10
    )
    assert ask(driver, record, timeout_s=3) is WitnessAnswer.UNKNOWN
    foreign.abort()
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def forge_receipt(client: PulsarClient, record: LogRecord, **changes: str) -> MessageId:
    """Send a plain message that looks like a receipt, as any writer to the topic can."""
    producer = client.entry_producer(pulsar_part(record).receipt_topic)
    properties = {
        "eos": "receipt",
        "uuid": str(pulsar_part(record).mark_uuid),
        "txn": str(pulsar_part(record).txn),
    }
    sent = producer.send(b"{}", properties={**properties, **changes})
    producer.close()
    return sent.result(timeout=10)


def test_a_plain_message_never_counts_as_a_receipt(make_driver, client: PulsarClient):
    driver = make_driver()
    record = fresh_mark(driver)
    place = forge_receipt(client, record)
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT
    there = changed(record, receipt_id=place)
    assert ask(driver, there, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def test_another_transactions_receipt_does_not_count(make_driver):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    driver.run("1")
    elsewhere = changed(record, receipt_id=pulsar_part(driver.records()[-1]).receipt_id)
    assert ask(driver, elsewhere, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def test_forged_and_malformed_messages_on_the_receipt_topic_do_not_stop_a_driver(
    pulsar_standalone, make_driver, client: PulsarClient
):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    forge_receipt(client, record, uuid="unknown")
    producer = client.entry_producer(pulsar_part(record).receipt_topic)
    for properties in ({"eos": "receipt"}, {"eos": "answer"}, {"eos": "closed"}, {}):
        producer.send(b"\xff not json", properties=properties)
    producer.close()
    driver.close()
    second = make_driver()
    assert second.run("0").status == "skipped"
    assert second.run("1").status == "written"


def test_properties_that_are_not_utf8_stop_neither_roll_call_nor_witness_nor_claim(
    make_driver, client: PulsarClient
):
    driver = make_driver()
    driver.committer.claim()
    topic = driver.participant._receipt_topic.name
    with armed(Step.OPEN, lambda: send_odd_text(client, topic)):
        driver.run("0")
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    record = driver.records()[-1]
    assert ask(driver, record, timeout_s=20) is WitnessAnswer.READABLE
    at = send_odd_text(client, topic)
    driver.close()
    assert make_driver().run("1").status == "written"
    with client.entry_reader(topic, at) as reader:
        entry = next(reader.read(time.monotonic() + 20))
    assert entry.properties["name"] == "caf\ufffd"


def test_another_message_at_the_marks_position_does_not_count_as_the_mark(make_driver):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    assert (
        driver.participant._witness.find_mark(pulsar_part(record), timeout_s=20) is MarkAnswer.FOUND
    )
    other = changed(record, mark_uuid="00000000-0000-0000-0000-000000000000")
    assert (
        driver.participant._witness.find_mark(pulsar_part(other), timeout_s=20) is MarkAnswer.ABSENT
    )
    assert ask(driver, other, timeout_s=20) is WitnessAnswer.HISTORY_GONE


def test_before_prepared_every_producer_is_closed(pulsar_standalone, make_driver):
    """Only the driver's stays open at the broker: the object that sent the receipt sends nothing
    more (I3)."""
    driver = make_driver()
    driver.committer.claim()
    open_at_prepared = []

    def count() -> None:
        for topic in (driver.topic, pulsar_part(driver.records()[-1]).receipt_topic):
            path = f"/v2/persistent/{topic.split('://')[1]}/stats"
            stats = call(pulsar_standalone.admin_url, "GET", path)
            open_at_prepared.append(len(stats["publishers"]))

    with armed(Step.PREPARE, count):
        driver.run("0")
    assert open_at_prepared == [0, 1]


def test_closing_a_sink_while_its_last_epoch_is_finished_logs_no_warning(make_driver, caplog):
    """Like a sink that a function creates for each call, and drops."""
    driver = make_driver()
    driver.run("0")
    driver.participant._receipt_topic.send_sentinel()
    driver.participant.close()
    with caplog.at_level(logging.WARNING):
        driver.participant.rest()
    assert not caplog.records


def test_after_a_receipt_a_successor_of_the_producer_takes_over(
    make_driver,
):
    driver = make_driver()
    senders = []

    def note() -> None:
        senders.append(driver.participant._receipt_topic._producer())

    for epoch in ("0", "1"):
        with armed(Step.CHECK, note):
            driver.run(epoch)
    last = driver.participant._receipt_topic._producer()
    assert {one.name for one in senders} == {last.name}
    for sender in senders:
        with pytest.raises(Fatal, match="closed"):
            sender.send(b"late")


def test_a_receipt_without_an_acknowledgement_poisons_and_its_producer_is_not_used_again(
    make_driver, pulsar_standalone
):
    with FaultProxy(pulsar_standalone.service_url) as proxy:
        driver = make_driver(service_url=proxy.service_url, timeout_s=5)
        driver.run("0")
        before = driver.participant._receipt_topic._producer()
        with contextlib.ExitStack() as stack:
            lost = []

            def lose_one() -> None:
                if not lost:
                    fault = proxy.fault(commands.SendReceipt, FrameAction.DROP)
                    lost.append(stack.enter_context(fault))

            with armed(Step.CHECK, lose_one):
                driver.run("1")
        assert driver.states("1")[-1] == "COMMITTED"
        assert "ABORTED" in driver.states("1")
        assert driver.participant._receipt_topic._producer().name != before.name


def test_an_empty_epoch_does_not_register_the_receipt_topic(make_driver, monkeypatch):
    driver = make_driver()
    registered: list[object] = []
    monkeypatch.setattr(ReceiptTopic, "register", lambda _self, part: registered.append(part))
    driver.run("0", count=0)
    assert driver.states("0")[-1] == "EMPTY"
    assert registered == []


def test_a_limit_that_a_task_has_hit_ends_the_reuse_of_handles(make_driver):
    participant = make_driver().participant
    part = PulsarPart(service_url="pulsar://localhost", receipt_topic="receipts")
    participant._is_streaming = True
    assert participant.reuses_handles
    met = TaskSummary(0, "", (), (), TaskError.of(ConnectionLost("x")), limit_hit=True)
    with pytest.raises(ConnectionLost):
        participant.count(part, [met])
    assert not participant.reuses_handles


def test_an_acknowledgement_that_closes_itself_ends():
    """Python may free an object in any request, also one whose finalizer closes the sink."""

    class Receipts:
        last_sent = MessageId(1, 1)

        def acknowledge(self, _message_id: MessageId) -> None:
            asked.append(1)
            acks.close()

    asked: list[int] = []
    acks = ReceiptAcks(Receipts())  # type: ignore[arg-type]
    flushing = threading.Thread(target=acks.flush, daemon=True)
    flushing.start()
    flushing.join(10)
    assert not flushing.is_alive()
    assert asked == [1]
