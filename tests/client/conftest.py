"""A fault-injecting proxy in front of the session's broker, and the values that a reader sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eos.chaos.cluster.proxy import FaultProxy
from eos.client import PulsarClient
from eos.testing import PulsarStandalone
from tests.support.judge import drain


@pytest.fixture
def proxy(pulsar_standalone: PulsarStandalone) -> Iterator[FaultProxy]:
    """A proxy between a client and the session's broker."""
    with FaultProxy(pulsar_standalone.service_url) as running:
        yield running


@pytest.fixture
def through(proxy: FaultProxy) -> Iterator[PulsarClient]:
    """A client that connects through the proxy, with a timeout of 20 seconds."""
    with PulsarClient(proxy.service_url, timeout_s=20) as client:
        yield client


@pytest.fixture
def values(pulsar_standalone: PulsarStandalone, name: str) -> Callable[[], list[bytes]]:
    """A function that reads all values of this test's topic with a plain ``pulsar-client``."""
    url = pulsar_standalone.service_url
    return lambda: [seen.value for seen in drain(url, f"persistent://public/default/{name}")]
