"""Waiting until a transaction's time to live has passed."""

from __future__ import annotations

import time

from eos.client import PulsarClient
from eos.errors import InvalidTransactionStatus, TransactionNotFound
from eos.ids import TxnId


def await_expiry(client: PulsarClient, txn: TxnId) -> None:
    """Wait until the broker has forgotten ``txn``; no query leaves the transaction untouched."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            client.coordinators.add_partitions(txn, ["persistent://public/default/none"])
        except TransactionNotFound:
            return
        except InvalidTransactionStatus:
            pass  # the broker is about to abort it
        time.sleep(0.1)
    raise AssertionError(f"transaction {txn} did not expire")
