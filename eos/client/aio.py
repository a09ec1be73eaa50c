"""The client for ``asyncio``: awaitable producers, consumers and transactions.

Blocking ones do the work, in threads, so the event loop never blocks. Each method documents the
effect of a cancelled ``await``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, Generic, Literal, Self, TypeVar, Unpack

from eos.client._client import PulsarClient
from eos.client._consumer import Acknowledged, Consumer
from eos.client._event_loop import LoopWakeup, ThreadPool
from eos.client._producer import Producer
from eos.client._subscriptions import ConsumerArguments, ReceivedMessage
from eos.client._topics_consumer import ReceivedMessages, TopicNames, TopicsConsumer
from eos.client._transaction import Transaction
from eos.forking import stay_in_process
from eos.ids import MessageId
from eos.transport.auth import Auth
from eos.transport.message_keys import Encryption

_THREADS: Final = 32  # calls that one client runs at once, without those that receive
_RECEIVE_S: Final = 1.0  # after it a waiting thread looks whether its task was cancelled

ConsumerT = TypeVar("ConsumerT", Consumer, TopicsConsumer)


class AsyncTransaction:
    """Made by ``AsyncPulsarClient.transaction``.

    It commits at the end of its block, and aborts if the block raises or is cancelled::

        async with client.transaction(timeout_s=60) as txn:
            await producer.send(b"...", txn=txn)
    """

    def __init__(self, client: PulsarClient, threads: ThreadPool, timeout_s: float) -> None:
        self._client = client
        self._threads = threads
        self._timeout_s = timeout_s
        self._begun: Transaction | None = None

    @property
    def blocking(self) -> Transaction:
        """The same transaction, for blocking producers and consumers.

        Raises:
            RuntimeError: its block has not begun.
        """
        if self._begun is None:
            raise RuntimeError("The transaction is not begun: use it in `async with`.")
        return self._begun

    async def commit(self) -> None:
        """As ``Transaction.commit``. A cancelled task waits until the outcome is known.

        Then an error of the commit is raised, or else the cancellation: the transaction *is*
        committed then.
        """
        # Not `run`: a cancelled commit would be left in doubt, unnoticed.
        await self._threads.finish(self.blocking.commit)

    async def abort(self) -> None:
        """As ``Transaction.abort``. A cancelled task waits until it is aborted."""
        await self._threads.finish(self.blocking.abort)

    async def __aenter__(self) -> Self:
        begin = partial(self._client.transaction, timeout_s=self._timeout_s)
        # Begun for a task that is cancelled, it would stay open.
        self._begun = await self._threads.run(begin, undo=Transaction.abort)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._threads.finish(partial(self.blocking.__exit__, kind, error, trace))


class _Closing:
    """Closed at the end of its ``async with`` block."""

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncProducer(_Closing):
    """Made by ``AsyncPulsarClient.producer``; sends batches to all partitions of its topic."""

    def __init__(self, producer: Producer, threads: ThreadPool) -> None:
        self.topic = producer.topic
        self._producer = producer
        self._threads = threads
        self._wakeup = LoopWakeup()

    async def send(
        self,
        value: bytes | None,
        *,
        txn: AsyncTransaction | None = None,
        key: str | bytes | None = None,
        event_time_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        deliver_at_ms: int | None = None,
    ) -> MessageId:
        """Send one message, wait until the broker has stored it, and return its id.

        Send concurrently (``asyncio.gather``), as each call waits. After a cancellation the message
        is still sent, and is part of its transaction.

        Raises:
            EosError: as ``Producer.send``, and as its future.
        """
        # In this thread, so that messages are sent in the order of the calls.
        stored, send_full = self._producer.enqueue(
            *(value, _begun(txn), key, event_time_ms, properties, deliver_at_ms)
        )
        if send_full is not None:
            await self._threads.run(send_full)
        return await self._wakeup.wrap(stored)

    async def flush(self) -> None:
        """As ``Producer.flush``."""
        await self._threads.run(self._producer.flush)

    async def close(self) -> None:
        """As ``Producer.close``; a cancelled task waits for its end."""
        await self._threads.finish(self._producer.close)


class _AsyncReceiver(_Closing, Generic[ConsumerT]):
    """What consumers of one and of several topics share."""

    def __init__(self, consumer: ConsumerT, threads: ThreadPool) -> None:
        self.subscription = consumer.subscription
        self._consumer: ConsumerT = consumer
        self._threads = threads
        self._receiving = ThreadPool(1)
        self._unread: list[ReceivedMessage] = []
        self._round = 0  # the number of times that all messages were requested again

    async def receive(self, timeout_s: float) -> ReceivedMessage | None:
        """As ``Consumer.receive``. Messages for a cancelled task go to the next one."""
        messages = await self._receive(timeout_s, self._receive_one, 1)
        return messages[0] if messages else None

    def _receive_one(self, wait_s: float) -> list[ReceivedMessage]:
        message = self._consumer.receive(wait_s)
        return [] if message is None else [message]

    async def receive_batch(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """As ``Consumer.receive_batch``. Messages for a cancelled task go to the next one."""
        return await self._receive(
            timeout_s, lambda wait_s: self._consumer.receive_batch(max_messages, wait_s), None
        )

    async def _receive(
        self,
        timeout_s: float,
        receive: Callable[[float], list[ReceivedMessage]],
        count: int | None,
    ) -> list[ReceivedMessage]:
        """Receive in short intervals, so that the thread of a cancelled task is soon free."""
        deadline = time.monotonic() + timeout_s
        while True:
            wait_s = min(_RECEIVE_S, max(0.0, deadline - time.monotonic()))
            call = partial(self._take, receive, wait_s, count)
            messages = await self._receiving.run(call, undo=partial(self._put_back, self._round))
            if messages or time.monotonic() >= deadline:
                return list(messages)

    def _take(
        self, receive: Callable[[float], list[ReceivedMessage]], wait_s: float, count: int | None
    ) -> list[ReceivedMessage]:
        # In the only receiving thread, as is ``undo``: so they can't interleave.
        if not self._unread:
            return receive(wait_s)
        taken = self._unread[:count]
        del self._unread[:count]
        return taken

    def _put_back(self, begun_in: int, messages: list[ReceivedMessage]) -> None:
        if begun_in == self._round:  # else they come again
            self._unread[:0] = messages

    async def acknowledge_cumulative(
        self, message: ReceivedMessage, txn: AsyncTransaction | None = None
    ) -> None:
        """As ``Consumer.acknowledge_cumulative``. A cancelled task waits for the answer."""
        call = partial(self._consumer.acknowledge_cumulative, message, _begun(txn))
        await self._threads.finish(call)

    async def redeliver(self, messages: Sequence[ReceivedMessage] | None = None) -> None:
        """As ``Consumer.redeliver``, also of messages that cancelled tasks have left."""
        again = None if messages is None else chain(messages, self._unread)
        await self._begin_again(partial(self._consumer.redeliver, again), is_all=again is None)

    async def _begin_again(self, call: Callable[[], None], *, is_all: bool = True) -> None:
        self._round += int(is_all)

        def call_and_forget() -> None:
            call()
            self._unread.clear()

        await self._receiving.finish(call_and_forget)

    async def close(self) -> None:
        """As ``Consumer.close``; a cancelled task waits for its end."""
        await self._threads.finish(self._consumer.close)
        self._receiving.close()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages forever."""
        while True:
            message = await self.receive(_RECEIVE_S)
            if message is not None:
                yield message


