"""Conditions: drawn together with faults, and proved like them."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from eos.chaos._campaign import of_pairs, of_seeds, of_singles
from eos.chaos._feed import Feed, FileInputs
from eos.chaos._run import Result, ScheduleRun
from eos.chaos._run_options import for_workload, parse_faults
from eos.chaos.checker.history import Record
from eos.chaos.cluster.driver_process import DriverLog
from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS, operators
from eos.chaos.job import Job
from eos.chaos.planning import clash, draw, drawn, everything, fits, only, shape_of
from eos.chaos.report.outcome import outcome_of
from eos.chaos.workloads import OWN
from eos.ids import TopicName
from tests.chaos.broken_broker import BrokenBroker
from tests.transport.scripted import wait_until

ALL = [*drawn(), *CONDITIONS]
ASKED_FOR = {"from-tiered", "archiving", "counting", "encrypted", "from-chunks"}
WITHOUT_FAULTS = {"encrypted", "from-chunks", "topic-and-iceberg", "three-outputs"}
ASKED_FOR |= {"topic-and-database", "topic-and-iceberg", "three-outputs"}


def test_names_of_faults_and_conditions_are_different():
    assert not CONDITIONS.keys() & FAULTS.keys()


def test_every_condition_is_drawn_at_most_one_of_a_group():
    schedules = [draw(seed, ALL) for seed in range(300)]
    assert {name for schedule in schedules for name in schedule.conditions} == set(CONDITIONS)
    for schedule in schedules:
        groups = Counter(CONDITIONS[name].group for name in schedule.conditions)
        assert max(groups.values(), default=0) <= 1
        assert not (groups["user"] and "notebook" in schedule.conditions)
    assert any(not schedule.conditions for schedule in schedules)


@pytest.mark.parametrize("always", [["topic-and-table"], ["notebook"], ["caches", "no-admin"]])
def test_always_conditions_hold_with_any_drawn_ones(always):
    schedules = [draw(seed, ALL, always=always) for seed in range(200)]
    assert len({schedule.conditions for schedule in schedules}) > 1
    for schedule in schedules:
        assert list(schedule.conditions[: len(always)]) == always
        assert not any(clash(a, b) for a, b in combinations(schedule.conditions, 2))
        assert all(fits(FAULTS[planned.fault], schedule.conditions) for planned in schedule.faults)


def test_adaptive_execution_is_not_called_held_where_spark_switches_it_off():
    shaped = [one.name for one in CONDITIONS.values() if one.group == "query"]
    assert len(shaped) > 5
    assert all(clash("adaptive", one) and clash(one, "adaptive") for one in shaped)


def test_repeating_command_has_the_always_conditions():
    (entry,) = of_seeds([3], everything(), 14, ["topic-and-table"])
    assert entry.words[-2:] == ("--always", "topic-and-table")
    assert "topic-and-table" in entry.schedule.conditions


def test_conditions_change_nothing_of_a_schedule_whose_faults_all_fit():
    seed = next(n for n in range(300) if draw(n, ALL).conditions == ("forgotten-stages",))
    with_one, without = draw(seed, ALL), draw(seed, drawn())
    assert with_one.rows == without.rows
    assert not without.conditions


def test_faults_are_drawn_only_if_they_fit():
    for schedule in (draw(seed, ALL) for seed in range(300)):
        assert all(fits(FAULTS[planned.fault], schedule.conditions) for planned in schedule.faults)
    drawn = {p.fault for seed in range(2000) for p in draw(seed, ALL).faults}
    assert {"interrupted", "swallowed", "called-twice"} <= drawn


def test_single_condition_gets_a_kill_and_single_fault_its_shape():
    alone, notebook = of_singles(["caches", "interrupted"])
    assert alone.schedule.conditions == ("caches",)
    assert [planned.fault for planned in alone.schedule.faults] == ["driver-kill"]
    assert notebook.schedule.conditions == ("notebook",)
    assert shape_of(notebook.schedule.conditions) == "notebook"
    assert alone.is_alone
    assert notebook.is_alone
    (pair, _) = of_pairs(["caches", "deaf"])
    assert pair.schedule.conditions == ("caches",)
    assert [planned.fault for planned in pair.schedule.faults] == ["deaf"]


def test_faults_of_other_programs_need_their_condition():
    assert {one.name for one in CONDITIONS.values() if not one.is_drawn} == ASKED_FOR
    needing = {one.name: one.needs for one in FAULTS.values() if one.needs}
    assert set(needing.values()) == ASKED_FOR - {
        "encrypted",
        "from-chunks",
        "topic-and-iceberg",
        "three-outputs",
    }
    for name, condition in needing.items():
        assert not fits(FAULTS[name], ())
        assert only(name).conditions == (condition,)
    usual = [draw(seed, parse_faults("all", singles=False)) for seed in range(300)]
    assert not {p.fault for one in usual for p in one.faults} & needing.keys()
    asked = [draw(seed, ALL, always=["archiving"]) for seed in range(300)]
    for one in asked:
        there = {other for n in one.conditions for other in (n, CONDITIONS[n].includes)}
        assert {needing.get(p.fault) for p in one.faults} - {None} <= there
    assert "archiving" in {needing.get(p.fault) for one in asked for p in one.faults}


def test_other_workloads_get_only_supported_faults():
    names = parse_faults("all", singles=False)
    assert set(names) == set(ALL) - ASKED_FOR
    assert for_workload(names, OWN) == names
    others = for_workload(names, "my_jobs:orders")
    assert "forgotten-stages" in others
    assert "notebook" not in others
    assert "deaf" in others
    assert "swallowed" not in others
    assert not {name for name in others if "receipts-deleted" in name}


def test_conditions_are_in_the_first_job(tmp_path):
    broker = SimpleNamespace(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:2")
    names = ("stateful-rocksdb-2", "caches", "no-admin")
    run = ScheduleRun(only(*names), "m:f", broker, tmp_path, tell=lambda _: None)
    assert (run._job.shape, run._job.user_code) == ("stateful", ("caches",))
    assert run._job.spark_conf["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert run._job.admin_url == ""
    assert not run._job.topic.startswith("persistent://public/default/")
    assert run._control_topic.startswith("persistent://public/default/")
    assert Job.from_json(run._job.to_json()).spark_conf == run._job.spark_conf


def test_condition_without_proof_did_not_happen():
    made = Result(only("caches"), met={"caches": ""})
    assert outcome_of(made, OWN).unproved == ["caches: nothing shows that it held"]
    made = Result(only("caches"), met={"caches": "epoch 0, 3 rows"})
    assert not outcome_of(made, OWN).unproved


def test_condition_is_proved_by_a_log_line(tmp_path):
    log = DriverLog(tmp_path)
    assert not CONDITIONS["caches"].hit(None, log)
    (tmp_path / "driver-001.log").write_text("chaos: caches: epoch 0, 3 rows\n")
    assert CONDITIONS["caches"].hit(None, log) == "chaos: caches: epoch 0, 3 rows"


@pytest.mark.parametrize(
    ("there", "receipts", "is_hit"),
    [
        ({"allowAutoTopicCreation": False, "topicType": None}, "r", True),
        ({"allowAutoTopicCreation": True, "topicType": None}, "r", False),
        ({"allowAutoTopicCreation": False}, "", False),
        (None, "r", False),
    ],
)
def test_a_policy_must_be_there_and_a_driver_too(there, receipts, is_hit, tmp_path):
    target: Any = SimpleNamespace(
        job=SimpleNamespace(topic="persistent://public/a/t"),
        broker=SimpleNamespace(admin=lambda *_: there),
        receipt_topic=lambda: receipts,
    )
    log = DriverLog(tmp_path)
    assert bool(CONDITIONS["no-topic-creation"].hit(target, log)) == is_hit
    assert not CONDITIONS["partitioned-topics"].hit(target, log)
    target.store = None
    assert not CONDITIONS["from-tiered"].hit(target, log)


def test_requests_of_an_earlier_run_prove_nothing(tmp_path, monkeypatch):
    broker: Any = BrokenBroker()
    store: Any = SimpleNamespace(reads=7)
    monkeypatch.setattr(ScheduleRun, "_go", lambda *_: None)
    ScheduleRun(only("deaf"), "m:f", broker, tmp_path, tell=lambda _: None, store=store).go()
    target: Any = SimpleNamespace(store=store)
    assert not CONDITIONS["from-tiered"].hit(target, DriverLog(tmp_path))
    store.reads += 1
    assert CONDITIONS["from-tiered"].hit(target, DriverLog(tmp_path))


def test_operator_runs_the_command_in_the_error(tmp_path):
    asked: list[TopicName] = []
    admin = SimpleNamespace(create_topic=asked.append)
    target = SimpleNamespace(admin=admin, driver_log=lambda: DriverLog(tmp_path))
    with operators([CONDITIONS["no-admin"]], target):
        topic = "persistent://public/a/__eos-receipts-s-1"
        story = "a long story, " * 50
        text = f"Error: {story} Create it: pulsar-admin topics create {topic} (or ...)\n"
        for driver in range(2):  # it may have been deleted meanwhile
            (tmp_path / f"driver-{driver}.log").write_text(text)
            wait_until(lambda: len(asked) > driver)  # noqa: B023
    assert asked == [TopicName("public", "a", "__eos-receipts-s-1")] * 2
    assert "no-admin" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(("shape", "ids"), [("stream", ["1/0"]), ("stateful", ["0/0", "1/0"])])
def test_stateful_query_gets_each_record_twice(shape, ids):
    inputs = [[Record(f"{number}/0", str(number), number)] for number in range(2)]
    job = Job("m:f", "", "", "t", "s", "", "", "", "", shape=shape)
    feed = Feed(job, only("deaf"), inputs, FileInputs(job, only("deaf")))
    assert [record.id for record in feed._rows(1)] == ids
    assert [record.id for record in feed._rows(0)] == ["0/0"]
