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


def as_texts_of(column: pa.BinaryArray, charset: str) -> tuple[pa.StringArray, Mask]:
    """The same of text in another encoding, row by row."""
    texts = [None if data is None else _decoded(data, charset) for data in column.to_pylist()]
    found = pa.array(texts, pa.string())
    return found, found.is_null().to_numpy(False) & column.is_valid().to_numpy(False)


def _decoded(data: bytes, charset: str) -> str | None:
    marks = {"utf-16": (b"\xfe\xff", b"\xff\xfe"), "utf-32": (b"\0\0\xfe\xff", b"\xff\xfe\0\0")}
    if charset in marks and not data.startswith(marks[charset]):
        charset += "-be"  # as Java takes what has no byte order mark
    try:
        text = data.decode(charset)
        text.encode()  # half of a pair of surrogates is no text
    except UnicodeError:
        return None
    return text


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False
