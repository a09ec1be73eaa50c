"""Lost replies, expiry and other answers of the broker: the outcome is looked up, never guessed."""

from __future__ import annotations

import contextlib

import pytest

from eos import failpoints
from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient
from eos.errors import InDoubt
from eos.pulsar.end_rules import WitnessAnswer
from eos.pulsar.part import pulsar_part
from eos.pulsar.witness import Witness
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.wire import commands
from tests.support import admin
from tests.support.expiry import await_expiry
from tests.support.judge import drain
from tests.support.plain_driver import rows_of


@pytest.fixture
def witness(monkeypatch):
    """Counts how often the witness was asked."""
    asked: list[WitnessAnswer] = []
    ask = Witness.ask

    def counting(self, part, *, timeout_s):
        asked.append(ask(self, part, timeout_s=timeout_s))
        return asked[-1]

    monkeypatch.setattr(Witness, "ask", counting)
    return asked


def values(pulsar_standalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(pulsar_standalone.service_url, topic)]


@pytest.mark.parametrize("verdict", [FrameAction.DROP, FrameAction.CUT], ids=["reply lost", "cut"])
def test_a_lost_reply_of_a_commit_that_took_effect_is_proved_by_the_witness(
    pulsar_standalone, make_driver, topic, proxy, witness, verdict
):
    driver = make_driver(service_url=proxy.service_url, timeout_s=8.0)
    driver.committer.claim()
    with proxy.fault(commands.EndTxnResponse, verdict) as fault:
        driver.run("0")
    assert fault.count == 1
    assert witness == [WitnessAnswer.READABLE]
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")


