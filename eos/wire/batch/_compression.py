"""Compresses and decompresses batch payloads.

The formats are those of all Pulsar clients: raw LZ4 blocks, zlib's own format, one ZSTD frame, raw
Snappy blocks. Source: ``CompressionType`` in PulsarApi.proto; the output of the Java client's
codecs.
"""

from __future__ import annotations

import secrets
import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Final, Literal

import pyarrow as pa

from eos.errors import ConfigurationError, ProtocolError

# The largest uncompressed size that an entry may claim, because memory is allocated by it. It is
# more than any client writes in an entry (eos: 64 MiB), and decoding it fits in 512 MiB.
MAX_UNCOMPRESSED_BYTES: Final = 128 * 1024 * 1024


class Compression(IntEnum):
    """The compression of a payload; numbers of ``CompressionType``."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


Auto = Literal["auto"]
AUTO: Final[Auto] = "auto"  # LZ4 for compressible payloads: see ``compress``

_SAMPLE_BYTES: Final = 4096
_MAX_RATIO: Final = 0.75  # saving less costs more than it gains

_ZLIB_FLUSHED: Final = b"\x00\x00\xff\xff"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MAX_VARINT_BYTES: Final = 10
_LZ4_MATCH_BYTES: Final = 4
_LZ4_MARKER: Final = secrets.token_bytes(13)
_LZ4_TRAILER: Final = b"\x01\x00" + bytes([len(_LZ4_MARKER) << 4]) + _LZ4_MARKER

_CODECS: Final = {
    Compression.LZ4: "lz4_raw",
    Compression.ZSTD: "zstd",
    Compression.SNAPPY: "snappy",
}


def parse_compression(name: str) -> Compression | Auto:
    """Return the compression called ``auto``, ``none``, ``lz4``, ``zlib``, ``zstd`` or ``snappy``.

    Raises:
        ConfigurationError: the name is unknown, or pyarrow was built without it.
    """
    if name.lower() == AUTO:
        return AUTO
    try:
        found = Compression[name.upper()]
    except KeyError:
        known = ", ".join((AUTO, *(one.name.lower() for one in Compression)))
        raise ConfigurationError(
            f"Compression {name!r} does not exist.", hint=f"Use one of {known}."
        ) from None
    if found in _CODECS and not pa.Codec.is_available(_CODECS[found]):
        raise ConfigurationError(f"This build of pyarrow does not support {name}.")
    return found


def compress(
    payload: memoryview, compression: Compression | Auto
) -> tuple[memoryview, Compression]:
    """Return ``payload`` compressed at the library's default level, and the compression; unchanged
    if that would not make it smaller. Other threads run meanwhile.

    ``AUTO`` compresses the first bytes with LZ4, and uses it if that saves a quarter of them.
    """
    if compression == AUTO:
        compression = (
            Compression.LZ4 if _is_compressible(payload[:_SAMPLE_BYTES]) else Compression.NONE
        )
    if compression is Compression.NONE:
        return payload, compression
    if compression is Compression.ZLIB:
        smaller = memoryview(zlib.compress(payload))
    else:
        smaller = memoryview(_codec(compression).compress(pa.py_buffer(payload))).cast("B")
    if len(smaller) >= len(payload):
        return payload, Compression.NONE
    return smaller, compression


def _is_compressible(start: memoryview) -> bool:
    smaller = _codec(Compression.LZ4).compress(pa.py_buffer(start))
    return len(smaller) < _MAX_RATIO * len(start)


def decompress(payload: bytes, compression: int, uncompressed_bytes: int) -> bytes:
    """Return the uncompressed ``payload``; compression and size are from the entry's metadata.

    Raises:
        ProtocolError: the codec is unknown, the payload is malformed, or the size is wrong.
    """
    if compression == Compression.NONE:
        return payload
    if compression not in set(Compression):
        raise ProtocolError(f"An entry has an unknown compression: {compression}.")
    # The specification: "If compression is used, the producer must fill the uncompressed size field
    # with the original payload size." Memory is allocated by this size, so it is limited.
    if not 0 <= uncompressed_bytes <= MAX_UNCOMPRESSED_BYTES:
        raise ProtocolError(f"An entry claims an uncompressed size of {uncompressed_bytes} bytes.")
    data = _DECOMPRESS[Compression(compression)](payload, uncompressed_bytes)
    if data is None:
        name = Compression(compression).name
        raise ProtocolError(f"An entry is not {uncompressed_bytes} bytes compressed by {name}.")
    return data


def _decompress_zlib(payload: bytes, size: int) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, size + 1)
    except zlib.error:
        return None
    # The Java client's streams have no end, they are only flushed (measured, 4.2.4).
    is_whole = inflater.eof or payload.endswith(_ZLIB_FLUSHED)
    return data if len(data) == size and is_whole else None


def _decompress_snappy(payload: bytes, size: int) -> bytes | None:
    # A Snappy block begins with its uncompressed size, a varint, which the codec enforces.
    length = 0
    for index, byte in enumerate(payload[:_MAX_VARINT_BYTES]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return _decode(Compression.SNAPPY, payload, size) if length == size else None
    return None


def _decompress_zstd(payload: bytes, size: int) -> bytes | None:
    if _content_size(payload) == size:
        return _decode(Compression.ZSTD, payload, size)
    return _decode_twice(Compression.ZSTD, payload, size)


def _content_size(frame: bytes) -> int | None:
    """Return the content size in a ZSTD frame's header (RFC 8878), which the codec enforces."""
    if len(frame) < len(_ZSTD_MAGIC) + 1 or not frame.startswith(_ZSTD_MAGIC):
        return None
    descriptor = frame[4]
    is_single_segment = descriptor >> 5 & 1
    at = 5 + (1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    width = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    size = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    return size if width and len(frame) >= at + width else None


def _decompress_lz4(payload: bytes, size: int) -> bytes | None:
    # An LZ4 block does not contain its uncompressed size. It ends with literals, which a match may
    # follow: so a match of the last byte and random literals, a marker, are appended. The marker's
    # position in the output proves the size.
    if size:
        marker_at = size + _LZ4_MATCH_BYTES
        data = _decode(Compression.LZ4, payload + _LZ4_TRAILER, marker_at + len(_LZ4_MARKER))
        if data is not None and data.endswith(_LZ4_MARKER):
            return data[:size]
    return _decode_twice(Compression.LZ4, payload, size)


def _decode_twice(compression: Compression, payload: bytes, size: int) -> bytes | None:
    # Arrow does not report the size of the result: after a shorter one its buffer has arbitrary
    # memory. But a result of the full size does not fit in a smaller buffer.
    if size and _decode(compression, payload, size - 1) is not None:
        return None
    return _decode(compression, payload, size)


def _decode(compression: Compression, payload: bytes, size: int) -> bytes | None:
    try:
        return bytes(_codec(compression).decompress(payload, decompressed_size=size, asbytes=True))
    except (OSError, ValueError):  # the bases of Arrow's errors
        return None


_DECOMPRESS: Final = {
    Compression.ZLIB: _decompress_zlib,
    Compression.SNAPPY: _decompress_snappy,
    Compression.ZSTD: _decompress_zstd,
    Compression.LZ4: _decompress_lz4,
}


@lru_cache
def _codec(compression: Compression) -> pa.Codec:
    return pa.Codec(_CODECS[compression])
