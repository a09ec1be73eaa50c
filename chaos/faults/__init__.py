"""The faults by name, each in the module of what it hits; ``fault`` says what a fault is."""

from __future__ import annotations

from typing import Final

from eos.chaos.faults import _broker as broker
from eos.chaos.faults import _cluster as cluster
from eos.chaos.faults import _executor as executor
from eos.chaos.faults import _foreign_clients as foreign_clients
from eos.chaos.faults import _log as log
from eos.chaos.faults import _moments as moments
from eos.chaos.faults import _network as network
from eos.chaos.faults import _receipts as receipts
from eos.chaos.faults import _rival as rival
from eos.chaos.faults import _rows as rows
from eos.chaos.faults import _source as source
from eos.chaos.faults import _spark as spark
from eos.chaos.faults import _steps as steps
from eos.chaos.faults import _topic as topic
from eos.chaos.faults import _transactions as transactions
from eos.chaos.faults import _user as user
from eos.chaos.faults._fault import Fault, HitPart, Proof

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
        foreign_clients,
        source,
        cluster,
    )
    for fault in room.FAULTS
}

__all__ = ["FAULTS", "Fault", "HitPart", "Proof"]
