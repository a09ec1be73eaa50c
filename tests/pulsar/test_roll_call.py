"""The roll call on a real topic: which runs are counted, may send, or are refused."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace

import pytest

from eos.client import EntryProducer, PulsarClient
from eos.errors import EosError, Fatal, RequestTimeout, TransactionPoisoned
from eos.ids import MessageId
from eos.pulsar import _contiguous_read, roll_call
from eos.pulsar.roll_call import CALL, KIND, MARK, AnsweredBefore, RollCall
from eos.task_report import Answer
from tests.support.hostile import (
    ODD_COUNTS,
    send_claiming,
    send_inflating,
    send_without_checksum,
)


@pytest.fixture
def begin(client: PulsarClient, receipts: str):
    """Opens roll calls."""

    def make() -> RollCall:
        mark_uuid = str(uuid.uuid4())
        producer = client.entry_producer(receipts)
        sent = producer.send(b"", properties={KIND: MARK, CALL: mark_uuid})
        producer.close()
        return RollCall(receipts, sent.result(timeout=10), mark_uuid)

    return make


@pytest.fixture(params=["batch", "stream"])
def reuse(request) -> bool:
    return request.param == "stream"


@pytest.fixture(params=["one process", "a process each"])
def answer(client: PulsarClient, request, reuse, monkeypatch):
    """Answers as a Spark task does. A process per task caches no progress. The tasks of a stream
    reuse their handles."""

    def give(call: RollCall, spark_partition: int) -> str:
        if request.param == "a process each":
            monkeypatch.setattr(roll_call, "_progress", {})
        return call.answer(client, spark_partition, timeout_s=20, reuse=reuse)

    return give


def close(client: PulsarClient, call: RollCall) -> tuple[Answer, ...]:
    return call.close(client, client.entry_producer(call.topic), timeout_s=20)


def test_answers_before_the_closing_are_counted(client, begin, answer):
    call, other = begin(), begin()
    runs = [answer(call, partition) for partition in range(5)]
    answer(other, 0)
    assert close(client, call) == tuple(Answer(n, run) for n, run in enumerate(runs))


def test_a_roll_call_without_answers_is_empty(client, begin):
    assert close(client, begin()) == ()


def test_an_answer_after_the_closing_is_refused(client, begin, answer):
    call = begin()
    answer(call, 0)
    assert len(close(client, call)) == 1
    with pytest.raises(TransactionPoisoned, match="closed the roll call"):
        answer(call, 1)


def test_a_second_run_of_a_task_is_refused_and_counted(client, begin, answer):
    call = begin()
    first = answer(call, 3)
    with pytest.raises(AnsweredBefore):
        answer(call, 3)
    assert [one.spark_partition for one in close(client, call)] == [3, 3]
    assert Answer(3, first) in close(client, call)


def test_after_the_closing_a_second_run_is_refused_too(client, begin, answer):
    call = begin()
    answer(call, 3)
    close(client, call)
    with pytest.raises(TransactionPoisoned):
        answer(call, 3)


def test_messages_of_other_writers_are_ignored(client, begin, answer, receipts):
    call = begin()
    producer = client.entry_producer(receipts)
    for properties in (
        {},
        {KIND: "closed", CALL: str(uuid.uuid4())},
        {KIND: "closed"},
        {KIND: "answer", CALL: str(uuid.uuid4()), "partition": "0", "run": "x"},
        {CALL: call.mark_uuid},
    ):
        producer.send(b"\xff", properties=properties)
    producer.close()
    for count in ODD_COUNTS:
        send_claiming(client, receipts, count)
    send_without_checksum(client, receipts, b"x")
    run = answer(call, 0)
    assert close(client, call) == (Answer(0, run),)


def test_a_message_in_doubt_leaves_no_open_reader(client, begin, answer, monkeypatch):
    call, opened, open_reader = begin(), [], client.entry_reader

    def noted(*args, **options):
        opened.append(open_reader(*args, **options))
        return opened[-1]

    def in_doubt(*_):
        time.sleep(0.5)  # until the reader is open
        raise RequestTimeout("no receipt")

    monkeypatch.setattr(client, "entry_reader", noted)
    with monkeypatch.context() as patch:
        patch.setattr(RollCall, "_send", in_doubt)
        for give in (lambda: answer(call, 0), lambda: close(client, call)):
            with pytest.raises(RequestTimeout, match="no receipt"):
                give()
    assert len(opened) == 2
    for reader in opened:
        with pytest.raises(Fatal, match="closed"):
            next(reader.read(time.monotonic() + 5))
    run = answer(call, 0)
    assert close(client, call) == (Answer(0, run),)


@pytest.mark.parametrize("partition", ["", "-1", "x", "1e300", "٣"])
def test_a_malformed_answer_matches_no_task(client, begin, receipts, partition):
    call = begin()
    producer = client.entry_producer(receipts)
    producer.send(b"", properties={KIND: "answer", CALL: call.mark_uuid, "partition": partition})
    producer.close()
    assert close(client, call) == (Answer(-1, ""),)


def test_without_its_mark_a_roll_call_fails(client, begin, answer):
    call = begin()
    moved = RollCall(call.topic, call.mark_id, str(uuid.uuid4()))
    elsewhere = RollCall(call.topic, MessageId(call.mark_id.ledger + 1, 0), call.mark_uuid)
    for wrong in (moved, elsewhere):
        with pytest.raises(EosError):
            wrong.answer(client, 0, timeout_s=2)
        with pytest.raises(EosError):
            wrong.close(client, client.entry_producer(call.topic), timeout_s=2)


def test_the_timeout_of_reading_starts_with_the_reading(client, begin, monkeypatch):
    call, late_s = begin(), [100.0]
    real, producers = time.monotonic, client.entry_producers

    def slow(topics: list[str], **options: object) -> list[EntryProducer]:
        late_s[0] = 0.0  # as if it had taken so long
        return producers(topics, **options)

    monkeypatch.setattr(client, "entry_producers", slow)
    clock = SimpleNamespace(monotonic=lambda: real() - late_s[0])
    monkeypatch.setattr(_contiguous_read, "time", clock)
    run = call.answer(client, 0, timeout_s=20)
    assert close(client, call) == (Answer(0, run),)


def test_a_process_caches_only_a_few_roll_calls(client, begin):
    for _ in range(roll_call.MAX_CALLS_CACHED + 2):
        begin().answer(client, 0, timeout_s=20)
    assert len(roll_call._progress) == roll_call.MAX_CALLS_CACHED


def test_hostile_answers_match_no_task_and_large_ones_are_skipped(client, begin, receipts):
    call = begin()
    named = {KIND: "answer", CALL: call.mark_uuid}
    producer = client.entry_producer(receipts)
    producer.send(b"", properties={**named, "partition": "9" * 5000, "run": "x"})
    producer.send(b"", properties={**named, "partition": "1" * 20, "run": "y" * 1_000_000})
    producer.send(b"z" * 1_000_000, properties={**named, "partition": "0", "run": "z"})
    producer.close()
    send_inflating(client, receipts, [bytes(50 << 20)] * 3)
    assert close(client, call) == (Answer(-1, "x"),)


def test_messages_of_other_writers_are_not_kept(client, begin, receipts, monkeypatch):
    call, kept = begin(), []
    monkeypatch.setattr(RollCall, "_parse", spy(RollCall._parse, kept))
    producer = client.entry_producer(receipts)
    for _ in range(3):
        producer.send(b"x" * 1_000_000)
    producer.close()
    assert close(client, call) == ()
    assert [one is None for one in kept] == [True, True, True, False]


def test_the_number_of_kept_answers_is_limited(client, begin, receipts, monkeypatch):
    monkeypatch.setattr(_contiguous_read, "MAX_ITEMS", 3)
    call = begin()
    producer = client.entry_producer(receipts)
    for number in range(4):
        properties = {"partition": str(number), "run": "x"}
        producer.send(b"", properties={KIND: "answer", CALL: call.mark_uuid, **properties})
    producer.close()
    with pytest.raises(TransactionPoisoned, match="more than 3 answers"):
        close(client, call)


def spy(parse, kept):
    def noted(self, entry):
        kept.append(parse(self, entry))
        return kept[-1]

    return noted
