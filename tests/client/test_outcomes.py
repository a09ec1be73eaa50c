"""I5: a commit never reports a wrong outcome; if the outcome is unknown, it reports that."""

from __future__ import annotations

import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient
from eos.client import _transaction as transaction_module
from eos.errors import (
    EosError,
    Fatal,
    Indeterminate,
    ProtocolError,
    Retriable,
    TransactionPoisoned,
    Unauthorized,
)
from eos.wire import commands
from tests.transport.scripted import Peer, ScriptedBroker, wait_until


@pytest.fixture
def written(through, name):
    """A transaction with one acknowledged message in it, its producer closed."""
    producer = through.entry_producer(name, create=True)
    txn = through.transaction(timeout_s=60)
    producer.send(b"x", txn=txn).result(timeout=10)
    producer.close()
    return txn


@pytest.mark.parametrize("verdict", [FrameAction.DROP, FrameAction.CUT, FrameAction.CUT_WITHIN])
def test_a_commit_whose_answer_was_lost_is_never_claimed_to_have_failed(
    written, through, proxy, values, verdict
):
    through.coordinators.timeout_s = 3
    with (
        proxy.fault(commands.EndTxnResponse, verdict) as fault,
        pytest.raises(Indeterminate, match="whether committed is not known") as caught,
    ):
        written.commit()
    assert fault.count == 1
    assert not isinstance(caught.value, Retriable)  # which would mean: send it again
    for again in (written.commit, written.abort):
        with pytest.raises(Indeterminate, match="may be committed or not"):
            again()
    with pytest.raises(Fatal):
        written.check()
    assert values() == [b"x"]


def test_a_commit_whose_request_was_lost_is_repeated(written, proxy, values):
    with proxy.fault(commands.EndTxn, FrameAction.CUT) as fault:
        written.commit()
    assert fault.count == 1
    assert values() == [b"x"]


def test_a_commit_that_is_never_answered_is_indeterminate_whatever_the_last_error_was(
    written, through, proxy, monkeypatch, values
):
    """A lost connection alone would mean: try again."""
    monkeypatch.setattr(transaction_module, "END_DEADLINE_S", 3.0)
    through.coordinators.timeout_s = 2
    with (
        proxy.fault(commands.EndTxnResponse, FrameAction.CUT, times=100),
        pytest.raises(Indeterminate, match="may be committed or not") as caught,
    ):
        written.commit()
    assert not isinstance(caught.value, Retriable)
    assert values() == [b"x"]


@pytest.mark.parametrize("code", [0, 1, 2, 6, 11, 20, 22, 23, 99])
def test_another_error_of_end_txn_says_nothing_and_is_answered_by_asking_again(
    written, proxy, values, code
):
    def refuse(end: commands.EndTxn) -> commands.EndTxnResponse:
        return commands.EndTxnResponse(request_id=end.request_id, error=code)

    with proxy.fault(commands.EndTxn, refuse, times=2) as fault:
        written.commit()
    assert fault.count == 2
    assert values() == [b"x"]


@pytest.mark.parametrize("code", [20, 6], ids=["moved", "not ready"])
def test_a_coordinator_that_moved_is_looked_up_again(written, proxy, values, code):
    def moved(command: commands.EndTxn) -> commands.EndTxnResponse:
        return commands.EndTxnResponse(request_id=command.request_id, error=code)

    before = proxy.seen[commands.Lookup], proxy.seen[commands.TcClientConnectRequest]
    with proxy.fault(commands.EndTxn, moved):
        written.commit()
    after = proxy.seen[commands.Lookup], proxy.seen[commands.TcClientConnectRequest]
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
    assert values() == [b"x"]


def test_a_refusal_by_name_passes_as_it_is(written, proxy, values):
    def refuse(end: commands.EndTxn) -> commands.EndTxnResponse:
        return commands.EndTxnResponse(request_id=end.request_id, error=4)

    with proxy.fault(commands.EndTxn, refuse), pytest.raises(Unauthorized):
        written.commit()
    with pytest.raises(TransactionPoisoned, match="was not committed"):
        written.commit()
    written.abort()
    assert values() == []


def test_a_refusal_after_a_doubt_does_not_settle_the_doubt(written, proxy, values):
    verdicts = iter([FrameAction.CUT_AFTER])

    def cut_then_refuse(end: commands.EndTxn):
        refusal = commands.EndTxnResponse(request_id=end.request_id, error=4)
        return next(verdicts, refusal)

    with (
        proxy.fault(commands.EndTxn, cut_then_refuse, times=100),
        pytest.raises(Indeterminate, match="may be committed or not"),
    ):
        written.commit()
    assert values() == [b"x"]


