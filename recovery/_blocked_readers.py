"""Topics whose readers can not get to all entries, and what holds them back."""

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


class HeldBack(Facts):
    """A topic with entries that readers can't get to.

    ``cause``: ``open`` (a live transaction, normal while it lasts), ``pinned`` (a dead one: heal
    it), ``loading`` (the topic's transaction buffer is not ready).
    """

    topic: str
    cause: Literal["open", "pinned", "loading"]
    txn: str | None
    owner: str | None
    max_read: str
    last_entry: str


def connect_coordinators(target: Target, records: list[LogRecord], problems: list[str]) -> None:
    """A coordinator loads, and tells its transactions, only once a client connects (measured)."""
    try:
        with target.client(pulsar_part(records[-1]).service_url if records else None) as client:
            for tc_id in range(client.coordinators.count()):
                client.coordinators.connect(tc_id)
    except EosError as error:
        problems.append(f"the transaction coordinators: {error}")


def held_back(
    admin: AdminClient,
    topic: TopicName,
    open_: list[OpenTransaction],
    owners: Mapping[TxnId, str],
) -> HeldBack | None:
    """Whether an exact topic's readers are held back, and by what; None when they are not.

    Args:
        open_: what is open at the coordinators; asked for before the topic is.
        owners: transactions that logs name, suspects when the cause is none of ``open_``.
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
            # Newest first: what pins a topic is seldom old.
            suspects = sorted(owners, reverse=True)
            txn = next((one for one in suspects if admin.is_open_in_buffer(topic, one)), None)
    return HeldBack(
        topic=str(topic),
        cause=cause,
        txn=str(txn) if txn else None,
        owner=owners.get(txn) if txn else None,
        max_read=f"{position.max_read.ledger}:{position.max_read.entry}",
        last_entry=f"{position.last_entry.ledger}:{position.last_entry.entry}",
    )
