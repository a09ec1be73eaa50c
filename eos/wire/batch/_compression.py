"""Compression of batch payloads, as MessageMetadata names it.

The codecs are those that every Pulsar client reads: raw LZ4 blocks, zlib's own format, one ZSTD
frame, raw Snappy blocks. Source: ``CompressionType`` in PulsarApi.proto; what the Java client's
codecs write.
"""

from __future__ import annotations

import secrets
import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Final, Literal

import pyarrow as pa

from eos.errors import ConfigurationError, ProtocolError

MAX_UNCOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""More than any writer puts in an entry (ours: 64 MiB): we allocate by what an entry says, and a
few KB may say it. What is made of it fits in 512 MiB."""


class Compression(IntEnum):
    """How a payload is compressed; the numbers are the protocol's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


Auto = Literal["auto"]
AUTO: Final[Auto] = "auto"
"""LZ4 where it pays: see ``compress``."""

_TRIED_BYTES: Final = 4096
_WORTH: Final = 0.75

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MAX_VARINT_BYTES: Final = 10
_LZ4_MATCH_BYTES: Final = 4
_LZ4_SEAL: Final = secrets.token_bytes(13)
_LZ4_TRAILER: Final = b"\x01\x00" + bytes([len(_LZ4_SEAL) << 4]) + _LZ4_SEAL

_CODECS: Final = {
    Compression.LZ4: "lz4_raw",
    Compression.ZSTD: "zstd",
    Compression.SNAPPY: "snappy",
}


def parse_compression(name: str) -> Compression | Auto:
    """``auto``, ``none``, ``lz4``, ``zlib``, ``zstd`` or ``snappy``.

    Raises:
        ConfigurationError: it is none of these, or pyarrow was built without it.
    """
    if name.lower() == AUTO:
        return AUTO
    try:
        found = Compression[name.upper()]
    except KeyError:
        known = ", ".join((AUTO, *(one.name.lower() for one in Compression)))
        raise ConfigurationError(f"there is no compression {name!r}; use {known}.") from None
    if found in _CODECS and not pa.Codec.is_available(_CODECS[found]):
        raise ConfigurationError(f"this build of pyarrow has no {name}.")
    return found


def compress(
    payload: memoryview, compression: Compression | Auto
) -> tuple[memoryview, Compression]:
    """``payload`` at the library's default level, and how it is compressed: not at all, when that
    would not make it smaller. Other threads run meanwhile.

    ``AUTO`` tries LZ4 with the first bytes, and takes it when a quarter of them would go: for less
    it costs more than it saves.
    """
    if compression == AUTO:
        compression = Compression.LZ4 if _pays(payload[:_TRIED_BYTES]) else Compression.NONE
    if compression is Compression.NONE:
        return payload, compression
    if compression is Compression.ZLIB:
        smaller = memoryview(zlib.compress(payload))
    else:
        smaller = memoryview(_codec(compression).compress(pa.py_buffer(payload))).cast("B")
    if len(smaller) >= len(payload):
        return payload, Compression.NONE
    return smaller, compression


def _pays(start: memoryview) -> bool:
    smaller = _codec(Compression.LZ4).compress(pa.py_buffer(start))
    return len(smaller) < _WORTH * len(start)


def decompress(payload: bytes, compression: int, uncompressed_bytes: int) -> bytes:
    """What ``payload`` was before; ``compression`` and the length are as an entry's metadata says.

    Raises:
        ProtocolError: the codec is not known, the payload is malformed, or the length is wrong.
    """
    if compression == Compression.NONE:
        return payload
    if compression not in set(Compression):
        raise ProtocolError(f"An entry with compression {compression}.")
    if not 0 <= uncompressed_bytes <= MAX_UNCOMPRESSED_BYTES:
        raise ProtocolError(f"An entry of {uncompressed_bytes} bytes, uncompressed.")
    data = _DECOMPRESS[Compression(compression)](payload, uncompressed_bytes)
    if data is None:
        name = Compression(compression).name
        raise ProtocolError(f"An entry that is not {uncompressed_bytes} bytes of {name}.")
    return data


def _inflate(payload: bytes, size: int) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, size + 1)
    except zlib.error:
        return None
    return data if len(data) == size and inflater.eof else None


def _unsnap(payload: bytes, size: int) -> bytes | None:
    # It says its length itself, in a varint, and the codec holds it to that.
    length = 0
    for index, byte in enumerate(payload[:_MAX_VARINT_BYTES]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return _decode(Compression.SNAPPY, payload, size) if length == size else None
    return None


def _unzstd(payload: bytes, size: int) -> bytes | None:
    if _content_size(payload) == size:
        return _decode(Compression.ZSTD, payload, size)
    return _decode_twice(Compression.ZSTD, payload, size)


def _content_size(frame: bytes) -> int | None:
    """How much is in a ZSTD frame, as its header says; the codec holds it to that (RFC 8878)."""
    if len(frame) < len(_ZSTD_MAGIC) + 1 or not frame.startswith(_ZSTD_MAGIC):
        return None
    descriptor = frame[4]
    is_single_segment = descriptor >> 5 & 1
    at = 5 + (1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    width = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    size = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    return size if width and len(frame) >= at + width else None


def _unlz4(payload: bytes, size: int) -> bytes | None:
    # A block says no length. It ends with literals, behind which a match would stand: so one is
    # added, of the last byte, and literals that nobody can foresee; where they come out tells how
    # much there was before.
    if size:
        behind = size + _LZ4_MATCH_BYTES
        data = _decode(Compression.LZ4, payload + _LZ4_TRAILER, behind + len(_LZ4_SEAL))
        if data is not None and data.endswith(_LZ4_SEAL):
            return data[:size]
    return _decode_twice(Compression.LZ4, payload, size)


def _decode_twice(compression: Compression, payload: bytes, size: int) -> bytes | None:
    # Arrow does not say how much the codec wrote: behind a shorter result stands what was in memory
    # before. A longest one does not fit in less.
    if size and _decode(compression, payload, size - 1) is not None:
        return None
    return _decode(compression, payload, size)


def _decode(compression: Compression, payload: bytes, size: int) -> bytes | None:
    try:
        return bytes(_codec(compression).decompress(payload, decompressed_size=size, asbytes=True))
    except (OSError, ValueError):  # Arrow's own errors are such
        return None


_DECOMPRESS: Final = {
    Compression.ZLIB: _inflate,
    Compression.SNAPPY: _unsnap,
    Compression.ZSTD: _unzstd,
    Compression.LZ4: _unlz4,
}


@lru_cache
def _codec(compression: Compression) -> pa.Codec:
    return pa.Codec(_CODECS[compression])
