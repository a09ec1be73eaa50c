"""A cache of clients in Spark's Python workers, so that the next task reuses their connections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from eos.client import PulsarClient
from eos.forking import lock_of_process
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth
from eos.transport.message_keys import Encryption

# In one worker, for jobs with several sinks; the least recently used one is closed.
MAX_CLIENTS: Final = 8

_clients: dict[ClientOptions, PulsarClient] = {}
_lock = lock_of_process()
os.register_at_fork(after_in_child=_clients.clear)


@dataclass(frozen=True)
class ClientOptions:
    """The options of a client; tasks share clients with equal options."""

    service_url: str
    auth: Auth
    timeout_s: float
    rules: ClusterRules = field(default_factory=ClusterRules)
    max_pending_bytes: int = 32 * 1024 * 1024
    encryption: Encryption | None = None

    @property
    def has_function(self) -> bool:
        """Whether a function provides the token or the keys."""
        has_reader = self.encryption is not None and self.encryption.key_reader is not None
        return has_reader or callable(self.auth.token)

    def make(self) -> PulsarClient:
        """Return a new client, which is not connected yet."""
        return PulsarClient(
            self.service_url,
            auth=self.auth,
            listener_name=self.rules.listener_name,
            subscription_prefix=self.rules.subscription_prefix,
            encryption=self.encryption,
            timeout_s=self.timeout_s,
            max_pending_bytes=self.max_pending_bytes,
        )


@contextmanager
def cached_client(options: ClientOptions) -> Iterator[PulsarClient]:
    """Yield a client for exclusive use in the block, a cached one if possible."""
    # Spark sends a function by value, as a new object for each task: a client with one can't be
    # reused.
    if options.has_function:
        with options.make() as own:
            yield own
        return
    with _lock:
        client = _clients.pop(options, None)
    client = client or options.make()
    try:
        yield client
    except BaseException:
        client.close()  # the next task opens new connections
        raise
    with _lock:
        replaced = [_clients.pop(options, None)]
        _clients[options] = client
        if len(_clients) > MAX_CLIENTS:
            replaced.append(_clients.pop(next(iter(_clients))))
    for other in replaced:
        if other is not None:
            other.close()
