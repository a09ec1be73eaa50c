"""CHAR(n) and VARCHAR(n): text to Delta's schema, with a length that only writers keep.

Spark notes the declared type in the column's metadata. Its writers refuse longer text and cut
blanks behind the length; CHAR is padded when it is read (delta-spark 4.4 on Spark 4.2 stores
"a" in CHAR(3) as it is). ``deltalake`` commits whatever there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError

DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
_SIMPLE: Final = re.compile(r"(?:char|varchar)\((\d+)\)")


def is_kept(declared: str) -> bool:
    """Whether it is the length of a column of text, and not of something inside of it."""
    return _SIMPLE.fullmatch(declared) is not None


def objection(column: Mapping[str, Any], name: str) -> str | None:
    """A declared length that is not kept here: inside of a struct, list or map."""
    declared = column["metadata"].get(DECLARED)
    if declared is None or is_kept(declared):
        return None
    return f"column {name} declared as {declared}"


def declared_text(array: pa.Array, field: pa.Field) -> pa.Array:
    """The texts of ``array`` as Spark's writers store them in the column.

    Raises:
        InputError: one is longer than was declared.
    """
    declared = (field.metadata or {}).get(DECLARED.encode(), b"").decode()
    found = _SIMPLE.fullmatch(declared)
    if found is None:
        return array
    length = int(found[1])
    longest = pc.max(pc.utf8_length(pc.utf8_rtrim(array, " "))).as_py() or 0
    if longest > length:
        raise InputError(
            f"column {field.name!r} is {declared}, and has text of {longest} characters here.",
            hint=f"Cut it: left({field.name}, {length}).",
        )
    return pc.utf8_slice_codeunits(array, 0, length)
