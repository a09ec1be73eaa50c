"""Outputs for the contract: a folder, a table and a topic, each with a plain reader."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
from deltalake import DeltaTable

from eos._kinds import DeltaKind, PulsarKind
from eos.client import PulsarClient
from eos.delta.opening import schema_to_json
from eos.delta.part import DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget, stage
from eos.delta.target_table import TargetTable
from eos.participant import Access, Kind, Participant
from eos.protocol import Part
from eos.pulsar.part import PulsarPart
from eos.pulsar.participant import PulsarParticipant
from eos.pulsar.roll_call import RollCall
from eos.task_report import PartitionFigures, TaskSummary
from eos.transport.auth import Auth
from eos.wire.batch import Message, encode_batches, rows_from_messages
from examples.folder.participant import KIND as FOLDER
from examples.folder.participant import FolderPart, FolderParticipant
from tests.support.judge import quiet_client

SCHEMA = pa.schema([("value", pa.string())])


@contextmanager
def unmounted(folder: Path) -> Iterator[None]:
    """An empty folder in its place."""
    away = folder.with_name(f"{folder.name} elsewhere")
    folder.rename(away)
    folder.mkdir()
    yield
    shutil.rmtree(folder)
    away.rename(folder)


class FolderOutput:
    """Files in a folder."""

    kind: Kind = FOLDER
    access = Access()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def participant(self) -> Participant:
        return FolderParticipant(self.folder)

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        assert isinstance(part, FolderPart)
        paths = [part.written / str(uuid.uuid4()) for _ in rows]
        for path, row in zip(paths, rows, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(row)
        return paths

    def read(self) -> list[str]:
        files = [path for path in self.folder.glob("*/*") if path.is_file()]
        return [path.read_text() for path in files if path.parent.name != ".staged"]

    def hidden(self) -> AbstractContextManager[None]:
        return unmounted(self.folder)


class _Table(DeltaParticipant):
    def count(self, part: Part, written: Sequence[Any]) -> DeltaPart:
        """As the sink, which has one ``Staged`` for all tasks."""
        files = tuple(file for staged in written for file in staged.files)
        return super().count(part, [replace(written[0], files=files)])


class TableOutput:
    """A Delta table with one column."""

    kind = DeltaKind()
    access = Access()

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder)
        TargetTable(self.uri).create(SCHEMA)

    def participant(self) -> Participant:
        return _Table("contract", self.uri)

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        assert isinstance(part, DeltaPart)
        target = StagingTarget(self.uri, TargetTable(self.uri).check_schema(SCHEMA))
        batch = pa.record_batch([pa.array(rows, pa.string())], schema=SCHEMA)
        files = stage([batch], target, attempt_id=str(part.attempt_id), spark_partition=0)
        return [Staged(files, schema_to_json(target.schema), merge=False)]

    def read(self) -> list[str]:
        found: list[str] = DeltaTable(self.uri).to_pyarrow_table()["value"].to_pylist()
        return found

    def hidden(self) -> AbstractContextManager[None]:
        return unmounted(Path(self.uri))


class TopicOutput:
    """An unpartitioned topic."""

    kind = PulsarKind()

    def __init__(self, service_url: str, topic: str) -> None:
        self.url = service_url
        self.topic = topic
        self.access = Access(service_url=service_url)
        self._tasks: Counter[object] = Counter()

    def participant(self) -> Participant:
        return PulsarParticipant("contract", self.url, Auth(), receipt_namespace="public/default")

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        assert isinstance(part, PulsarPart)
        assert part.txn is not None
        if not rows:
            return [TaskSummary(0, "", (), ())]
        task = self._tasks[part.txn]
        self._tasks[part.txn] += 1
        with PulsarClient(self.url) as client:
            run_id = RollCall.of(part).answer(client, task, timeout_s=20)
            txn = client.join(part.txn)
            producer = client.entry_producer(self.topic)
            messages = [Message(row.encode()) for row in rows]
            (batch,) = encode_batches(rows_from_messages(messages))
            receipt = producer.send_batch(batch, txn=txn)
            producer.close()
            at, size = receipt.result(timeout=0), batch.value_and_key_bytes
            figures = PartitionFigures(
                self.topic, (producer.name,), len(rows), size, batch.checksum, at, at
            )
            return [TaskSummary(task, run_id, txn.registered, (figures,))]

    def read(self) -> list[str]:
        """Read all messages before the first open transaction."""
        found = []
        with closing(quiet_client(self.url)) as client:
            reader = client.create_reader(self.topic, pulsar.MessageId.earliest)
            with suppress(pulsar.Timeout):
                while reader.has_message_available():
                    found.append(reader.read_next(timeout_millis=2_000).data().decode())
        return found
