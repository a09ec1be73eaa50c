"""Entries -> Arrow: the messages of a whole receive buffer become columns in one go."""

from eos.wire.decoding._decoder import (
    COLUMNS,
    DecodedEntries,
    DeliveredEntry,
    checked_columns,
    decode_entries,
)
from eos.wire.decoding._heads import PADDING_BYTES

__all__ = [
    "COLUMNS",
    "PADDING_BYTES",
    "DecodedEntries",
    "DeliveredEntry",
    "checked_columns",
    "decode_entries",
]
