"""The faults by name, each in the module of what it hits; ``fault`` says what a fault is."""

from __future__ import annotations

from typing import Final

from chaos.faults import (
    broker,
    executor,
    log,
    moments,
    network,
    receipts,
    rival,
    rows,
    spark,
    steps,
    strangers,
    topic,
    transactions,
    user,
)
from chaos.faults.fault import Fault, HitPart, Proof

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for room in (
        executor,
        rival,
        network,
        broker,
        transactions,
        receipts,
        topic,
        rows,
        log,
        spark,
        moments,
        steps,
        user,
        strangers,
    )
    for fault in room.FAULTS
}

DRAWN: Final = [fault.name for fault in FAULTS.values() if fault.is_drawn]
"""Those that random schedules are made of."""

__all__ = ["DRAWN", "FAULTS", "Fault", "HitPart", "Proof"]