def test_a_cut_between_the_last_receipt_and_the_commit_is_survived(written, proxy, values):
    proxy.cut_all()
    written.commit()
    assert values() == [b"x"]


def test_a_cut_between_begin_and_the_first_send_is_survived_by_a_new_look_up(
    through, proxy, name, values
):
    through.entry_producer(name, create=True)
    with through.transaction(timeout_s=60) as txn:
        proxy.cut_all()
        wait_until(lambda: not any(c.is_alive for c in through.lookup._pool.connections))
        through.entry_producer(name).send(b"x", txn=txn)
    assert values() == [b"x"]


@pytest.mark.parametrize("code", [20, 6], ids=["moved", "not ready"])
def test_adding_a_partition_is_repeated_once_because_nothing_was_sent_yet(
    through, proxy, name, values, code
):
    def moved(add: commands.AddPartitionToTxn) -> commands.AddPartitionToTxnResponse:
        return commands.AddPartitionToTxnResponse(request_id=add.request_id, error=code)

    producer = through.entry_producer(name, create=True)
    with proxy.fault(commands.AddPartitionToTxn, moved) as fault, through.transaction() as txn:
        producer.send(b"x", txn=txn)
    assert fault.count == 1
    poisoned = through.transaction()
    with proxy.fault(commands.AddPartitionToTxn, moved, times=2), pytest.raises(Retriable):
        producer.send(b"y", txn=poisoned)
    with pytest.raises(TransactionPoisoned):
        poisoned.commit()
    assert values() == [b"x"]


def test_a_transaction_that_somebody_else_ended_in_its_time_is_not_called_expired(
    client, pulsar_standalone, name, values
):
    """Expired would mean: none of it is readable, send it again."""
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"x", txn=txn).result(timeout=10)
    with PulsarClient(pulsar_standalone.service_url, timeout_s=10) as other:
        other.join(txn.id).commit()
    with pytest.raises(Indeterminate, match="whether committed is not known"):
        txn.commit()
    assert values() == [b"x"]


def test_a_poisoned_commit_says_so_even_when_the_abort_fails(written, proxy, monkeypatch, values):
    written.poison(EosError("a doubt"))
    with monkeypatch.context() as patch:
        patch.setattr(transaction_module, "END_DEADLINE_S", 0.5)
        with (
            proxy.fault(commands.EndTxn, FrameAction.CUT, times=100),
            pytest.raises(TransactionPoisoned, match="a doubt"),
        ):
            written.commit()
    written.abort()
    assert values() == []


def test_a_block_that_fails_while_the_broker_is_gone_raises_its_own_error(
    through, proxy, monkeypatch, caplog
):
    monkeypatch.setattr(transaction_module, "END_DEADLINE_S", 0.5)

    def fail() -> None:
        with through.transaction():
            proxy.close()
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        fail()
    assert "it will expire" in caplog.text


def test_two_threads_may_not_both_commit(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction()
    producer.send(b"x", txn=txn)
    refused: list[EosError] = []
    flush = producer.flush

    def commit_again() -> None:  # as another thread could at this moment
        for end in (txn.commit, txn.abort):
            with pytest.raises(Fatal, match="is being committed") as caught:
                end()
            refused.append(caught.value)
        flush()

    producer.flush = commit_again
    txn.commit()
    assert len(refused) == 2
    assert values() == [b"x"]


@pytest.mark.parametrize("most", [7, None])
def test_a_new_transaction_of_another_coordinator_is_a_protocol_error(most):
    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            match peer.next():
                case commands.PartitionedMetadata(request_id=n):
                    peer.send(commands.PartitionedMetadataResponse(request_id=n, partitions=1))
                case commands.Lookup(request_id=n):
                    found = commands.LookupResponse(
                        request_id=n, response=1, broker_url=broker.url, authoritative=True
                    )
                    peer.send(found)
                case commands.TcClientConnectRequest(request_id=n):
                    peer.send(commands.TcClientConnectResponse(request_id=n))
                case commands.NewTxn(request_id=n):
                    begun = commands.NewTxnResponse(request_id=n, txnid_most=most, txnid_least=most)
                    peer.send(begun)

    with (
        ScriptedBroker(script) as broker,
        PulsarClient(broker.url, timeout_s=2) as client,
        pytest.raises(ProtocolError, match="Coordinator 0 returned an invalid id"),
    ):
        client.transaction()
