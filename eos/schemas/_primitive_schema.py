"""Schemas of single values: strings, numbers, dates and timestamps.

Source: ``org.apache.pulsar.client.impl.schema``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.errors import InputError
from eos.schemas._schema_base import Schema, SchemaWriter
from eos.wire.batch import check_texts
from eos.wire.binary_columns import BINARY_TYPES, STRING_TYPES, BinaryColumn, with_nulls_of
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.spark_text import sql_name

_MILLIS_A_DAY: Final = 86_400_000


@dataclass(frozen=True)
class _Primitive:
    type: SchemaType
    takes: Callable[[pa.DataType], bool]
    dtype: str  # of numpy; "" for bytes and strings


def _whole(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(pa.types.is_signed_integer(kind) and kind.bit_width <= bits)


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


# Numbers are big endian; ``Date`` and ``Timestamp`` are milliseconds since 1970.
_PRIMITIVES: Final[dict[str, _Primitive]] = {
    "bytes": _Primitive(SchemaType.NONE, lambda kind: kind in BINARY_TYPES | STRING_TYPES, ""),
    "string": _Primitive(SchemaType.STRING, lambda kind: kind in STRING_TYPES, ""),
    "boolean": _Primitive(SchemaType.BOOLEAN, pa.types.is_boolean, "u1"),
    "int8": _Primitive(SchemaType.INT8, _whole(8), "i1"),
    "int16": _Primitive(SchemaType.INT16, _whole(16), ">i2"),
    "int32": _Primitive(SchemaType.INT32, _whole(32), ">i4"),
    "int64": _Primitive(SchemaType.INT64, _whole(64), ">i8"),
    "float": _Primitive(SchemaType.FLOAT, pa.types.is_float32, ">f4"),
    "double": _Primitive(SchemaType.DOUBLE, pa.types.is_floating, ">f8"),
    "date": _Primitive(SchemaType.DATE, pa.types.is_date32, ">i8"),
    "timestamp": _Primitive(SchemaType.TIMESTAMP, _is_timestamp, ">i8"),
}
PRIMITIVE_NAMES: Final = tuple(_PRIMITIVES)


@dataclass(frozen=True)
class PrimitiveSchema(Schema):
    """One of ``PRIMITIVE_NAMES``. Timestamps are rounded down to milliseconds."""

    name: str

    @property
    def info(self) -> SchemaInfo:
        """The schema as it is registered."""
        return SchemaInfo(name=self.name, type=_PRIMITIVES[self.name].type)

    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:  # noqa: ARG002
        """See ``Schema``; ``registered`` is ignored."""
        primitive = _PRIMITIVES[self.name]
        if not primitive.takes(column):
            raise InputError(
                f"The value is {sql_name(column)}, which schema {self.name!r} does not support.",
                hint=f"Cast it, or choose the schema {name_for(column)!r}.",
            )
        return SchemaWriter(self.info, lambda values: _encode(values, primitive))


def name_for(column: pa.DataType) -> str:
    """Return the narrowest schema for single values of that type; "avro" if there is none."""
    # From the narrowest on; strings fit "bytes" too, but only bytes are for it.
    fitting = (name for name, one in _PRIMITIVES.items() if one.takes(column))
    return next((name for name in fitting if name != "bytes" or column in BINARY_TYPES), "avro")


def _encode(values: pa.Array, primitive: _Primitive) -> pa.Array:
    if primitive.type == SchemaType.STRING:
        check_texts(values)
    if not primitive.dtype:
        return values
    numbers = _numbers(values).astype(primitive.dtype)
    ends = np.arange(len(numbers) + 1) * numbers.itemsize
    data = BinaryColumn(ends, pa.py_buffer(np.ascontiguousarray(numbers))).array()
    return with_nulls_of(values, data)


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32()).cast(pa.int64())
    zero = False if pa.types.is_boolean(kind) else 0
    numbers: npt.NDArray[Any] = values.fill_null(zero).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind):
        numbers = numbers // 1000  # rounds down, also before 1970
    elif pa.types.is_date32(kind):
        numbers = numbers * _MILLIS_A_DAY
    return numbers
