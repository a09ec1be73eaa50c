"""Text as Spark writes it: the names of types, dates and timestamps."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_SCALARS: Final = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "large_string": "string", "large_binary": "binary", "date32[day]": "date", "null": "void",
}  # fmt: skip
_DAY: Final = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}
_YEAR_0: Final = -719_528
_YEAR_10000: Final = 2_932_897
# The Gregorian calendar repeats after so many years.
_ERA_YEARS: Final = 400
_ERA_DAYS: Final = 146_097


def sql_name(kind: pa.DataType) -> str:
    """Return the name of Spark's ``DataType.simpleString``, or Arrow's name if Spark has none."""
    types = pa.types
    if types.is_struct(kind):
        return f"struct<{','.join(f'{one.name}:{sql_name(one.type)}' for one in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    return _SCALARS.get(str(kind), str(kind))


def calendar_text(array: pa.Array) -> pa.Array:
    """Return ``2026-11-20`` for ``date32``, and ``2026-11-20 12:00:00.123456``, in UTC, for
    timestamps in microseconds or coarser."""
    if pa.types.is_timestamp(array.type):
        day, plain, kind = _DAY[array.type.unit], pa.int64(), pa.timestamp(array.type.unit)
    else:
        day, plain, kind = 1, pa.int32(), pa.date32()
    numbers = array.view(plain)
    texts = numbers.view(kind).cast(pa.string())
    found = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    # Arrow's own text is wrong after the year 32,767: "value out of range", or another year (26.0).
    far = np.flatnonzero((found < _YEAR_0 * day) | (found >= _YEAR_10000 * day))
    if not len(far):
        return texts
    eras, in_era = np.divmod(found[far], _ERA_DAYS * day)
    near = pa.array(in_era).cast(plain).view(kind).cast(pa.string()).to_pylist()
    corrected = texts.to_pylist()
    for at, era, text in zip(far.tolist(), eras.tolist(), near, strict=True):
        year = int(text[:4]) + _ERA_YEARS * era
        # Years outside of 0 to 9999 have a sign, as in Spark and Java.
        corrected[at] = f"{'-' if year < 0 else '+'}{abs(year):04}{text[4:]}"
    return pa.array(corrected, pa.string())
