"""Writers without Spark: two processes, one transaction, rows that exist before the clock starts.

``arrow``: the sink's path from Arrow columns to receipts, with all its checks. ``raw``: frames that
were built before, sent through a socket as fast as the broker accepts them. The broker does all of
its work, and the client only loops over entries: that is the ceiling.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Literal, TypeAlias

from bench.environment import CORES
from bench.row_sources import RowShape, arrow_rows
from eos.client import EntryProducer, PulsarClient
from eos.ids import TopicName, TxnId
from eos.wire import commands
from eos.wire.batch import EncodedBatch, check_rows, encode_batches
from eos.wire.frames import encode_send

WriterKind = Literal["arrow", "raw"]
Pipe: TypeAlias = "Connection[Any, Any]"

_READY_WITHIN_S: Final = 120.0
_ENDS_WITHIN_S: Final = 20.0
_IN_FLIGHT_BYTES: Final = 32 << 20
_TTL_S: Final = 300.0


@dataclass(frozen=True)
class WriterWork:
    """The work of one process."""

    kind: WriterKind
    topic: str
    txn: TxnId
    shape: RowShape
    start: int
    count: int


class WriterProcesses:
    """One process for each core, started by ``start_writers``."""

    def __init__(self, client: PulsarClient, pipes: list[Pipe]) -> None:
        self._client = client
        self._pipes = pipes

    def rows_per_s(self, kind: WriterKind, shape: RowShape, topic: str, count: int) -> float:
        """Write ``count`` rows to the first partition of ``topic``, in one transaction.

        Timed from the moment when all processes are ready until the transaction is committed.
        """
        exact = str(TopicName.parse(topic).partition(0))
        txn = self._client.transaction(timeout_s=_TTL_S)
        txn.register([exact])
        share = count // CORES
        for number, pipe in enumerate(self._pipes):
            pipe.send(WriterWork(kind, exact, txn.id, shape, number * share, share))
        self._await("ready")
        began = time.perf_counter()
        for pipe in self._pipes:
            pipe.send("go")
        self._await("done")
        txn.commit()
        return share * CORES / (time.perf_counter() - began)

    def _await(self, word: str) -> None:
        for pipe in self._pipes:
            if not pipe.poll(_READY_WITHIN_S):
                raise RuntimeError(f"A writer process is not {word}")
            pipe.recv()  # EOFError if it has died; its error is on stderr


@contextmanager
def start_writers(service_url: str) -> Iterator[WriterProcesses]:
    """Start processes that stay, with their connections, like Spark's Python workers.

    The first second of a new process is slow.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        client = stack.enter_context(PulsarClient(service_url))
        pipes = []
        for _ in range(CORES):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, service_url), daemon=True)
            with theirs:
                process.start()
            stack.callback(_end, process, pipe)
            pipes.append(pipe)
        yield WriterProcesses(client, pipes)


def _end(process: BaseProcess, pipe: Pipe) -> None:
    pipe.close()  # it ends with its orders
    try:
        process.join(_ENDS_WITHIN_S)
    finally:
        process.kill()
        process.join()


def _serve(orders: Pipe, service_url: str) -> None:
    with (
        contextlib.suppress(EOFError),  # no more orders
        PulsarClient(service_url, max_pending_bytes=_IN_FLIGHT_BYTES) as client,
    ):
        while True:
            _do(client, orders.recv(), orders)


def _do(client: PulsarClient, work: WriterWork, orders: Pipe) -> None:
    rows = arrow_rows(work.shape, work.start, work.count)
    txn = client.join(work.txn)
    txn.register([work.topic])
    producer = client.entry_producer(work.topic)
    if work.kind == "arrow":
        _get_ready(orders)
        check_rows(rows, producer.max_batch_bytes)
        for batch in encode_batches(rows):
            producer.send_batch(batch, txn=txn)
    else:
        sender = _RawSender(producer, work.txn)
        frames = sender.frames(list(encode_batches(rows)))
        _get_ready(orders)
        sender.push(frames)
    producer.close()
    orders.send("done")


def _get_ready(orders: Pipe) -> None:
    orders.send("ready")
    orders.recv()


class _RawSender:
    """Sends prepared frames, and counts receipts to limit the bytes in flight."""

    def __init__(self, producer: EntryProducer, txn: TxnId) -> None:
        self._txn = txn
        self._producer = producer
        self._connection = producer._connection
        self._connection.listeners.add_producer(producer._id, self)
        self._room = threading.Semaphore(_IN_FLIGHT_BYTES // (1 << 20))
        self._failure: BaseException | None = None

    def frames(self, batches: list[EncodedBatch]) -> list[tuple[bytes, memoryview]]:
        """Return headers, with their checksums, and payloads."""
        txn = self._txn
        frames, sequence_id = [], 0
        for batch in batches:
            send = commands.Send(
                producer_id=self._producer._id,
                sequence_id=sequence_id,
                num_messages=batch.num_messages,
                txnid_most=txn.most,
                txnid_least=txn.least,
            )
            metadata = commands.MessageMetadata(
                producer_name=self._producer.name,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                num_messages_in_batch=batch.num_messages,
                txnid_most=txn.most,
                txnid_least=txn.least,
            )
            frames.append((encode_send(send, metadata, batch.payload), batch.payload))
            sequence_id += batch.num_messages
        return frames

    def push(self, frames: list[tuple[bytes, memoryview]]) -> None:
        """Send all frames, and wait for the last receipt."""
        for frame in frames:
            self._room.acquire()
            self._connection._write(frame)
        for _ in range(_IN_FLIGHT_BYTES // (1 << 20)):
            self._room.acquire()
        if self._failure is not None:
            raise self._failure

    def on_send_receipt(self, _: object) -> None:
        """Count an entry as stored."""
        self._room.release()

    def on_send_error(self, error: commands.SendError) -> None:
        """Fail the run: the figure is worthless."""
        self.on_closed(RuntimeError(error.message))

    def on_closed(self, reason: BaseException) -> None:
        """Fail the run: the connection is closed."""
        self._failure = reason
        self._room.release(10**6)
