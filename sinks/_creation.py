"""Creates missing topics: on the driver, or on executors where rows name their topics."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import Final

from eos.client import PulsarClient
from eos.client.worker_cache import ClientOptions
from eos.errors import EosError
from eos.ids import TopicName
from eos.transport.address import parse_service_url

logger = logging.getLogger(__name__)

_NAMED: Final = 5
_made: Final = itertools.count()


@dataclass(frozen=True)
class TopicCreation:
    """Creates topics.

    Attributes:
        partitions: 0 for unpartitioned topics, which need no admin API.
        admin_url: of the admin API.
        retention_minutes: how long their messages are kept, -1 without limit; None: the
            namespace's retention. Needs the admin API.
    """

    partitions: int
    admin_url: str | None
    retention_minutes: int | None = None

    def create(self, topic: TopicName, client: PulsarClient, options: ClientOptions) -> None:
        """Create ``topic``, unless another client has just done so.

        Raises:
            EosError: the broker or the admin API refuses.
        """
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
    """Warn for the first topics that a process creates: rows may name thousands."""
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
