"""Pulsar's admin REST API: the questions that only it answers, and how they are asked safely."""

from eos.admin._client import AdminClient
from eos.admin._facts import CoordinatorState, OpenTransaction, ReadPosition
from eos.admin._transport import Transport

__all__ = ["AdminClient", "CoordinatorState", "OpenTransaction", "ReadPosition", "Transport"]
