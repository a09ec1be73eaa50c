"""What clusters of some sizes would take, from what a message cost on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ARRIVING_PER_S: Final = 69_400
"""Messages, on average: 6 billion a day."""
_PEAK: Final = 4
"""Times the average."""
_COPIES: Final = 3
_CORES: Final = 16
_NETWORK_BYTES_PER_S: Final = 1.25e9
"""10 Gbit/s, each way."""
_DISK_BYTES_PER_S: Final = 500e6
_USED: Final = 0.5
"""Of each: the rest is for bursts, compaction, and for the node that is down."""
_QUERIES: Final = 3_000
NODES: Final = (3, 10, 30)


@dataclass(frozen=True)
class Costs:
    """Of one message that is sent, read and copied once, and of an epoch beside its messages.

    Attributes:
        sent_core_us: of the broker's processor, to take it from a producer and store one copy.
        copied_core_us: of the broker's and of Spark's, to read it and write it to another topic.
        stored_bytes: as it is in an entry, compressed.
        epoch_core_ms: of all processes, for an epoch of ten rows.
    """

    sent_core_us: float
    copied_core_us: float
    stored_bytes: float
    epoch_core_ms: float


def limits(costs: Costs, nodes: int) -> dict[str, float]:
    """How many messages a second ``nodes`` take at most, by what would be full first.

    Brokers, bookies and Spark share the nodes. More copies cost no more than the first one, in
    which the broker's own work is too. A message crosses the network from its producer to a
    broker, to the bookies, to Spark, back to a broker and to the bookies; a bookie writes each
    copy twice, into its journal and its ledger.
    """
    more_copies_us = 2 * (_COPIES - 1) * costs.sent_core_us
    core_us = costs.sent_core_us + costs.copied_core_us + more_copies_us
    moved = costs.stored_bytes * (3 + 2 * _COPIES)
    written = costs.stored_bytes * 2 * 2 * _COPIES
    return {
        "processors": nodes * _CORES * _USED / core_us * 1e6,
        "network": nodes * _NETWORK_BYTES_PER_S * _USED / moved,
        "disks": nodes * _DISK_BYTES_PER_S * _USED / written,
    }


def table(costs: Costs) -> list[str]:
    """For ``NODES``, as Markdown."""
    by_nodes = [limits(costs, nodes) for nodes in NODES]
    lowest = [min(found.values()) for found in by_nodes]
    share = _QUERIES / 60 * costs.epoch_core_ms / 1e3 / (_CORES * _USED)
    rows = {
        f"thousand messages/s, if {what} were all": [f"{one[what] / 1e3:,.0f}" for one in by_nodes]
        for what in by_nodes[0]
    }
    rows |= {
        f"**times the average of {ARRIVING_PER_S:,}/s**": [
            f"**{one / ARRIVING_PER_S:.1f}**" for one in lowest
        ],
        f"times the peak, {_PEAK} times that": [
            f"{one / ARRIVING_PER_S / _PEAK:.1f}" for one in lowest
        ],
        "minutes to catch up after an hour, while more arrives": [_minutes(one) for one in lowest],
        f"{_QUERIES:,} queries, an epoch a minute each: of the processors' half": [
            f"{share / nodes:.0%}" for nodes in NODES
        ],
    }
    heads = " | ".join(f"{nodes} nodes" for nodes in NODES)
    lines = [f"| | {heads} |", f"|---|{'---:|' * len(NODES)}"]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def _minutes(limit: float) -> str:
    left = limit - ARRIVING_PER_S
    return f"{60 * ARRIVING_PER_S / left:,.0f}" if left > 0 else "never"
