"""Whose transaction a number is. Numbers begin again on another cluster, so places are compared.

A log's attempts, in order, fall into generations: a new one begins where a transaction's number or
a mark's place does not grow. Each generation was written with one cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eos.ids import EntryPlace, TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part

NEVER_READABLE: Final = frozenset({State.ABORTING, State.ABORTED, State.EMPTY, State.ABANDONED})
"""Of an attempt in one of these no message may be readable."""


class Attempts:
    """The attempts of one sink, by their transactions."""

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
        # The newest generation's, where two clusters gave the same number.
        self._by_txn = {pulsar_part(record).txn: record for record in self._newest.values()}

    @property
    def newest(self) -> list[LogRecord]:
        """The newest record of each attempt, in order."""
        return list(self._newest.values())

    def of(self, txn: TxnId | None) -> LogRecord | None:
        """The newest record of the attempt that ``txn`` is, as far as numbers tell."""
        return None if txn is None else self._by_txn.get(txn)

    def generation(self, record: LogRecord) -> int:
        """Which cluster the attempt of ``record`` was written with."""
        return self._generation[str(pulsar_part(record).mark_uuid)]

    def is_newest_cluster(self, record: LogRecord) -> bool:
        """Whether it was written with the cluster of the log's newest attempt."""
        return self.generation(record) == max(self._generation.values())
