"""Pulsar's admin REST API: the questions that only it answers, and how they are asked safely."""

from eos.admin.client import AdminClient
from eos.admin.facts import CoordinatorState, OpenTransaction, ReadPosition
from eos.admin.transport import Transport

__all__ = ["AdminClient", "CoordinatorState", "OpenTransaction", "ReadPosition", "Transport"]
