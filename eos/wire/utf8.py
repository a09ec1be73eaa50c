"""Converts binary columns to text, and finds the rows that are not valid text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eos.wire.binary_columns import Mask


def as_texts(column: pa.BinaryArray) -> tuple[pa.StringArray, Mask | None]:
    """Return the column as UTF-8 text, and the rows that are not UTF-8, which are null in it; None
    if there are none."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        pass
    # Row by row: Arrow does not say which rows are invalid.
    bad = np.fromiter((not _is_text(one) for one in column.to_pylist()), np.bool_, len(column))
    good = column.take(pa.array(np.arange(len(column)), mask=bad))
    return good.cast(pa.string()), bad


def as_texts_of(column: pa.BinaryArray, charset: str) -> tuple[pa.StringArray, Mask]:
    """Return the column as text decoded from ``charset``, row by row; invalid rows are null."""
    texts = [None if data is None else _decoded(data, charset) for data in column.to_pylist()]
    found = pa.array(texts, pa.string())
    return found, found.is_null().to_numpy(False) & column.is_valid().to_numpy(False)


def _decoded(data: bytes, charset: str) -> str | None:
    marks = {"utf-16": (b"\xfe\xff", b"\xff\xfe"), "utf-32": (b"\0\0\xfe\xff", b"\xff\xfe\0\0")}
    if charset in marks and not data.startswith(marks[charset]):
        charset += "-be"  # Java's default without a byte order mark
    try:
        text = data.decode(charset)
        text.encode()  # fails on an unpaired surrogate
    except UnicodeError:
        return None
    return text


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False
