"""Bytes that are to be text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eos.wire.columns import Mask


def as_texts(column: pa.BinaryArray) -> tuple[pa.StringArray, Mask | None]:
    """Binary as UTF-8 text, and which rows are none, null then; None: all are text."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        pass
    # Row by row, to find the bad ones; Arrow does not say which they are.
    bad = np.fromiter((not _is_text(one) for one in column.to_pylist()), np.bool_, len(column))
    good = column.take(pa.array(np.arange(len(column)), mask=bad))
    return good.cast(pa.string()), bad


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False
