"""Partitions that a dead transaction pins: found through the admin API, and healed.

A partition that was registered but never written in, and never written in by any transaction
before, keeps no trace of the abort. A task that the abort overtook may send its first entry there
afterwards: it opens the dead transaction anew in the topic's buffer, and holds back every reader.
An empty committed transaction on the partition frees it, as soon as no older transaction is open
on that coordinator (measured on 4.2.4).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from eos.client import PulsarClient
from eos.client.admin import AdminClient
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.retry import Patience
from eos.transport.security import Security

logger = logging.getLogger(__name__)

HEAL_DEADLINE_S: Final = 10.0
_HEALING_TTL_MS: Final = 60_000


class Pins:
    """Looks for pinned partitions and frees them; reports what it can't free. Never raises."""

    def __init__(
        self, client: PulsarClient, admin_url: str | None, security: Security, *, timeout_s: float
    ) -> None:
        self._client = client
        self._admin = AdminClient(admin_url, security, timeout_s=timeout_s) if admin_url else None

    def heal(self, txn: TxnId, topics: Iterable[str]) -> None:
        """Free each of ``topics`` (exact names) that the ended transaction ``txn`` pins."""
        if self._admin is None:
            logger.warning(
                "transaction %s was aborted; a late send of one of its tasks may pin a partition's "
                "readers. Set admin_url to have such partitions found and healed.",
                txn,
            )
            return
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
