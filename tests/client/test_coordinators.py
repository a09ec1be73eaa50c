"""Several transaction coordinators, or none, on separate brokers."""

from __future__ import annotations

import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient
from eos.errors import (
    BROKER_ERRORS,
    EosError,
    RequestTimeout,
    TransactionNotFound,
    TransactionsDisabled,
)
from eos.ids import TxnId
from eos.testing import PulsarStandalone
from eos.wire import commands
from tests.support.admin import call
from tests.support.judge import drain


@pytest.mark.broker
def test_a_broker_without_transactions_says_how_to_switch_them_on():
    hint = "transactionCoordinatorEnabled=true"
    with (
        PulsarStandalone(transactions=False) as broker,
        PulsarClient(broker.service_url, timeout_s=10) as client,
    ):
        for begin in (client.transaction, client.coordinators.count):
            with pytest.raises(TransactionsDisabled, match=hint):
                begin()
        # Addressing coordinator 0 directly fails too, without waiting for a timeout.
        with pytest.raises(EosError) as caught:
            client.coordinators.begin_on(0, 10_000)
        assert not isinstance(caught.value, RequestTimeout)


@pytest.mark.broker
def test_transactions_are_spread_over_several_coordinators(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=10) as client:
        call(broker.admin_url, "POST", "/v3/transactions/transactionCoordinator/replicas", 3)
        assert client.coordinators.count() == 3
        producer = client.entry_producer(name, create=True)
        used = set()
        for number in range(6):
            with client.transaction(timeout_s=60) as txn:
                producer.send(b"%d" % number, txn=txn)
            used.add(txn.id.most)
        assert used == {0, 1, 2}
        for tc_id in range(3):
            assert client.coordinators.begin_on(tc_id, 10_000).most == tc_id
            client.coordinators.connect(tc_id)
        seen = drain(broker.service_url, f"persistent://public/default/{name}")
        assert [m.value for m in seen] == [b"%d" % number for number in range(6)]


def test_a_transaction_that_never_was_is_not_found(client):
    nobody = TxnId(0, 2**40)
    with pytest.raises(TransactionNotFound):
        client.coordinators.end(nobody, commands.TxnAction.COMMIT, timeout_s=10)
    with pytest.raises(TransactionNotFound):
        client.coordinators.add_partitions(nobody, ["persistent://public/default/t"])


@pytest.mark.parametrize("code", [*BROKER_ERRORS, 0, 12345])
def test_an_error_of_the_broker_has_the_class_of_its_code(through, proxy, code):
    def refuse(new: commands.NewTxn) -> commands.NewTxnResponse:
        return commands.NewTxnResponse(request_id=new.request_id, error=code, message="because")

    with (
        proxy.fault(commands.NewTxn, refuse),
        pytest.raises(BROKER_ERRORS.get(code, EosError), match=f"code {code} .because"),
    ):
        through.transaction()


def test_a_broker_that_opens_no_transaction_is_given_up_and_looked_up_again(through, proxy):
    """For example a broker at its limit of active transactions, which does not answer."""
    through.coordinators.timeout_s = 3
    through.transaction()
    before = proxy.seen[commands.Lookup]
    with (
        proxy.fault(commands.NewTxn, FrameAction.DROP),
        pytest.raises(RequestTimeout, match=r"Opening a transaction: no answer .* within 3 s"),
    ):
        through.transaction()
    through.transaction()
    assert proxy.seen[commands.Lookup] == before + 1
