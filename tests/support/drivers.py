"""A topic, a commit log and drivers without Spark, as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eos.client import PulsarClient
from eos.testing import PulsarStandalone
from tests.support.plain_driver import PlainDriver

MakeDriver = Callable[..., PlainDriver]


@pytest.fixture
def topic(client: PulsarClient, name: str) -> str:
    """Create an unpartitioned topic for this test; return its full name."""
    full = f"persistent://public/default/{name}"
    client.entry_producer(full, create=True).close()
    return full


@pytest.fixture
def make_driver(
    pulsar_standalone: PulsarStandalone, tmp_path, name: str, topic: str
) -> Iterator[MakeDriver]:
    """Return a function that makes independent drivers of one sink; options as ``PlainDriver``."""
    drivers: list[PlainDriver] = []

    def make(**options) -> PlainDriver:
        options.setdefault("service_url", pulsar_standalone.service_url)
        options.setdefault("admin_url", pulsar_standalone.admin_url)
        options.setdefault("sink_id", name)
        driver = PlainDriver(commit_log=tmp_path / "log", topic=topic, **options)
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()
