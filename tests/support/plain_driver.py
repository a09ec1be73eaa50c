"""A driver without Spark: the production committer, and a few lines that write.

It writes numbered rows directly through the client, one "task" for each topic partition. So it
reaches every commit step within milliseconds, in this process or, as a script, in one that dies::

    python -m tests.support.plain_driver SERVICE_URL COMMIT_LOG SINK TOPIC EPOCHS
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.client.worker_cache import ClientOptions
from eos.commit_log import CommitLog
from eos.committer import Committer, EpochResult, OpenAttempt, Policies, Reports
from eos.ids import TopicName, TxnId
from eos.participant import Participant
from eos.protocol import LogRecord, Part
from eos.pulsar.part import PulsarPart
from eos.pulsar.participant import PulsarParticipant
from eos.pulsar.roll_call import RollCall
from eos.steps import AnyStep
from eos.task_report import PartitionFigures, TaskSummary
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth
from eos.wire.batch import Message, encode_batches, rows_from_messages
from examples.folder.participant import FolderPart, FolderParticipant

QUERY = "11111111-2222-3333-4444-555555555555"
ROWS = 10
LONG_AGO = datetime.min.replace(tzinfo=UTC)


def rows_of(epoch: str, count: int = ROWS) -> list[bytes]:
    """The values of an epoch: ``<epoch>/<n>``."""
    return [f"{epoch}/{n}".encode() for n in range(count)]


@dataclass
class PlainDriver:
    """One run of a driver process for ``sink_id``."""

    service_url: str
    commit_log: Path | str
    sink_id: str
    topic: str
    admin_url: str | None = None
    ttl_ms: int = 60_000
    deadline_s: float = 60.0
    timeout_s: float = 20.0
    max_attempts: int = 3
    on_new_query: Literal["refuse", "continue"] = "refuse"
    on_new_cluster: Literal["refuse", "continue"] = "refuse"
    on_gap: Literal["refuse", "continue"] = "refuse"
    on_rewind: Literal["refuse", "skip"] = "refuse"
    receipt_namespace: str = "public/default"
    auth: Auth = field(default_factory=Auth)
    rules: ClusterRules = field(default_factory=ClusterRules)
    during_write: Callable[[TxnId], None] = lambda _: None
    folder: Path | None = None
    """A second output, which gets the same rows, one file for each."""
    topic_count: int | None = None
    folder_count: int | None = None
    """Number of rows that each output gets; None means all."""

    def __post_init__(self) -> None:
        self.log = CommitLog.open(self.commit_log, self.sink_id)
        self.participant = PulsarParticipant(
            self.sink_id,
            self.service_url,
            self.auth,
            rules=self.rules,
            receipt_namespace=self.receipt_namespace,
            admin_url=self.admin_url,
            ttl_ms=self.ttl_ms,
            timeout_s=self.timeout_s,
        )
        self.participants: list[Participant] = [self.participant]
        if self.folder is not None:
            self.participants.insert(0, FolderParticipant(self.folder))
        self.committer = Committer(
            self.log,
            self.participants,
            max_attempts=self.max_attempts,
            deadline_s=self.deadline_s,
            policies=Policies(
                on_new_query=self.on_new_query,
                on_new_cluster=self.on_new_cluster,
                on_gap=self.on_gap,
                on_rewind=self.on_rewind,
            ),
        )

    def run(
        self,
        epoch: str,
        *,
        query_id: str = QUERY,
        count: int = ROWS,
        planned_at: datetime = LONG_AGO,
        finish_later: bool = False,
    ) -> EpochResult:
        """Write one epoch of ``count`` rows."""
        return self.committer.run_epoch(
            query_id,
            epoch,
            lambda begun: partial(self._write, begun(), rows_of(epoch, count)),
            planned_at=lambda: planned_at,
            finish_later=finish_later,
        )

    def records(self) -> list[LogRecord]:
        """Read the current commit log."""
        return CommitLog.open_read_only(self.commit_log, self.sink_id).records()

    def states(self, epoch: str) -> list[str]:
        """The states of an epoch in the log, in order."""
        return [record.state.value for record in self.records() if record.epoch == epoch]

    def close(self) -> None:
        """Close the connections."""
        self.participant.close()

    def _write(self, parts: tuple[Part, ...], values: list[bytes]) -> Reports:
        part = parts[0]
        assert isinstance(part, PulsarPart)
        files = [_store(one, values[: self.folder_count]) for one in parts[1:]]
        values = values[: self.topic_count]
        assert part.txn is not None
        with ClientOptions(
            self.service_url, self.auth, self.timeout_s, self.rules
        ).make() as client:
            count = client.partition_count(self.topic)
            topics = [str(name) for name in TopicName.parse(self.topic).partitions(count)]
            self.participant.set_topics(topics)
            summaries = [
                send_rows(client, part, topic, values[index :: len(topics)], index)
                for index, topic in enumerate(topics)
            ]
        self.during_write(part.txn)
        return [summaries, *files]


def _store(part: Part, values: list[bytes]) -> list[Path]:
    assert isinstance(part, FolderPart)
    paths = []
    for number, value in enumerate(values):
        part.staged.mkdir(parents=True, exist_ok=True)
        paths.append(part.staged / str(number))
        paths[-1].write_bytes(value)
    return paths


def send_rows(
    client: PulsarClient, part: PulsarPart, topic: str, values: list[bytes], index: int = 0
) -> TaskSummary:
    """Run the task of Spark partition ``index``: answer, send, report."""
    figures: tuple[PartitionFigures, ...] = ()
    run_id = ""
    assert part.txn is not None
    txn = client.join(part.txn)
    if values:
        run_id = RollCall.of(part).answer(client, index, timeout_s=20.0)
        producer = client.entry_producer(topic)
        (batch,) = encode_batches(rows_from_messages([Message(value) for value in values]))
        receipt = producer.send_batch(batch, txn=txn)
        producer.close()
        at = receipt.result(timeout=0)
        size, checksum = batch.value_and_key_bytes, batch.checksum
        figures = (PartitionFigures(topic, (producer.name,), len(values), size, checksum, at, at),)
    return TaskSummary(index, run_id, txn.registered, figures)


def main() -> None:
    """Run epochs 0 to EPOCHS - 1, then print how each one ended."""
    service_url, commit_log, sink_id, topic, epochs = sys.argv[1:]
    driver = PlainDriver(service_url, commit_log, sink_id, topic)
    for epoch in range(int(epochs)):
        print(epoch, driver.run(str(epoch)).status, flush=True)
    driver.close()


if __name__ == "__main__":
    main()


class Interrupted(BaseException):
    """Ends the driver and leaves the epoch as it is."""


def leave_behind(driver: PlainDriver, step: AnyStep, epoch: str = "0", **options: Any) -> None:
    """Run an epoch up to ``step``; nothing happens after it, not even an abort.

    An attempt that fails before it, because its transaction has expired, runs again as usual.
    """

    def interrupt() -> None:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        raise Interrupted

    with (
        pytest.MonkeyPatch.context() as dead,
        failpoints.armed(step, interrupt),
        pytest.raises(Interrupted),
    ):
        driver.run(epoch, **options)
