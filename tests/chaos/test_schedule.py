"""The same seed gives the same schedule, and its records; shrinking leaves faults out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from eos.chaos._records import id_in, java_hash, records_of, release, text_of
from eos.chaos._run import ScheduleRun
from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS
from eos.chaos.job import Job
from eos.chaos.planning import FEWEST_EPOCHS, GAP_EPOCHS, QUIET_EPOCHS, draw, drawn
from eos.chaos.workloads import OWN
from eos.wire.batch import partitions_for_keys
from tests.chaos.broken_broker import BrokenBroker

NAMES = drawn()
TOPIC = "persistent://public/default/t"


@pytest.fixture
def job(tmp_path):
    return Job("m:f", "", "", TOPIC, "s", "", "", str(tmp_path), "")


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_is_a_schedule(seed):
    first, second = draw(seed, NAMES), draw(seed, NAMES)
    assert first == second
    assert records_of(first, TOPIC) == records_of(second, TOPIC)
    assert 3 <= len(first.faults) == len(first.kinds) <= 5
    at = [fault.epoch for fault in first.faults]
    assert at[0] >= QUIET_EPOCHS
    assert all(b - a >= GAP_EPOCHS for a, b in pairwise([*at, first.epochs]))


def test_fewer_epochs_have_room_for_fewer_faults():
    assert all(len(draw(n, NAMES, epochs=FEWEST_EPOCHS).faults) == 3 for n in range(20))


def test_seeds_differ_and_every_fault_is_drawn():
    schedules = [draw(seed, [*NAMES, *CONDITIONS]) for seed in range(2_000)]
    assert len({schedule.faults for schedule in schedules}) == 2_000
    assert {f.fault for schedule in schedules for f in schedule.faults} == set(NAMES)


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_a_schedule_hit_different_parts(seed):
    parts = [FAULTS[planned.fault].part for planned in draw(seed, NAMES).faults]
    assert len(set(parts)) == len(parts)


def test_a_choice_of_one_part_gives_different_faults_of_it():
    schedule = draw(3, ["deaf", "mute", "cut-all", "lost-end"])
    assert len(schedule.kinds) == len(schedule.faults) >= 3


def test_kept_faults_are_counted_from_one():
    schedule = draw(1, NAMES)
    assert schedule.keep([2]).faults == schedule.faults[1:2]
    assert schedule.keep([3, 1]).faults == (schedule.faults[0], schedule.faults[2])
    with pytest.raises(IndexError):
        schedule.keep([9])


def test_records_are_unique_and_have_a_topic():
    schedule = next(s for s in (draw(n, NAMES) for n in range(50)) if s.keyed)
    records = [record for epoch in records_of(schedule, TOPIC) for record in epoch]
    assert max(Counter(record.id for record in records).values()) == 1
    assert [record.place for record in records] == list(range(len(records)))
    keys = pa.array([record.key for record in records])
    wanted = partitions_for_keys(keys, schedule.partitions)
    assert [r.topic for r in records] == [f"{TOPIC}-partition-{n}" for n in wanted]


@pytest.mark.parametrize(
    ("workload", "is_known"), [(OWN, True), ("eos.chaos.workloads:naive", True), ("m:f", False)]
)
def test_only_the_harness_knows_the_partitions_of_its_keys(workload, is_known, tmp_path):
    broker: Any = BrokenBroker()
    schedule = next(s for s in (draw(n, NAMES) for n in range(50)) if s.keyed)
    run = ScheduleRun(schedule, workload, broker, tmp_path, tell=lambda _: None)
    records = [record for epoch in run._records for record in epoch]
    assert {bool(record.topic) for record in records} == {is_known}
    assert all(record.key for record in records)


def test_some_epochs_are_empty():
    assert any(not epoch for epoch in records_of(draw(1, NAMES), TOPIC))


def test_java_hash_is_javas():
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 0  # hashCode() is Integer.MIN_VALUE


def test_input_is_released_as_one_complete_file(job, tmp_path):
    schedule = draw(3, NAMES)
    epochs = records_of(schedule, TOPIC)
    for epoch in (0, 1):
        release(job, schedule, epoch, epochs[epoch])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "input-000000.parquet",
        "input-000001.parquet",
    ]
    rows = pyarrow.parquet.read_table(tmp_path / "input-000001.parquet").to_pylist()
    assert [id_in(row["value"].encode()) for row in rows] == [r.id for r in epochs[1]]
    slots: dict[str, set[int]] = {}
    for row in rows:
        slots.setdefault(row["key"], set()).add(row["slot"])
    if schedule.keyed:
        assert all(len(found) == 1 for found in slots.values())


def test_record_is_found_in_other_text_and_damage_is_detected():
    text = text_of("3/14", "padding")
    assert id_in(text.encode()) == "3/14"
    assert id_in(f'{{"before": 1, "event": "{text}", "after": 2}}'.encode()) == "3/14"
    for at in range(len(text)):
        damaged = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        assert id_in(damaged.encode()) != "3/14"
        assert id_in(damaged.encode()) is None or damaged.startswith("eos1|")
    assert id_in(b"") is None
    for other in ("3/14", "3/15"):  # a second row must not hide behind the first
        assert id_in(f"[{text},{text_of(other)}]".encode()) is None
