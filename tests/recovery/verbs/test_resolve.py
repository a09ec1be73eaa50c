"""``resolve`` and ``abort``: a plan, then step by step; a decision is never reversed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eos import failpoints
from eos.admin import OpenTransaction
from eos.errors import Fenced
from eos.protocol import BATCH
from eos.pulsar.part import pulsar_part
from eos.recovery import decide as decide_module
from eos.recovery._change import Plan, PlanStep
from eos.recovery._takeover import Takeover
from eos.recovery._target import Target
from eos.recovery.verbs import decide_verb as decide_verb_module
from eos.steps import Step
from tests.protocol.epochs import claim, opened
from tests.support import admin
from tests.support.judge import drain
from tests.support.logs import log_of
from tests.support.plain_driver import rows_of


def values(driver) -> list[bytes]:
    return [seen.value for seen in drain(driver.service_url, driver.topic)]


def test_plan_changes_nothing_and_warns_about_fencing(recovery, make_driver, dies_behind, root):
    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    before = driver.records()
    ended = recovery("resolve", "--commit-log", root)
    assert ended.code == 1
    assert "END_TXN(commit)" in ended.out
    assert "Its last record is" in ended.out
    assert before[-1].run_id[:8] in ended.out
    assert "stops with Fenced" in ended.out
    assert driver.records() == before


@pytest.mark.parametrize(
    ("step", "state"), [(Step.PREPARE, "COMMITTED"), (Step.WRITE, "ABORTED")], ids=lambda x: str(x)
)
def test_apply_follows_the_log_and_is_idempotent(
    recovery, make_driver, dies_behind, root, name, step, state
):
    driver = make_driver()
    dies_behind(driver, step, "0")
    ended = recovery("resolve", name, "--commit-log", root, "--apply", "--yes", "--json")
    assert ended.code == 0
    (done,) = ended.json["done"]
    assert state in done
    assert driver.states("0")[-1] == state
    assert values(driver) == (rows_of("0") if state == "COMMITTED" else [])
    before = driver.records()
    ended = recovery("resolve", name, "--commit-log", root, "--apply", "--yes", "--json")
    assert (ended.code, ended.json["steps"]) == (0, [])
    assert driver.records() == before


def test_a_broken_log_does_not_keep_other_sinks_from_being_finished(
    recovery, make_driver, dies_behind, root
):
    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    (Path(root) / "a-broken-one" / "_delta_log").mkdir(parents=True)
    (Path(root) / "a-broken-one" / "_delta_log" / f"{0:020}.json").write_text("{")
    ended = recovery("resolve", "--commit-log", root, "--apply", "--yes", "--json")
    assert ended.code != 0
    assert "COMMITTED" in str(ended.json["done"])
    assert "a-broken-one" in str(ended.json["failed"] + ended.json["unknown"])
    assert driver.states("0")[-1] == "COMMITTED"


def test_apply_needs_a_terminal_to_confirm(recovery, make_driver, dies_behind, root):
    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    before = driver.records()
    ended = recovery("resolve", "--commit-log", root, "--apply")
    assert ended.code == 64
    assert "--yes" in ended.err
    assert driver.records() == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)], ids=["yes", "no"])
def test_apply_takes_yes_or_no_from_a_terminal(
    recovery, make_driver, dies_behind, root, monkeypatch, answer, code
):
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    before = driver.records()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = recovery("resolve", "--commit-log", root, "--apply")
    assert ended.code == code
    assert "END_TXN(commit)" in ended.err
    assert (driver.records() == before) == (code == 1)


def test_unprovable_outcome_stays_in_doubt_and_is_unknown(
    recovery, make_driver, dies_behind, root, pulsar_standalone
):
    from tests.support import admin

    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.PREPARE, "1")
    receipts = pulsar_part(driver.records()[-1]).receipt_topic.removeprefix("persistent://")
    admin.delete_topic(pulsar_standalone.admin_url, receipts)
    where = ("--commit-log", root, "--apply", "--yes", "--json")
    ended = recovery("resolve", *where, "--deadline-s", 15)
    assert ended.code == 2
    assert "the mark is not in the receipt topic" in ended.json["unknown"][0]
    assert driver.states("1") == ["OPEN", "PREPARED"]


@pytest.mark.parametrize(
    "step", [Step.OPEN, Step.WRITE, Step.CHECK, Step.RECEIPT, Step.PREPARE, Step.END]
)
def test_running_driver_is_fenced_at_its_next_append(recovery, make_driver, root, step):
    driver = make_driver()
    codes = []

    def overtake() -> None:
        if not codes:  # the tool runs the same step
            codes.append(0)
            codes[0] = recovery("resolve", "--commit-log", root, "--apply", "--yes").code

    with failpoints.armed(step, overtake), pytest.raises(Fenced):
        driver.run("0")
    assert codes == [0]
    if step in (Step.PREPARE, Step.END):  # decided before the tool ran
        assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
        assert values(driver) == rows_of("0")
    else:
        assert driver.states("0") == ["OPEN", "ABORTING", "ABORTED"]
        assert values(driver) == []


@pytest.mark.parametrize("verb", ["resolve", "decide"])
def test_driver_that_goes_on_meanwhile_needs_nothing(
    recovery, make_driver, dies_behind, root, name, monkeypatch, verb
):
    dies_behind(make_driver(), Step.PREPARE, "0")
    if verb == "decide":
        monkeypatch.setattr(decide_module, "_check", lambda *_: None)
        monkeypatch.setattr(
            decide_verb_module, "_plan", lambda _: Plan(steps=[PlanStep(what="decide", why="")])
        )
    takes = Takeover.finish if verb == "resolve" else Takeover.claim

    def overtaken(takeover: Takeover, *args: Any) -> Any:
        make_driver().run("0")
        return takes(takeover, *args)

    monkeypatch.setattr(Takeover, takes.__name__, overtaken)
    verdict = ("--epoch", "0", "--as", "committed", "--because", "x")
    asked = (verb, name, "--commit-log", root, "--apply", "--yes", "--json")
    ended = recovery(*asked, *(verdict if verb == "decide" else ()))
    assert (ended.code, ended.json["failed"]) == (2, []), ended
    assert "nothing has to be restarted" in ended.json["unknown"][0]
    assert "then restart" not in ended.json["unknown"][0]


def test_broker_says_why_the_receipt_topic_is_silent(
    recovery, make_driver, dies_behind, root, name, pulsar_standalone
):
    url, namespace = pulsar_standalone.admin_url, f"/v2/namespaces/public/{name}"
    admin.call(url, "PUT", namespace)
    driver = make_driver(receipt_namespace=f"public/{name}")
    dies_behind(driver, Step.PREPARE, "0")
    admin.call(url, "POST", f"{namespace}/encryptionRequired", True)
    admin.call(url, "PUT", f"{namespace}/unload")  # its topics hear of it at once
    where = (name, "--commit-log", root, "--deadline-s", 2, "--json")
    verdict = ("--epoch", "0", "--as", "aborted", "--because", "x")
    ended = recovery("resolve", *where, "--apply", "--yes")
    assert ended.code == 2
    assert "Encryption is required" in ended.json["unknown"][0]
    ended = recovery("decide", *where, *verdict)
    assert "Encryption is required" in ended.json["refused"][0]
    assert "Encryption is required" in ended.json["evidence"]["obstacle"]
    ended = recovery("doctor", name, "--commit-log", root, "--admin-url", url, "--json")
    assert (ended.code, "only encrypted messages" in ended.out) == (1, True)


def test_a_prepared_epoch_is_never_aborted(recovery, make_driver, dies_behind, root, name):
    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    before = driver.records()
    ended = recovery("abort", name, "--commit-log", root, "--apply", "--yes")
    assert ended.code == 1
    assert "its commit is decided" in ended.out
    assert driver.records() == before


def test_only_open_epochs_are_aborted(recovery, make_driver, dies_behind, root, name):
    driver = make_driver()
    driver.committer._claim.finish_all = lambda: None  # a driver begins no epoch while one is open
    dies_behind(driver, Step.WRITE, "b", query_id=BATCH)
    dies_behind(driver, Step.PREPARE, "0")
    ended = recovery("abort", name, "--epoch", "b", "--commit-log", root, "--apply", "--yes")
    assert ended.code == 0
    assert driver.states("b")[-1] == "ABORTED"
    assert driver.states("0") == ["OPEN", "PREPARED"]


def test_refusal_stands_in_the_outcome_next_to_an_aborted_epoch(
    recovery, make_driver, dies_behind, root, name
):
    driver = make_driver()
    driver.committer._claim.finish_all = lambda: None  # as above
    dies_behind(driver, Step.WRITE, "b", query_id=BATCH)
    dies_behind(driver, Step.PREPARE, "0")
    ended = recovery("abort", name, "--commit-log", root, "--apply", "--yes", "--json")
    assert (ended.code, len(ended.json["done"])) == (1, 1)
    assert "its commit is decided" in ended.json["failed"][0]
    assert driver.states("b")[-1] == "ABORTED"
    assert driver.states("0") == ["OPEN", "PREPARED"]


def test_only_transactions_in_no_log_are_aborted_by_id(
    recovery, make_driver, dies_behind, root, pulsar_standalone, client
):
    driver = make_driver()
    dies_behind(driver, Step.WRITE, "0")
    owned = pulsar_part(driver.records()[-1]).txn
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
    ended = recovery("abort", "--txn", owned, *where, "--apply", "--yes")
    assert ended.code == 64
    assert f"belongs to sink {driver.sink_id}" in ended.err
    orphan = client.transaction(timeout_s=120)
    assert recovery("abort", "--txn", orphan.id, *where).code == 1
    ended = recovery("abort", "--txn", orphan.id, *where, "--apply", "--yes", "--json")
    assert ended.code == 0
    assert ended.json["done"] == [f"transaction {orphan.id}: aborted"]
    ended = recovery("abort", "--txn", orphan.id, *where)
    assert (ended.code, "it has ended" in ended.out) == (0, True)


def test_an_owner_that_came_since_the_plan_is_found(recovery, root, monkeypatch):
    log, begun = log_of(root, claim()), opened(claim())

    def transaction(txn):
        log.append(begun)  # its driver continues while a person confirms
        return OpenTransaction(txn, "OPEN", datetime.now(UTC), ttl_s=60, topics=())

    monkeypatch.setattr(Target, "admin", lambda _: SimpleNamespace(transaction=transaction))
    where = ("--commit-log", root, "--admin-url", "http://127.0.0.1:1", "--timeout-s", 1)
    ended = recovery("abort", "--txn", pulsar_part(begun).txn, *where, "--apply", "--yes")
    assert (ended.code, "belongs to sink orders" in ended.err) == (64, True)


@pytest.mark.parametrize(
    "args", [(), ("s", "--txn", "(0,1)"), ("--txn", "x"), ("--txn", "(0,1)", "--epoch", "1")]
)
def test_abort_needs_either_a_sink_or_a_transaction(recovery, root, args):
    assert recovery("abort", *args, "--commit-log", root).code == 64
