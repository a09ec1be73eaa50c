"""Text and binary keys in one column."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.errors import InputError
from eos.wire.batch import Rows, decode_batch, encode_batches, partitions_for_keys, text_keys

KEYS = st.none() | st.text(max_size=6).map(str.encode) | st.binary(max_size=6)


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=30), st.booleans())
def test_text_and_binary_keys_are_read_as_such(given_keys, by_key) -> None:
    """Also if the text of one key equals the base64 of another one's bytes."""
    keys: list[bytes | None] = []
    for key, _ in given_keys:
        keys += [key, b"a2V5"] if key is not None else [None, b"key"]
    kinds = [flag for _, flag in given_keys for flag in (flag, not flag)]
    kinds = [
        flag or (key is not None and not is_text(key))
        for key, flag in zip(keys, kinds, strict=True)
    ]
    text, is_base64 = text_keys(pa.array(keys, pa.binary()), pa.array(kinds, pa.bool_()))
    numbers = pa.array([b"%d" % n for n in range(len(keys))], pa.binary())
    rows = Rows(value=numbers, key=text, key_is_base64=is_base64)
    found = {}
    for batch in encode_batches(rows, by_key=by_key):
        messages = decode_batch(batch.payload, batch.num_messages)
        found |= {int(message.value or b""): message for message in messages}
        if by_key:
            assert len({(message.key, message.key_is_binary) for message in messages}) == 1
    for number, (key, is_binary) in enumerate(zip(keys, kinds, strict=True)):
        wanted = key if key is None or is_binary else key.decode()
        assert found[number].key == wanted
        assert found[number].key_is_binary is (None if key is None else is_binary)
    alike = [pa.array([key], pa.binary() if is_binary else pa.string())
             for key, is_binary in zip(keys, kinds, strict=True)]  # fmt: skip
    one_by_one = [int(partitions_for_keys(one, 7)[0]) for one in alike]
    assert partitions_for_keys(text, 7).tolist() == one_by_one


def is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_an_invalid_key_is_refused_with_its_row() -> None:
    with pytest.raises(InputError, match="'key' has text that is not UTF-8 in row 1"):
        text_keys(pa.array([b"\xff", b"\xff"]), pa.array([True, False]))
    with pytest.raises(InputError, match="'__keyIsBinary' is null in row 1, which has a key"):
        text_keys(pa.array([None, b"k"]), pa.array([None, None], pa.bool_()))
