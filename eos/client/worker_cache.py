"""Clients that outlive a task: Spark's Python workers are used again, and so are connections.

Connections only. Producers and what was joined end with the task. A client is kept when its task
went well; whatever went wrong, the next task begins with new connections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from eos.client import PulsarClient
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules

MAX_CLIENTS: Final = 8
"""In one worker, for jobs with several sinks; the one that was not used for longest goes."""

_clients: dict[ClientOptions, PulsarClient] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class ClientOptions:
    """What a client is made of; those of equal options are the same to a task."""

    service_url: str
    auth: Auth
    timeout_s: float
    rules: ClusterRules = field(default_factory=ClusterRules)
    max_pending_bytes: int = 32 * 1024 * 1024

    def make(self) -> PulsarClient:
        """A new client; nothing is connected yet."""
        return PulsarClient(
            self.service_url,
            auth=self.auth,
            listener_name=self.rules.listener_name,
            subscription_prefix=self.rules.subscription_prefix,
            timeout_s=self.timeout_s,
            max_pending_bytes=self.max_pending_bytes,
        )


@contextmanager
def cached_client(options: ClientOptions) -> Iterator[PulsarClient]:
    """A client for the block alone, with the connections of an earlier block when there was one.

    A token function comes from Spark by value, as another one for each task: what was made with it
    is of no use to the next one, and is closed.
    """
    if callable(options.auth.token):
        with options.make() as own:
            yield own
        return
    with _lock:
        client = _clients.pop(options, None)
    client = client or options.make()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with _lock:
        replaced = [_clients.pop(options, None)]
        _clients[options] = client
        if len(_clients) > MAX_CLIENTS:
            replaced.append(_clients.pop(next(iter(_clients))))
    for other in replaced:
        if other is not None:
            other.close()
