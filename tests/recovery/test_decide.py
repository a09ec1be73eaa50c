"""``decide``: shows all evidence, and rejects decisions that contradict it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eos.errors import ConfigurationError
from eos.protocol import BATCH
from eos.pulsar.part import pulsar_part
from eos.recovery.decide import Refused, decide
from eos.steps import Step
from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.expiry import await_expiry
from tests.support.judge import drain
from tests.support.plain_driver import QUERY, rows_of

BECAUSE = "compared it with the source"


@pytest.fixture(scope="module")
def pulsar_standalone() -> Iterator[PulsarStandalone]:
    """A separate broker: while a transaction is open that has written to a deleted topic, the admin
    API answers 500 to queries about slow transactions (measured)."""
    with PulsarStandalone() as running:
        yield running


@pytest.fixture
def run(recovery, root, name, pulsar_standalone):
    """``run("0", "aborted", "--apply", "--yes")``."""

    def run(epoch: str, verdict: str, *more: object):
        where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
        asked = ("--epoch", epoch, "--as", verdict, "--because", BECAUSE, "--by", "Ada")
        return recovery("decide", name, *asked, *where, "--deadline-s", 30, *more)

    return run


@pytest.fixture
def lose_receipts(pulsar_standalone):
    """Deletes a driver's receipt topic, as an operator can."""

    def lose(driver) -> None:
        receipts = pulsar_part(driver.records()[-1]).receipt_topic.removeprefix("persistent://")
        admin.delete_topic(pulsar_standalone.admin_url, receipts)

    return lose


@pytest.fixture
def in_doubt(make_driver, dies_behind, lose_receipts, client):
    """A driver that left epoch 0 PREPARED and expired, without proof of the outcome."""

    def make(*, expired: bool = True):
        driver = make_driver(ttl_ms=5_000 if expired else 60_000)
        dies_behind(driver, Step.PREPARE, "0")
        lose_receipts(driver)
        if expired:
            await_expiry(client, pulsar_part(driver.records()[-1]).txn)
        return driver

    return make


APPLY = ("--apply", "--yes", "--json")


def test_plan_shows_the_evidence_and_changes_nothing(in_doubt, run):
    driver = in_doubt()
    before = driver.records()
    shown = run("0", "aborted")
    assert shown.code == 1
    for text in (
        "commit decided: every row is stored",
        "does not exist",
        "mark absent",
        "0 of its 10 messages are readable",
        "not known to the coordinator",
        "expired",
        "append ABORTED (DECIDED: Ada: compared it with the source)",
        "its rows are duplicated",
        "takes the claim",
    ):
        assert text in shown.out
    assert driver.records() == before
    facts = run("0", "aborted", "--json").json["evidence"]
    assert (facts["mark"], facts["has_receipt_topic"]) == ("absent", False)
    assert [part["readable"] for part in facts["partitions"]] == [0]
    assert [moment["state"] for moment in facts["moments"]][-2:] == ["OPEN", "PREPARED"]


@pytest.mark.parametrize(
    ("verdict", "status"), [("aborted", "written"), ("committed", "skipped")], ids=lambda x: x
)
def test_query_continues_after_a_decision(
    in_doubt, run, recovery, root, name, make_driver, verdict, status
):
    driver = in_doubt()
    ended = run("0", verdict, *APPLY)
    assert ended.code == 0
    last = driver.records()[-1]
    assert last.state == verdict.upper()
    assert str(last.reason) == "DECIDED: Ada: compared it with the source"
    for verb in (("status",), ("show", name, "--epoch", "0")):
        assert (
            "DECIDED: Ada: compared it with the source" in recovery(*verb, "--commit-log", root).out
        )
    again = make_driver(on_new_cluster="continue")
    assert again.run("0").status == status
    seen = [one.value for one in drain(driver.service_url, driver.topic)]
    assert seen == (rows_of("0") if status == "written" else [])


def test_decision_is_refused_while_the_transaction_may_be_open(in_doubt, run):
    driver = in_doubt(expired=False)
    before = driver.records()
    for verdict in ("aborted", "committed"):
        ended = run("0", verdict, *APPLY)
        assert ended.code == 1
        assert "Its transaction may be open for another" in " ".join(ended.json["refused"])
    assert driver.records() == before


def test_decision_against_readable_rows_is_refused(
    make_driver, dies_behind, lose_receipts, run, client
):
    driver = make_driver(ttl_ms=5_000)
    dies_behind(driver, Step.END, "0")
    lose_receipts(driver)
    await_expiry(client, pulsar_part(driver.records()[-1]).txn)
    before = driver.records()
    refused = " ".join(run("0", "aborted", *APPLY).json["refused"])
    assert "10 messages of its transaction are readable" in refused
    refused = " ".join(run("0", "committed", *APPLY).json["refused"])
    assert "`resolve` proves the outcome by them" in refused
    assert driver.records() == before


@pytest.mark.parametrize(
    ("step", "verdict", "text"),
    [
        (Step.END, "aborted", "Its receipt is readable"),
        (Step.PREPARE, "committed", "Its receipt is proved absent"),
        (Step.PREPARE, "aborted", "`resolve` ends the epoch"),
    ],
    ids=["readable", "absent", "mark"],
)
def test_decision_is_refused_if_the_receipt_topic_proves_the_outcome(
    make_driver, dies_behind, run, client, step, verdict, text
):
    driver = make_driver(ttl_ms=5_000)
    dies_behind(driver, step, "0")
    await_expiry(client, pulsar_part(driver.records()[-1]).txn)
    before = driver.records()
    ended = run("0", verdict, *APPLY)
    assert ended.code == 1
    assert text in " ".join(ended.json["refused"])
    assert driver.records() == before


