"""Random histories of a table: an epoch is called whole if, and only if, its rows are there."""

from __future__ import annotations

import tempfile
from collections import Counter

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eos.delta._audit import open_audit
from eos.delta.part import DeltaPart
from eos.delta.target_table import TargetTable
from eos.participant import Kept
from tests.delta.tables import commit, made, numbered, staged

ROWS = 3
"""Rows of each epoch; its numbers begin at ten times its own number."""
STEPS = st.lists(
    st.one_of(
        st.just(("epoch", 0)),
        st.just(("optimize", 0)),
        st.just(("append", 0)),
        st.just(("overwrite", 0)),
        st.tuples(st.just("delete"), st.integers(0, 60)),
        st.tuples(st.just("restore"), st.integers(0, 12)),
    ),
    min_size=1,
    max_size=9,
)


def epoch(table: TargetTable, number: int) -> DeltaPart:
    files, schema = staged(table, numbered(10 * number, ROWS))
    commit(table, files, number, schema)
    return DeltaPart(
        table=table.folder.uri, app_id="a", version=number, table_id=table.table_id, files=files
    )


def step(table: TargetTable, what: str, number: int) -> None:
    handle = DeltaTable(table.folder.uri)
    others = pa.table({"id": [-1], "name": ["other"]})
    match what:
        case "optimize":
            handle.optimize.compact()
        case "append":
            write_deltalake(handle, others, mode="append")
        case "overwrite":
            write_deltalake(handle, others, mode="overwrite")
        case "delete":
            handle.delete(f"id = {number}")
        case "restore" if number < handle.version():
            handle.restore(number)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_an_epoch_is_whole_if_and_only_if_its_rows_are_there(steps):
    with tempfile.TemporaryDirectory() as folder:
        table = made(f"{folder}/t")
        parts = [epoch(table, 1)]
        for what, number in steps:
            if what == "epoch":
                parts.append(epoch(table, len(parts) + 1))
            else:
                step(table, what, number)
        there = Counter(DeltaTable(table.folder.uri).to_pyarrow_table()["id"].to_pylist())
        audited = open_audit(table.folder).committed(parts)
    deletes = any(what == "delete" for what, _ in steps)
    loses = any(what in ("restore", "overwrite") for what, _ in steps)
    for part, found in zip(parts, audited, strict=True):
        first = 10 * part.version
        is_there = all(there[number] == 1 for number in range(first, first + ROWS))
        if is_there and not deletes:
            assert found.kept is Kept.WHOLE, found
        if not is_there:
            assert found.kept in ({Kept.CHANGED} if not loses else {Kept.CHANGED, Kept.LOST}), found
        if not is_there and not deletes:
            assert found.kept is Kept.LOST, found
