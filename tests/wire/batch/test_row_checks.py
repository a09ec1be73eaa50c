"""Rows that can't be written are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eos.errors import InputError, MessageTooLarge
from eos.wire.batch import Message, Rows, check_rows, encode_batches, rows_from_messages
from eos.wire.batch._metadata import message_sizes

LIMIT = 1000
MAP = pa.map_(pa.string(), pa.string())
VALUES = pa.array([b"a", b"b", b"c"])


def map_with(items: list[str | None], valid: list[bool]) -> pa.MapArray:
    """Three rows of one entry each; an invalid row keeps its entry in the buffers."""
    maps = pa.MapArray.from_arrays(pa.array([0, 3], pa.int32()), pa.array(["a"] * 3), items)
    offsets = pa.py_buffer(np.arange(4, dtype=np.int32))
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(MAP, 3, [validity, offsets], children=[maps.values])


@pytest.mark.parametrize("write", [lambda rows: check_rows(rows, LIMIT), encode_batches])
def test_a_null_value_is_refused_with_its_row(write: Any) -> None:
    rows = Rows(pa.array([b"hidden", b"a", None, b"b"])).slice(1, 4)
    with pytest.raises(InputError, match="'value' is null in row 1"):
        list(write(rows) or ())


@pytest.mark.parametrize("write", [lambda rows: check_rows(rows, LIMIT), encode_batches])
def test_a_tombstone_needs_a_key(write: Any) -> None:
    values, keys = pa.array([b"a", None, None, None]), pa.array([None, "k", "", None])
    list(write(Rows(values, keys, tombstones=True).slice(0, 3)) or ())
    with pytest.raises(InputError, match="'value' is null in row 3, which has no key"):
        list(write(Rows(values, keys, tombstones=True)) or ())
    with pytest.raises(InputError, match="row 1, which has no key"):
        list(write(Rows(values, tombstones=True)) or ())


def test_valid_rows_pass() -> None:
    properties = pa.array([[("a", "b")], None, []], MAP)
    check_rows(Rows(VALUES, pa.array(["k", None, ""]), pa.array([0, None, 5]), properties), LIMIT)
    check_rows(Rows(pa.array([], pa.binary()), pa.array([], pa.string())), LIMIT)
    check_rows(Rows(VALUES).slice(3, 3), LIMIT)


def test_a_negative_event_time_is_named_by_its_row() -> None:
    with pytest.raises(InputError, match="'event_time' is negative in row 2"):
        check_rows(Rows(VALUES, event_time_ms=pa.array([None, 0, -1])), LIMIT)


def test_a_null_in_properties_is_named_by_its_row() -> None:
    rows = Rows(VALUES, properties=map_with(["1", "2", None], [True, True, True]))
    with pytest.raises(InputError, match="'properties' has a null value in row 2"):
        check_rows(rows, LIMIT)
    with pytest.raises(InputError, match="in row 1"):
        check_rows(rows.slice(1, 3), LIMIT)
    check_rows(rows.slice(0, 2), LIMIT)


def test_a_null_inside_of_a_null_map_is_ignored() -> None:
    maps = map_with(["1", "2", None], [True, True, False])
    assert len(maps.items) == 3
    check_rows(Rows(VALUES, properties=maps), LIMIT)


def test_text_that_is_not_utf8_is_refused_and_not_shown() -> None:
    broken = pa.Array.from_buffers(pa.string(), 3, pa.array([b"ok", b"\xffabc", b"ok"]).buffers())
    with pytest.raises(InputError, match="'key' has text that is not UTF-8 in row 1") as caught:
        check_rows(Rows(VALUES, broken), LIMIT)
    assert "abc" not in str(caught.value)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), broken, broken)
    with pytest.raises(InputError, match="'properties' has text that is not UTF-8 in row 1"):
        check_rows(Rows(VALUES, properties=maps), LIMIT)


def test_a_message_that_is_too_large_is_named_with_its_size_and_the_limit() -> None:
    rows = Rows(pa.array([b"a" * 990, b"b" * 10, b"c" * 995, b"d" * 2000]))
    sizes = message_sizes(rows).tolist()
    assert sizes == [997, 16, 1002, 2007]
    with pytest.raises(MessageTooLarge, match="Row 2 takes 1002 bytes; the limit is 1000"):
        check_rows(rows, LIMIT)
    check_rows(rows.slice(0, 2), 997)
    with pytest.raises(MessageTooLarge, match="Row 0 takes 997 bytes"):
        check_rows(rows, 996)


def test_keys_and_properties_count_for_the_size() -> None:
    messages = [Message(b"", key="k" * 500, properties={"p": "v" * 500})]
    with pytest.raises(MessageTooLarge):
        check_rows(rows_from_messages(messages), LIMIT)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": pa.array([1])}, "'value' must be .* not int64"),
        ({"value": VALUES, "key": pa.array([1, 2, 3])}, "'key' must be .* not int64"),
        ({"value": VALUES, "event_time_ms": pa.array([1, 2, 3], pa.int32())}, "int32"),
        ({"value": VALUES, "properties": pa.array(["a", "b", "c"])}, "'properties'"),
        ({"value": VALUES, "properties": pa.nulls(3, pa.map_(pa.string(), pa.int32()))}, "map<"),
        ({"value": VALUES, "ordering_key": pa.array(["a", "b", "c"])}, "'ordering_key'"),
        ({"value": VALUES, "key": pa.array(["a"])}, "'key' has 1 rows, 'value' has 3"),
    ],
)
def test_columns_of_the_wrong_type_or_length_are_refused(
    columns: dict[str, pa.Array], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        Rows(**columns)


@pytest.mark.parametrize("bad", [0, 1, 499, 998, 999])
def test_the_first_of_several_invalid_texts_is_named_also_in_a_slice(bad: int) -> None:
    texts = [b"\xff" if row >= bad and row % 2 == bad % 2 else b"ok" for row in range(1000)]
    keys = pa.array([b"\xff", *texts]).view(pa.string()).slice(1)
    with pytest.raises(InputError, match=rf"in row {bad}\."):
        check_rows(Rows(pa.array([b"x"] * 1000), keys), LIMIT)
    # Alternating maps of 2 and 0 entries: entry n is in the even row at n or before.
    ends = [2 * ((row + 1) // 2) for row in range(1001)]
    maps = pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, keys)
    with pytest.raises(InputError, match=rf"'properties'.* in row {bad // 2 * 2}\."):
        check_rows(Rows(pa.array([b"x"] * 1000), properties=maps), LIMIT)


@pytest.mark.parametrize(
    "messages",
    [
        [Message(b"", key="text"), Message(b"", key=b"bytes")],
        [Message(5)],  # type: ignore[arg-type]
        [Message(b""), Message("secret")],  # type: ignore[arg-type]
        [Message(b"", key=5)],  # type: ignore[arg-type]
        [Message(b"", key="\ud800")],
        [Message(b"", event_time_ms=2**63)],
        [Message(b"", properties={"secret": 5})],  # type: ignore[dict-item]
        [Message(b"", ordering_key=5)],  # type: ignore[arg-type]
    ],
)
def test_objects_of_the_wrong_type_are_refused_and_not_shown(messages: list[Message]) -> None:
    with pytest.raises(InputError) as caught:
        rows_from_messages(messages)
    assert "secret" not in str(caught.value)


def test_text_as_a_value_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match=r"must be bytes, not str\. Encode it"):
        rows_from_messages([Message("text")])  # type: ignore[arg-type]
    rows = rows_from_messages([Message(bytearray(b"a")), Message(memoryview(b"b"))])
    assert rows.value.to_pylist() == [b"a", b"b"]
