"""All faults by name, in modules by the part that they hit."""

from __future__ import annotations

from typing import Final

from eos.chaos.faults import (
    _broker_faults,
    _cluster_servers,
    _database,
    _foreign_clients,
    _log_files,
    _moments,
    _processes,
    _source,
    _spark,
    _topic_faults,
    _user,
)
from eos.chaos.faults._fault import Fault, HitPart, Proof

# Their order is part of a seed's meaning: schedules choose from the list by position.
FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for module in (
        _processes,
        _broker_faults,
        _topic_faults,
        _log_files,
        _spark,
        _moments,
        _user,
        _foreign_clients,
        _source,
        _cluster_servers,
        _database,
    )
    for fault in module.FAULTS
}

__all__ = ["FAULTS", "Fault", "HitPart", "Proof"]
