"""The topics of a task's rows: their partitions, and the creation of missing topics."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.client import PulsarClient
from eos.client.worker_cache import ClientOptions
from eos.errors import ConfigurationError, EosError, InputError, TopicNotFound
from eos.ids import TopicName
from eos.transport.address import parse_service_url
from eos.waiting import parallel_map
from eos.wire.binary_columns import array_of, numbers_of

logger = logging.getLogger(__name__)

# The first characters of the names of receipt topics and of the broker's own topics.
_SYSTEM_PREFIX = "__"


class TaskTopics:
    """One topic, whose partitions the driver has fixed for the epoch; or the topics of the rows.

    Args:
        fixed: exact names of the one topic's partitions; empty: each row has a column ``topic``.
        creation: creates missing topics; None: a missing topic is an error.
    """

    def __init__(
        self,
        client: PulsarClient,
        fixed: tuple[str, ...],
        *,
        creation: TopicCreation | None,
        options: ClientOptions,
    ) -> None:
        self._client = client
        self._fixed = fixed
        self._creation = creation
        self._options = options
        self._found: dict[str, tuple[str, ...]] = {}

    @property
    def partition_counts(self) -> tuple[tuple[str, int], ...]:
        """Each topic that rows have named, and its number of partitions."""
        # The driver compares them: tasks that found different numbers may have sent the same key to
        # different partitions.
        return tuple((name, len(partitions)) for name, partitions in self._found.items())

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
        """Yield the rows of each topic, in their order, with the exact names of its partitions.

        Raises:
            InputError: a row names no topic, or one that can't be written to.
            TopicNotFound: a topic does not exist.
        """
        if self._fixed:
            yield self._fixed, batch
            return
        column = batch.column("topic")
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise InputError(
                f"Column 'topic' is null in row {row}.",
                hint="Name a topic in each row, or set the sink's option topic.",
            )
        encoded = column.dictionary_encode()
        names = [_parsed(text) for text in encoded.dictionary.to_pylist()]
        self._look_up(names)
        # A topic may be spelled in several ways.
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(numbers) == 1:
            yield self._found[str(names[0])], batch
            return
        of_texts = np.array([numbers[name] for name in names], np.int32)
        codes = of_texts[numbers_of(encoded.indices, np.int32)]
        ordered = batch.take(array_of(np.argsort(codes, kind="stable")))
        start = 0
        for name, count in zip(numbers, np.bincount(codes).tolist(), strict=True):
            yield self._found[str(name)], ordered.slice(start, count)
            start += count

    def _look_up(self, names: list[TopicName]) -> None:
        new = [name for name in dict.fromkeys(names) if str(name) not in self._found]
        for name, count in zip(new, parallel_map(self._count, new), strict=True):
            self._found[str(name)] = tuple(str(partition) for partition in name.partitions(count))

    def _count(self, topic: TopicName) -> int:
        try:
            return self._client.partition_count(str(topic))
        except TopicNotFound as error:
            if self._creation is None:
                error.hint = "Create the topic, or set create_topics=True."
                raise
        self._creation.create(topic, self._client, self._options)
        # Looked up again: another client may have created it, with a different number.
        return self._client.partition_count(str(topic))


def _parsed(text: str) -> TopicName:
    try:
        name = TopicName.parse(text)
    except ConfigurationError as error:
        raise InputError(f"Column 'topic': {error.message}", hint=error.hint) from None
    if name.partition_index is not None:
        raise InputError(
            f"Column 'topic' has the partition {name}.",
            hint="Name the topic, and its partition in a column 'partition'.",
        )
    if name.local.startswith(_SYSTEM_PREFIX):
        raise InputError(
            f"Column 'topic' has {name}, a system topic.",
            hint=f"Names that begin with {_SYSTEM_PREFIX} are reserved for receipts and brokers.",
        )
    return name


_NAMED: Final = 5
_made: Final = itertools.count()


@dataclass(frozen=True)
class TopicCreation:
    """Creates topics.

    ``partitions``: 0 for unpartitioned topics, which need no admin API. ``retention_minutes``: how
    long their messages are kept, -1 without limit; None: the namespace's retention.
    """

    partitions: int
    admin_url: str | None
    retention_minutes: int | None = None

    def create(self, topic: TopicName, client: PulsarClient, options: ClientOptions) -> None:
        """Create ``topic``, unless another client has just done so; EosError if it is refused."""
        if not self.partitions:
            client.create_unpartitioned(str(topic))
        if self.partitions or self.retention_minutes is not None:
            self._ask_admin(topic, options)
        if self.retention_minutes is None:
            _warn_of_no_retention(topic)

    def _ask_admin(self, topic: TopicName, options: ClientOptions) -> None:
        assert self.admin_url is not None
        # Not at the top: an HTTP client costs a new worker 12 ms, and few need it.
        from eos.admin import Transport, create_topic, set_retention

        transport = Transport(
            self.admin_url,
            options.auth,
            timeout_s=options.timeout_s,
            service=parse_service_url(options.service_url),
        )
        if self.partitions:
            create_topic(transport, topic, self.partitions)
        if self.retention_minutes is None:
            return
        try:
            set_retention(transport, topic, self.retention_minutes)
        except EosError as error:
            error.hint = (
                f"{error.hint} The topic was created without its retention. Set it: pulsar-admin "
                f"topicPolicies set-retention {topic} --time {self.retention_minutes}m --size -1"
            ).strip()
            raise


def _warn_of_no_retention(topic: TopicName) -> None:
    # Only for the first topics of a process: rows may name thousands.
    number = next(_made)
    if number < _NAMED:
        logger.warning(
            "topic %s was created (create_topics). Pulsar deletes messages that no subscription "
            "and no retention policy keeps, minutes after a restart of the broker: subscribe "
            "first, or set retention_minutes. `eos recovery doctor --admin-url` shows both",
            topic,
        )
    elif number == _NAMED:
        logger.warning("more topics were created, which are not named; the same applies to them")
