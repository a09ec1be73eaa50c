"""Compression of batch payloads, as MessageMetadata names it.

The codecs are those that every Pulsar client reads: raw LZ4 blocks, zlib's own format, one ZSTD
frame, raw Snappy blocks. Source: ``CompressionType`` in PulsarApi.proto; what the Java client's
codecs write.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Final

import pyarrow as pa

from eos.errors import ConfigurationError


class Compression(IntEnum):
    """How a payload is compressed; the numbers are the protocol's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4

    @classmethod
    def parse(cls, name: str) -> Compression:
        """``none``, ``lz4``, ``zlib``, ``zstd`` or ``snappy``.

        Raises:
            ConfigurationError: it is none of these, or pyarrow was built without it.
        """
        try:
            found = cls[name.upper()]
        except KeyError:
            known = ", ".join(one.name.lower() for one in cls)
            raise ConfigurationError(f"there is no compression {name!r}; use {known}.") from None
        if found in _CODECS and not pa.Codec.is_available(_CODECS[found]):
            raise ConfigurationError(f"this build of pyarrow has no {name}.")
        return found


_CODECS: Final = {
    Compression.LZ4: "lz4_raw",
    Compression.ZSTD: "zstd",
    Compression.SNAPPY: "snappy",
}


def compress(payload: memoryview, compression: Compression) -> tuple[memoryview, Compression]:
    """``payload`` at the library's default level, and how it is compressed: not at all, when that
    would not make it smaller. Other threads run meanwhile."""
    if compression is Compression.NONE:
        return payload, compression
    if compression is Compression.ZLIB:
        smaller = memoryview(zlib.compress(payload))
    else:
        smaller = memoryview(_codec(compression).compress(pa.py_buffer(payload))).cast("B")
    if len(smaller) >= len(payload):
        return payload, Compression.NONE
    return smaller, compression


@lru_cache
def _codec(compression: Compression) -> pa.Codec:
    return pa.Codec(_CODECS[compression])