class AsyncConsumer(_AsyncReceiver[Consumer]):
    """Made by ``AsyncPulsarClient.consumer``. One task at a time receives::

    async for message in consumer:
        await consumer.acknowledge(message)
    """

    @property
    def topic(self) -> str:
        """The topic's full name."""
        return self._consumer.topic

    async def acknowledge(
        self,
        messages: Acknowledged | Sequence[Acknowledged],
        txn: AsyncTransaction | None = None,
    ) -> None:
        """As ``Consumer.acknowledge``. A cancelled task waits for the broker's answer."""
        await self._threads.finish(partial(self._consumer.acknowledge, messages, _begun(txn)))

    def negative_acknowledge(self, messages: Acknowledged | Iterable[Acknowledged]) -> None:
        """As ``Consumer.negative_acknowledge``, which does not wait."""
        self._consumer.negative_acknowledge(messages)

    async def seek(self, to: MessageId | int) -> None:
        """As ``Consumer.seek``. A cancelled task waits for the broker's answer."""
        await self._begin_again(partial(self._consumer.seek, to))


class AsyncTopicsConsumer(_AsyncReceiver[TopicsConsumer]):
    """Made by ``AsyncPulsarClient.topics_consumer``; used as an ``AsyncConsumer``."""

    @property
    def topics(self) -> list[str]:
        """The topics that are read now, by partition."""
        return self._consumer.topics

    async def acknowledge(
        self, messages: ReceivedMessages, txn: AsyncTransaction | None = None
    ) -> None:
        """As ``TopicsConsumer.acknowledge``. A cancelled task waits for the broker's answer."""
        await self._threads.finish(partial(self._consumer.acknowledge, messages, _begun(txn)))

    def negative_acknowledge(self, messages: ReceivedMessages) -> None:
        """As ``TopicsConsumer.negative_acknowledge``, which does not wait."""
        self._consumer.negative_acknowledge(messages)

    async def retry_later(
        self, messages: ReceivedMessages, delay_s: float, txn: AsyncTransaction | None = None
    ) -> None:
        """As ``TopicsConsumer.retry_later``. A cancelled task waits for its end."""
        moving = partial(self._consumer.retry_later, messages, delay_s, _begun(txn))
        await self._threads.finish(moving)

    async def seek(self, to_ms: int) -> None:
        """As ``TopicsConsumer.seek``. A cancelled task waits for the broker's answers."""
        await self._begin_again(partial(self._consumer.seek, to_ms))


