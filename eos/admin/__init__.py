"""A client of Pulsar's admin REST API, for requests that the binary protocol does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.admin._expiry import MESSAGE_AGE, Expiry, backlog_quotas, expiry, first_int, quota_limit
from eos.admin._results import (
    CoordinatorState,
    Ledger,
    OpenTransaction,
    ReadPosition,
    Retention,
    StoredLedger,
    Subscription,
    TopicStats,
)
from eos.admin._transport import (
    ADMIN_API,
    Transport,
    admin_request,
    create_topic,
    parse_admin_url,
    set_retention,
)

if TYPE_CHECKING:
    from eos.admin._admin_client import AdminClient

__all__ = [
    "ADMIN_API",
    "MESSAGE_AGE",
    "AdminClient",
    "CoordinatorState",
    "Expiry",
    "Ledger",
    "OpenTransaction",
    "ReadPosition",
    "Retention",
    "StoredLedger",
    "Subscription",
    "TopicStats",
    "Transport",
    "admin_request",
    "backlog_quotas",
    "create_topic",
    "expiry",
    "first_int",
    "parse_admin_url",
    "quota_limit",
    "set_retention",
]


def __getattr__(name: str) -> object:
    # Imported late (PEP 562): executors create topics, and may not have pydantic.
    if name == "AdminClient":
        from eos.admin._admin_client import AdminClient

        return AdminClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
