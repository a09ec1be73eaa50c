"""The witness on a real topic: what it proves, and what it refuses to prove."""

from __future__ import annotations

from dataclasses import replace

from eos.client import PulsarClient
from eos.coordinator import MarkAnswer, WitnessAnswer
from eos.failpoints import armed
from eos.steps import Step
from eos.transaction import LogRecord
from tests.support.admin import call


def fresh_mark(driver) -> LogRecord:
    """A record whose mark was just sent, and whose receipt never was."""
    driver.committer.claim()
    begun = driver.half.begin(60_000)
    driver.run("0")
    return replace(driver.records()[-1], mark_id=begun.mark_id, mark_uuid=begun.mark_uuid)


def test_a_receipt_between_mark_and_sentinel_is_a_commit(make_driver):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    assert driver.half.ask_witness(record, timeout_s=20) is WitnessAnswer.READABLE


def test_mark_then_sentinel_without_a_receipt_is_a_proof_of_absence(make_driver):
    driver = make_driver()
    record = fresh_mark(driver)
    assert driver.half.ask_witness(record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def test_a_sentinel_that_is_not_read_proves_nothing(make_driver, client: PulsarClient):
    """An open transaction on the topic hides the sentinel, and might hide a receipt."""
    driver = make_driver()
    record = fresh_mark(driver)
    stranger = client.transaction(timeout_s=60)
    client.producer(record.receipt_topic).send(b"", txn=stranger).result(timeout=10)
    assert driver.half.ask_witness(record, timeout_s=3) is WitnessAnswer.UNKNOWN
    stranger.abort()
    assert driver.half.ask_witness(record, timeout_s=20) is WitnessAnswer.PROVED_ABSENT


def test_another_message_in_the_marks_place_is_no_mark(make_driver):
    driver = make_driver()
    driver.run("0")
    record = driver.records()[-1]
    assert driver.half.find_mark(record, timeout_s=20) is MarkAnswer.FOUND
    other = replace(record, mark_uuid="00000000-0000-0000-0000-000000000000")
    assert driver.half.find_mark(other, timeout_s=20) is MarkAnswer.ABSENT
    assert driver.half.ask_witness(other, timeout_s=20) is WitnessAnswer.HISTORY_GONE


def test_before_prepared_every_producer_is_closed(pulsar_standalone, make_driver):
    """Only the driver's producer for marks, outside of all transactions, stays open (I3)."""
    driver = make_driver()
    driver.committer.claim()
    open_at_prepared = []

    def count() -> None:
        for topic in (driver.topic, driver.records()[-1].receipt_topic):
            path = f"/v2/persistent/{topic.split('://')[1]}/stats"
            stats = call(pulsar_standalone.admin_url, "GET", path)
            open_at_prepared.append(len(stats["publishers"]))

    with armed(Step.PREPARE, count):
        driver.run("0")
    assert open_at_prepared == [0, 1]
