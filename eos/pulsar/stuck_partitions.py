"""Finds partitions that a dead transaction blocks, through the admin API, and frees them."""

# A partition that was registered, but never written to by any transaction, keeps no trace of an
# abort. If a task that the abort overtook sends its first entry there afterwards, this entry
# reopens the dead transaction in the topic's buffer and blocks all readers. An empty committed
# transaction on it frees it as soon as no older one is open on that coordinator (measured on
# 4.2.4).

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from eos.client import PulsarClient
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.retry import Patience

if TYPE_CHECKING:
    from eos.admin import AdminClient

logger = logging.getLogger(__name__)

HEAL_DEADLINE_S: Final = 10.0
_HEALING_TTL_MS: Final = 60_000
WATCH_S: Final = 600.0
"""How long an aborted transaction is watched, a default time to live: a late send may come late."""
CHECK_EVERY_S: Final = 20.0
"""Each check asks the admin API once per partition."""


def is_watched(aborted_at: datetime) -> bool:
    """Whether a transaction that was aborted then (UTC) is still watched."""
    return (datetime.now(UTC) - aborted_at).total_seconds() < WATCH_S


@dataclass
class _Watched:
    """Partitions that one dead transaction may block; times by ``time.monotonic``."""

    topics: list[str]
    until: float
    check_at: float = 0.0


class StuckPartitions:
    """Finds blocked partitions and frees them; logs those that it can't free. Never raises."""

    def __init__(self, client: PulsarClient, admin: AdminClient | None) -> None:
        self._client = client
        self._admin = admin
        self._watched: dict[TxnId, _Watched] = {}

    def watch(self, txn: TxnId, topics: Iterable[str]) -> None:
        """Watch ``topics`` (exact names) that tasks of the aborted ``txn`` may have written to."""
        if self._admin is None:
            logger.warning(
                "Transaction %s was aborted; a late send of one of its tasks may block a "
                "partition's readers. Set admin_url to have such partitions found and freed.",
                txn,
            )
            return
        self._watched[txn] = _Watched(list(topics), time.monotonic() + WATCH_S)

    def heal(self) -> None:
        """Free blocked partitions; each is checked every ``CHECK_EVERY_S``."""
        now = time.monotonic()
        for txn, watched in list(self._watched.items()):
            if now > watched.until:
                del self._watched[txn]
            elif now >= watched.check_at:
                watched.check_at = now + CHECK_EVERY_S
                self._heal(txn, watched.topics)

    def _heal(self, txn: TxnId, topics: Iterable[str]) -> None:
        assert self._admin is not None
        try:
            blocked = [t for t in topics if self._admin.is_open_in_buffer(TopicName.parse(t), txn)]
            if blocked:
                self._free(self._admin, txn, blocked)
        except EosError as error:
            logger.warning("Partitions blocked by transaction %s can't be found: %s", txn, error)

    def _free(self, admin: AdminClient, txn: TxnId, topics: list[str]) -> None:
        logger.warning("Transaction %s blocks the readers of %s: freeing", txn, ", ".join(topics))
        patience = Patience(HEAL_DEADLINE_S)
        while topics:
            commit_empty(self._client, txn.most, topics)
            topics = [t for t in topics if admin.is_open_in_buffer(TopicName.parse(t), txn)]
            if not topics:
                logger.warning("Freed: transaction %s blocks no partition any more", txn)
            elif patience.is_over:
                logger.error(
                    "Transaction %s still blocks the readers of %s, because an older transaction "
                    "is open on its coordinator; the next commit on them after its end frees them",
                    txn,
                    ", ".join(topics),
                )
                return
            else:
                patience.pause()


def commit_empty(client: PulsarClient, tc_id: int, topics: Iterable[str]) -> None:
    """Commit an empty transaction of coordinator ``tc_id`` over ``topics`` (exact names).

    Raises:
        EosError: it was not committed.
    """
    txn = client.join(client.coordinators.begin_on(tc_id, _HEALING_TTL_MS))
    txn.register(topics)
    txn.commit()
