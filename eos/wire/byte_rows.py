"""Builds short byte strings for n rows at once, field by field, including protobuf's varints."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.wire.binary_columns import BinaryColumn, Int64s, Mask

Bytes = npt.NDArray[np.uint8]


def varint_widths(values: Int64s) -> Int64s:
    """Return the number of bytes of each value as a varint: 1 to 10 (negative values take 10)."""
    unsigned = values.astype(np.uint64, copy=False)
    widths = np.ones(len(values), np.int64)
    largest = int(unsigned.max(initial=0))
    for bits in range(7, largest.bit_length(), 7):
        widths += unsigned >= np.uint64(1 << bits)
    return widths


class ByteRows:
    """n short rows of bytes; each call appends a field to all rows, or to those of ``where``."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Usually every row gets the same number of bytes; then no mask is kept.
        self._blocks: list[tuple[Bytes, Mask | None]] = []

    def byte(self, value: int, where: Mask | None = None) -> None:
        """Append one byte, such as a field's tag."""
        self.fixed(np.full((self._count, 1), value, np.uint8), where)

    def uint32(self, values: Int64s) -> None:
        """Append four bytes, big endian."""
        self.fixed(values.astype(">u4").view(np.uint8).reshape(self._count, 4))

    def fixed(self, block: Bytes, where: Mask | None = None) -> None:
        """Append the same number of bytes to each row: row i of ``block``, which has n rows."""
        mask = None if where is None else np.broadcast_to(where[:, None], block.shape)
        self._blocks.append((block, mask))

    def ragged(self, block: Bytes, present: npt.NDArray[np.bool_]) -> None:
        """Append to row i the bytes of ``block[i]`` for which ``present[i]`` is true."""
        self._blocks.append((block, present))

    def varint(self, values: Int64s, where: Mask | None = None) -> None:
        """Append a varint; a negative value is written as value + 2^64, as in protobuf."""
        if where is not None:
            values = np.where(where, values, 0)  # a longer one would have bytes in other rows, too
        unsigned = values.astype(np.uint64, copy=False)
        least, most = int(unsigned.min(initial=2**64 - 1)), int(unsigned.max(initial=0))
        width = max(1, -(-most.bit_length() // 7))
        uniform = -(-least.bit_length() // 7) == width or width == 1
        if uniform and where is None:
            self._blocks.append((_uniform_varint(unsigned, width), None))
        else:
            self._blocks.append(_ragged_varint(unsigned, width, where))

    def extend(self, other: ByteRows) -> None:
        """Append all fields of ``other``."""
        self._blocks += other._blocks

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been appended."""
        return not self._blocks

    @property
    def lengths(self) -> Int64s:
        """The rows' lengths in bytes."""
        lengths = np.zeros(self._count, np.int64)
        for block, mask in self._blocks:
            if mask is None:
                lengths += block.shape[1]
            else:
                for column in mask.T:
                    lengths += column
        return lengths

    def array(self) -> pa.BinaryArray:
        """Return the rows as an Arrow array."""
        matrix = np.concatenate([block for block, _ in self._blocks], axis=1)
        offsets = np.zeros(self._count + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        # Contiguous row by row: from broadcast blocks numpy makes a matrix in column order.
        is_uniform = all(mask is None for _, mask in self._blocks)
        data = np.ascontiguousarray(matrix) if is_uniform else matrix[self._present()]
        return BinaryColumn(offsets, pa.py_buffer(data)).array()

    def _present(self) -> Mask:
        masks = [
            np.broadcast_to(np.bool_(True), block.shape) if mask is None else mask
            for block, mask in self._blocks
        ]
        return np.concatenate(masks, axis=1)


def _uniform_varint(values: npt.NDArray[np.uint64], width: int) -> Bytes:
    block = np.empty((len(values), width), np.uint8)
    for index in range(width):
        block[:, index] = values >> np.uint64(7 * index)  # the cast keeps the low eight bits
    block[:, :-1] |= 0x80
    block[:, -1] &= 0x7F
    return block


def _ragged_varint(
    values: npt.NDArray[np.uint64], width: int, where: Mask | None
) -> tuple[Bytes, Mask]:
    block = np.empty((len(values), width), np.uint8)
    present = np.empty((len(values), width + 1), np.bool_)
    present[:, 0] = True if where is None else where
    for index in range(width):
        present[:, index + 1] = values >= np.uint64(1 << 7 * (index + 1)) if index < 9 else False
        block[:, index] = values >> np.uint64(7 * index)
        block[:, index] &= 0x7F
        block[:, index] |= present[:, index + 1].view(np.uint8) << 7
    return block, present[:, :width]
