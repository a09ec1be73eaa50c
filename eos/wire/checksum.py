"""crc32c: of the bytes on the wire, and as the project's checksum of what was written.

A partition's checksum is the sum modulo 2^64 over its entries of ``entry_checksum``. An entry is
what the broker stores for one batch, so any reader that sees entries can compute it again, and
the order in which a partition's entries arrived does not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import google_crc32c
import pyarrow as pa

CHECKSUM_MODULUS: Final = 2**64

if google_crc32c.implementation != "c":
    logging.getLogger(__name__).warning(
        "google-crc32c runs without its C extension: checksums will take most of the time of a "
        "write. Install a wheel of google-crc32c for this platform."
    )


def crc32c(data: bytes | memoryview | pa.Buffer, seed: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``; ``seed`` is the crc of what went before it.

    Nothing is copied. The library takes only objects whose buffer needs no release, which leaves
    out memoryviews, but an Arrow buffer around one is such an object.

    Raises:
        ValueError: ``data`` is a memoryview with gaps (it is not contiguous).
    """
    if isinstance(data, memoryview):
        data = pa.py_buffer(_contiguous(data))
    crc: int = google_crc32c.extend(seed, data)
    return crc


def _contiguous(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise ValueError("crc32c needs contiguous bytes.")
    return view


def entry_checksum(
    values: bytes | memoryview | pa.Buffer, keys: bytes | memoryview | pa.Buffer
) -> int:
    """crc32c over an entry's values one after the other, then its keys (both joined by nothing).

    A message without a key adds nothing; a binary key counts as the base64 text that readers see.
    """
    return crc32c(keys, crc32c(values))


def partition_checksum(entries: Iterable[int]) -> int:
    """The checksum of a partition from those of its entries."""
    return sum(entries) % CHECKSUM_MODULUS
