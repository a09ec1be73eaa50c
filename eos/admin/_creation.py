"""Making topics; without pydantic, because executors do it, too."""

from __future__ import annotations

import http
import urllib.parse
from typing import Final

from eos.admin._transport import Transport
from eos.ids import TopicName

_CONFLICT: Final = http.HTTPStatus.CONFLICT  # it is there already


def create_topic(transport: Transport, topic: TopicName, partitions: int = 0) -> None:
    """Create ``topic``, whatever its namespace lets clients create; fine if it is there already.

    Args:
        partitions: 0 for an unpartitioned one.

    Raises:
        EosError: as ``Transport.ask``.
    """
    path = f"/admin/v2/persistent/{path_of(topic)}"
    if partitions:
        transport.ask("PUT", f"{path}/partitions", partitions, also=_CONFLICT)
    else:
        transport.ask("PUT", path, also=_CONFLICT)


def set_retention(transport: Transport, topic: TopicName, minutes: int) -> None:
    """Keep the messages of ``topic`` for so long, whoever has read them, whatever their size; -1:
    for ever.

    Raises:
        EosError: as ``Transport.ask``.
    """
    policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
    transport.ask("POST", f"/admin/v2/persistent/{path_of(topic)}/retention", policy)


def path_of(topic: TopicName) -> str:
    """``tenant/namespace/topic``, as paths of the API have it."""
    return f"{topic.namespace_name}/{urllib.parse.quote(topic.local, safe='')}"
