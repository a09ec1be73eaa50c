"""Iceberg's own Java library reads what we write, and works on the same tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.data_files import stage
from eos.iceberg.part import IcebergPart
from eos.iceberg.participant import IcebergParticipant
from eos.iceberg.table_address import TableAddress
from eos.protocol import BATCH, Known
from tests.iceberg.tables import NAME, IcebergOutput, catalog_of
from tests.support.java_iceberg import JavaIceberg, java_iceberg

pytestmark = pytest.mark.broker

UTC = pa.timestamp("us", "UTC")
TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1),
    dt.datetime(1, 1, 1), dt.datetime(2026, 11, 20, 12, 30, 0, 123456), dt.datetime(1900, 2, 28),
]  # fmt: skip
LONGS = [0, 1, -1, 34, -34, 2**63 - 1, -(2**63), 10, -10, 9, -9]
TEXTS = ["", "a", "iceberg", "æøå", "𐐷𐐷𐐷", "a/b=c d", "x" * 500]
MONEY = [Decimal(text) for text in ("0.00", "14.20", "-14.20", "-0.01", "99999999.99", "10.65")]
CASES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("value", pa.int64(), LONGS),
    ("bucket(16, value)", pa.int64(), LONGS),
    ("truncate(10, value)", pa.int64(), LONGS[:5] + LONGS[7:]),
    ("bucket(16, value)", pa.int32(), [0, 1, -1, 34, 2**31 - 1, -(2**31)]),
    ("bucket(16, value)", pa.string(), TEXTS),
    ("truncate(2, value)", pa.string(), TEXTS),
    ("value", pa.string(), TEXTS),
    ("bucket(16, value)", pa.binary(), [b"", b"\x00", b"\xff\xfe", b"iceberg"]),
    ("truncate(1, value)", pa.binary(), [b"", b"\x00", b"\xff\xfe", b"iceberg"]),
    ("bucket(16, value)", pa.decimal128(10, 2), MONEY),
    ("truncate(50, value)", pa.decimal128(10, 2), MONEY),
    ("value", pa.decimal128(10, 2), MONEY),
    ("value", pa.bool_(), [True, False]),
    ("value", pa.float64(), [0.5, -1.5, 1e300]),
    *[(f"{name}(value)", pa.date32(), [one.date() for one in TIMES])
      for name in ("year", "month", "day")],
    *[(f"{name}(value)", kind, TIMES)
      for name in ("year", "month", "day", "hour") for kind in (pa.timestamp("us"), UTC)],
    ("bucket(16, value)", UTC, TIMES),
    ("bucket(16, value)", pa.date32(), [one.date() for one in TIMES]),
    ("value", UTC, TIMES),
]  # fmt: skip


@pytest.fixture(scope="module")
def java() -> Iterator[JavaIceberg]:
    with java_iceberg() as library:
        yield library


def as_json(value: Any, kind: pa.DataType) -> Any:
    """A value as Iceberg's expressions have it."""
    match value:
        case dt.datetime():
            return value.isoformat() + ("+00:00" if kind == UTC else "")
        case dt.date() | Decimal():
            return str(value)
        case bytes():
            return value.hex().upper()
    return value


@pytest.mark.parametrize(("transform", "kind", "values"), CASES, ids=lambda one: str(one)[:24])
def test_java_finds_each_row_by_its_partition(java, tmp_path, transform, kind, values):
    address = TableAddress(NAME, properties=catalog_of(tmp_path))
    schema = pa.schema([("id", pa.int64()), ("value", kind)])
    IcebergTable(address).create(schema, [transform])
    given = [*values, None]
    rows = pa.record_batch(
        [pa.array(range(len(given)), pa.int64()), pa.array(given, kind)], schema=schema
    )

    def write(part: IcebergPart) -> Any:
        target = IcebergTable(address).load().target(1024 * 1024, "zstd")
        return stage([rows], target, attempt_id=str(part.attempt_id), spark_partition=0)

    log = CommitLog.open(tmp_path / "log", "java")
    committer = Committer(log, [IcebergParticipant("java", address)])
    committer.run_epoch(BATCH, "a", lambda begun: lambda: [write(begun()[0])])
    found, _ = java.read(tmp_path, NAME)
    assert sorted(int(row[0]) for row in found) == list(range(len(given)))
    for number, value in enumerate(given):
        where = {"type": "eq", "term": "value", "value": as_json(value, kind)}
        if value is None:
            where = {"type": "is-null", "term": "value"}
        found, left = java.read(tmp_path, NAME, where)
        assert [int(row[0]) for row in found] == [number], value
        assert left == 1


def test_epochs_between_commits_and_maintenance_of_java(java, tmp_path):
    output = IcebergOutput(tmp_path)
    log = CommitLog.open(tmp_path / "log", "contract")
    for epoch in "abc":
        committer = Committer(log, [output.participant()])
        committer.run_epoch(
            BATCH, epoch, lambda begun, epoch=epoch: lambda: [output.write(begun()[0], [epoch])]
        )
        java.ask("append", tmp_path, NAME)
        assert java.ask("expire", tmp_path, NAME) == 1
    rows, _ = java.read(Path(tmp_path), NAME)
    assert sorted(row[0] for row in rows) == ["a", "a", "b", "b", "c", "c"]
    last = log.history.last_begun(committer_key(log))
    (part,) = last.participants
    assert isinstance(part, IcebergPart)
    assert output.table().snapshot_by_id(part.snapshot_id) is None
    assert output.participant().outcome(part, timeout_s=1).known is Known.COMMITTED
    assert java.ask("properties", tmp_path, NAME)[f"eos.{part.app_id}"] == "3"


def committer_key(log: CommitLog) -> tuple[str, str]:
    (part,) = log.records()[-1].participants
    return part.key
