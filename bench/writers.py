"""Writers without Spark: two processes, one transaction, rows that are there before it starts.

``arrow``: the sink's own way from Arrow columns to receipts, checks included. ``raw``: frames that
were built before, pushed through a socket as fast as the broker takes them. Nothing is left out
of the broker's work, and of ours nothing is left but a loop over whole entries: the ceiling.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from dataclasses import dataclass
from typing import Final, Literal

from bench.rows import Shape, arrow_rows
from bench.setting import CORES
from eos.client import PulsarClient
from eos.ids import TopicName, TxnId
from eos.wire import commands
from eos.wire.batch import EncodedBatch, check_rows, encode_batches
from eos.wire.frames import encode_send

Kind = Literal["arrow", "raw"]

_PATIENCE_S: Final = 120.0
_IN_FLIGHT_BYTES: Final = 32 << 20
_TTL_S: Final = 300.0


@dataclass(frozen=True)
class Work:
    """What one process writes."""

    kind: Kind
    service_url: str
    topic: str
    txn: TxnId
    shape: Shape
    start: int
    count: int


def rows_per_s(kind: Kind, service_url: str, topic: str, shape: Shape, count: int) -> float:
    """Write ``count`` rows by as many processes as there are cores, in one transaction.

    The clock runs from when all are ready until the transaction is committed.
    """
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(CORES + 1)
    done = context.Queue()
    exact = str(TopicName.parse(topic).partition(0))
    with PulsarClient(service_url) as client:
        txn = client.transaction(timeout_s=_TTL_S)
        txn.register([exact])
        share = count // CORES
        works = [
            Work(kind, service_url, exact, txn.id, shape, number * share, share)
            for number in range(CORES)
        ]
        processes = [context.Process(target=_work, args=(work, ready, done)) for work in works]
        try:
            for process in processes:
                process.start()
            ready.wait(_PATIENCE_S)
            began = time.perf_counter()
            written: int = sum(done.get(timeout=_PATIENCE_S) for _ in processes)
            txn.commit()
            took_s = time.perf_counter() - began
            for process in processes:
                process.join(_PATIENCE_S)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
    if written != share * CORES:
        raise RuntimeError(f"{written} rows of {share * CORES} were written")
    return written / took_s


def _work(work: Work, ready: threading.Barrier, done: multiprocessing.Queue[int]) -> None:
    rows = arrow_rows(work.shape, work.start, work.count)
    with PulsarClient(work.service_url, max_pending_bytes=_IN_FLIGHT_BYTES) as client:
        txn = client.join(work.txn)
        txn.register([work.topic])
        if work.kind == "arrow":
            producer = client.producer(work.topic)
            ready.wait(_PATIENCE_S)
            check_rows(rows, producer.max_batch_bytes)
            for batch in encode_batches(rows):
                producer.send_batch(batch, txn=txn)
            producer.close()
        else:
            sender = _RawSender(client, work)
            frames = sender.frames(list(encode_batches(rows)))
            ready.wait(_PATIENCE_S)
            sender.push(frames)
    done.put(work.count)


class _RawSender:
    """Pushes frames, and counts receipts so that not too much is in flight."""

    def __init__(self, client: PulsarClient, work: Work) -> None:
        self._work = work
        self._producer = client.producer(work.topic)
        self._connection = self._producer._connection
        self._connection.listen(self._producer._id, self)
        self._room = threading.Semaphore(_IN_FLIGHT_BYTES // (1 << 20))
        self._failure: BaseException | None = None

    def frames(self, batches: list[EncodedBatch]) -> list[tuple[bytes, memoryview]]:
        """Heads, with their checksums, and payloads."""
        txn = self._work.txn
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
        """Everything, to the last receipt."""
        for frame in frames:
            self._room.acquire()
            self._connection._write(frame)
        for _ in range(_IN_FLIGHT_BYTES // (1 << 20)):
            self._room.acquire()
        if self._failure is not None:
            raise self._failure

    def on_receipt(self, _: object) -> None:
        """One entry is stored."""
        self._room.release()

    def on_send_error(self, error: commands.SendError) -> None:
        """One is not, and so the figure is worth nothing."""
        self.on_closed(RuntimeError(error.message))

    def on_closed(self, reason: BaseException) -> None:
        """Nor is it when the connection ends."""
        self._failure = reason
        self._room.release(10**6)
