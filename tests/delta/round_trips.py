"""Compares a DataFrame in a table of ``DeltaSink`` with one in a table of Spark's own writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from hypothesis import strategies as st
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import (
    DayTimeIntervalType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    YearMonthIntervalType,
)

from tests.support.frames import ATOMS, Frame, contents, structs, types
from tests.support.spark_releases import HAS_COLLATIONS, newer_types

NOT_IN_NAMES = " ,;{}()\n\t="
NAMES = st.sampled_from(
    ["a", "A", "ß", "value", "__key", "x.y", "`q", '"', "'", "/", "%41", "\\", "1", "c0", "element"]
) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=f"{NOT_IN_NAMES}\0"),
    min_size=1,
    max_size=4,
)
TABLES = structs(types(ATOMS, NAMES, not_in_maps=TimestampNTZType), NAMES, most=6)
REFUSED = [
    NullType(), DayTimeIntervalType(), YearMonthIntervalType(), VectorUDT(), StructType([]),
    *newer_types(VariantType=(), TimeType=(), CalendarIntervalType=(), GeometryType=(4326,)),
    *([StringType("UTF8_LCASE")] if HAS_COLLATIONS else []),
]  # fmt: skip
ODD_NAMES = NAMES | st.sampled_from([f"a{char}b" for char in f"{NOT_IN_NAMES}\0"])
ODD_TABLES = structs(types(ATOMS | st.sampled_from(REFUSED), ODD_NAMES), ODD_NAMES, most=3)
LIMITS = [
    "a VARIANT, which DeltaSink does not write",
    "has no type (void)",
    "has a user-defined type",
    "has a zero character in its name",
    "timestamp without time zone inside a map",
]
"""Refused by ``DeltaSink``, as documented, though Spark's Delta writer accepts it."""


def read_ours(folder: Path) -> pa.Table:
    """The rows that ``deltalake`` finds in the sink's table."""
    query = QueryBuilder().register("t", DeltaTable(folder / "ours")).execute("SELECT * FROM t")
    return pa.table(query.read_all())


def columns(table: Path) -> Any:
    return json.loads(DeltaTable(table).schema().to_json())


def check_frame(ask: Callable[..., list[Any]], frame: Frame, folder: Path) -> bool:
    """Whether both wrote it; then check that their tables have the same rows."""
    frame.save(folder)
    (refused,) = ask(f"both: {folder}")
    told = f"{frame.schema.json()}: {refused}"
    ours, sparks = refused["ours"], refused["sparks"]
    if ours is not None:
        assert sparks is not None or any(limit in ours for limit in LIMITS), told
        assert not (folder / "ours").exists(), told
        return False
    assert sparks is None, told
    assert columns(folder / "ours") == columns(folder / "sparks"), told
    given = contents(frame.to_arrow())
    for name in ("sparks", "ours"):
        with pa.ipc.open_file(folder / f"{name}.arrow") as file:
            found = contents(file.read_all())
        assert found == given, f"{name} {frame.schema.json()}"
    assert contents(read_ours(folder)) == given, told
    return True
