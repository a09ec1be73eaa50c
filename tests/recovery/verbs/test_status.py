"""``status``: the state of every query, and its meaning."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from eos.errors import InputError, UnfinishedEpoch
from eos.protocol import BATCH, UnknownPart
from eos.pulsar.part import pulsar_part
from eos.recovery._change import Outcome, Plan
from eos.steps import Step
from tests.protocol.epochs import claim, committed_epoch
from tests.support.logs import abandoned_epoch, aborted_epoch, failed_epoch, log_of
from tests.support.plain_driver import QUERY

REFUSED = (
    "Epoch 4 of 6f1f8e0e-8a0f-4c70-9b1f-1a2b3c4d5e6f is in doubt, and is not aborted. To decide:\n"
    "eos recovery decide flights-of-today --query 6f1f8e0e-8a0f-4c70-9b1f-1a2b3c4d5e6f --epoch 4"
)


def test_a_sink_with_nothing_unfinished_is_clean(recovery, make_driver, root, name):
    driver = make_driver()
    for epoch in range(3):
        driver.run(str(epoch))
    ended = recovery("status", "--commit-log", root)
    assert ended.code == 0
    assert "All epochs are finished, according to the log" in ended.out
    facts = recovery("status", name, "--commit-log", root, "--json").json
    (sink,) = facts["sinks"]
    assert sink["unfinished"] == []
    (progress,) = sink["progress"]
    assert (progress["query_id"], progress["epoch"], progress["epochs"]) == (QUERY, "2", 3)
    assert sink["claim"]["run_id"] == driver.records()[-1].run_id
    assert sink["last_seq"] == len(driver.records())
    assert facts["exit_code"] == 0


def test_prepared_epoch_is_in_doubt_and_needs_action(
    recovery, make_driver, dies_behind, root, pulsar_standalone
):
    driver = make_driver()
    driver.run("0")
    dies_behind(driver, Step.PREPARE, "1")
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
    ended = recovery("status", *where)
    assert ended.code == 1
    assert "A commit is in doubt" in ended.out
    assert "epoch 1" in ended.out
    (sink,) = recovery("status", *where, "--json").json["sinks"]
    (one,) = sink["unfinished"]
    txn = pulsar_part(driver.records()[-1]).txn
    assert (one["state"], one["txn"], one["at_broker"]) == ("PREPARED", str(txn), "OPEN")
    assert one["ttl_left_s"] <= 60


def test_recent_epoch_is_clean_within_the_grace(recovery, make_driver, dies_behind, root):
    dies_behind(make_driver(), Step.OPEN, "0")
    assert recovery("status", "--commit-log", root).code == 1
    assert recovery("status", "--commit-log", root, "--grace-s", 3600).code == 0


def test_an_epoch_from_a_clock_that_is_ahead_needs_action(
    recovery, make_driver, dies_behind, root, monkeypatch
):
    dies_behind(make_driver(), Step.OPEN, "0")
    monkeypatch.setattr("eos.cli.reports.now", lambda: datetime.now(UTC) - timedelta(minutes=1))
    assert recovery("status", "--commit-log", root).code == 1
    # It may have died long ago: a grace is no reason to wait until its clock is reached.
    assert recovery("status", "--commit-log", root, "--grace-s", 30).code == 1
    assert recovery("status", "--commit-log", root, "--grace-s", 3600).code == 0
    shown = recovery("metrics", "--commit-log", root).raw
    ages = re.findall(r"^eos_oldest_transaction_age_seconds\{.*\} (.+)$", shown, re.MULTILINE)
    assert max(map(float, ages)) > 30


def test_transaction_forgotten_by_the_broker_is_gone(
    recovery, make_driver, dies_behind, root, pulsar_standalone, client
):
    driver = make_driver()
    dies_behind(driver, Step.WRITE, "0")
    client.join(pulsar_part(driver.records()[-1]).txn).abort()
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url, "--json")
    ((sink,),) = (recovery("status", *where).json["sinks"],)
    assert sink["unfinished"][0]["at_broker"] == "gone"


def test_an_admin_api_that_does_not_answer_makes_it_unknown_but_shows_the_log(
    recovery, make_driver, dies_behind, root
):
    dies_behind(make_driver(), Step.PREPARE, "0")
    where = ("--commit-log", root, "--admin-url", "http://127.0.0.1:1", "--grace-s", 3600)
    ended = recovery("status", *where, "--json")
    assert ended.code == 2
    assert ended.json["sinks"][0]["unfinished"][0]["at_broker"] is None
    assert "127.0.0.1:1" in ended.json["problems"][0]


def test_names_that_look_like_markup_are_shown_literally(recovery, make_driver, root):
    make_driver().run("[red]17[/]", query_id="batch")
    assert "[red]17[/]" in recovery("status", "--commit-log", root).out


def widest(text: str) -> int:
    # A command that is wrapped can't be copied.
    lines = [line for line in text.splitlines() if not line.startswith("eos recovery ")]
    return max(map(len, lines))


@pytest.mark.parametrize("width", [80, 60])
def test_report_fits_a_narrow_terminal(
    recovery, make_driver, dies_behind, root, name, width, monkeypatch
):
    driver = make_driver()
    driver.run("0")
    driver.run("2026-11-20", query_id="batch")
    dies_behind(driver, Step.PREPARE, "1")
    monkeypatch.setenv("COLUMNS", str(width))
    ended = recovery("status", "--commit-log", root)
    assert widest(ended.raw) <= width
    assert f"{name}: A commit is in doubt: a running driver ends it" in ended.out
    assert re.search(
        rf"query {QUERY[:8]} +last committed 0, \S+ \w+ ago; unfinished: 1 PREP", ended.out
    )
    assert re.search(r"batch jobs +last committed 2026-11-20, ", ended.out)
    assert f"topicpersistent://public/default/{name}" in "".join(ended.out.split())  # may be folded
    assert re.search(r"claim +run [0-9a-f]{8}, ", ended.out)
    shown = recovery("show", name, "--commit-log", root)
    assert widest(shown.raw) <= width
    assert "commit decided: every row is stored;" in shown.out


def test_changed_topic_is_shown_with_earlier_ones(recovery, make_driver, root, name, client):
    old, new = (f"persistent://public/default/{name}{end}" for end in ("", "-new"))
    client.entry_producer(new, create=True).close()
    make_driver().run("0")
    make_driver(topic=new).run("1")
    assert f"topic {new}; before: {old} " in recovery("status", "--commit-log", root).out
    (sink,) = recovery("status", "--commit-log", root, "--json").json["sinks"]
    assert sink["topics"] == [old, new]
    shown = recovery("show", name, "--commit-log", root)
    assert f"1 partition of {old}" in shown.out
    assert f"1 partition of {new}" in shown.out
    make_driver().run("2")
    (sink,) = recovery("status", "--commit-log", root, "--json").json["sinks"]
    assert sink["topics"] == [new, old]


def test_an_epoch_that_failed_is_not_written_and_needs_action(recovery, make_driver, root, name):
    driver = make_driver()
    driver.run("0")
    begin = driver.participant.begin

    def fail(_):
        raise InputError("the rows can't be planned")

    driver.participant.begin = fail
    with pytest.raises(InputError):
        driver.run("1")
    driver.participant.begin = begin
    with pytest.raises(UnfinishedEpoch):
        driver.run("2")
    assert driver.states("1") == ["FAILED"]
    ended = recovery("status", "--commit-log", root)
    assert ended.code == 1
    assert "last committed 0" in ended.out
    assert "not written: 1" in ended.out
    assert "later epochs are refused until it is written" in ended.out
    give_up = f"eos recovery decide {name} --query {QUERY} --epoch 1 --as abandoned --because TEXT"
    assert give_up in ended.out
    assert "All epochs are finished" not in ended.out
    assert recovery("status", "--commit-log", root, "--grace-s", 3600).code == 0
    shown = recovery("show", name, "--epoch", "1", "--commit-log", root)
    assert (shown.code, give_up in shown.out) == (1, True)
    assert "failed before a transaction was opened" in shown.out
    assert "None" not in shown.out
    driver.run("1")
    assert recovery("status", "--commit-log", root).code == 0
    assert recovery("show", name, "--epoch", "1", "--commit-log", root).code == 0


@pytest.mark.parametrize(
    ("left", "query_id", "text"),
    [
        ("failed", QUERY, "Its rows may be missing: epoch 2 is written"),
        ("aborted", QUERY, "Its rows are missing: epoch 2 was written without them"),
        ("aborted", BATCH, "Not written: none of its rows is readable"),
    ],
)
def test_skipped_or_unwritten_epochs_are_not_clean(recovery, root, left, query_id, text):
    run = claim()
    epoch = {
        "failed": [failed_epoch(run, "1", query_id=query_id)],
        "aborted": aborted_epoch(run, "1", query_id=query_id),
    }[left]
    log_of(root, run, *epoch, *committed_epoch(run, "2", query_id=QUERY))
    ended = recovery("status", "--commit-log", root)
    assert ended.code == 1
    assert text in ended.out
    assert f"--query {query_id} --epoch 1 --as abandoned" in ended.out
    (one,) = recovery("status", "--commit-log", root, "--json").json["sinks"][0]["owing"]
    assert (one["epoch"], one["is_passed"]) == ("1", query_id == QUERY)
    shown = recovery("show", "orders", "--commit-log", root)
    assert (shown.code, text in shown.out) == (1, True)
    assert recovery("show", "orders", "--epoch", "2", "--commit-log", root).code == 0


def test_abandoned_epoch_is_shown_and_clean(recovery, root):
    run = claim()
    log_of(root, run, *abandoned_epoch(run, "1"), *committed_epoch(run, "2"))
    ended = recovery("status", "--commit-log", root)
    assert ended.code == 0
    assert "ABANDONED, decided by a person. DECIDED: Ada: test data" in ended.out
    shown = recovery("show", "orders", "--epoch", "1", "--commit-log", root)
    assert shown.code == 0
    assert "abandoned by a person" in shown.out
    assert "DECIDED: Ada: test data" in shown.out


@pytest.mark.parametrize(
    "report",
    [
        Plan(steps=[], refused=[REFUSED], warnings=[REFUSED], unknown=[REFUSED]),
        Outcome(done=[], failed=[REFUSED], unknown=[REFUSED]),
    ],
    ids=["plan", "outcome"],
)
def test_commands_of_what_is_refused_can_be_copied(report):
    console = Console(width=40, file=io.StringIO())
    report.render(console)
    printed = console.file.getvalue().splitlines()
    sentence, command = REFUSED.split("\n")
    assert command in printed
    assert max(map(len, set(printed) - {command})) <= 40
    assert sentence not in printed


def test_the_printed_command_can_be_copied(recovery, root, monkeypatch):
    """Batch keys are any text, and terminals are narrow."""
    elsewhere = UnknownPart(kind="acme", output="x", text="{}")
    claimed = replace(claim(), participants=(elsewhere,))
    log_of(root, claimed, failed_epoch(claimed, "repair of 7; $(true)", query_id=BATCH))
    monkeypatch.setenv("COLUMNS", "40")
    for verb in (("status",), ("show", "orders"), ("verify",)):
        printed = recovery(*verb, "--commit-log", root).raw.splitlines()
        (command,) = [line for line in printed if line.startswith("eos recovery decide orders")]
        plan = recovery(*shlex.split(command)[2:], "--commit-log", root)
        assert (plan.code, "append ABANDONED" in plan.out) == (1, True), plan
