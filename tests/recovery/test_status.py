"""``status``: where every query stands, and what it means."""

from __future__ import annotations

from eos.steps import Step
from tests.support.plain_driver import QUERY


def test_a_sink_with_nothing_unfinished_is_clean(recovery, make_driver, root, name):
    driver = make_driver()
    for epoch in range(3):
        driver.run(str(epoch))
    ended = recovery("status", "--commit-log", root)
    assert ended.code == 0
    assert "Everything is decided and done" in ended.out
    facts = recovery("status", name, "--commit-log", root, "--json").json
    (sink,) = facts["sinks"]
    assert sink["unfinished"] == []
    (progress,) = sink["progress"]
    assert (progress["query_id"], progress["epoch"], progress["epochs"]) == (QUERY, "2", 3)
    assert sink["claim"]["run_id"] == driver.records()[-1].run_id
    assert sink["last_seq"] == len(driver.records())
    assert facts["exit_code"] == 0


def test_a_prepared_epoch_is_called_in_doubt_and_needs_action(
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
    txn = driver.records()[-1].txn
    assert (one["state"], one["txn"], one["at_broker"]) == ("PREPARED", str(txn), "OPEN")
    assert one["ttl_left_s"] <= 60


def test_the_grace_calls_an_epoch_that_is_under_way_clean(recovery, make_driver, dies_behind, root):
    dies_behind(make_driver(), Step.OPEN, "0")
    assert recovery("status", "--commit-log", root).code == 1
    assert recovery("status", "--commit-log", root, "--grace-s", 3600).code == 0


def test_a_transaction_that_the_broker_has_forgotten_is_called_gone(
    recovery, make_driver, dies_behind, root, pulsar_standalone, client
):
    driver = make_driver()
    dies_behind(driver, Step.WRITE, "0")
    client.join(driver.records()[-1].txn).abort()
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


def test_names_that_look_like_markup_are_shown_as_they_are(recovery, make_driver, root):
    make_driver().run("[red]17[/]", query_id="batch")
    assert "[red]17[/]" in recovery("status", "--commit-log", root).out
