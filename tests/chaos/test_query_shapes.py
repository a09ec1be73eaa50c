"""In which epoch a query with windows writes a record, by Spark's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eos.chaos._feed import FileInputs
from eos.chaos._query_shapes import BASE_S, DELAY_S, WINDOW_S, emits, flush, is_quiet, number_of
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.planning import only


def plan(folder: Path, epoch: int, *ends: int, input_s: float = 0, done: bool = True) -> None:
    """Write an epoch with all files before ``ends`` and the newest event at ``input_s``."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    watermark = {"batchWatermarkMs": int((BASE_S + input_s - DELAY_S) * 1000) if input_s else 0}
    lines = ["v1", json.dumps(watermark), *(json.dumps({"logOffset": end - 1}) for end in ends)]
    (folder / "offsets" / str(epoch)).write_text("\n".join(lines))
    if done:
        (folder / "commits" / str(epoch)).touch()


def record(number: int) -> Record:
    return Record(f"{number}/0", str(number), number, input=number)


def test_a_record_is_written_when_its_window_is_over(tmp_path):
    plan(tmp_path, 0, 4)
    plan(tmp_path, 1, 4, input_s=WINDOW_S + DELAY_S)  # input 1 is in the first window, 2 is not
    plan(tmp_path, 2, 5, input_s=2 * WINDOW_S + DELAY_S)
    epoch_of = emits("windowed", Checkpoint(str(tmp_path)), lambda _: "0")
    assert [epoch_of(record(number)) for number in (1, 2, 3, 4)] == ["1", "2", "2", None]


def test_late_record_is_not_written_before_it_is_read(tmp_path):
    for epoch in range(3):
        plan(tmp_path, epoch, 4, input_s=50)
    assert emits("windowed", Checkpoint(str(tmp_path)), lambda _: "2")(record(0)) == "2"
    assert emits("windowed", Checkpoint(str(tmp_path)), lambda _: None)(record(0)) is None


def test_without_windows_records_are_written_as_they_are_read(tmp_path):
    assert emits("joined", Checkpoint(str(tmp_path)), lambda _: "7")(record(0)) == "7"


@pytest.mark.parametrize(("shape", "epochs"), [("stream", ["0", "1"]), ("joined", ["1", "1"])])
def test_query_that_reads_twice_has_a_record_after_both_readings(tmp_path, shape, epochs):
    ends = [(1, 0), (2, 2)] if shape == "joined" else [(1,), (2,)]
    for epoch, of_it in enumerate(ends):
        plan(tmp_path, epoch, *(end for end in of_it if end))
    job = Job("m:f", "", "", "t", "s", "", str(tmp_path), str(tmp_path / "in"), "", shape=shape)
    inputs = FileInputs(job, only("deaf"))
    epoch_of = inputs.epoch_of(2)
    assert [epoch_of(record(number)) for number in (0, 1)] == epochs
    assert inputs.done() == 2


def test_quiet_after_the_last_epoch_and_the_flush(tmp_path):
    last = flush(3)
    checkpoint = Checkpoint(str(tmp_path))
    plan(tmp_path, 0, 4, input_s=3)
    assert not is_quiet(checkpoint, last)
    plan(tmp_path, 1, 4, input_s=number_of(last), done=False)
    assert not is_quiet(checkpoint, last)
    plan(tmp_path, 1, 4, input_s=number_of(last))
    assert is_quiet(checkpoint, last)
