"""A table under test, written as a driver and its tasks write it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa

from eos._kinds import PostgresKind
from eos.participant import Access, Upsert
from eos.postgres.copying import copy_rows
from eos.postgres.database import Database
from eos.postgres.part import PostgresPart
from eos.postgres.participant import PostgresParticipant
from eos.postgres.staged import CopyTarget, StagedRows, StagingColumn
from eos.protocol import Part
from tests.support.postgres import Shop


class _Participant(PostgresParticipant):
    def count(self, part: Part, written: Sequence[Any]) -> PostgresPart:
        """As the sink, which has one ``StagedRows`` for all tasks."""
        copied = tuple(run for staged in written for run in staged.copied)
        return super().count(part, [replace(written[0], copied=copied)])


@dataclass
class TableUnderTest:
    """Table ``words`` of a shop: an ``OutputUnderTest``."""

    shop: Shop
    sink_id: str = "contract"
    run: int = 0
    kind = PostgresKind()
    access = Access()

    def participant(self) -> PostgresParticipant:
        database, schema = Database(self.shop.conninfo), self.shop.schema
        return _Participant(self.sink_id, database, schema, "words", schema)

    def write(
        self, part: Part, rows: Sequence[str], upsert: Upsert | None = None
    ) -> list[StagedRows]:
        assert isinstance(part, PostgresPart)
        participant = self.participant()
        columns = (StagingColumn("c0", "text"),)
        participant.run("staging", lambda c: participant.table.create_staging(c, part, columns))
        participant.close()
        # A second run of the task, whose result Spark did not take.
        return [StagedRows((self.copy(part, rows), self.copy(part, rows))[:1], ("word",), upsert)]

    def copy(self, part: PostgresPart, rows: Sequence[str]):  # type: ignore[no-untyped-def]
        self.run += 1
        target = CopyTarget(
            Database(self.shop.conninfo), self.shop.schema, part.staging, ("c0",), ("word",)
        )
        batches = [pa.record_batch({"c0": pa.array(list(rows), pa.string())})]
        return copy_rows(batches, target, run=self.run)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """An empty schema in its place, as if the database were another one."""
        schema = self.shop.schema
        with psycopg.connect(self.shop.conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_elsewhere")
            connection.execute(f"CREATE SCHEMA {schema}")
            yield
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
            connection.execute(f"ALTER SCHEMA {schema}_elsewhere RENAME TO {schema}")

    def read(self) -> list[str]:
        return [str(word) for (word,) in self.shop.execute("SELECT word FROM words")]
