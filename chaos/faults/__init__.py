"""All faults by name, in modules by what they hit; see ``_fault.Fault``."""

from __future__ import annotations

from typing import Final

from eos.chaos.faults import (
    _broker_faults,
    _cluster_servers,
    _executor,
    _foreign_clients,
    _frame_kills,
    _log_files,
    _network,
    _receipts,
    _rival,
    _source,
    _spark,
    _steps,
    _topic_admin,
    _user,
)
from eos.chaos.faults._fault import Fault, HitPart, Proof

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for module in (
        _executor,
        _rival,
        _network,
        _broker_faults,
        _receipts,
        _topic_admin,
        _log_files,
        _spark,
        _frame_kills,
        _steps,
        _user,
        _foreign_clients,
        _source,
        _cluster_servers,
    )
    for fault in module.FAULTS
}

__all__ = ["FAULTS", "Fault", "HitPart", "Proof"]
