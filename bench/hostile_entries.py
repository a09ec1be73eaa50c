"""Memory for hostile entries: a few KB that decode to many GiB, each case in its own process."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2
from rich.console import Console
from rich.table import Table

from eos.errors import EosError, InputError
from eos.ids import MessageId
from eos.schemas.reading import SchemaVersion, value_reader
from eos.wire.batch import Compression
from eos.wire.commands import MessageMetadata, SchemaInfo, SchemaType
from eos.wire.decoding import COLUMNS, PADDING_BYTES, DeliveredEntry, decode_entries

# Of resident memory. An entry that cannot be decoded within it is refused by an error with its id.
BOUND_MIB: Final = 512

_MIB: Final = 1 << 20
# Almost the limit of an uncompressed entry.
_MOST: Final = 120 * _MIB


class Stored(NamedTuple):
    """A stored entry: its payload, and fields of its metadata."""

    payload: bytes
    fields: dict[str, Any]


class Figures(NamedTuple):
    """The result of a case; ``mib`` is its memory."""

    stored_bytes: int
    rows: int
    mib: float
    seconds: float
    error: str


def message(value: bytes, head: bytes = b"", tail: bytes = b"") -> bytes:
    """Return a message of a batch; ``head`` and ``tail`` are fields around its ``payload_size``."""
    size, left = bytearray(), len(value)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    metadata = b"".join((head, b"\x18", size, bytes([left]), tail))
    return len(metadata).to_bytes(4, "big") + metadata + value


def batch(payload: bytes, count: int, compression: Compression = Compression.ZSTD) -> Stored:
    """Return ``payload`` as an entry whose metadata claims ``count`` messages."""
    size = {"uncompressed_size": len(payload), "compression": int(compression)}
    return Stored(_compressed(payload, compression), {"num_messages_in_batch": count, **size})


def _compressed(payload: bytes, compression: Compression) -> bytes:
    if compression is Compression.ZLIB:
        return zlib.compress(payload)
    name = {Compression.LZ4: "lz4_raw"}.get(compression, compression.name.lower())
    return bytes(pa.Codec(name).compress(payload, asbytes=True))


def _single(value: bytes) -> Stored:
    stored = batch(value, 1)
    return Stored(stored.payload, {**stored.fields, "num_messages_in_batch": None})


_PROPERTY: Final = b"\x0a\x04\x0a\x00\x12\x00"
_EVENT_TIME: Final = b"\x28\x00"
_BAD_KEY: Final = (b"\x12\x03abc", b"\x30\x01")


def _mixed() -> Stored:
    heads = (b"\x12\x01k", b"", _EVENT_TIME)
    some = b"".join(message(b"y" * (n % 50), heads[n % 2]) for n in range(10_000))
    return batch(some * 200, 2_000_000, Compression.LZ4)


# Every producer of a topic can send any of these.
ENTRIES: Final[dict[str, Callable[[], list[Stored]]]] = {
    "zeros, malformed, zstd": lambda: [batch(bytes(_MOST), 5)],
    "zeros, malformed, snappy": lambda: [batch(bytes(_MOST), 5, Compression.SNAPPY)],
    "no bytes, 2^31 - 1 messages": lambda: [batch(b"", 2**31 - 1)] * 1000,
    "one large message each, 3 times": lambda: [batch(message(b"x" * _MOST), 1)] * 3,
    "5 MiB each, 450 times": lambda: [batch(message(b"x" * 5 * _MIB), 1)] * 450,
    "5 MiB each, in no batch, 450 times": lambda: [_single(b"x" * 5 * _MIB)] * 450,
    "2 million empty messages": lambda: [batch(message(b"") * 2_000_000, 2_000_000)],
    "20 million empty messages": lambda: [batch(message(b"") * 20_000_000, 20_000_000)],
    "2 million messages of all kinds": lambda: [_mixed()],
    "a million messages, the last one malformed": lambda: [
        batch(message(b"abc") * 1_000_000 + message(b"", *_BAD_KEY), 1_000_001)
    ],
    "a large message in another order of fields": lambda: [
        batch(message(b"x" * _MOST, _EVENT_TIME), 1, Compression.LZ4)
    ],
    "100,000 properties each": lambda: [batch(message(b"", _PROPERTY * 100_000) * 5, 5)],
    "messages in a message": lambda: [
        batch(message(b"") + message(message(b"") * (_MOST // 6)), 2)
    ],
}


def list_of(items: str) -> SchemaInfo:
    """Return the schema of a record whose only field is a list."""
    field = {"name": "a", "type": {"type": "array", "items": items}}
    definition = {"type": "record", "name": "r", "fields": [field]}
    return SchemaInfo(type=SchemaType.AVRO, data=json.dumps(definition).encode())


def block_of(count: int, items: bytes) -> bytes:
    """Return a list of one block, in Avro's encoding."""
    zigzag, size = 2 * count, bytearray()
    while zigzag > 0x7F:
        size.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return b"".join((size, bytes([zigzag]), items, b"\0"))


