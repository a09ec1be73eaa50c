"""CRC-32C: the checksum of frames, and of the data that an epoch has written."""

from __future__ import annotations

import logging
from typing import Final

import google_crc32c
import pyarrow as pa

# The checksum of a partition is the sum of its entries' modulo this: any reader of entries can
# recompute it, and the order in which they arrived does not matter.
CHECKSUM_MODULUS: Final = 2**64

if google_crc32c.implementation != "c":
    logging.getLogger(__name__).warning(
        "google-crc32c runs without its C extension: checksums will take most of the time of a "
        "write. Install a wheel of google-crc32c for this platform."
    )


def crc32c(data: bytes | memoryview | pa.Buffer, seed: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``; ``seed`` is the crc of the bytes before it.

    Raises:
        ValueError: ``data`` is a memoryview that is not contiguous.
    """
    if isinstance(data, memoryview):
        if not data.c_contiguous:
            raise ValueError("crc32c needs contiguous bytes.")
        # Not copied. The library does not accept memoryviews, because their buffers need a release;
        # it accepts an Arrow buffer around one.
        data = pa.py_buffer(data)
    crc: int = google_crc32c.extend(seed, data)
    return crc


def entry_checksum(
    values: bytes | memoryview | pa.Buffer, keys: bytes | memoryview | pa.Buffer
) -> int:
    """Return the crc32c of an entry's concatenated values, followed by its concatenated keys.

    A message without a key adds nothing; a binary key counts as its base64 text on the wire.
    """
    return crc32c(keys, crc32c(values))
