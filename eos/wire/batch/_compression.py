"""Compression of batch payloads, as MessageMetadata names it.

The codecs are those that every Pulsar client reads: raw LZ4 blocks, zlib's own format, one ZSTD
frame, raw Snappy blocks. Source: ``CompressionType`` in PulsarApi.proto; what the Java client's
codecs write.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Final, Literal

import pyarrow as pa

from eos.errors import ConfigurationError, ProtocolError

MAX_UNCOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""More than any writer puts in an entry (ours: 64 MiB): we allocate by what an entry says."""


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
    if compression == Compression.ZLIB:
        data = _inflate(payload, uncompressed_bytes)
    else:
        data = _decode(_codec(Compression(compression)), payload, uncompressed_bytes)
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


def _decode(codec: pa.Codec, payload: bytes, size: int) -> bytes | None:
    try:
        data = codec.decompress(payload, decompressed_size=size, asbytes=True)
    except (OSError, ValueError):  # Arrow's own errors are such
        return None
    if size == 0:
        return bytes(data)
    try:
        # Arrow does not say how much the codec wrote: behind a shorter result stands what was in
        # memory before. A longest one does not fit in less.
        codec.decompress(payload, decompressed_size=size - 1, asbytes=True)
    except (OSError, ValueError):
        return bytes(data)
    return None


@lru_cache
def _codec(compression: Compression) -> pa.Codec:
    return pa.Codec(_CODECS[compression])
