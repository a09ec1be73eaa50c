"""Murmur3 (32 bits, seed 0) of many keys at once.

Source: Austin Appleby's MurmurHash3_x86_32, as in ``Murmur3Hash32`` of Pulsar's Java client.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eos.wire.binary_columns import BinaryColumn, Int64s

UInt32s = npt.NDArray[np.uint32]

_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_FEW: Final = 8
"""So many of the longest keys are hashed one by one in the end: each block of a key depends on the
one before it, so only different keys can be vectorized."""


def murmur3(keys: BinaryColumn) -> UInt32s:
    """Return the hash of each key's bytes."""
    data = np.frombuffer(keys.data, np.uint8)
    lengths, starts = keys.lengths, keys.offsets[:-1]
    blocks = lengths >> 2
    hashes = np.zeros(len(keys), np.uint32)
    order = np.argsort(-blocks, kind="stable")  # keys that still have blocks come first
    alone = min(_FEW, len(order))
    together = int(blocks[order[alone]]) if len(order) > alone else 0
    sorted_blocks = blocks[order]
    for block in range(together):
        active = order[: int(np.searchsorted(-sorted_blocks, -block, side="left"))]
        hashes[active] = _mix(hashes[active], _words(data, starts[active] + 4 * block))
    for key in order[:alone]:
        rest = data[starts[key] + 4 * together : starts[key] + 4 * blocks[key]]
        hashes[key] = _mix_one(int(hashes[key]), rest.view("<u4").tolist())
    hashes ^= _scrambled(_tails(data, starts + 4 * blocks, lengths & 3))
    return _finished(hashes ^ lengths.astype(np.uint32))


def _words(data: npt.NDArray[np.uint8], at: Int64s) -> UInt32s:
    """Return four bytes at each position as a number, little endian."""
    words = data[at].astype(np.uint32)
    for byte in range(1, 4):
        words |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def _tails(data: npt.NDArray[np.uint8], at: Int64s, lengths: Int64s) -> UInt32s:
    """Return the 0 to 3 bytes after the last whole word of each key."""
    tails = np.zeros(len(at), np.uint32)
    for byte in range(3):
        has = lengths > byte
        tails[has] |= data[at[has] + byte].astype(np.uint32) << np.uint32(8 * byte)
    return tails


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    rotated: UInt32s = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated


def _scrambled(words: UInt32s) -> UInt32s:
    scrambled: UInt32s = _rotated(words * np.uint32(_C1), 15) * np.uint32(_C2)
    return scrambled


def _mix(hashes: UInt32s, words: UInt32s) -> UInt32s:
    mixed: UInt32s = _rotated(hashes ^ _scrambled(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _mix_one(start: int, words: list[int]) -> int:
    """Mix the words of a single key; with Python's integers, which are faster here than numpy."""
    mixed, mask = start, 0xFFFFFFFF
    for word in words:
        scrambled = word * _C1 & mask
        scrambled = (scrambled << 15 | scrambled >> 17) * _C2 & mask
        mixed ^= scrambled
        mixed = ((mixed << 13 | mixed >> 19) & mask) * 5 + 0xE6546B64 & mask
    return mixed


def _finished(hashes: UInt32s) -> UInt32s:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes
