"""One consumer of several topics: partitions, a list, or those of a namespace by a pattern."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from eos.client._consumer import Consumer, ConsumerFactory, refuse_encrypted
from eos.client._lookup import Lookup
from eos.client._subscriptions import ConsumerOptions, ReceivedMessage
from eos.client._transaction import Transaction, poisoning
from eos.errors import ConfigurationError, EosError, Fatal, Retriable, TopicNotFound
from eos.ids import TopicName
from eos.waiting import Monitor

logger = logging.getLogger(__name__)

TopicNames = str | Sequence[str] | re.Pattern[str]
ReceivedMessages = ReceivedMessage | Iterable[ReceivedMessage]

# Names of Java's RetryMessageUtil; a user may have both kinds of consumers.
_RETRIES: Final = "RECONSUMETIMES"
_DELAY: Final = "DELAY_TIME"
_DIGITS: Final = 10
_LONGEST_DELAY_S: Final = 10 * 365 * 86_400


@dataclass(frozen=True)
class TopicGroup:
    """Which topics are read.

    Raises:
        ConfigurationError: no topic is named, or the pattern names no namespace.
    """

    topics: TopicNames
    lookup: Lookup

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigurationError("topics: name at least one topic.")
        if self.is_pattern:
            self._namespace_and_pattern()

    @property
    def is_pattern(self) -> bool:
        """Whether topics may come and go."""
        return isinstance(self.topics, re.Pattern)

    @property
    def names(self) -> Sequence[str]:
        """The given names; none with a pattern."""
        if isinstance(self.topics, re.Pattern):
            return ()
        return (self.topics,) if isinstance(self.topics, str) else self.topics

    def find(self) -> list[str]:
        """Return the names of all topics, by partition.

        Raises:
            TopicNotFound: a topic does not exist.
            EosError: the broker does not answer.
        """
        if isinstance(self.topics, re.Pattern):
            namespace, pattern = self._namespace_and_pattern()
            names = _parsed(self.lookup.topics(namespace))
            return [str(one) for one in names if pattern.fullmatch(str(one.base))]
        return [one for name in self.names for one in self.partitions(name)]

    def partitions(self, name: str) -> list[str]:
        """Return the partitions of a topic, or its name.

        Raises:
            TopicNotFound: it does not exist.
        """
        topic = TopicName.parse(name)
        if topic.partition_index is not None:
            return [str(topic)]
        return [str(one) for one in topic.partitions(self.lookup.partition_count(topic))]

    def _namespace_and_pattern(self) -> tuple[str, re.Pattern[str]]:
        assert isinstance(self.topics, re.Pattern)
        if not isinstance(self.topics.pattern, str):
            raise ConfigurationError("The pattern of topics must be a text, not bytes.")
        text = self.topics.pattern.removeprefix("persistent://")
        parts = text.split("/", 2)
        if len(parts) == 1:
            parts = ["public", "default", text]
        if (
            len(parts) != 3
            or not all(parts)
            or any(re.escape(one) != one.replace("-", r"\-") for one in parts[:2])
        ):
            raise ConfigurationError(
                f"The pattern {self.topics.pattern!r} names no tenant and namespace.",
                hint="Write it as tenant/namespace/PATTERN; only the last part may be a pattern.",
            )
        namespace = "/".join(parts[:2])
        whole = f"persistent://{re.escape(namespace)}/(?:{parts[2]})"
        try:
            return namespace, re.compile(whole, self.topics.flags)
        except re.error as error:  # a flag within it
            raise ConfigurationError(f"The pattern {self.topics.pattern!r}: {error}.") from None


def _parsed(names: Iterable[str]) -> Iterator[TopicName]:
    """Yield topics of users: not those of sinks, nor names that only other clients accept."""
    for name in names:
        with contextlib.suppress(ConfigurationError):
            if not (topic := TopicName.parse(name)).local.startswith("__"):
                yield topic


class TopicsConsumer:
    """Made by ``PulsarClient.topics_consumer``. One thread at a time receives; any acknowledges.

    Within each topic, messages come in order, if the subscription's type keeps it. Messages are
    acknowledged as those of a ``Consumer``, in one transaction over all topics. While a topic's
    broker is unavailable, ``receive`` waits for it up to the client's ``timeout_s``, and raises.
    """

    def __init__(
        self,
        factory: ConsumerFactory,
        group: TopicGroup,
        subscription: str,
        options: ConsumerOptions,
        *,
        retry: bool,
        discovery_s: float,
    ) -> None:
        if not discovery_s > 0:
            raise ConfigurationError(f"discovery_s must be above zero, not {discovery_s!r}.")
        if retry and (options.is_ordered or group.is_pattern):
            raise ConfigurationError(
                "retry needs the names of topics, and the type shared or key_shared: brokers "
                "delay no messages for others."
            )
        self.subscription = subscription
        self._factory = factory
        self._group = group
        self._options = options
        self._discovery_s = discovery_s
        # One lock for all consumers, so that one wait is for a message of any of them.
        self._changed = Monitor()
        self._consumers: dict[str, Consumer] = {}
        self._turn = 0
        self._closed = False
        self._dead = self._retries = None
        try:
            if retry:
                base = f"{TopicName.parse(group.names[0]).base}-{subscription}"
                self._retries = factory.letters(f"{base}-RETRY", None)
                self._retries.open()
                dead = options.dead_letter_topic or f"{base}-DLQ"
                self._dead = factory.letters(dead, subscription)
            self._subscribe(self._find(), options)
        except BaseException:
            self.close()
            raise
        self._discovers_at = time.monotonic() + discovery_s

    @property
    def topics(self) -> list[str]:
        """The topics that are read now, by partition."""
        with self._changed:
            return list(self._consumers)

    @property
    def is_exclusive(self) -> bool:
        """Whether its subscription has no other consumer."""
        return self._options.is_exclusive

    def _find(self) -> list[str]:
        retries = [] if self._retries is None else self._group.partitions(self._retries.topic)
        found = self._group.find()
        if self._group.is_pattern:
            # Its own dead letters would come again, and move on to the next topic of this kind.
            given = self._options.dead_letter_topic
            dead = None if given is None else TopicName.parse(given)
            bases = {one: TopicName.parse(one).base for one in found}
            own = f"-{self.subscription}-DLQ"
            found = [
                one for one, base in bases.items() if base != dead and not str(base).endswith(own)
            ]
        return [*found, *retries]

    def _subscribe(self, topics: Iterable[str], options: ConsumerOptions) -> None:
        for topic in topics:
            if topic not in self._consumers:
                chosen = options
                if options.max_redeliveries is not None and options.dead_letter_topic is None:
                    base = TopicName.parse(topic).base
                    own = f"{base}-{self.subscription}-DLQ"
                    dead = own if self._dead is None else self._dead.topic
                    chosen = replace(options, dead_letter_topic=dead)
                opened = self._factory.open(topic, self.subscription, chosen, self._changed)
                with self._changed:
                    is_closed = self._closed  # meanwhile
                    if not is_closed:
                        self._consumers[topic] = opened
                if is_closed:
                    opened.close()

    def _discover(self) -> None:
        self._discovers_at = time.monotonic() + self._discovery_s
        try:
            found = self._find()
        except EosError as error:
            logger.warning("Looking for new topics of %s: %s", self.subscription, error)
            return
        for topic in found:
            if self._closed:
                return
            try:
                # Messages since the last look are not lost.
                self._subscribe([topic], replace(self._options, start="earliest"))
            except EosError as error:  # the others are read
                logger.warning("Subscribing %s to %s: %s", self.subscription, topic, error)
        for topic in self._consumers.keys() - set(found):
            self._drop(topic)

    def _drop(self, topic: str) -> None:
        with self._changed:
            dropped = self._consumers.pop(topic)
        with contextlib.suppress(EosError):
            dropped.close()

    # --- receiving --------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> ReceivedMessage | None:
        """As ``Consumer.receive``, of any topic."""
        messages = self._receive(timeout_s, lambda one: [one.receive(0.0)])
        return messages[0] if messages else None

    def receive_batch(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """As ``Consumer.receive_batch``, of one of the topics, which take turns."""
        return self._receive(timeout_s, lambda one: list(one.receive_batch(max_messages, 0.0)))

    def _receive(
        self, timeout_s: float, receive: Callable[[Consumer], Sequence[ReceivedMessage | None]]
    ) -> list[ReceivedMessage]:
        deadline = time.monotonic() + timeout_s
        while True:
            if time.monotonic() > self._discovers_at:
                self._discover()
            # Without the lock: to subscribe again may take long, and others may acknowledge then.
            consumer = self._next(deadline)
            if consumer is not None:
                try:
                    messages = [one for one in receive(consumer) if one is not None]
                except TopicNotFound:
                    if consumer.topic in self._find():
                        raise
                    self._drop(consumer.topic)
                    continue
                if messages:
                    return messages
            if time.monotonic() >= deadline:
                return []

    def _next(self, deadline: float) -> Consumer | None:
        """Wait for the next topic with a message, or one that needs attention."""
        with self._changed:
            while True:
                if self._closed:
                    raise Fatal(f"The consumer of {self.subscription} is closed.")
                consumers = list(self._consumers.values())
                for number in range(len(consumers)):
                    place = (self._turn + number) % len(consumers)
                    if consumers[place].is_ready:
                        self._turn = place + 1
                        return consumers[place]
                left_s = min(deadline, self._discovers_at) - time.monotonic()
                if left_s <= 0:
                    return None
                self._changed.wait(left_s)

    # --- acknowledging ----------------------------------------------------------------------

    def acknowledge(self, messages: ReceivedMessages, txn: Transaction | None = None) -> None:
        """As ``Consumer.acknowledge``, in all their topics."""
        for consumer, ours in self._by_consumer(messages, txn):
            consumer.acknowledge(ours, txn)

    def acknowledge_cumulative(
        self, message: ReceivedMessage, txn: Transaction | None = None
    ) -> None:
        """As ``Consumer.acknowledge_cumulative``, in the topic of ``message`` only."""
        for consumer, _ in self._by_consumer(message, txn):
            consumer.acknowledge_cumulative(message, txn)

    def negative_acknowledge(self, messages: ReceivedMessages) -> None:
        """As ``Consumer.negative_acknowledge``."""
        for consumer, ours in self._by_consumer(messages, None):
            consumer.negative_acknowledge(ours)

    def retry_later(
        self, messages: ReceivedMessages, delay_s: float, txn: Transaction | None = None
    ) -> None:
        """Move ``messages`` to the retry topic: they come again after ``delay_s``.

        They are acknowledged in the same transaction, ``txn`` or one of its own. With
        ``max_redeliveries``, one that was retried so often goes to the dead letters instead. The
        copies have the properties of Java's ``reconsumeLater``, and lose their place in the order.

        Raises:
            ConfigurationError: the consumer was opened without ``retry``.
            InputError: a message could not be decrypted: its copy would look like plain text.
            EosError: as ``acknowledge`` and ``Producer.send``. On any error ``txn`` is poisoned.
        """
        with poisoning(txn):
            self._move(_listed(messages), delay_s, txn)

    def _move(self, ours: list[ReceivedMessage], delay_s: float, txn: Transaction | None) -> None:
        if self._retries is None or self._dead is None:
            raise ConfigurationError(
                "retry_later needs a consumer that was opened with retry=True."
            )
        if not 0 <= delay_s < _LONGEST_DELAY_S:
            raise ConfigurationError(f"delay_s must be 0 or more, not {delay_s!r}.")
        refuse_encrypted(ours)
        at_ms = int((time.time() + delay_s) * 1000)
        most = self._options.max_redeliveries
        # All or nothing: a message must not be in two topics, or in none.
        with contextlib.nullcontext(txn) if txn is not None else self._factory.begin() as within:
            for message in ours:
                count = _retries_of(message) + 1
                if most is not None and count > most:
                    self._dead.send(message, self.subscription, within)
                else:
                    own = {_RETRIES: str(count), _DELAY: str(int(delay_s * 1000))}
                    self._retries.send(message, self.subscription, within, own, at_ms)
            self.acknowledge(ours, within)

    def redeliver(self, messages: ReceivedMessages | None = None) -> None:
        """As ``Consumer.redeliver``."""
        if messages is None:
            for consumer in list(self._consumers.values()):
                consumer.redeliver()
        else:
            for consumer, ours in self._by_consumer(messages, None):
                consumer.redeliver(ours)

    def seek(self, to_ms: int) -> None:
        """Move the subscription on all topics to a publish time, milliseconds since 1970."""
        if not isinstance(to_ms, int):
            raise ConfigurationError("A consumer of several topics seeks to a publish time only.")
        for consumer in list(self._consumers.values()):
            consumer.seek(to_ms)

    def _by_consumer(
        self, messages: ReceivedMessages, txn: Transaction | None
    ) -> Iterator[tuple[Consumer, list[ReceivedMessage]]]:
        by_topic: dict[str, list[ReceivedMessage]] = {}
        for message in _listed(messages):
            by_topic.setdefault(message.topic, []).append(message)
        for topic, ours in by_topic.items():
            consumer = self._consumers.get(topic)
            if consumer is None:
                with poisoning(txn):
                    raise Retriable(f"{topic} is not read any more: it was deleted.")
            yield consumer, ours

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Close it; unacknowledged messages go to other consumers. May be called twice."""
        with self._changed:
            self._closed = True
            consumers = list(self._consumers.values())
            self._changed.notify_all()
        with contextlib.ExitStack() as closing:  # all of them, also if one fails
            for one in (self._retries, self._dead, *consumers):
                if one is not None:
                    closing.callback(one.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listed(messages: ReceivedMessages) -> list[ReceivedMessage]:
    return [messages] if isinstance(messages, ReceivedMessage) else list(messages)


def _retries_of(message: ReceivedMessage) -> int:
    # Any producer may have set it.
    text = message.properties.get(_RETRIES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0