def test_the_coordinator_is_asked_about_the_transaction(make_driver, dies_behind, run):
    dies_behind(make_driver(), Step.PREPARE, "0")
    facts = run("0", "aborted", "--json", "--deadline-s", "5").json
    assert facts["evidence"]["at_coordinator"] == "open"
    assert "still open" in " ".join(facts["refused"])


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE])
@pytest.mark.parametrize("verdict", ["committed", "aborted", "abandoned"])
def test_unprepared_epoch_is_left_to_resolve(make_driver, dies_behind, run, step, verdict):
    driver = make_driver()
    dies_behind(driver, step, "0")
    ended = run("0", verdict, *APPLY)
    assert ended.code == 1
    assert "`resolve` ends it as ABORTED" in ended.json["refused"][0]


def test_readable_receipt_of_a_terminated_topic_can_be_decided(
    make_driver, dies_behind, run, name, pulsar_standalone, recovery, root, monkeypatch
):
    from eos.recovery import decide as module

    driver = make_driver()
    dies_behind(driver, Step.PREPARE, "0")
    url = pulsar_standalone.admin_url
    admin.call(url, "POST", f"/v2/persistent/public/default/{name}/terminate")
    left = ("--commit-log", root, "--apply", "--yes", "--json", "--deadline-s", 4)
    assert recovery("resolve", *left, "--timeout-s", 2).code == 2
    ended = run("0", "committed", "--json")
    assert ended.json["evidence"]["witness"] == "receipt readable"
    (refused,) = ended.json["refused"]
    assert "may be open for another" in refused

    def look_later(*args, **kwargs):
        return gather(*args, **kwargs).model_copy(update={"ttl_left_s": -1.0})

    gather = module.gather
    monkeypatch.setattr(module, "gather", look_later)
    assert run("0", "committed", *APPLY).code == 0
    assert driver.states("0")[-1] == "COMMITTED"


def test_unwritten_epoch_can_be_abandoned(make_driver, dies_behind, run, recovery, root, name):
    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.WRITE, "1")
    assert recovery("resolve", name, "--commit-log", root, "--apply", "--yes").code == 0
    assert recovery("status", "--commit-log", root).code == 1
    refused = run("1", "aborted", *APPLY).json["refused"]
    assert "it is not in doubt" in refused[0]
    assert run("1", "abandoned", *APPLY).code == 0
    assert driver.states("1")[-1] == "ABANDONED"
    status = recovery("status", "--commit-log", root)
    assert status.code == 0
    assert "ABANDONED, decided by a person" in status.out
    shown = recovery("show", name, "--epoch", "1", "--commit-log", root)
    assert (shown.code, "abandoned by a person" in shown.out) == (0, True)
    assert make_driver().run("2").status == "written"
    assert "already ABANDONED" in run("1", "abandoned", *APPLY).json["refused"][0]
    assert "that is final" in run("2", "abandoned", *APPLY).json["refused"][0]


def test_evidence_is_checked_again_after_the_claim(in_doubt, run, monkeypatch):
    from eos.recovery import decide as module

    driver = in_doubt()
    looked = []
    gather = module.gather

    def look(*args, **kwargs):
        looked.append(None)
        evidence = gather(*args, **kwargs)
        if len(looked) > 2:  # after the plan's check and the first one of --apply
            parts = [p.model_copy(update={"readable": 10}) for p in evidence.partitions]
            return evidence.model_copy(update={"partitions": parts})
        return evidence

    monkeypatch.setattr(module, "gather", look)
    ended = run("0", "aborted", *APPLY)
    assert ended.code == 1
    assert "10 messages of its transaction are readable" in ended.json["failed"][0]
    assert driver.states("0")[-2:] == ["OPEN", "PREPARED"]


def test_missing_answer_is_unknown(in_doubt, run, monkeypatch):
    from eos.pulsar.end_rules import MarkAnswer
    from eos.pulsar.witness import Witness

    in_doubt()
    monkeypatch.setattr(Witness, "find_mark", lambda *_, **__: MarkAnswer.UNKNOWN)
    ended = run("0", "aborted", *APPLY)
    assert ended.code == 2
    assert "does not answer" in ended.json["refused"][0]


def test_function_decides_like_the_verb(in_doubt, name, root, pulsar_standalone, client):
    driver = in_doubt()
    where = {"commit_log": root, "admin_url": pulsar_standalone.admin_url, "deadline_s": 30}
    with pytest.raises(Refused, match="PREPARED"):
        decide(name, epoch="0", verdict="abandoned", because="x", **where)
    with pytest.raises(ConfigurationError, match="reason"):
        decide(name, epoch="0", verdict="aborted", because=" ", **where)
    with pytest.raises(ConfigurationError, match="Epoch 7 is not in the log"):
        decide(name, epoch="7", verdict="aborted", because="x", **where)
    last = decide(name, epoch="0", verdict="aborted", because="a\nb", query_id=QUERY[:4], **where)
    assert last.state == "ABORTED"
    assert str(last.reason).endswith(": a b")
    assert driver.records()[-1] == last


def test_epoch_of_several_queries_needs_a_query_option(make_driver, run):
    driver = make_driver()
    driver.run("0")
    driver.run("0", query_id=BATCH)
    assert run("0", "abandoned").code == 64


def test_an_unreachable_cluster_is_unknown(in_doubt, run):
    in_doubt()
    ended = run("0", "aborted", "--service-url", "pulsar://127.0.0.1:1", "--timeout-s", 1)
    assert ended.code == 2


def test_missing_options_are_named(recovery, name, root):
    ended = recovery("decide", name, "--commit-log", root)
    assert ended.code == 64