def _begun(txn: AsyncTransaction | None) -> Transaction | None:
    return None if txn is None else txn.blocking


class AsyncPulsarClient(_Closing):
    """A client for ``asyncio``; its arguments are those of ``PulsarClient``.

    ::

        async with AsyncPulsarClient("pulsar://localhost:6650") as client:
            producer = await client.producer("orders")
            async with client.transaction(timeout_s=60) as txn:
                await producer.send(b"all of this", txn=txn)

    Raises:
        ConfigurationError: as ``PulsarClient``.
    """

    def __init__(
        self,
        service_url: str,
        *,
        auth: Auth | None = None,
        listener_name: str | None = None,
        subscription_prefix: str | None = None,
        encryption: Encryption | None = None,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._client = PulsarClient(
            service_url,
            auth=auth,
            listener_name=listener_name,
            subscription_prefix=subscription_prefix,
            encryption=encryption,
            timeout_s=timeout_s,
            max_pending_bytes=max_pending_bytes,
        )
        self._threads = ThreadPool(_THREADS)

    async def producer(
        self,
        topic: str,
        *,
        create: bool = False,
        linger_ms: float = 1.0,
        max_batch_messages: int = 1000,
        max_batch_bytes: int = 128 * 1024,
        hashing: Literal["java", "murmur3"] = "java",
        batching: Literal["by_size", "by_key"] = "by_size",
    ) -> AsyncProducer:
        """As ``PulsarClient.producer``. A cancelled task's producer is closed."""
        opening = partial(
            self._client.producer,
            topic,
            create=create,
            linger_ms=linger_ms,
            max_batch_messages=max_batch_messages,
            max_batch_bytes=max_batch_bytes,
            hashing=hashing,
            batching=batching,
        )
        opened = await self._threads.run(opening, undo=Producer.close)
        return AsyncProducer(opened, self._threads)

    async def consumer(
        self, topic: str, subscription: str, **options: Unpack[ConsumerArguments]
    ) -> AsyncConsumer:
        """As ``PulsarClient.consumer``. A cancelled task's consumer is closed."""
        opening = partial(self._client.consumer, topic, subscription, **options)
        opened = await self._threads.run(opening, undo=Consumer.close)
        return AsyncConsumer(opened, self._threads)

    async def topics_consumer(
        self,
        topics: TopicNames,
        subscription: str,
        *,
        retry: bool = False,
        discovery_s: float = 60.0,
        **options: Unpack[ConsumerArguments],
    ) -> AsyncTopicsConsumer:
        """As ``PulsarClient.topics_consumer``. A cancelled task's consumer is closed."""
        opening = partial(
            self._client.topics_consumer,
            topics,
            subscription,
            retry=retry,
            discovery_s=discovery_s,
            **options,
        )
        opened = await self._threads.run(opening, undo=TopicsConsumer.close)
        return AsyncTopicsConsumer(opened, self._threads)

    def transaction(self, *, timeout_s: float = 60.0) -> AsyncTransaction:
        """Return a transaction; ``async with`` begins it. The broker aborts it after ``timeout_s``.

        Raises:
            EosError: as ``PulsarClient.transaction``, at the beginning of the block.
        """
        return AsyncTransaction(self._client, self._threads, timeout_s)

    async def close(self) -> None:
        """As ``PulsarClient.close``."""
        await self._threads.finish(self._client.close)
        self._threads.close()


# Of the consumers, what they inherit is the receiver's.
stay_in_process(
    *(AsyncPulsarClient, AsyncProducer, AsyncTransaction, _Closing),
    *(_AsyncReceiver, AsyncConsumer, AsyncTopicsConsumer),
)
