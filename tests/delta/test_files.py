"""Staged files in a log: no path may leave the table's folder."""

from __future__ import annotations

import json

import pytest

from eos.delta.files import StagedFile, file_name

NAME = f"eos-run-1-00007-{'0' * 32}.snappy.parquet"
FIELDS = {
    "path": f"a=1/{NAME}",
    "size_bytes": 10,
    "partition_values": {"a": "1"},
    "records": 2,
    "stats": '{"numRecords": 2}',
    "written_at_ms": 3,
}


def test_a_staged_file_survives_the_round_trip_through_json():
    file = StagedFile(**FIELDS)
    assert StagedFile.from_json(file.to_json()) == file
    assert json.loads(file.to_json()) == FIELDS


@pytest.mark.parametrize(
    "path",
    [
        "",
        f"/{NAME}",
        f"../{NAME}",
        f"a=1/../{NAME}",
        f"a=../../{NAME}",
        f"./{NAME}",
        f"a=1//{NAME}",
        f"s3://bucket/a=1/{NAME}",
        f"file:/a=1/{NAME}",
        f"a=1:/{NAME}",
        f"a=1\\..\\{NAME}",
        f"a=1/{NAME}\n",
        f"a=1\0/{NAME}",
        f"_delta_log/{NAME}",
        "_delta_log/00000000000000000000.json",
        "a=1/part-00000-c000.snappy.parquet",
        f"a=1/{NAME.replace('run-1', 'run/1')}",
        f"{'a=1/' * 600}{NAME}",
        7,
        None,
    ],
)
def test_a_path_that_staging_does_not_write_is_refused(path):
    with pytest.raises(ValueError, match="path"):
        StagedFile(**{**FIELDS, "path": path})
    with pytest.raises(ValueError, match="path"):
        StagedFile.from_json(json.dumps({**FIELDS, "path": path}))


@pytest.mark.parametrize(
    "change",
    [
        {"size_bytes": -1},
        {"size_bytes": "10"},
        {"records": True, "stats": '{"numRecords": true}'},
        {"written_at_ms": 1.5},
        {"partition_values": None},
        {"partition_values": {"a": 1}},
        {"partition_values": {}},
        {"partition_values": {"a": "1", "b": "2"}},
        {"stats": ""},
        {"stats": "[]"},
        {"stats": '{"numRecords": 3}'},
        {"stats": {"numRecords": 2}},
        {"fields": 1},
    ],
)
def test_a_record_that_staging_does_not_write_is_refused(change):
    with pytest.raises(ValueError, match=next(iter(change)).split("_")[0]):
        StagedFile.from_json(json.dumps({**FIELDS, **change}))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "{}", '"a"'])
def test_text_that_is_not_a_staged_file_is_refused(text):
    with pytest.raises(ValueError, match="staged file"):
        StagedFile.from_json(text)


@pytest.mark.parametrize("attempt_id", ["", "../x", "a/b", "a b", "-a", "x" * 101])
def test_an_attempt_id_that_could_leave_the_folder_is_refused(attempt_id):
    with pytest.raises(ValueError, match="attempt_id"):
        file_name(attempt_id, 0, "0" * 32, "snappy")
