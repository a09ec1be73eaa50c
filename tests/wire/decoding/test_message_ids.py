"""A column of message ids, compared with the decoder of single ids."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.wire.commands import MessageIdData
from eos.wire.decoding import decode_message_ids

_long = st.integers(0, 2**63 - 1)
_int = st.integers(-1, 2**31 - 1)
ids = st.builds(
    MessageIdData,
    ledger=_long,
    entry=_long,
    partition=_int,
    batch_index=_int,
    ack_set=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple),
    batch_size=st.integers(0, 2**31 - 1),
)


@given(st.lists(ids, max_size=20))
def test_a_column_of_ids_is_decoded_like_each_id(given: list[MessageIdData]):
    found = decode_message_ids(pa.array([one.encode() for one in given], pa.binary()))
    assert list(
        zip(found.ledger, found.entry, found.partition, found.batch_index, strict=True)
    ) == [(one.ledger, one.entry, one.partition, one.batch_index) for one in given]


@pytest.mark.parametrize(
    "bytes_",
    [
        None,
        b"",
        b"\x08\x01",  # no entry
        b"\x10\x01",  # no ledger
        b"\x08\x01\x10",  # a tag without its number
        b"\x08\x01\x10\x80",  # a number without its end
        b"\x08\x01\x10\x80" + b"\x80" * 12,
        b"\x08\x01\x10\x01\x3a\x02\x08\x01",  # field 7: the first chunk's id
        b"\x08\x01\x10\x01" + b"\x28\x01" * 100,
        b"\x08" + b"\xff" * 9 + b"\x01\x10\x01",  # -1
    ],
)
@pytest.mark.parametrize("neighbours", [0, 2])
def test_an_invalid_id_is_refused(bytes_: bytes | None, neighbours: int):
    good = [MessageIdData(ledger=1, entry=2).encode()] * neighbours
    with pytest.raises(ValueError, match="not a message id"):
        decode_message_ids(pa.array([*good, bytes_, *good], pa.binary()))


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_arbitrary_bytes_are_ids_or_refused(given: list[bytes]):
    try:
        found = decode_message_ids(pa.array(given, pa.binary()))
    except ValueError:
        return
    assert len(found.ledger) == len(given)
    assert (found.ledger >= 0).all()