def _messages() -> SchemaInfo:
    """Return the schema of a Protobuf message with a list of messages of ten fields each."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", syntax="proto3")
    outer, inner = file.message_type.add(name="Outer"), file.message_type.add(name="Inner")
    outer.field.add(name="some", number=1, label=3, type=11, type_name=".Inner")
    for number in range(1, 11):
        inner.field.add(name=f"f{number}", number=number, label=1, type=9)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    data = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": "Outer",
        "rootFileDescriptorName": "f.proto",
    }
    return SchemaInfo(type=SchemaType.PROTOBUF_NATIVE, data=json.dumps(data).encode())


VALUES: Final[dict[str, Callable[[], tuple[SchemaInfo, bytes]]]] = {
    "16 million booleans in a value": lambda: (
        list_of("boolean"), block_of(16_000_000, b"\1" * 16_000_000)
    ),
    "16 million numbers in a value": lambda: (
        list_of("long"), block_of(16_000_000, b"\2" * 16_000_000)
    ),
    "4 million texts in a value": lambda: (
        list_of("string"), block_of(4_000_000, b"\2x" * 4_000_000)
    ),
    "30 million booleans in a value": lambda: (
        list_of("boolean"), block_of(30_000_000, b"\1" * 30_000_000)
    ),
    "2 million empty messages in a Protobuf value": lambda: (_messages(), b"\x0a\0" * 2_000_000),
    "2.5 million empty lists in JSON": lambda: (
        SchemaInfo(type=SchemaType.JSON, data=list_of("int").data),
        b'{"a":[' + b"[]," * 2_500_000 + b"[]]}",
    ),
}  # fmt: skip


def _delivered(stored: list[Stored]) -> tuple[np.ndarray[Any, Any], list[DeliveredEntry]]:
    data, entries = bytearray(), []
    for number, one in enumerate(stored):
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **one.fields)
        at = len(data)
        data += one.payload
        parsed = MessageMetadata.parse(metadata.encode())
        entries.append(DeliveredEntry(MessageId(7, number), parsed, at, len(data)))
    return np.frombuffer(bytes(data) + bytes(PADDING_BYTES), np.uint8), entries


def _read_entries(name: str) -> tuple[int, Callable[[], Iterator[int]]]:
    buffer, entries = _delivered(ENTRIES[name]())

    def read() -> Iterator[int]:
        for decoded in decode_entries(buffer, entries, tuple(COLUMNS)):
            yield decoded.batch.num_rows

    return len(buffer), read


def _read_value(name: str) -> tuple[int, Callable[[], Iterator[int]]]:
    info, value = VALUES[name]()
    reader = value_reader(SchemaVersion(info, 0))
    values, empty = pa.array([value]), pa.array([None], pa.binary())
    reader.decode(empty, empty)

    def read() -> Iterator[int]:
        found = reader.decode(values)
        if len(found.failures):
            raise InputError(found.failures.reasons[0])
        yield 1

    return len(value), read


def run(name: str) -> Figures:
    """Run the case ``name`` in this process, and measure its memory."""
    stored_bytes, read = (_read_entries if name in ENTRIES else _read_value)(name)
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, began, rows, error = kib(status, "VmRSS"), time.monotonic(), 0, ""
    try:
        for count in read():
            rows += count
    except EosError as reason:
        error = f"{type(reason).__name__}: {reason}"
    mib = (kib(status, "VmHWM") - before) / 1024
    return Figures(stored_bytes, rows, mib, time.monotonic() - began, error)


def kib(status: Path, name: str) -> int:
    """Return a value of ``/proc/.../status``."""
    (line,) = [line for line in status.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1])


def run_apart(name: str, timeout_s: float = 300.0) -> Figures:
    """Run a case in a new process.

    Raises:
        CalledProcessError: it died of an unexpected error, or of a lack of memory.
    """
    command = [sys.executable, "-m", "bench", "hostile", "--case", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    return Figures(*json.loads(done.stdout))


def hostile(case: str = "") -> None:
    """Decode hostile entries, and show the memory as a table. With --case: one of them, as JSON."""
    if case:
        print(json.dumps(run(case)))
        return
    names = ("case", "stored", "rows", "memory, MiB", "s", "error")
    table = Table(*names, title=f"Bound: {BOUND_MIB} MiB")
    worst = 0.0
    for name in CASES:
        one = run_apart(name)
        worst = max(worst, one.mib)
        figures = (f"{one.stored_bytes:,}", f"{one.rows:,}", f"{one.mib:.0f}", f"{one.seconds:.1f}")
        table.add_row(name, *figures, one.error[:120])
    Console(width=200).print(table)
    if worst > BOUND_MIB:
        raise SystemExit(1)


CASES: Final = (*ENTRIES, *VALUES)
