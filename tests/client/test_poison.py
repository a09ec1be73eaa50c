"""I4: any doubt about a send poisons its transaction, and nothing is ever sent twice."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from chaos.proxy import FaultProxy, Replace, Verdict
from eos.client import PulsarClient
from eos.errors import EosError, TransactionPoisoned
from eos.wire import commands
from tests.support import admin
from tests.support.judge import drain


@pytest.fixture
def proxy(pulsar_standalone):
    with FaultProxy(pulsar_standalone.service_url) as running:
        yield running


def dropped(receipt: commands.SendReceipt) -> Replace:
    nowhere = commands.MessageIdData(ledger=2**64 - 1, entry=2**64 - 1)
    return Replace(replace(receipt, message_id=nowhere))


def rejected(receipt: commands.SendReceipt) -> Replace:
    return Replace(
        commands.SendError(
            producer_id=receipt.producer_id, sequence_id=receipt.sequence_id, error=2
        )
    )


def closed(receipt: commands.SendReceipt) -> Replace:
    return Replace(commands.CloseProducer(producer_id=receipt.producer_id, request_id=1))


def out_of_turn(receipt: commands.SendReceipt) -> Replace:
    return Replace(replace(receipt, sequence_id=receipt.sequence_id + 1000))


DOUBTS = {
    "the send is lost": (commands.Send, Verdict.DROP),
    "the connection is cut before the send": (commands.Send, Verdict.CUT),
    "the connection is cut within the send": (commands.Send, Verdict.CUT_WITHIN),
    "the connection is cut after the send": (commands.Send, Verdict.CUT_AFTER),
    "the receipt is lost": (commands.SendReceipt, Verdict.DROP),
    "the connection is cut in the receipt": (commands.SendReceipt, Verdict.CUT_WITHIN),
}
FORGED = {
    "dropped as a duplicate": dropped,
    "rejected": rejected,
    "producer closed": closed,
    "a receipt out of turn": out_of_turn,
}


@pytest.mark.parametrize("doubt", [*DOUBTS, *FORGED])
def test_every_doubt_about_a_send_poisons_the_transaction(pulsar_standalone, proxy, name, doubt):
    sends = []

    def count(send: commands.Send) -> Verdict:
        sends.append((send.producer_id, send.sequence_id))
        return Verdict.PASS

    if doubt in DOUBTS:
        kind, rule = DOUBTS[doubt]
    else:
        kind, rule = commands.SendReceipt, FORGED[doubt]
    with PulsarClient(proxy.service_url, timeout_s=3) as client:
        producer = client.producer(name, create=True)
        txn = client.transaction(timeout_s=60)
        producer.send(b"before", txn=txn).result(timeout=10)
        with (
            proxy.fault(commands.Send, count, times=10**6),
            proxy.fault(kind, rule) as fault,
            pytest.raises(EosError),
        ):
            _write_and_commit(producer, txn)
        assert fault.fired.is_set()
        assert len(sends) == len(set(sends))
        with pytest.raises(TransactionPoisoned):
            txn.commit()
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert seen == []


def await_closing(producer) -> None:
    """Until the broker's CLOSE_PRODUCER has arrived."""
    deadline = time.monotonic() + 30
    while producer.is_usable:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _write_and_commit(producer, txn) -> None:
    producer.send(b"in doubt", txn=txn)
    txn.commit()


@pytest.mark.parametrize("notices", ["before the send", "whenever it does"])
def test_a_topic_that_is_unloaded_in_mid_transaction_poisons_it(
    pulsar_standalone, client, name, notices
):
    producer = client.producer(name, create=True)
    path = f"/v2/persistent/public/default/{name}/unload"

    def write() -> None:
        # However it fails, the block aborts: left open, it would hold readers back for its time.
        with client.transaction(timeout_s=600) as txn:
            producer.send(b"before", txn=txn).result(timeout=10)
            admin.call(pulsar_standalone.admin_url, "PUT", path)
            if notices == "before the send":
                await_closing(producer)
            producer.send(b"in doubt", txn=txn)

    with pytest.raises(EosError):
        write()
    with client.transaction(timeout_s=60) as again:
        client.producer(name).send(b"again", txn=again)
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert [m.value for m in seen] == [b"again"]


def test_a_poisoned_transaction_can_not_be_committed(pulsar_standalone, client, name):
    producer = client.producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"x", txn=txn).result(timeout=10)
    txn.poison(EosError("somebody's doubt"))
    with pytest.raises(TransactionPoisoned, match="somebody's doubt"):
        producer.send(b"y", txn=txn)
    with pytest.raises(TransactionPoisoned, match="somebody's doubt"):
        txn.commit()
    assert drain(pulsar_standalone.service_url, f"persistent://public/default/{name}") == []
