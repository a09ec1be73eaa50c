"""Inputs whose first ones are also in a table, which the query reads first.

The topic has them too: a query that switches before the table's end reads them twice.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

from eos.chaos._record_text import text_of
from eos.chaos._records import slot_of
from eos.chaos._topic_inputs import TopicInputs
from eos.chaos.checker.history import Record
from eos.chaos.cluster.target import Pulsar
from eos.chaos.job import SLOT, Job
from eos.chaos.schedule import Schedule
from eos.ids import TopicName
from eos.wire.commands import MessageIdData

PAST_INPUTS: Final = 6
"""Number of inputs in the table, a file each; those without records have none."""


class HistoryInputs(TopicInputs):
    """Fills table and topic immediately; must be created before the job starts.

    Args:
        records: of all inputs.
    """

    def __init__(
        self, job: Job, schedule: Schedule, broker: Pulsar, records: list[list[Record]]
    ) -> None:
        super().__init__(job, schedule, broker)
        past = records[:PAST_INPUTS]
        self._files = list(accumulate(bool(rows) for rows in past))
        for number, rows in enumerate(past):
            super().release(number, rows)
            if rows:
                write_deltalake(job.history, self._table_of(rows), mode="append")

    def _table_of(self, rows: list[Record]) -> pa.Table:
        """The rows with the source's metadata columns."""
        places = [self._places[row.id] for row in rows]
        topics = [TopicName.parse(topic) for topic, _ in places]
        ids = [
            MessageIdData(ledger=ledger, entry=entry, partition=topic.partition_index or 0).encode()
            for topic, (_, (ledger, entry)) in zip(topics, places, strict=True)
        ]
        slots = [[(SLOT, str(slot_of(row)))] for row in rows]
        return pa.table(
            {
                "value": pa.array([text_of(row.id, self._filler).encode() for row in rows]),
                "__key": pa.array([row.key.encode() or None for row in rows], pa.binary()),
                "__topic": pa.array([str(topic.base) for topic in topics]),
                "__messageId": pa.array(ids, pa.binary()),
                "__messageProperties": pa.array(slots, pa.map_(pa.string(), pa.string())),
            }
        )

    def release(self, number: int, records: list[Record]) -> None:
        """See ``Inputs``. The first ones are already released."""
        if number >= len(self._files):
            super().release(number, records)

    def done(self) -> int:
        """See ``Inputs``."""
        noted = self._checkpoint.noted()
        if not noted:
            return 0
        to = min(source["history"]["to"] for source in self._sources(noted[-1]))
        if to == self._files[-1]:
            return super().done()
        return sum(files <= to for files in self._files)

    def _reads(self, source: dict[str, Any], record: Record) -> bool:
        if record.input >= len(self._files):
            return super()._reads(source, record)
        file = self._files[record.input] - 1
        return bool(source["history"]["from"] <= file < source["history"]["to"])
