"""``show``: the history of an epoch."""

from __future__ import annotations

from eos.steps import Step


def test_history_of_an_epoch_is_shown_record_by_record(
    recovery, make_driver, dies_behind, root, name
):
    first = make_driver()
    dies_behind(first, Step.WRITE, "0")
    make_driver().run("0")
    ended = recovery("show", name, "--epoch", "0", "--commit-log", root, "--json")
    assert ended.code == 0
    states = [moment["state"] for moment in ended.json["moments"]]
    assert states == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert [moment["attempt"] for moment in ended.json["moments"]] == [1, 1, 1, 2, 2, 2]
    assert ended.json["moments"][2]["reason"].startswith("RECOVERY: left OPEN")
    assert ended.json["moments"][-1]["records"] == 10
    shown = recovery("show", name, "--epoch", "0", "--commit-log", root).out
    assert "commit decided" in shown
    assert "Epoch 0 is finished: committed" in shown


def test_an_unfinished_epoch_needs_action(recovery, make_driver, dies_behind, root, name):
    dies_behind(make_driver(), Step.PREPARE, "0")
    ended = recovery("show", name, "--epoch", "0", "--commit-log", root)
    assert ended.code == 1
    assert "In doubt: commit decided" in ended.out


def test_without_an_epoch_the_newest_records_are_shown(recovery, make_driver, root, name):
    driver = make_driver()
    for epoch in range(4):
        driver.run(str(epoch))
    ended = recovery("show", name, "--last", "2", "--commit-log", root, "--json")
    assert [moment["epoch"] for moment in ended.json["moments"]] == ["3", "3"]
    assert ended.json["moments"][1]["seq"] == len(driver.records())


def test_epoch_of_several_queries_needs_a_query_id(recovery, make_driver, root, name):
    driver = make_driver()
    driver.run("7")
    driver.run("7", query_id="batch")
    ended = recovery("show", name, "--epoch", "7", "--commit-log", root)
    assert ended.code == 64
    assert "--query" in ended.err
    ended = recovery("show", name, "--epoch", "7", "--query", "bat", "--commit-log", root, "--json")
    assert {moment["query_id"] for moment in ended.json["moments"]} == {"batch"}


def test_missing_epoch_is_refused(recovery, make_driver, root, name):
    make_driver().run("0")
    ended = recovery("show", name, "--epoch", "8", "--commit-log", root)
    assert ended.code == 64
    assert "Epoch 8 is not in the log" in ended.err
