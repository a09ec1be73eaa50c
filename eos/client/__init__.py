"""A blocking Pulsar client that writes in transactions and reads entries; useful without Spark."""

from eos.client.client import PulsarClient
from eos.client.producer import Producer
from eos.client.reader import Reader
from eos.client.transaction import Transaction
from eos.wire.batch import Entry

__all__ = ["Entry", "Producer", "PulsarClient", "Reader", "Transaction"]
