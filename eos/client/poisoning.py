"""How a failure becomes a transaction's poison, and what its owner is told then (I4)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eos.errors import EosError, TransactionPoisoned
from eos.ids import TxnId

if TYPE_CHECKING:
    from eos.client.transaction import Transaction


@contextlib.contextmanager
def poisoning(txn: Transaction | None) -> Iterator[None]:
    """What goes wrong here leaves a message out of ``txn``: it must not be committed."""
    try:
        yield
    except EosError as error:
        if txn is not None:
            txn.poison(error)
        raise


def poisoned(txn_id: TxnId, reason: EosError) -> TransactionPoisoned:
    """What to raise about a transaction that ``reason`` poisoned."""
    if isinstance(reason, TransactionPoisoned):
        return copy.copy(reason)
    error = TransactionPoisoned(
        f"Transaction {txn_id} is poisoned: {reason.message}",
        hint="Begin a new transaction and send everything again.",
    )
    error.__cause__ = reason
    return error
