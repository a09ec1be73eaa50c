"""Converts Arrow batches to the columns of messages, for the Data Source writer.

It gets batches, not a DataFrame, so the SQL of ``eos.sinks.dataframe_columns`` can't be used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.sinks._json_text import json_text
from eos.sinks.dataframe_columns import Layout


def message_columns(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Convert ``batch``, whose columns ``layout`` describes, to the form that tasks take."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns: dict[str, pa.Array] = {}
    if layout.record:
        fields = [given[name] for name in layout.record]
        columns["value"] = pa.StructArray.from_arrays(fields, names=list(layout.record))
    columns |= {ours: given[name] for ours, name in layout.names.items()}
    if layout.partition_may_be_minus_one:
        columns["partition"] = _null_for_minus_one(columns["partition"])
    converted = {name: _CONVERT.get(name, _unchanged)(array) for name, array in columns.items()}
    converted |= {name: json_text(columns[name]) for name in layout.json}
    return pa.RecordBatch.from_pydict(converted)


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _null_for_minus_one(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(array, -1), pa.scalar(None, array.type), array)


def _milliseconds(array: pa.Array) -> pa.Array:
    """Round down like Spark's ``unix_millis``, also before 1970."""
    if not pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    us = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    rounded = np.floor_divide(us.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    return pa.array(rounded, mask=us.is_null().to_numpy(zero_copy_only=False))


def _binary(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary())


def _long(array: pa.Array) -> pa.Array:
    return array.cast(pa.int64())


_CONVERT: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "event_time": _milliseconds,
    "ordering_key": _binary,
    "partition": _long,
}
