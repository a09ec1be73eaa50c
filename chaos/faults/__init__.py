"""The faults by name, each in the room of what it befalls; ``fault`` says what a fault is."""

from __future__ import annotations

from typing import Final

from chaos.faults import broker, executor, log, moments, network, rival, steps
from chaos.faults.fault import Fault, Part, Proof

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for room in (executor, rival, network, broker, log, moments, steps)
    for fault in room.FAULTS
}

__all__ = ["FAULTS", "Fault", "Part", "Proof"]
