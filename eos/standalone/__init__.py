"""A real Pulsar broker, or a cluster, for tests, demos and first steps, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eos.standalone._broker import PulsarStandalone
    from eos.standalone._cluster import PulsarCluster
    from eos.standalone._node import BrokerNode, ClusterNode

__all__ = ["BrokerNode", "ClusterNode", "PulsarCluster", "PulsarStandalone"]


def __getattr__(name: str) -> Any:
    # Lazy: every pytest run imports the pytest plugin from here.
    if name == "PulsarStandalone":
        from eos.standalone._broker import PulsarStandalone

        return PulsarStandalone
    if name == "PulsarCluster":
        from eos.standalone._cluster import PulsarCluster

        return PulsarCluster
    if name in ("BrokerNode", "ClusterNode"):
        from eos.standalone import _node

        return getattr(_node, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
