"""The stored outcome of a schedule, and the reports."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyspark
import pytest

from eos.chaos._campaign import Campaign, of_pairs, of_seeds, of_singles, run_all
from eos.chaos._run import Result, ScheduleRun
from eos.chaos.checker.history import NO_LOG, Anomaly, AnomalyKind, Operation
from eos.chaos.cluster.target import PulsarHolder
from eos.chaos.faults.nemesis import Happened
from eos.chaos.observers.resources import Sample, Timing, grown, growth
from eos.chaos.planning import draw, drawn, everything, only
from eos.chaos.report.machine import Percentiles, verdict_of, write_json, write_junit
from eos.chaos.report.outcome import EpochView, ScheduleOutcome, outcome_of, schedule_of
from eos.chaos.report.page import write_page
from eos.chaos.schedule import Schedule
from eos.chaos.testing import check_exactly_once
from eos.errors import ConfigurationError
from tests.chaos.broken_broker import BrokenBroker
from tests.chaos.histories import small

DEFAULT = everything()
WORKLOAD = "eos.chaos.workloads:stream"


def kept(made: Result) -> ScheduleOutcome:
    seed = made.schedule.seed
    outcome = outcome_of(made, WORKLOAD, made_by=Campaign(WORKLOAD, [], Path()).made_by)
    return outcome.model_copy(
        update={"name": f"seed-{seed}", "again": f"eos chaos run --seed {seed}"}
    )


def result(seed: int = 1, **values) -> Result:
    schedule = draw(seed, DEFAULT)
    driver = Operation("driver run 1", 100.0, 110.0, "unknown", "killed")
    history = small()
    history = type(history)(**{**vars(history), "operations": (driver,)})
    happened = [Happened(f, 101.0 + n, 102.0 + n, "pid 7") for n, f in enumerate(schedule.faults)]
    timing = Timing([8.0, 9.0], [], [0.1, 0.2, 0.3])
    made = Result(schedule, history, happened=happened, timing=timing)
    made.began_at, made.ended_at = 100.0, 160.0
    for name, value in values.items():
        setattr(made, name, value)
    return made


GOOD = kept(result())
BAD = kept(result(2, anomalies=[Anomaly(AnomalyKind.LOST_WRITE, 7, ("record <1/2> is gone",))]))
BROKEN = kept(result(3, failure="TimeoutError: epoch 3", history=None))
ALL = [GOOD, BAD, BROKEN]
NAMES = drawn()


@pytest.mark.parametrize("outcome", ALL, ids=["good", "bad", "broken off"])
def test_stored_outcome_is_read_back(outcome, tmp_path):
    path = tmp_path / "1.json"
    outcome.write(path)
    again = ScheduleOutcome.read(path)
    assert again.model_dump_json() == outcome.model_dump_json()
    assert schedule_of(again) == draw(int(outcome.name[5:]), DEFAULT)
    assert [p.name for p in tmp_path.iterdir()] == ["1.json"]


def test_invalid_outcome_file_is_refused_by_name(tmp_path):
    path = tmp_path / "1.json"
    path.write_text('{"seed": 1}')
    with pytest.raises(ConfigurationError, match=r"1\.json is not the outcome"):
        ScheduleOutcome.read(path)


def test_the_verdict_counts_only_faults_that_fired():
    missed = [replace(fault, hit="") for fault in GOOD.faults]
    verdict = verdict_of([GOOD.model_copy(update={"faults": missed})])
    assert verdict.faults_fired == {}
    assert verdict.faults_due == len(missed)
    assert verdict.sentence().endswith(f"; {len(missed)} faults hit nothing.")
    assert verdict.sentence().startswith(
        "No fault has hit, which proves nothing: 0 faults of 0 kinds"
    )
    assert not verdict.is_good
    assert verdict_of([GOOD, GOOD.model_copy(update={"faults": missed})]).is_good
    assert verdict_of([GOOD]).faults_fired == dict.fromkeys(sorted(f.name for f in missed), 1)


def test_conditions_are_counted_apart_from_faults(tmp_path):
    made = kept(result(met={"caches": "epoch 0", "no-admin": "", "adaptive": "it was set"}))
    faults = len(made.faults)
    assert (made.due, len(made.fired), made.missed) == (faults, faults, [])
    verdict = verdict_of([made, GOOD])
    assert verdict.faults_due == sum(verdict.faults_fired.values()) == 2 * faults
    assert verdict.conditions_held == {"adaptive": 1, "caches": 1}
    assert (
        f"{2 * faults} faults of {faults} kinds, under 2 conditions, 2 epochs"
        in verdict.sentence().replace(f"{verdict.epochs} epochs", "2 epochs")
    )
    assert verdict.sentence().endswith("; 1 condition without proof.")
    bare = kept(Result(only(), small(), met={"caches": ""}))
    assert verdict_of([bare]).sentence().startswith("No condition has held, which proves nothing:")
    assert not verdict_of([bare]).is_good
    assert verdict_of([bare.model_copy(update={"met": {}})]).is_good
    write_page([made], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "under caches, adaptive;" in page
    assert "Did not happen: no-admin: nothing shows that it held" in page
    assert "Conditions that held" in page
    write_page([GOOD], tmp_path / "report.html")
    assert "Conditions that held" not in (tmp_path / "report.html").read_text()


def test_a_condition_alone_must_hold(tmp_path, monkeypatch):
    (entry,) = of_singles(["caches"])
    happened = [Happened(one, 1.0, 2.0, "pid 7") for one in entry.schedule.faults]
    for proof, failure in (("epoch 0", ""), ("", "caches: nothing shows that it held, which")):
        made = Result(entry.schedule, small(), happened=happened, met={"caches": proof})
        monkeypatch.setattr(ScheduleRun, "go", lambda _, made=made: made)
        monkeypatch.setattr(PulsarHolder, "get", lambda *_, **__: BrokenBroker())
        found: list[ScheduleOutcome] = []
        run_all(
            Campaign(WORKLOAD, [entry], tmp_path / str(bool(proof))),
            tell=lambda _: None,
            on_outcome=lambda outcome, _, found=found: found.append(outcome),
        )
        assert found[0].failure.startswith(failure)
        assert found[0].is_good == bool(proof)


def test_a_fault_that_never_began_counts_as_due_unless_a_soak_ended_before():
    first = GOOD.model_copy(update={"faults": GOOD.faults[:1], "epochs_done": 24})
    due, fired = len(schedule_of(GOOD).faults), 1
    assert verdict_of([first]).faults_due == due
    assert len(first.missed) == due - fired
    assert "the job was done before it began" in first.missed[0]
    soak = first.model_copy(update={"epochs_done": first.faults[0].epoch})
    assert verdict_of([soak]).faults_due == fired


def test_page_shows_missed_faults_and_damage_by_faults(tmp_path):
    faults = [replace(fault, hit="", error="OSError: <no>") for fault in GOOD.faults]
    left = [
        Anomaly(AnomalyKind.LOST_WRITE, 1200, ("record 1/2 is gone",)),
        Anomaly(AnomalyKind.SKIP, 3, ("x",)),
    ]
    outcome = kept(result(left=left)).model_copy(update={"faults": faults[:1] + GOOD.faults[1:]})
    assert outcome.is_good
    assert "; 1,200 records destroyed by a fault itself; 1 fault hit nothing." in (
        verdict_of([outcome]).sentence()
    )
    write_page([outcome], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"Did not happen: {faults[0].name}: OSError: &lt;no&gt;" in page
    assert "no sink can prevent: 1,200 x lost_write, 3 x skip" in page


def test_non_numeric_keys_are_not_drawn(tmp_path):
    view = EpochView(epoch="2026-11-01", first_s=1.0, last_s=2.0)
    write_page([GOOD.model_copy(update={"views": [view]})], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("<svg") == 2


def test_one_bad_schedule_is_enough_and_nothing_run_is_not_good():
    assert verdict_of([GOOD]).is_good
    assert verdict_of([GOOD]).sentence().startswith("No anomaly in 1 schedule: ")
    assert not verdict_of([GOOD, BAD]).is_good
    assert "1 of 2 schedules failed: 7 x lost_write." in verdict_of([GOOD, BAD]).sentence()
    assert "1 of 1 schedule failed: 1 did not finish." in verdict_of([BROKEN]).sentence()
    assert not verdict_of([]).is_good


def test_job_that_had_to_end_is_good_and_reported(tmp_path):
    ended = kept(result(4, ended_by="eos.errors.InDoubt: <the mark> is gone"))
    unread = ended.model_copy(update={"records_in": 800, "records_out": 600})
    assert unread.is_good
    sentence = verdict_of([unread]).sentence()
    assert (
        "600 records, each readable exactly once; 1 job ended with the required error." in sentence
    )
    write_page([unread], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "ended, as required: eos.errors.InDoubt: &lt;the mark&gt; is gone" in page
    assert "600 of 800 records readable" in page


def test_run_without_a_commit_log_is_not_good_in_silence(tmp_path):
    history = replace(small(), decisions=None)
    made = result(history=history)
    bare = kept(made)
    assert bare.is_good
    sentence = verdict_of([bare, GOOD]).sentence()
    assert sentence.endswith(f"; 1 schedule {NO_LOG}.")
    write_page([bare], tmp_path / "report.html")
    assert f"Checked {NO_LOG}" in (tmp_path / "report.html").read_text()
    write_junit([bare], tmp_path / "junit.xml")
    assert f"checked {NO_LOG}" in (tmp_path / "junit.xml").read_text()
    with pytest.warns(UserWarning, match=NO_LOG):
        check_exactly_once(made)
    with warnings.catch_warnings(action="error"):
        check_exactly_once(result())
    assert NO_LOG not in verdict_of([GOOD]).sentence()
    write_page([GOOD], tmp_path / "report.html")
    assert NO_LOG not in (tmp_path / "report.html").read_text()


def test_percentiles_without_values_are_zero():
    assert Percentiles.of([]).count == 0
    assert Percentiles.of([1.0, 2.0, 3.0]).p50_s == 2.0


def test_the_json_has_every_anomaly_and_every_run(tmp_path):
    path = tmp_path / "report.json"
    write_json(ALL, path)
    report = json.loads(path.read_text())
    assert report["is_good"] is False
    assert report["anomalies"]["lost_write"] == 7
    assert len(report["anomalies"]) == 17
    assert report["operations"] == {"unknown": 2}
    assert report["durations"]["driver_restart_s"]["count"] == 6
    assert [run["name"] for run in report["runs"]] == ["seed-1", "seed-2", "seed-3"]
    assert report["runs"][1]["again"] == "eos chaos run --seed 2"


def test_junit_tells_failures_from_errors(tmp_path):
    path = tmp_path / "junit.xml"
    write_junit(ALL, path)
    suite = ElementTree.parse(path).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    good, bad, broken = suite
    assert len(good) == 0
    assert bad[0].tag == "failure"
    assert "record <1/2> is gone" in bad[0].text
    assert "eos chaos run --seed 2" in bad[0].text
    assert (broken[0].tag, broken[0].get("message")) == ("error", "TimeoutError: epoch 3")


def test_junit_is_xml_whatever_a_driver_has_printed(tmp_path):
    path = tmp_path / "junit.xml"
    write_junit([kept(result(3, failure="\x1b[31mred\x00 \udcff\uffff", history=None))], path)
    (case,) = ElementTree.parse(path).getroot()
    assert case[0].get("message") == "\ufffd[31mred\ufffd \ufffd\ufffd"


def test_the_page_needs_no_network_and_begins_with_the_verdict(tmp_path):
    path = tmp_path / "report.html"
    write_page(ALL, path)
    text = path.read_text()
    assert "http" not in text.replace("http://www.w3.org", "")
    assert text.index("2 of 3 schedules failed") < text.index("<section>")
    assert "record &lt;1/2&gt; is gone" in text
    assert text.count("<svg") == 4


def plan(tmp_path, entries=None, **values) -> Campaign:
    made = Campaign(
        WORKLOAD, entries or list(of_seeds(range(1, 4), DEFAULT, 24)), tmp_path, **values
    )
    made.path("").parent.mkdir(exist_ok=True)
    return made


def test_stored_schedules_are_not_run_again_unless_they_failed(tmp_path):
    mine = plan(tmp_path)
    for outcome in ALL:
        outcome.write(mine.path(outcome.name))
    assert [mine.maybe_done(entry) is not None for entry in mine.entries] == [True, True, False]
    found: list[tuple[str, bool]] = []
    run_all(
        plan(tmp_path, mine.entries[:2]),
        tell=lambda _: None,
        on_outcome=lambda outcome, is_stored: found.append((outcome.name, is_stored)),
    )
    assert found == [("seed-1", True), ("seed-2", True)]


@pytest.mark.parametrize(
    ("entries", "values"),
    [
        (of_seeds([1], NAMES, 30), {}),
        (of_seeds([1], ["unload"], 20), {}),
        (of_seeds([1], NAMES, 24), {"keep": [1]}),
    ],
    ids=["more epochs", "other faults", "fewer of them"],
)
def test_outcome_of_another_schedule_is_not_used(tmp_path, entries, values):
    mine = plan(tmp_path)
    GOOD.write(mine.path(GOOD.name))
    assert mine.maybe_done(mine.entries[0]) is not None
    (other,) = entries
    assert plan(tmp_path, [other], **values).maybe_done(other) is None


def test_outcome_of_another_workload_is_not_used(tmp_path):
    mine = plan(tmp_path)
    GOOD.model_copy(update={"workload": "x:y"}).write(mine.path(GOOD.name))
    assert mine.maybe_done(mine.entries[0]) is None


def test_outcome_of_other_code_or_another_pulsar_is_not_used(tmp_path, monkeypatch):
    workload = tmp_path / "my_job.py"
    workload.write_text("def main(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = replace(plan(tmp_path), workload="my_job:main")
    changes = {"workload": mine.workload, "made_by": mine.made_by}
    GOOD.model_copy(update=changes).write(mine.path(GOOD.name))
    assert replace(mine).maybe_done(mine.entries[0]) is not None
    assert replace(mine, pulsar_version="4.0.1").maybe_done(mine.entries[0]) is None
    workload.write_text("def main(): 1\n")
    assert replace(mine).maybe_done(mine.entries[0]) is None


def test_the_code_of_a_package_is_that_of_all_its_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jobs_of_mine" / "more").mkdir(parents=True)
    (tmp_path / "jobs_of_mine" / "__init__.py").touch()
    other = tmp_path / "jobs_of_mine" / "more" / "prices.py"
    found = set()
    for text in ("A = 1", "A = 2"):
        other.write_text(text)
        found.add(Campaign("jobs_of_mine.more.orders:main", [], tmp_path).made_by)
    assert len(found) == 2


def test_another_module_of_the_project_or_another_pyspark_makes_another_outcome(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lone_job.py").write_text("def main(): ...\n")
    (tmp_path / ".venv").mkdir()
    found = set()
    for file in ("transforms.py", "lib/prices.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        for text in ("A = 1", "A = 2"):
            (tmp_path / file).write_text(text)
            found.add(Campaign("lone_job:main", [], tmp_path).made_by)
    (tmp_path / ".venv" / "other.py").write_text("A = 1")
    found.add(Campaign("lone_job:main", [], tmp_path).made_by)
    assert len(found) == 4
    monkeypatch.setattr(pyspark, "__version__", "4.9.9")
    assert Campaign("lone_job:main", [], tmp_path).made_by not in found


def test_command_repeats_the_shrunk_schedule(tmp_path):
    mine = plan(tmp_path)
    shrunk = BAD.model_copy(update={"shrunk_to": [1, 3]})
    command = mine.command(mine.entries[1], shrunk)
    assert command.startswith("eos chaos run --seed 2 --schedules 1 --epochs 24 --workload ")
    assert command.endswith(" --keep 1,3")


@pytest.mark.parametrize(
    ("keep", "culprit", "failure", "wanted", "runs"),
    [
        (None, 3, "bad", " --keep 3", 6),
        ([3, 2], 3, "bad", " --keep 3", 5),
        (None, 0, "bad", "", 2),
        (None, 3, "TimeoutError: input 3 is not done after 300 s", "", 1),
    ],
    ids=["one fault", "of those to keep", "without any fault", "a hang is not run again"],
)
def test_failure_is_shrunk_to_the_fault_that_the_command_names(
    keep, culprit, failure, wanted, runs, tmp_path, monkeypatch
):
    (entry,) = of_seeds([1], DEFAULT, 24)
    faults = entry.schedule.faults
    seen: list[Schedule] = []

    def go(self: ScheduleRun) -> Result:
        seen.append(self._schedule)
        fails = not culprit or faults[culprit - 1] in self._schedule.faults
        return Result(self._schedule, failure=failure if fails else "")

    monkeypatch.setattr(ScheduleRun, "go", go)
    monkeypatch.setattr(PulsarHolder, "get", lambda *_, **__: BrokenBroker())
    found: list[ScheduleOutcome] = []
    mine = plan(tmp_path, [entry], keep=keep)
    run_all(mine, tell=lambda _: None, on_outcome=lambda one, _: found.append(one))
    assert found[0].again == mine.command(entry, GOOD).partition(" --keep")[0] + wanted
    alone = "" if culprit else "; fails without any fault"
    assert found[0].complaint == failure + alone
    assert len(seen) == runs


def test_singles_are_each_fault_alone_and_pairs_each_two_in_both_orders():
    assert [entry.schedule.kinds for entry in of_singles(NAMES)] == [{name} for name in NAMES]
    pairs = [[f.fault for f in entry.schedule.faults] for entry in of_pairs(NAMES[:3])]
    a, b, c = NAMES[:3]
    assert pairs == [[a, b], [a, c], [b, a], [b, c], [c, a], [c, b]]
    assert len({entry.name for entry in of_pairs(NAMES)}) == len(NAMES) * (len(NAMES) - 1)


def samples(count: int, **slopes: float) -> list[Sample]:
    """A sample every five seconds; ``slopes`` are added to a figure each time."""
    flat = {"driver_mb": 200.0, "driver_files": 40, "worker_mb": 100.0, "worker_files": 20}
    return [
        Sample(
            at_s=5.0 * n,
            jvm_mb=700.0 + n,
            jvm_files=300,
            **{name: value + int(n * slopes.get(name, 0)) for name, value in flat.items()},
        )
        for n in range(count)
    ]


def test_constant_figures_and_the_jvm_heap_have_not_grown():
    assert grown(samples(100)) == {}
    assert grown(samples(100, driver_mb=0.2)) == {}


@pytest.mark.parametrize("name", ["driver_mb", "driver_files", "worker_mb", "worker_files"])
def test_a_leak_is_found_by_name_and_fails_the_run(name, tmp_path):
    leaking = samples(100, **{name: 1})
    assert list(grown(leaking)) == [name]
    outcome = kept(result(samples=leaking))
    ratio = grown(leaking)[name]
    worse = outcome.model_copy(update={"samples": samples(100, **{name: 2})})
    for both in ([outcome, worse], [worse, outcome]):
        assert verdict_of(both).grown[name] > ratio
    verdict = verdict_of([outcome])
    assert not verdict.is_good
    assert verdict.sentence() == f"1 of 1 schedule failed: {name} grew x {ratio:.2f}."
    path = tmp_path / "report.html"
    write_page([outcome], path)
    assert path.read_text().count("<svg") == 3
    assert 'class="harm">failed' in path.read_text()
    write_junit([outcome], tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    assert suite[0][0].get("message") == f"{name} grew x {ratio:.2f}"


def test_short_run_proves_nothing_about_growth():
    assert growth(samples(49, driver_mb=50), "driver_mb") is not None
    assert growth(samples(48, driver_mb=50), "driver_mb") is None
    assert grown(samples(48, driver_mb=50)) == {}
