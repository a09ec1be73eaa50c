"""Objects of offloaded ledgers: any cut into pieces, and bytes that nobody wrote.

That real ones are read right is in tests/sources/test_tiered.py; these are made by this test.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire.offloaded import DataParser, LedgerIndex

OWNER = b"public/default/persistent/t"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def blob(tag: int, data: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(data)) + data


def objects(blocks: list[list[bytes]], padding: int) -> tuple[bytes, bytes]:
    """The index and the data of a ledger with these entries; ``padding`` ends all but the last."""
    data, places, number = b"", [], 0
    for index, entries in enumerate(blocks):
        places.append((number, index + 1, len(data)))
        body = b""
        for entry in entries:
            body += struct.pack(">iq", len(entry), number) + entry
            number += 1
        if index < len(blocks) - 1:
            body += (b"\xfe\xdc\xde\xad" * padding)[:padding]
        header = struct.pack(">Iqqq", 0xFBDBABCB, 128, 128 + len(body), places[-1][0])
        data += header + bytes(128 - len(header)) + body
    named = blob(1, b"pulsar/managed-ledger") + blob(2, OWNER)
    metadata = b"\x18\x07" + b"\x20" + varint(number - 1) + b"\x28\x03" + blob(11, named)
    size = 32 + len(metadata) + 20 * len(places)
    head = struct.pack(">IiqqiI", 0xDE47DE47, size, len(data), 128, len(places), len(metadata))
    return head + metadata + b"".join(struct.pack(">qiq", *one) for one in places), data


LEDGERS = st.tuples(
    st.lists(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6), min_size=1,
             max_size=4),
    st.integers(0, 30),
)  # fmt: skip


def parsed(index: bytes, data: bytes, first: int, sizes: list[int]) -> dict[int, bytes]:
    """The entries from the block of ``first`` on, from pieces of these sizes, in turn."""
    found, parser, rest = {}, DataParser(LedgerIndex.parse(index), first), b""
    at, turn = parser.offset, 0
    while at < len(data):
        piece = data[at : at + sizes[turn % len(sizes)]]
        at, turn, whole, begin = at + len(piece), turn + 1, rest + piece, parser.offset
        for one in parser.parse(memoryview(whole)):
            found[one.number] = whole[one.start : one.end]
        rest = whole[parser.offset - begin :]
    return found


@given(LEDGERS, st.lists(st.integers(1, 300), min_size=1, max_size=5), st.data())
def test_entries_do_not_depend_on_the_pieces(ledger, sizes, data):
    blocks, padding = ledger
    index, body = objects(blocks, padding)
    entries = [entry for block in blocks for entry in block]
    known = LedgerIndex.parse(index)
    assert (known.owner, known.entries, known.data_bytes) == (
        OWNER.decode(),
        len(entries),
        len(body),
    )
    first = data.draw(st.integers(0, len(entries) - 1))
    begin = known.blocks[known.block_of(first)][0]
    assert begin <= first
    assert parsed(index, body, first, sizes) == dict(enumerate(entries[begin:], begin))


@settings(max_examples=300)
@given(LEDGERS, st.data())
def test_changed_bytes_give_right_entries_or_an_error(ledger, data):
    index, body = objects(*ledger)
    changed = bytearray(index + body)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(changed)))
    try:
        found = parsed(bytes(changed[: len(index)]), bytes(changed[len(index) : cut]), 0, [100])
    except ProtocolError:
        return
    assert all(number == place for place, number in enumerate(found))


def flooded(index: bytes, size: int) -> bytes:
    """With another field in its metadata; millions of tiny ones would take a minute."""
    rest = blob(99, bytes(size))
    count = struct.unpack_from(">I", index, 28)[0] + len(rest)
    return index[:28] + struct.pack(">I", count) + index[32:-20] + rest + index[-20:]


def test_an_index_has_metadata_of_a_long_lived_ledger():
    index, _ = objects([[b"one"]], 0)
    assert LedgerIndex.parse(flooded(index, 1 << 19)) == LedgerIndex.parse(index)


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index[:20],
        lambda index: b"\x3d\x1f\xb0\xbc" + index[4:],  # version 2: several ledgers in an object
        lambda index: index[:24] + struct.pack(">i", -1) + index[28:],
        lambda index: index[:24] + struct.pack(">i", 2**31 - 1) + index[28:],
        lambda index: index[:-20] + struct.pack(">qiq", 1, 1, 0),
        lambda index: flooded(index, 1 << 20),
    ],
)
def test_another_index_is_refused(change):
    index, _ = objects([[b"one", b"two"]], 0)
    LedgerIndex.parse(index)
    with pytest.raises(ProtocolError):
        LedgerIndex.parse(change(index))