@pytest.mark.parametrize(
    "answer",
    [
        commands.LookupResponse,
        commands.ProducerSuccess,
        commands.SendReceipt,
        commands.TcClientConnectResponse,
        commands.NewTxnResponse,
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_lost_answer_before_anything_is_in_doubt_is_asked_for_again(
    pulsar_standalone, make_driver, topic, proxy, answer
):
    driver = make_driver(service_url=proxy.service_url, timeout_s=6.0)
    if answer is commands.SendReceipt:  # of the mark, not of the priming transaction
        driver.committer.claim()
    with proxy.fault(answer, FrameAction.DROP) as fault:
        driver.run("0")
    assert fault.count == 1
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")


@pytest.mark.parametrize("code", [0, 1, 2, 6, 20, 22, 23, 99])
def test_after_another_error_end_txn_is_repeated_and_the_witness_is_not_asked(
    pulsar_standalone, make_driver, topic, proxy, witness, code
):
    driver = make_driver(service_url=proxy.service_url, deadline_s=10.0)
    driver.committer.claim()
    refused = []

    def refuse(command: commands.EndTxn):
        refused.append(command.action)
        return commands.EndTxnResponse(request_id=command.request_id, error=code, message="no")

    with proxy.fault(commands.EndTxn, refuse, times=2):
        driver.run("0")
    assert refused == [commands.TxnAction.COMMIT] * 2
    assert witness == []
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_without_a_usable_answer_to_end_txn_a_commit_stays_in_doubt_and_is_finished_later(
    pulsar_standalone, make_driver, topic, proxy, witness
):
    driver = make_driver(service_url=proxy.service_url, deadline_s=1.0)
    driver.committer.claim()
    error = commands.EndTxnResponse(request_id=0, error=1)

    def refuse(command: commands.EndTxn):
        return commands.EndTxnResponse(request_id=command.request_id, error=error.error)

    with proxy.fault(commands.EndTxn, refuse, times=1000), pytest.raises(InDoubt) as caught:
        driver.run("0")
    assert "gave no usable answer" in str(caught.value)
    assert witness == [WitnessAnswer.UNKNOWN]  # only for the error's text
    assert driver.states("0") == ["OPEN", "PREPARED"]
    make_driver().committer.claim()
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_a_transaction_that_expires_before_prepared_runs_again_and_lives_longer(
    pulsar_standalone, make_driver, topic, client
):
    driver = make_driver(ttl_ms=4000)
    waited = []

    def outlive_the_first(_) -> None:
        if not waited:
            waited.append(await_expiry(client, pulsar_part(driver.records()[-1]).txn))

    driver.during_write = outlive_the_first
    driver.run("0")
    # On a busy machine one may expire even before it has written.
    records = [record for record in driver.records() if record.epoch == "0"][-6:]
    states = [record.state.value for record in records]
    assert states == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert str(records[2].reason).startswith("EXPIRED: ")
    lived_ms, lives_ms = pulsar_part(records[0]).ttl_ms, pulsar_part(records[3]).ttl_ms
    assert (lived_ms >= 4000, lives_ms) == (True, 2 * lived_ms)
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_a_transaction_that_expires_after_prepared_is_proved_absent_and_runs_again(
    pulsar_standalone, make_driver, topic, client, witness
):
    driver = make_driver(ttl_ms=4000)
    waited = []

    def outlive_the_first() -> None:
        if not waited:
            waited.append(await_expiry(client, pulsar_part(driver.records()[-1]).txn))

    with failpoints.armed(Step.PREPARE, outlive_the_first):
        driver.run("0")
    assert witness == [WitnessAnswer.PROVED_ABSENT]
    states = ["OPEN", "PREPARED", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert driver.states("0")[-6:] == states  # one may expire before it is prepared
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_a_send_that_is_in_doubt_runs_the_epoch_again(pulsar_standalone, make_driver, topic, proxy):
    driver = make_driver(service_url=proxy.service_url, timeout_s=8.0)
    driver.run("0")
    is_in_transaction = lambda send: (  # noqa: E731
        FrameAction.CUT if send.txnid_least is not None else FrameAction.PASS
    )
    with proxy.fault(commands.Send, is_in_transaction) as fault:
        driver.run("1")
    assert fault.count == 1
    assert driver.states("1") == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1")


def test_a_receipt_that_is_in_doubt_runs_the_epoch_again(
    pulsar_standalone, make_driver, topic, proxy
):
    driver = make_driver(service_url=proxy.service_url, timeout_s=8.0)
    driver.run("0")
    with contextlib.ExitStack() as stack:
        lost = []

        def lose_the_next() -> None:
            if not lost:
                lost.append(
                    stack.enter_context(proxy.fault(commands.SendReceipt, FrameAction.DROP))
                )

        stack.enter_context(failpoints.armed(Step.CHECK, lose_the_next))
        driver.run("1")
    assert lost[0].count == 1
    assert driver.states("1") == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1")


def test_a_roll_call_whose_closing_is_in_doubt_is_closed_again(
    pulsar_standalone, make_driver, topic, proxy
):
    driver = make_driver(service_url=proxy.service_url)
    driver.run("0")
    with contextlib.ExitStack() as stack:
        lost = []

        def cut_behind_the_closing() -> None:
            lost.append(stack.enter_context(proxy.fault(commands.SendReceipt, FrameAction.CUT)))

        with failpoints.armed(Step.WRITE, cut_behind_the_closing):
            driver.run("1")
    assert lost[0].count == 1
    assert driver.states("1") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == [*rows_of("0"), *rows_of("1")]


def test_a_partition_blocked_by_an_aborted_transaction_is_found_and_freed(
    make_driver, name, caplog
):
    """The late first send of a task that the abort overtook, on a fresh partition (facts).

    On its own broker: another test's open transaction would rightly delay the freeing.
    """
    with PulsarStandalone() as broker, PulsarClient(broker.service_url) as client:
        admin.create_partitioned(broker.admin_url, name, 2)
        driver = make_driver(service_url=broker.service_url, admin_url=broker.admin_url)
        driver.run("0", count=1)  # reaches partition 0 only
        fresh = f"{driver.topic}-partition-1"
        zombies = []

        def leave_a_zombie(txn_id) -> None:
            zombie = client.join(txn_id)
            zombie.register([fresh])
            zombies.append((zombie, client.entry_producer(fresh)))
            raise ValueError("the job failed")

        def wake_the_zombie() -> None:
            zombie, producer = zombies.pop()
            producer.send(b"too late", txn=zombie).result(timeout=10)

        driver.during_write = leave_a_zombie
        with (
            failpoints.armed(Step.END, wake_the_zombie),
            pytest.raises(ValueError, match="job failed"),
        ):
            driver.run("1", count=1)
        assert not zombies
        assert "blocks the readers" in caplog.text
        assert "blocks no partition any more" in caplog.text
        driver.during_write = lambda _: None
        driver.run("1", count=1)
        driver.run("2", count=2)
        assert sorted(values(broker, driver.topic)) == [b"0/0", b"1/0", *rows_of("2", 2)]


def test_without_admin_url_a_possibly_blocked_partition_is_reported(make_driver, caplog):
    driver = make_driver(admin_url=None)

    def fail(_) -> None:
        raise ValueError("the job failed")

    driver.during_write = fail
    with pytest.raises(ValueError, match="job failed"):
        driver.run("0")
    assert "Set admin_url" in caplog.text


def test_a_terminated_topic_is_reported_as_committed_and_not_visible(
    pulsar_standalone, make_driver, name, topic
):
    driver = make_driver(deadline_s=10.0, timeout_s=4.0)

    def terminate() -> None:
        path = f"/v2/persistent/public/default/{name}/terminate"
        admin.call(pulsar_standalone.admin_url, "POST", path)

    with failpoints.armed(Step.PREPARE, terminate), pytest.raises(InDoubt) as caught:
        driver.run("0")
    assert f"committed, and not visible on {topic}" in str(caught.value)
    assert driver.states("0") == ["OPEN", "PREPARED"]
