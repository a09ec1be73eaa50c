"""Finds the attempt of a transaction id. Another cluster reuses ids, so positions are compared too.

A log's attempts, in order, form generations, each written with one cluster. A new generation begins
where a transaction id or the position of a mark does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eos.ids import EntryPlace, TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part

NEVER_READABLE: Final = frozenset({State.ABORTING, State.ABORTED, State.EMPTY, State.ABANDONED})
"""States of attempts whose messages must never be readable."""


class Attempts:
    """The attempts of one sink, by transaction id."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self._generation: dict[str, int] = {}
        self._newest: dict[str, LogRecord] = {}
        last: dict[int, int] = {}
        mark: EntryPlace = (-1, -1)
        generation = 0
        for record in records:
            part = pulsar_part(record)
            if part.txn is None or part.mark_id is None or part.mark_uuid is None:
                continue
            if part.mark_uuid not in self._generation:
                is_later = part.txn.least > last.get(part.txn.most, -1)
                if not is_later or part.mark_id.place <= mark:
                    generation += 1
                    last = {}
                last[part.txn.most] = part.txn.least
                mark = part.mark_id.place
                self._generation[part.mark_uuid] = generation
            self._newest[part.mark_uuid] = record
        # If two clusters used the same id, the newest generation wins.
        self._by_txn = {pulsar_part(record).txn: record for record in self._newest.values()}

    @property
    def newest(self) -> list[LogRecord]:
        """The newest record of each attempt, in order."""
        return list(self._newest.values())

    def of(self, txn: TxnId | None) -> LogRecord | None:
        """The newest record of the attempt with this id. It may belong to another cluster."""
        return None if txn is None else self._by_txn.get(txn)

    def generation(self, record: LogRecord) -> int:
        """The generation of the attempt of ``record``."""
        return self._generation[str(pulsar_part(record).mark_uuid)]

    def is_newest_cluster(self, record: LogRecord) -> bool:
        """Whether the attempt was written with the same cluster as the log's newest one."""
        return self.generation(record) == max(self._generation.values())
