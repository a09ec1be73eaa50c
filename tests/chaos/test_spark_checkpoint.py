"""Which input is in which epoch, by checkpoint files as Spark writes them."""

from __future__ import annotations

import json

import pytest

from eos.chaos._spark_checkpoint import Checkpoint

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1763714400000,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path):
    """``checkpoint(ends, noted)``: the log offset of each epoch, and the epochs that are done."""

    def write(ends, noted, *, before=()):
        for name, epochs in (("offsets", range(len(ends))), ("commits", noted)):
            (tmp_path / name).mkdir()
            for epoch in epochs:
                (tmp_path / name / f".{epoch}.crc").write_bytes(b"crc")
                (tmp_path / name / str(epoch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        for epoch, end in enumerate(ends):
            lines = ["v1", SETTINGS, *before, json.dumps({"logOffset": end})]
            (tmp_path / "offsets" / str(epoch)).write_text("\n".join(lines))
        return Checkpoint(str(tmp_path))

    return write


def test_missing_checkpoint_has_no_epochs(tmp_path):
    new = Checkpoint(str(tmp_path / "none"))
    assert (new.noted(), new.inputs_done(), new.epochs_of_inputs(2)) == ([], 0, [None, None])


def test_each_input_is_an_epoch(checkpoint):
    spark = checkpoint([0, 1, 2], [0, 1])
    assert spark.noted() == [0, 1]
    assert spark.inputs_done() == 2
    assert spark.epochs_of_inputs(4) == ["0", "1", "2", None]


def test_two_inputs_share_an_epoch_after_a_crash(checkpoint):
    spark = checkpoint([0, 2, 3], [0, 1])
    assert spark.inputs_done() == 3
    assert spark.epochs_of_inputs(4) == ["0", "1", "1", "2"]


def test_an_epoch_without_new_input_has_none(checkpoint):
    assert checkpoint([0, 0, 1], [0, 1, 2]).epochs_of_inputs(2) == ["0", "2"]


def test_epochs_are_ordered_as_numbers(checkpoint):
    assert checkpoint(list(range(12)), range(12)).noted() == list(range(12))


@pytest.mark.parametrize("before", ["-", '{"topic":{"0":12}}', "17"])
def test_other_sources_of_the_query_are_ignored(checkpoint, before):
    assert checkpoint([4], [0], before=[before]).inputs_done() == 5


def test_query_that_does_not_read_the_input_is_an_error(checkpoint, tmp_path):
    spark = checkpoint([0], [0])
    (tmp_path / "offsets" / "0").write_text(f"v1\n{SETTINGS}\n17")
    with pytest.raises(RuntimeError, match=r"must read Job\.input"):
        spark.inputs_done()
