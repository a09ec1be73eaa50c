"""Creates topics and sets their retention. Does not need pydantic: executors create topics, too."""

from __future__ import annotations

import http
import urllib.parse
from typing import Final

from eos.admin._transport import Transport
from eos.ids import TopicName

_CONFLICT: Final = http.HTTPStatus.CONFLICT  # the topic exists


def create_topic(transport: Transport, topic: TopicName, partitions: int = 0) -> None:
    """Create ``topic`` if it does not exist, even if its namespace forbids automatic creation.

    Args:
        partitions: 0 for an unpartitioned topic.

    Raises:
        EosError: as ``Transport.ask``.
    """
    path = f"/admin/v2/persistent/{path_of(topic)}"
    if partitions:
        transport.ask("PUT", f"{path}/partitions", partitions, also=_CONFLICT)
    else:
        transport.ask("PUT", path, also=_CONFLICT)


def set_retention(transport: Transport, topic: TopicName, minutes: int) -> None:
    """Retain acknowledged messages of ``topic`` for ``minutes``, without a size limit; -1: forever.

    Raises:
        EosError: as ``Transport.ask``.
    """
    policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
    transport.ask("POST", f"/admin/v2/persistent/{path_of(topic)}/retention", policy)


def path_of(topic: TopicName) -> str:
    """Return ``tenant/namespace/topic``, as the API's paths contain it."""
    return f"{topic.namespace_name}/{urllib.parse.quote(topic.local, safe='')}"
