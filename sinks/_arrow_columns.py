"""Arrow batches as columns of messages, for the Data Source writer, which gets no DataFrame."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.sinks.dataframe_columns import Layout
from eos.wire.batch import check_texts
from eos.wire.spark_text import calendar_text


def message_columns(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Convert ``batch``, whose columns ``layout`` describes, to the form that tasks take."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns: dict[str, pa.Array] = {}
    if layout.record:
        fields = [given[name] for name in layout.record]
        columns["value"] = pa.StructArray.from_arrays(fields, names=list(layout.record))
    columns |= {ours: given[name] for ours, name in layout.names.items()}
    if layout.partition_may_be_minus_one:
        partitions = columns["partition"]
        none = pa.scalar(None, partitions.type)
        columns["partition"] = pc.if_else(pc.equal(partitions, -1), none, partitions)
    converted = {
        name: _CONVERT[name](array) if name in _CONVERT else array
        for name, array in columns.items()
    }
    for name in layout.json:
        check_texts(columns[name])
        converted[name] = json_text(columns[name])
    return pa.RecordBatch.from_pydict(converted)


def _milliseconds(array: pa.Array) -> pa.Array:
    # Rounds down like Spark's unix_millis, also before 1970.
    if not pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    us = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    rounded = np.floor_divide(us.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    return pa.array(rounded, mask=us.is_null().to_numpy(zero_copy_only=False))


_CONVERT: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "event_time": _milliseconds,
    "ordering_key": lambda array: array.cast(pa.binary()),
    "partition": lambda array: array.cast(pa.int64()),
}


_CONTROL: Final = tuple(chr(code) for code in range(0x20))
_HAS_CONTROL: Final = r"[\x00-\x1f]"


def json_text(array: pa.Array) -> pa.Array:
    """Return the JSON of each value, as Spark's ``to_json`` makes it with the sinks' options.

    Null stays null. Null fields are left out, times are in UTC with microseconds, binary is base64,
    decimals are numbers.
    """
    # Column by column: the texts of leaves are joined to texts of lists, maps and structs. Only
    # binary needs a loop over values.
    text = next((text for is_kind, text in _TEXTS if is_kind(array.type)), _as_text)
    return text(array)


def _struct(array: pa.StructArray) -> pa.Array:
    # Arrow's join that skips nulls drops rows where all values are null (measured on 26.0).
    fields = [
        _joined(f",{_literal(field.name)}:", json_text(array.field(index))).fill_null("")
        for index, field in enumerate(array.type)
    ]
    inner = pc.ascii_ltrim(_joined(*fields), characters=",")
    return _where_valid(array, _joined("{", inner, "}"))


def _list(array: pa.ListArray) -> pa.Array:
    return _where_valid(array, _joined("[", _inner(array, _or_null(array.flatten())), "]"))


def _map(array: pa.MapArray) -> pa.Array:
    kind = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    lists = array.cast(pa.list_(kind))
    pairs = lists.flatten()
    texts = _joined(json_text(pairs.field(0)), ":", _or_null(pairs.field(1)))
    return _where_valid(array, _joined("{", _inner(lists, texts), "}"))


def _inner(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts of each list's values, joined by commas."""
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(pc.list_value_length(lists).fill_null(0), out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _or_null(array: pa.Array) -> pa.Array:
    return json_text(array).fill_null("null")


def _where_valid(array: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _string(array: pa.Array) -> pa.Array:
    texts = pc.replace_substring(array.cast(pa.string()), "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, _HAS_CONTROL)).as_py():
        for character in _CONTROL:
            texts = pc.replace_substring(texts, character, _literal(character)[1:-1])
    return _quoted(texts)


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


def _as_text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _float(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(texts, "[.en]"))
    texts = pc.if_else(whole, _joined(texts, ".0"), texts)
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return texts
    named = pc.replace_substring(pc.replace_substring(texts, "inf", "Infinity"), "nan", "NaN")
    return pc.if_else(pc.is_finite(array), texts, _quoted(named))


def _date(array: pa.Array) -> pa.Array:
    return _quoted(calendar_text(array))


def _timestamp(array: pa.Array) -> pa.Array:
    texts = calendar_text(array.cast(pa.timestamp("us", array.type.tz)))
    return _joined('"', pc.replace_substring(texts, " ", "T"), 'Z"' if array.type.tz else '"')


def _binary(array: pa.Array) -> pa.Array:
    texts = [
        None if value is None else f'"{base64.b64encode(value).decode()}"'
        for value in array.to_pylist()
    ]
    return pa.array(texts, pa.string())


_TEXTS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...]] = (
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_floating, _float),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
)
