"""Making topics that are not there; on the driver, or where rows name them, on executors."""

from __future__ import annotations

from dataclasses import dataclass

from eos.client import PulsarClient
from eos.client.kept import ClientOptions
from eos.ids import TopicName
from eos.transport.address import parse_service_url


@dataclass(frozen=True)
class TopicCreation:
    """How topics are made.

    Attributes:
        partitions: 0 for unpartitioned topics, made by clients' own means; others need the admin
            API.
        admin_url: of that.
    """

    partitions: int
    admin_url: str | None

    def create(self, topic: TopicName, client: PulsarClient, options: ClientOptions) -> None:
        """Make ``topic``; fine if somebody else is quicker.

        Raises:
            EosError: the broker, or the admin API, refuses.
        """
        if not self.partitions:
            client.create_unpartitioned(str(topic))
            return
        assert self.admin_url is not None
        # Not at the top: an HTTP client is 12 ms of a new worker, which few need.
        from eos.admin import Transport, create_topic

        transport = Transport(
            self.admin_url,
            options.security,
            timeout_s=options.timeout_s,
            service=parse_service_url(options.service_url),
        )
        create_topic(transport, topic, self.partitions)
