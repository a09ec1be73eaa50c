"""Pulsar's admin REST API: the questions that only it answers, and how they are asked safely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.admin._creation import create_topic, set_retention
from eos.admin._facts import (
    CoordinatorState,
    Ledger,
    OpenTransaction,
    ReadPosition,
    Retention,
    Subscription,
    TopicStats,
)
from eos.admin._transport import Transport

if TYPE_CHECKING:
    from eos.admin._client import AdminClient

__all__ = [
    "AdminClient",
    "CoordinatorState",
    "Ledger",
    "OpenTransaction",
    "ReadPosition",
    "Retention",
    "Subscription",
    "TopicStats",
    "Transport",
    "create_topic",
    "set_retention",
]


def __getattr__(name: str) -> object:
    # Late (PEP 562): executors create topics, and do not have the client's pydantic.
    if name == "AdminClient":
        from eos.admin._client import AdminClient

        return AdminClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
