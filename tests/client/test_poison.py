"""I4: any doubt about a send poisons its transaction, and nothing is ever sent twice."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from eos.chaos.cluster.proxy import FrameAction, Hold, Replace
from eos.client import PulsarClient
from eos.errors import (
    ConnectionLost,
    EosError,
    Fatal,
    InputError,
    RequestTimeout,
    TransactionPoisoned,
)
from eos.wire import commands
from tests.support import admin
from tests.transport.scripted import wait_until

NOWHERE = commands.MessageIdData(ledger=2**64 - 1, entry=2**64 - 1)


def dropped(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(replace(acknowledgement, message_id=NOWHERE))


def half_dropped(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(replace(acknowledgement, message_id=replace(NOWHERE, entry=5)))


def without_an_id(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(replace(acknowledgement, message_id=None))


def rejected(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(
        commands.SendError(
            producer_id=acknowledgement.producer_id,
            sequence_id=acknowledgement.sequence_id,
            error=2,
        )
    )


def closed(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(commands.CloseProducer(producer_id=acknowledgement.producer_id, request_id=1))


def out_of_turn(acknowledgement: commands.SendReceipt) -> Replace:
    return Replace(replace(acknowledgement, sequence_id=acknowledgement.sequence_id + 1000))


def answered_as_dropped(send: commands.Send) -> commands.SendReceipt:
    """Answer as a broker with deduplication does: nothing is stored."""
    return commands.SendReceipt(
        producer_id=send.producer_id, sequence_id=send.sequence_id, message_id=NOWHERE
    )


DOUBTS = {
    "the send is lost": (commands.Send, FrameAction.DROP),
    "the connection is cut before the send": (commands.Send, FrameAction.CUT),
    "the connection is cut within the send": (commands.Send, FrameAction.CUT_WITHIN),
    "the connection is cut after the send": (commands.Send, FrameAction.CUT_AFTER),
    "the send is dropped as a duplicate": (commands.Send, answered_as_dropped),
    "the acknowledgement is lost": (commands.SendReceipt, FrameAction.DROP),
    "the connection is cut in the acknowledgement": (commands.SendReceipt, FrameAction.CUT_WITHIN),
    "the acknowledgement names no place": (commands.SendReceipt, dropped),
    "the acknowledgement names half a place": (commands.SendReceipt, half_dropped),
    "the acknowledgement names nothing": (commands.SendReceipt, without_an_id),
    "the acknowledgement is out of turn": (commands.SendReceipt, out_of_turn),
    "the send is rejected": (commands.SendReceipt, rejected),
    "the producer is closed": (commands.SendReceipt, closed),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_every_doubt_about_a_send_poisons_the_transaction(through, proxy, name, values, doubt):
    kind, rule = DOUBTS[doubt]
    sends: Counter[tuple[int, int]] = Counter()
    ends: list[int | None] = []

    def count(send: commands.Send) -> FrameAction:
        sends[send.producer_id, send.sequence_id] += 1
        return FrameAction.PASS

    def note_end(end: commands.EndTxn) -> FrameAction:
        ends.append(end.action)
        return FrameAction.PASS

    producer = through.entry_producer(name, create=True)
    txn = through.transaction(timeout_s=60)
    producer.send(b"before", txn=txn).result(timeout=30)
    producer._window._timeout_s = 3  # from here on
    with (
        proxy.fault(commands.Send, count, times=10**6),
        proxy.fault(commands.EndTxn, note_end, times=10**6),
        proxy.fault(kind, rule) as fault,
    ):
        acknowledgement = producer.send(b"in doubt", txn=txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()
        assert fault.fired.is_set()
    assert isinstance(acknowledgement.exception(timeout=0), EosError)
    assert ends == [commands.TxnAction.ABORT]
    assert set(sends.values()) == {1}
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    assert not producer.is_usable
    with pytest.raises(EosError):
        producer.send(b"never")
    assert values() == []


def test_a_doubt_poisons_every_open_transaction_that_the_producer_has_written_in(
    through, proxy, name
):
    producer = through.entry_producer(name, create=True)
    other = through.entry_producer(f"{name}-other", create=True)
    concerned, ended, unconcerned = (through.transaction() for _ in range(3))
    producer.send(b"x", txn=concerned).result(timeout=10)
    producer.send(b"x", txn=ended).result(timeout=10)
    ended.commit()
    with proxy.fault(commands.SendReceipt, rejected):
        plain = producer.send(b"plain")
        assert isinstance(plain.exception(timeout=10), EosError)
    other.send(b"x", txn=unconcerned)
    unconcerned.commit()
    with pytest.raises(TransactionPoisoned):
        concerned.commit()
    with pytest.raises(Fatal, match="was committed"):
        ended.commit()


def test_an_abort_waits_for_what_silent_producers_have_under_way_for_all_at_once(proxy, name):
    timeout_s, count = 5.0, 4
    closed_before_the_end: list[int] = []
    with PulsarClient(proxy.service_url, timeout_s=timeout_s) as client:
        topics = [f"persistent://public/default/{name}-{n}" for n in range(count)]
        producers = [client.entry_producer(topic, create=True) for topic in topics]
        txn = client.transaction(timeout_s=60)
        txn.register(topics)
        answers = proxy.seen[commands.Success]

        def note(_: commands.EndTxn) -> FrameAction:
            closed_before_the_end.append(proxy.seen[commands.Success] - answers)
            return FrameAction.PASS

        with (
            proxy.fault(commands.SendReceipt, FrameAction.DROP, times=count),
            # So that an abort that does not wait for the answers overtakes them.
            proxy.fault(commands.CloseProducer, lambda _: Hold(0.1), times=count),
            proxy.fault(commands.EndTxn, note),
        ):
            for producer in producers:
                producer.send(b"x", txn=txn)
            began = time.monotonic()
            txn.abort()
            took_s = time.monotonic() - began
    assert closed_before_the_end == [count]  # the broker has answered: all is stored
    assert took_s < 3 * timeout_s  # one after the other they would take four


def test_the_rest_of_what_is_under_way_fails_with_it_each_with_an_error_of_its_own(
    through, proxy, name
):
    producer = through.entry_producer(name, create=True)
    all_sent = threading.Event()

    def cut(_: commands.SendReceipt) -> FrameAction:
        all_sent.wait(10)
        return FrameAction.CUT

    with proxy.fault(commands.SendReceipt, cut):
        acknowledgements = [producer.send(b"%d" % n) for n in range(20)]
        all_sent.set()
        errors = [acknowledgement.exception(timeout=10) for acknowledgement in acknowledgements]
    assert all(isinstance(error, ConnectionLost) for error in errors)
    assert len({id(error) for error in errors}) == 20


def test_a_topic_that_is_unloaded_in_mid_transaction_poisons_it(
    pulsar_standalone, client, name, values
):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"before", txn=txn).result(timeout=10)
    path = f"/v2/persistent/public/default/{name}/unload"
    admin.call(pulsar_standalone.admin_url, "PUT", path)
    wait_until(lambda: not producer.is_usable)
    with pytest.raises(TransactionPoisoned, match="closed the producer"):
        txn.commit()
    with client.transaction(timeout_s=60) as again:
        client.entry_producer(name).send(b"again", txn=again)
    assert values() == [b"again"]


def test_a_poisoned_transaction_can_not_be_committed(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"x", txn=txn).result(timeout=10)
    txn.poison(EosError("somebody's doubt"))
    with pytest.raises(TransactionPoisoned, match="somebody's doubt"):
        producer.send(b"y", txn=txn)
    with pytest.raises(TransactionPoisoned, match="somebody's doubt"):
        txn.commit()
    assert values() == []


def test_a_doubt_that_the_block_swallows_still_aborts(through, proxy, name, values):
    producer = through.entry_producer(name, create=True)

    def swallow() -> None:
        with through.transaction() as txn, proxy.fault(commands.SendReceipt, rejected):
            producer.send(b"x", txn=txn).exception(timeout=10)

    with pytest.raises(TransactionPoisoned, match="code 2"):
        swallow()
    assert values() == []


def test_a_send_on_a_producer_that_failed_before_poisons_because_it_is_missing(
    through, proxy, name, values
):
    """The send may be in a thread whose exception is never seen."""
    failed, sound = through.entry_producer(name, create=True), through.entry_producer(name)
    with proxy.fault(commands.SendReceipt, rejected):
        failed.send(b"plain").exception(timeout=10)
    txn = through.transaction()
    sound.send(b"x", txn=txn)
    with pytest.raises(EosError, match="code 2"):
        failed.send(b"missing", txn=txn)
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    assert b"x" not in values()


def test_a_producer_that_is_closed_while_others_send_loses_nothing_in_silence(
    through, name, values
):
    """The broker silently drops a send after CLOSE_PRODUCER."""
    producer = through.entry_producer(name, create=True)
    txn = through.transaction()
    accepted: list[bytes] = []

    def send(thread: int) -> None:
        try:
            for n in range(10**6):
                producer.send(b"%d/%d" % (thread, n), txn=txn)
                accepted.append(b"%d/%d" % (thread, n))
        except EosError:
            return

    threads = [threading.Thread(target=send, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(accepted) > 10)
    producer.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    # Each thread got an error, and the transaction lacks the message that it tried to send.
    with pytest.raises(TransactionPoisoned, match="is closed"):
        txn.commit()
    assert accepted
    assert values() == []


def test_an_interrupted_send_poisons(through, name, monkeypatch, values):
    producer = through.entry_producer(name, create=True)
    txn = through.transaction()
    producer.send(b"x", txn=txn)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(producer._connection, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"y", txn=txn)
    with pytest.raises(TransactionPoisoned, match="KeyboardInterrupt"):
        txn.commit()
    assert values() == []


@pytest.mark.parametrize("kind", ["producer", "entry_producer"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_send_that_is_ended_before_anything_is_admitted_poisons(
    client, name, monkeypatch, kind, error
):
    producer = getattr(client, kind)(name, create=True)

    def fail(*_: object) -> None:
        raise error

    for begun in ("admit_lingering", "enlist") if kind == "producer" else ("enlist", "check"):
        txn = client.transaction()
        with monkeypatch.context() as patched:
            patched.setattr(txn, begun, fail)
            with contextlib.suppress(error):
                producer.send(b"x", txn=txn)
                producer.flush()
        with pytest.raises(TransactionPoisoned, match=error.__name__):
            txn.commit()


def test_properties_that_are_none_poison(client, name):
    producer, txn = client.entry_producer(name, create=True), client.transaction()
    for wrong in (5, "text"):
        with pytest.raises(InputError, match="properties"):
            producer.send(b"x", properties=wrong, txn=txn)
    with pytest.raises(TransactionPoisoned, match="properties"):
        txn.commit()


def test_an_abort_waits_until_a_failed_producer_has_nothing_under_way(
    through, proxy, name, monkeypatch, values
):
    producer = through.entry_producer(name, create=True)
    txn = through.transaction()
    closed_before_end: list[int] = []

    def look(_: object) -> FrameAction:
        closed_before_end.append(proxy.seen[commands.CloseProducer])
        return FrameAction.PASS

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    producer.send(b"x", txn=txn)
    with monkeypatch.context() as patched:
        patched.setattr(producer._connection, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"y", txn=txn)
    with proxy.fault(commands.EndTxn, look):
        txn.abort()
    assert closed_before_end == [1]
    assert values() == []


def test_a_receipt_can_not_be_called_back(through, name):
    producer = through.entry_producer(name, create=True)
    acknowledgement = producer.send(b"x")
    assert not acknowledgement.cancel()
    assert acknowledgement.result(timeout=10).ledger >= 0


def test_a_callback_of_a_lost_send_may_use_the_producer_again(through, proxy, name):
    producer = through.entry_producer(name, create=True)
    heard: list[BaseException] = []
    done = threading.Event()

    def send_again(_: object) -> None:
        try:
            producer.send(b"again")
        except EosError as error:
            heard.append(error)
        done.set()

    with proxy.fault(commands.SendReceipt, rejected):
        producer.send(b"x").add_done_callback(send_again)
        assert done.wait(10)
    assert len(heard) == 1


def test_a_flush_ends_when_one_receipt_is_missing_although_younger_ones_come(through, proxy, name):
    """Continuous traffic must not keep flush() waiting forever."""
    producer = through.entry_producer(name, create=True)
    producer.send(b"warm up").result(timeout=10)
    producer._window._timeout_s = 2
    stop = threading.Event()

    def keep_sending() -> None:
        while not stop.is_set():
            try:
                producer.send(b"more").result(timeout=5)
            except EosError:
                return

    with proxy.fault(commands.SendReceipt, FrameAction.DROP) as fault:
        producer.send(b"lost")
        assert fault.fired.wait(5)
    thread = threading.Thread(target=keep_sending)
    thread.start()
    try:
        with pytest.raises(RequestTimeout, match="No acknowledgement"):
            producer.flush()
    finally:
        stop.set()
        thread.join(10)


def test_a_flush_waits_only_for_what_was_sent_before_it(through, name):
    producer = through.entry_producer(name, create=True)
    stop = threading.Event()

    def keep_sending() -> None:
        while not stop.is_set():
            producer.send(b"more")

    threads = [threading.Thread(target=keep_sending) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            producer.flush()
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    producer.close()
