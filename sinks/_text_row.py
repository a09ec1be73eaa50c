"""What a task gives back to Spark: one row of texts."""

from __future__ import annotations

import pyarrow as pa

from eos.wire.from_python import bytes_column


def text_row(**texts: str | None) -> pa.RecordBatch:
    """A column for each text, with its name."""
    columns = [bytes_column([text], pa.string()) for text in texts.values()]
    return pa.RecordBatch.from_arrays(columns, list(texts))
