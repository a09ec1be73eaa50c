"""For tests: a real Pulsar broker or cluster on any machine, and the contract of sinks.

The fixtures are in ``pytest_plugin``, which pytest loads.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eos.testing._broker import PulsarStandalone, offload
    from eos.testing._cluster import PulsarCluster
    from eos.testing._contract_driver import OutputUnderTest
    from eos.testing._node import BrokerNode, ClusterNode
    from eos.testing._postgres import PostgresServer
    from eos.testing._settings import offloading_to_s3, rolling
    from eos.testing._sink_contract import SinkContract

__all__ = [
    "BrokerNode", "ClusterNode", "OutputUnderTest", "PostgresServer", "PulsarCluster",
    "PulsarStandalone", "SinkContract", "offload", "offloading_to_s3", "rolling",
]  # fmt: skip
_MODULES = {
    "BrokerNode": "_node",
    "ClusterNode": "_node",
    "OutputUnderTest": "_contract_driver",
    "PostgresServer": "_postgres",
    "PulsarCluster": "_cluster",
    "PulsarStandalone": "_broker",
    "SinkContract": "_sink_contract",
    "offload": "_broker",
    "offloading_to_s3": "_settings",
    "rolling": "_settings",
}


def __getattr__(name: str) -> Any:
    # Lazy: every pytest run imports the pytest plugin from here.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
