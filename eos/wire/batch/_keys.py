"""Keys of both kinds in one column: text, and bytes, as a topic may have them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError
from eos.wire.batch._checks import first_not_utf8, first_true, not_utf8
from eos.wire.columns import EMPTY, FALSE, BinaryColumn, as_base64


def text_keys(keys: pa.Array, is_binary: pa.BooleanArray) -> tuple[pa.Array, pa.BooleanArray]:
    """The keys as they stand on the wire, and which of them are base64 of bytes: ``key`` and
    ``key_is_base64`` of ``Rows``.

    Args:
        keys: binary or string; null where a row has none.
        is_binary: of which kind each is: bytes, or text. Does not matter where there is no key.

    Raises:
        InputError: the kind of a key is null, or a text is not UTF-8; the row is named.
    """
    if (row := first_true(pc.and_(keys.is_valid(), is_binary.is_null()))) >= 0:
        raise InputError(
            f"column '__keyIsBinary' is null in row {row}, which has a key.",
            hint="Say of each key whether it is bytes (true) or text (false).",
        )
    flags = pc.and_(pc.fill_null(is_binary, FALSE), keys.is_valid())
    raw = keys.cast(pa.binary())
    encoded = as_base64(BinaryColumn.of(pc.if_else(flags, raw, EMPTY))).array()
    text = pc.if_else(flags, encoded, raw).view(pa.string())
    if (row := first_not_utf8(text)) >= 0:
        raise not_utf8("key", row)
    return text, flags
