"""Making topics that are not there; on the driver, or where rows name them, on executors."""

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
    """How topics are made.

    Attributes:
        partitions: 0 for unpartitioned topics, made by clients' own means; others need the admin
            API.
        admin_url: of that.
        retention_minutes: how long their messages are kept, -1 for ever; None: as the namespace has
            it. Needs the admin API.
    """

    partitions: int
    admin_url: str | None
    retention_minutes: int | None = None

    def create(self, topic: TopicName, client: PulsarClient, options: ClientOptions) -> None:
        """Make ``topic``; fine if somebody else is quicker.

        Raises:
            EosError: the broker, or the admin API, refuses.
        """
        if not self.partitions:
            client.create_unpartitioned(str(topic))
        if self.partitions or self.retention_minutes is not None:
            self._ask_admin(topic, options)
        if self.retention_minutes is None:
            _warn_that_nothing_keeps(topic)

    def _ask_admin(self, topic: TopicName, options: ClientOptions) -> None:
        assert self.admin_url is not None
        # Not at the top: an HTTP client is 12 ms of a new worker, which few need.
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
                f"{error.hint} The topic is made, and has no retention of its own: pulsar-admin "
                f"topicPolicies set-retention {topic} --time {self.retention_minutes}m --size -1"
            ).strip()
            raise


def _warn_that_nothing_keeps(topic: TopicName) -> None:
    """For the first topics that a process makes: rows may name thousands."""
    number = next(_made)
    if number < _NAMED:
        logger.warning(
            "topic %s was made (create_topics). Pulsar deletes messages that no subscription and "
            "no retention policy keeps, minutes after a restart of the broker: subscribe first, "
            "or set retention_minutes. `eos recovery doctor --admin-url` says what keeps them",
            topic,
        )
    elif number == _NAMED:
        logger.warning("more topics are made; the same holds for them, and they are not named here")
