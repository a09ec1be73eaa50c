"""Feeds a soak: steady rows into the input topic, in transactions, also while brokers die."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from eos.chaos._soak_plan import DELAY_S, PARTITIONS, SoakPlan
from eos.chaos._spark_checkpoint import Checkpoint
from eos.chaos.checker.history import Record
from eos.chaos.cluster.supervisor import DriverSupervisor
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults.nemesis import Nemesis
from eos.chaos.job import INPUT_SUBSCRIPTION
from eos.client import EntryProducer, PulsarClient, Transaction
from eos.errors import EosError, Indeterminate, Retriable
from eos.ids import EntryPlace, MessageId, TopicName
from eos.retry import attempts
from eos.wire.batch import Rows, encode_batches

_DEADLINE_S: Final = 180.0
_TTL_S: Final = 30.0
_MARGIN_S: Final = 10.0
_POLL_S: Final = 1.0
_TELL_EVERY_S: Final = 60.0
_STUCK_S: Final = 300.0


class SoakFeed:
    """Sends a plan's rows at its pace, bypassing the proxy; creates the input topic."""

    def __init__(self, plan: SoakPlan, target: FaultTarget, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._target = target
        self._tell = tell
        self._checkpoint = Checkpoint(target.job.checkpoint)
        topic = TopicName.parse(target.job.input_topic)
        self._topics = [str(one) for one in topic.partitions(PARTITIONS)]
        target.broker.admin("PUT", f"{path_of(str(topic))}/partitions", PARTITIONS)
        for one in self._topics:  # before the first row: unsubscribed messages may be deleted
            path = f"{path_of(one)}/subscription/{INPUT_SUBSCRIPTION}"
            target.broker.admin("PUT", path, {"earliest": True})
        self._over = threading.Event()
        self._failure: EosError | None = None
        # Spark deletes old entries of its checkpoint.
        self._noted: set[int] = set()
        self._watermarks: dict[int, float] = {}
        self._sent = 0

    def run(
        self, supervisor: DriverSupervisor, nemesis: Nemesis, on_progress: Callable[[], None]
    ) -> None:
        """Send all rows; return when the query has written all windows.

        Raises:
            RuntimeError: the driver fails repeatedly without progress.
            TimeoutError: an epoch is not done in time.
            EosError: the rows can't be sent.
        """
        sender = threading.Thread(target=self._send_all, name="soak feed", daemon=True)
        sender.start()
        try:
            self._await_all(sender, supervisor, nemesis, on_progress)
        finally:
            self._over.set()
            sender.join(_DEADLINE_S)
            nemesis.stop()

    def expected(self) -> Iterator[Record]:
        """The records that the query must have written, each with its epoch."""
        self._has_progressed()
        return self._plan.expected(sorted(self._watermarks.items()))

    def noted(self) -> frozenset[str]:
        """The epochs that were noted as done in Spark's checkpoint."""
        self._has_progressed()
        return frozenset(map(str, self._noted))

    def storage(self) -> dict[str, int]:
        """The storage figures of a ``Sample``; {} if a broker does not answer."""
        # A dead broker is a fault's work, not a failure; a long silence shows as a gap of samples.
        job = self._target.job
        log_bytes, log_files = folder_size(Path(job.commit_log))
        with contextlib.suppress(EosError, LookupError, OSError):
            receipts = self._target.receipt_topic()
            inputs = [self._stats(topic) for topic in self._topics]
            return {
                "epochs": len(self._noted),
                "log_bytes": log_bytes,
                "log_files": log_files,
                "checkpoint_files": folder_size(Path(job.checkpoint))[1],
                "receipts_bytes": self._stats(receipts)["storageSize"] if receipts else 0,
                "input_bytes": sum(one["storageSize"] for one in inputs),
                "backlog": sum(
                    one["subscriptions"][INPUT_SUBSCRIPTION]["msgBacklog"] for one in inputs
                ),
            }
        return {}

    def _stats(self, topic: str) -> dict[str, Any]:
        stats: dict[str, Any] = self._target.broker.admin("GET", f"{path_of(topic)}/stats")
        return stats

    def _await_all(
        self,
        sender: threading.Thread,
        supervisor: DriverSupervisor,
        nemesis: Nemesis,
        on_progress: Callable[[], None],
    ) -> None:
        began = noted_at = told_at = time.monotonic()
        while sender.is_alive() or not self._is_quiet() or nemesis.is_busy:
            supervisor.check()
            if self._failure is not None:
                raise self._failure
            now = time.monotonic()
            if self._has_progressed():
                noted_at = now
                supervisor.progress()
                on_progress()
            elif now - noted_at > _STUCK_S:  # longer than any fault may keep a broker silent
                raise TimeoutError(f"no epoch is done for {_STUCK_S:.0f} s")
            nemesis.epoch_begins(int((now - began) / 60))
            if now - told_at > _TELL_EVERY_S:
                told_at = now
                self._tell(f"{self._sent:,} rows sent")
            time.sleep(_POLL_S)

    def _has_progressed(self) -> bool:
        for epoch in self._checkpoint.planned():
            if epoch not in self._watermarks:
                with contextlib.suppress(FileNotFoundError):  # deleted at this moment
                    self._watermarks[epoch] = self._checkpoint.watermark_s(epoch)
        before = len(self._noted)
        self._noted.update(self._checkpoint.noted())
        return len(self._noted) > before

    def _is_quiet(self) -> bool:
        noted = self._checkpoint.noted()
        if not noted or noted[-1] != self._checkpoint.planned()[-1]:
            return False
        # Spark writes the windows that a watermark closes in the epoch after the one that moved it.
        return self._checkpoint.watermark_s(noted[-1]) >= self._plan.last_ms / 1000 - DELAY_S

    def _send_all(self) -> None:
        try:
            with PulsarClient(self._target.broker.service_url) as client:
                sender, began = BlockSender(client, self._topics), time.monotonic()
                for block in self._plan.blocks():
                    sender.send(self._plan.rows_of(block))
                    self._sent = block.stop
                    due_s = block.stop / self._plan.rows_per_s
                    # By the plan's clock: time lost in a fault is made up for.
                    if self._over.wait(max(0.0, began + due_s - time.monotonic())):
                        return
                sender.send(self._plan.last_row())
        except EosError as error:
            self._failure = error  # raised by the thread that waits for the query


class BlockSender:
    """Sends each block of rows once, in a transaction; an unanswered commit is looked up."""

    def __init__(self, client: PulsarClient, topics: list[str]) -> None:
        self._client = client
        self._topics = topics
        self._producers: list[EntryProducer] = []

    def send(self, rows: Rows) -> None:
        """Send them.

        Raises:
            EosError: they can't be sent for three minutes.
        """
        attempts(_DEADLINE_S, retry_on=(Retriable,))(self._try, rows)

    def _try(self, rows: Rows) -> None:
        first: Future[MessageId] | None = None
        try:
            self._producers = self._producers or self._client.entry_producers(self._topics)
            with self._client.transaction(timeout_s=_TTL_S) as txn:
                first = self._send(rows, txn)
        except Retriable:
            self._producers = []  # a failed producer stays failed
            raise
        except Indeterminate:
            self._producers = []
            # Without all of its rows, the transaction can't have been committed.
            if first is None or not self._is_readable(first.result()):
                raise Retriable("A transaction was not committed.") from None

    def _send(self, rows: Rows, txn: Transaction) -> Future[MessageId]:
        share = -(-len(rows) // len(self._topics))
        receipts = []
        for number, producer in enumerate(self._producers):
            part = rows.slice(min(number * share, len(rows)), min((number + 1) * share, len(rows)))
            for batch in encode_batches(part) if len(part) else ():
                receipts.append(producer.send_batch(batch, txn=txn))
        return receipts[0]  # one entry proves all: a transaction is readable whole, or not

    def _is_readable(self, entry: MessageId) -> bool:
        time.sleep(_TTL_S + _MARGIN_S)  # by then its transaction has ended
        return entry.place in attempts(_DEADLINE_S, retry_on=(EosError,))(self._places, entry)

    def _places(self, first: MessageId) -> set[EntryPlace]:
        columns = ("ledger", "entry")
        with self._client.reader(self._topics[0], start=first, columns=columns) as reader:
            batches = list(reader.read_to(reader.last_id))
            return {(row["ledger"], row["entry"]) for b in batches for row in b.to_pylist()}


def folder_size(folder: Path) -> tuple[int, int]:
    """Bytes and number of files in a folder and its subfolders."""
    sizes = []
    for parent, _, names in os.walk(folder):  # files may be deleted meanwhile
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(Path(parent, name).stat().st_size)
    return sum(sizes), len(sizes)
