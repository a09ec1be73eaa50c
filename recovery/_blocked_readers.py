"""Topics whose readers do not get all entries, and the transaction that blocks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from eos.admin import AdminClient, OpenTransaction
from eos.cli.reports import Facts
from eos.errors import EosError
from eos.ids import TopicName, TxnId
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target


class BlockedTopic(Facts):
    """A topic whose last entries are not readable.

    ``cause``: ``open`` (a running transaction; normal), ``pinned`` (a dead transaction; needs
    ``heal``), ``loading`` (the topic's transaction buffer is not ready yet).
    """

    topic: str
    cause: Literal["open", "pinned", "loading"]
    txn: str | None
    owner: str | None
    max_read: str
    last_entry: str


def connect_coordinators(target: Target, records: list[LogRecord], problems: list[str]) -> None:
    """Connect to all coordinators: until then they do not load or list transactions (measured)."""
    try:
        with target.client(pulsar_part(records[-1]).service_url if records else None) as client:
            for tc_id in range(client.coordinators.count()):
                client.coordinators.connect(tc_id)
    except EosError as error:
        problems.append(f"the transaction coordinators: {error}")


def blocked_topic(
    admin: AdminClient,
    topic: TopicName,
    open_: list[OpenTransaction],
    owners: Mapping[TxnId, str],
) -> BlockedTopic | None:
    """Return what blocks the readers of an exact topic; None if nothing does.

    Args:
        open_: the coordinators' open transactions, queried before the topic.
        owners: transactions in the logs; candidates if no open one writes to the topic.
    """
    position = admin.read_position(topic)
    if not position.is_ready:
        cause: Literal["open", "pinned", "loading"] = "loading"
    elif not position.blocks_readers:
        return None
    else:
        cause = "pinned"
    txn: TxnId | None = None
    if cause == "pinned":
        alive = [one.txn for one in open_ if str(topic) in one.topics]
        if alive:
            cause, txn = "open", alive[0]
        else:
            # Newest first: the transaction that pins a topic is seldom old.
            suspects = sorted(owners, reverse=True)
            txn = next((one for one in suspects if admin.is_open_in_buffer(topic, one)), None)
    return BlockedTopic(
        topic=str(topic),
        cause=cause,
        txn=str(txn) if txn else None,
        owner=owners.get(txn) if txn else None,
        max_read=f"{position.max_read.ledger}:{position.max_read.entry}",
        last_entry=f"{position.last_entry.ledger}:{position.last_entry.entry}",
    )
