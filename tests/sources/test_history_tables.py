"""Tables of other writers: read as by deltalake, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from eos.errors import ConfigurationError, DataLost, IncompatibleSchema, InputError
from eos.sources._history_table import HistoryTable
from tests.sources.histories import NOW, TOPIC, begun, options, read, read_again, rows


def append(path: Path, actions: dict[str, Any]) -> None:
    """Commit as another writer."""
    log = path / "_delta_log"
    version = DeltaTable(path).version() + 1
    (log / f"{version:020d}.json").write_text(json.dumps(actions) + "\n")


def added(path: str, size: int) -> dict[str, Any]:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
        }
    }


def test_times_as_spark_writes_them_are_read_in_all_years(tmp_path):
    past = tmp_path / "past"
    write_deltalake(past, rows(0, NOW))
    times = [datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1500, 1, 1, tzinfo=UTC)]
    file = past / "spark.parquet"
    pq.write_table(rows(1, *times), file, use_deprecated_int96_timestamps=True)
    append(past, added(file.name, file.stat().st_size))
    assert [row["__eventTime"] for row in read(past, "__eventTime")] == [NOW, *times]


@pytest.mark.parametrize("column", ["__topic", "day", "moment"])
def test_partitioned_tables_in_odd_folders_are_read(tmp_path, column):
    past = tmp_path / "it's ü#?=+ past"
    days = pa.array(["a b/c%d", None, "x=y#?"])
    table = rows(0, NOW, NOW, NOW).append_column("day", days)
    table = table.append_column("moment", table["__eventTime"])
    write_deltalake(past, table, partition_by=[column])
    mine = ["value", "__topic"]
    assert read(past, "__topic") == table.select(mine).to_pylist()


def test_rows_of_topics_that_no_query_can_read_are_left_out(tmp_path):
    names = ["persistent://public/default/we ird", "non-persistent://public/default/x", "", TOPIC]
    write_deltalake(
        tmp_path, pa.concat_tables([rows(n, NOW, topic=t) for n, t in enumerate(names)])
    )
    assert [row["value"] for row in read(tmp_path)] == [b"3"]


def _text_id(table: pa.Table) -> pa.Table:
    return table.set_column(2, "__messageId", pa.array(["5:0:-1:0"] * len(table)))


def _number_for_topic(table: pa.Table) -> pa.Table:
    return table.set_column(1, "__topic", pa.array(range(len(table))))


def _null_id(table: pa.Table) -> pa.Table:
    return table.set_column(2, "__messageId", pa.array([None] * len(table), pa.binary()))


def _null_topic(table: pa.Table) -> pa.Table:
    return table.set_column(1, "__topic", pa.array([None] * len(table), pa.string()))


def _no_zone(table: pa.Table) -> pa.Table:
    return table.set_column(3, "__eventTime", table["__eventTime"].cast(pa.timestamp("us")))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (_text_id, IncompatibleSchema, "column __messageId of .* is string, .* binary"),
        (_number_for_topic, IncompatibleSchema, "column __topic of .* is bigint, .* string"),
        (_null_id, InputError, "a row with an invalid __messageId"),
        (_null_topic, InputError, "a row without a __topic"),
        (_no_zone, IncompatibleSchema, "column __eventTime of .* is timestamp_ntz"),
    ],
)
def test_columns_for_places_are_always_checked(
    tmp_path, change: Callable[[pa.Table], pa.Table], error, said
):
    write_deltalake(tmp_path, pa.concat_tables([change(rows(0, NOW))]))
    with pytest.raises(error, match=said):
        read(tmp_path, *(["__eventTime"] if change is _no_zone else []))


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_a_shallow_clone_is_refused(tmp_path, scheme):
    past, file = tmp_path / "clone", tmp_path / "elsewhere.parquet"
    write_deltalake(past, rows(0, NOW))
    pq.write_table(rows(1, NOW), file)
    append(past, added(f"{scheme}{file}", file.stat().st_size))
    with pytest.raises(ConfigurationError, match="is a shallow clone"):
        read(past)


def test_a_damaged_file_is_named(tmp_path):
    write_deltalake(tmp_path, rows(0, NOW))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:99])
    with pytest.raises(InputError, match=f"a file of .* can't be read: .*{file.name}"):
        read(tmp_path)


def test_a_query_keeps_its_version_after_new_table_features(tmp_path):
    write_deltalake(tmp_path, rows(0, NOW))
    span, names = begun(tmp_path), ["deletionVectors", "columnMapping", "unheardOf"]
    append(
        tmp_path,
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": names,
                "writerFeatures": names,
            }
        },
    )
    assert [row["value"] for row in read_again(tmp_path, span)] == [b"0"]
    assert [row["value"] for row in read(tmp_path, historyVersion="0")] == [b"0"]


def test_a_version_with_other_files_is_a_loss(tmp_path):
    """A table whose files were set back has the same id and version numbers."""
    write_deltalake(tmp_path, rows(0, NOW))
    write_deltalake(tmp_path, rows(1, NOW), mode="append")
    span = begun(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    write_deltalake(tmp_path, rows(2, NOW), mode="append")
    assert (begun(tmp_path).version, begun(tmp_path).count) == (span.version, span.count)
    with pytest.raises(DataLost, match="no longer exists"):
        HistoryTable.for_running_query(options(tmp_path), span)
    # Checkpoints of releases that recorded only the number of files.
    HistoryTable.for_running_query(options(tmp_path), replace(span, digest=""))
    with pytest.raises(DataLost, match="no longer exists"):
        HistoryTable.for_running_query(options(tmp_path), replace(span, digest="", count=3))
