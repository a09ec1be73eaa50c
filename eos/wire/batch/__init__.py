"""Encodes rows to entries, by partition and batch, and decodes entries one message at a time."""

from eos.wire.batch._batch_encoder import EncodedBatch, encode_batches
from eos.wire.batch._batch_reader import (
    MIN_MESSAGE_BYTES,
    DecodedMessage,
    check_count,
    check_end,
    decode_batch,
    iter_batch,
    message_end,
)
from eos.wire.batch._batch_rows import Message, Rows, rows_from_messages
from eos.wire.batch._compression import (
    AUTO,
    MAX_UNCOMPRESSED_BYTES,
    Auto,
    Compression,
    decompress,
    parse_compression,
)
from eos.wire.batch._entry import Entry, object_bytes
from eos.wire.batch._message_keys import StickyKey, longest_key_bytes, text_keys
from eos.wire.batch._routing import (
    Hashing,
    PartitionSlice,
    by_partition,
    key_slices,
    override_partitions,
    partitions_for_keys,
)
from eos.wire.batch._row_checks import check_rows, check_texts

__all__ = [
    "AUTO",
    "MAX_UNCOMPRESSED_BYTES",
    "MIN_MESSAGE_BYTES",
    "Auto",
    "Compression",
    "DecodedMessage",
    "EncodedBatch",
    "Entry",
    "Hashing",
    "Message",
    "PartitionSlice",
    "Rows",
    "StickyKey",
    "by_partition",
    "check_count",
    "check_end",
    "check_rows",
    "check_texts",
    "decode_batch",
    "decompress",
    "encode_batches",
    "iter_batch",
    "key_slices",
    "longest_key_bytes",
    "message_end",
    "object_bytes",
    "override_partitions",
    "parse_compression",
    "partitions_for_keys",
    "rows_from_messages",
    "text_keys",
]
