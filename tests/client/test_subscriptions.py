"""What a broker answers when a subscription is moved."""

from __future__ import annotations

import pytest

from eos.client._subscriptions import check_moved
from eos.errors import EosError
from eos.wire.commands import AckResponse

# The exception that 5.0.0-M1 answers with, worded as in its ManagedCursorImpl.
WAS_THERE = (
    "org.apache.bookkeeper.mledger.ManagedLedgerException$MarkDeletingMarkedPosition: "
    "Mark deleting an already mark-deleted position. Current mark-delete: 5:3 "
    "-- attempted mark delete: 5:3"
)


def answer(error: int | None, message: str = "") -> AckResponse:
    return AckResponse(consumer_id=0, error=error, message=message)


@pytest.mark.parametrize("given", [answer(None), answer(1, WAS_THERE)], ids=["moved", "was there"])
def test_a_subscription_that_is_there_has_moved(given):
    check_moved(given, "Moving")


def test_any_other_refusal_is_an_error():
    with pytest.raises(EosError, match="Moving"):
        check_moved(answer(2, "the ledger is closed"), "Moving")
