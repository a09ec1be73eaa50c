"""Whose transaction a number is. Numbers begin again on another cluster, so places are compared.

A log's attempts, in order, fall into generations: a new one begins where a transaction's number or
a mark's place does not grow. Each generation was written with one cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eos.ids import Place, TxnId
from eos.protocol import LogRecord, State

NEVER_READABLE: Final = frozenset({State.ABORTING, State.ABORTED, State.EMPTY, State.ABANDONED})
"""Of an attempt in one of these no message may be readable."""


class Attempts:
    """The attempts of one sink, by their transactions."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self._generation: dict[str, int] = {}
        self._newest: dict[str, LogRecord] = {}
        last: dict[int, int] = {}
        mark: Place = (-1, -1)
        generation = 0
        for record in records:
            if record.txn is None or record.mark_id is None or record.mark_uuid is None:
                continue
            if record.mark_uuid not in self._generation:
                is_later = record.txn.least > last.get(record.txn.most, -1)
                if not is_later or record.mark_id.place <= mark:
                    generation += 1
                    last = {}
                last[record.txn.most] = record.txn.least
                mark = record.mark_id.place
                self._generation[record.mark_uuid] = generation
            self._newest[record.mark_uuid] = record
        # The newest generation's, where two clusters gave the same number.
        self._by_txn = {record.txn: record for record in self._newest.values() if record.txn}

    @property
    def newest(self) -> list[LogRecord]:
        """The newest record of each attempt, in order."""
        return list(self._newest.values())

    def of(self, txn: TxnId | None) -> LogRecord | None:
        """The newest record of the attempt that ``txn`` is, as far as numbers tell."""
        return None if txn is None else self._by_txn.get(txn)

    def generation(self, record: LogRecord) -> int:
        """Which cluster the attempt of ``record`` was written with."""
        return self._generation[str(record.mark_uuid)]

    def is_newest_cluster(self, record: LogRecord) -> bool:
        """Whether it was written with the cluster of the log's newest attempt."""
        return self.generation(record) == max(self._generation.values())
