"""A blocking Pulsar client that writes in transactions; useful without Spark."""

from eos.client.client import PulsarClient
from eos.client.producer import Producer
from eos.client.transaction import Transaction

__all__ = ["Producer", "PulsarClient", "Transaction"]
