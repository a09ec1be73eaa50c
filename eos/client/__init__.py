"""A blocking Pulsar client that writes in transactions and reads entries, also without Spark."""

from eos.client._client import PulsarClient
from eos.client._consumer import Consumer
from eos.client._entry_producer import EntryProducer
from eos.client._entry_reader import ONE_PERMIT, PERMITS, EntryReader
from eos.client._keyed_state import KeyedState
from eos.client._passive_consumer import SubscriptionCursor
from eos.client._producer import Producer
from eos.client._reader import NotFromStorage, Reader, StoredRun
from eos.client._receiver import Receiver
from eos.client._subscriptions import ReceivedMessage
from eos.client._topic_bounds import Bounds, TopicBounds
from eos.client._topics_consumer import TopicsConsumer
from eos.client._transaction import Transaction
from eos.forking import stay_in_process
from eos.wire.batch import Entry

stay_in_process(Producer, leaving=("send", "enqueue"))
stay_in_process(Transaction, leaving=("admit_lingering",))
# Of a consumer, what it inherits is the receiver's.
stay_in_process(
    Receiver,
    PulsarClient,
    EntryProducer,
    Consumer,
    Reader,
    EntryReader,
    KeyedState,
    TopicBounds,
    SubscriptionCursor,
    TopicsConsumer,
)

__all__ = [
    "ONE_PERMIT",
    "PERMITS",
    "Bounds",
    "Consumer",
    "Entry",
    "EntryProducer",
    "EntryReader",
    "KeyedState",
    "NotFromStorage",
    "Producer",
    "PulsarClient",
    "Reader",
    "ReceivedMessage",
    "StoredRun",
    "SubscriptionCursor",
    "TopicBounds",
    "TopicsConsumer",
    "Transaction",
]
