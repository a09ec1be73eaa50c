"""Decodes entries to Arrow: the messages of a whole receive buffer become columns at once."""

from eos.wire.decoding._entry_decoder import (
    COLUMNS,
    DecodedEntries,
    DeliveredEntry,
    checked_columns,
    decode_entries,
)
from eos.wire.decoding._message_columns import from_base64, gather
from eos.wire.decoding._message_headers import PADDING_BYTES, Irregular, Spans
from eos.wire.decoding._topic_decoder import Decode, TopicDecoder
from eos.wire.decoding._varints import (
    WORD_BYTES,
    MessageIds,
    decode_long_varints,
    decode_message_ids,
    words_of,
)

__all__ = [
    "COLUMNS",
    "PADDING_BYTES",
    "WORD_BYTES",
    "Decode",
    "DecodedEntries",
    "DeliveredEntry",
    "Irregular",
    "MessageIds",
    "Spans",
    "TopicDecoder",
    "checked_columns",
    "decode_entries",
    "decode_long_varints",
    "decode_message_ids",
    "from_base64",
    "gather",
    "words_of",
]
