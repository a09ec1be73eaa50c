"""The example of a sink of one's own: what Spark writes to a folder, exactly once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from eos import DeltaSink, all_or_nothing
from eos.participant import kind_of
from examples.folder.folder_sink import FolderSink, WriteLines
from examples.folder.participant import KIND, FolderParticipant

ROWS = [{"a.id": 1, "item": "tea"}, {"a.id": 2, "item": "ríce"}]


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the example's package were installed."""
    find = lambda name: KIND if name == "folder" else kind_of(name)  # noqa: E731
    for where in ("eos.commit_log.schema", "eos.committer.participants"):
        monkeypatch.setattr(f"{where}.kind_of", find)


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "tea"), (2, "ríce")], "`a.id` LONG, item STRING")


@pytest.fixture
def sink(tmp_path: Path) -> FolderSink:
    log, out = str(tmp_path / "log"), str(tmp_path / "out")
    return FolderSink(sink_id="words", commit_log=log, folder=out)


def rows_in(folder: Path) -> list[dict[str, object]]:
    files = [path for path in folder.glob("*/*") if path.parent.name != ".staged"]
    return sorted((json.loads(line) for path in files for line in path.open()), key=str)


def test_an_epoch_that_is_written_twice_is_in_the_folder_once(df, sink, tmp_path):
    assert [sink.write(df, epoch="a").status for _ in range(2)] == ["written", "skipped"]
    assert rows_in(tmp_path / "out") == ROWS
    sink.write(df.limit(0), epoch="b")
    sink.write(df, epoch="c")
    assert rows_in(tmp_path / "out") == sorted([*ROWS, *ROWS], key=str)


def test_a_run_of_a_task_that_does_not_count_leaves_no_rows(sink, tmp_path):
    """Spark may run a task twice, and a run may end after the commit."""
    part = FolderParticipant(tmp_path / "out").begin(None)  # type: ignore[arg-type]
    batch = pa.record_batch({"value": ['{"item": "tea"}']})
    (taken,), _, _ = [list(WriteLines(str(part.written))([batch])) for _ in range(3)]
    paths = [json.loads(text) for text in json.loads(taken["staged"][0].as_py())]
    (output,) = sink.outputs()
    counted = output.participant.count(part, paths)
    assert output.participant.commit(counted, deadline_s=1, is_own=True).known.value == "committed"
    list(WriteLines(str(part.written))([batch]))
    assert rows_in(tmp_path / "out") == [{"item": "tea"}]


def test_a_folder_and_a_table_have_an_epoch_together(df, sink, tmp_path):
    log, table = str(tmp_path / "log"), str(tmp_path / "table")
    plain = df.toDF("id", "item")
    both = all_or_nothing(sink, DeltaSink(sink_id="words", commit_log=log, table=table))
    both.write(plain, epoch="a")
    assert len(rows_in(tmp_path / "out")) == DeltaTable(table).to_pyarrow_table().num_rows == 2
