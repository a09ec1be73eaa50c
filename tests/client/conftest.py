"""A proxy that makes faults before the session's broker, and what a reader sees behind it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eos.chaos.cluster.proxy import FaultProxy
from eos.client import PulsarClient
from eos.standalone import PulsarStandalone
from tests.support.judge import drain


@pytest.fixture
def proxy(pulsar_standalone: PulsarStandalone) -> Iterator[FaultProxy]:
    """Between a client and the session's broker."""
    with FaultProxy(pulsar_standalone.service_url) as running:
        yield running


@pytest.fixture
def through(proxy: FaultProxy) -> Iterator[PulsarClient]:
    """A client through the proxy, that waits five seconds for anything."""
    with PulsarClient(proxy.service_url, timeout_s=5) as client:
        yield client


@pytest.fixture
def values(pulsar_standalone: PulsarStandalone, name: str) -> Callable[[], list[bytes]]:
    """All values that a plain ``pulsar-client`` can read in the topic of this test."""
    url = pulsar_standalone.service_url
    return lambda: [seen.value for seen in drain(url, f"persistent://public/default/{name}")]
