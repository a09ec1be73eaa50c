"""Partitions that a dead transaction pins: found through the admin API, and healed.

A partition that was registered but never written in, and never written in by any transaction
before, keeps no trace of the abort. A task that the abort overtook may send its first entry there
afterwards: it opens the dead transaction anew in the topic's buffer, and holds back every reader.
An empty committed transaction on the partition frees it, as soon as no older transaction is open
on that coordinator (measured on 4.2.4).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eos.admin import AdminClient
from eos.client import PulsarClient
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.retry import Patience

logger = logging.getLogger(__name__)

HEAL_DEADLINE_S: Final = 10.0
_HEALING_TTL_MS: Final = 60_000
WATCH_S: Final = 600.0
"""How long a transaction is looked after when it was aborted: a default time to live."""
LOOK_EVERY_S: Final = 20.0
"""One look asks the admin API once for each partition."""


def is_watched(aborted_at: datetime) -> bool:
    """Whether a transaction that was aborted then (UTC) is still looked after."""
    return (datetime.now(UTC) - aborted_at).total_seconds() < WATCH_S


@dataclass
class _Suspects:
    """Partitions that one dead transaction may pin; on the clock of ``time.monotonic``."""

    topics: list[str]
    until: float
    look_at: float = 0.0


class Pins:
    """Looks for pinned partitions and frees them; reports what it can't free. Never raises.

    A zombie's late send may come long after the abort: each transaction that was aborted is
    looked after for ``WATCH_S``, behind the ends of later ones.
    """

    def __init__(self, client: PulsarClient, admin: AdminClient | None) -> None:
        self._client = client
        self._admin = admin
        self._suspects: dict[TxnId, _Suspects] = {}

    def suspect(self, txn: TxnId, topics: Iterable[str]) -> None:
        """``txn`` was aborted, and its tasks may have written to ``topics`` (exact names)."""
        if self._admin is None:
            logger.warning(
                "transaction %s was aborted; a late send of one of its tasks may pin a partition's "
                "readers. Set admin_url to have such partitions found and healed.",
                txn,
            )
            return
        self._suspects[txn] = _Suspects(list(topics), time.monotonic() + WATCH_S)

    def heal(self) -> None:
        """Free what the suspects pin; each is looked at again every ``LOOK_EVERY_S``."""
        now = time.monotonic()
        for txn, suspects in list(self._suspects.items()):
            if now > suspects.until:
                del self._suspects[txn]
            elif now >= suspects.look_at:
                suspects.look_at = now + LOOK_EVERY_S
                self._heal(txn, suspects.topics)

    def _heal(self, txn: TxnId, topics: Iterable[str]) -> None:
        assert self._admin is not None
        try:
            pinned = [t for t in topics if self._admin.is_pinned_by(TopicName.parse(t), txn)]
            if pinned:
                self._free(self._admin, txn, pinned)
        except EosError as error:
            logger.warning("could not look for partitions pinned by transaction %s: %s", txn, error)

    def _free(self, admin: AdminClient, txn: TxnId, topics: list[str]) -> None:
        logger.warning("transaction %s pins the readers of %s: healing", txn, ", ".join(topics))
        patience = Patience(HEAL_DEADLINE_S)
        while topics:
            commit_empty(self._client, txn.most, topics)
            topics = [t for t in topics if admin.is_pinned_by(TopicName.parse(t), txn)]
            if not topics:
                logger.warning("healed: transaction %s pins nothing any more", txn)
            elif patience.is_over:
                logger.error(
                    "transaction %s still pins the readers of %s, because an older transaction is "
                    "open on its coordinator; the next commit on them after its end frees them",
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
    cure = client.join(client.coordinators.begin_on(tc_id, _HEALING_TTL_MS))
    cure.register(topics)
    cure.commit()
