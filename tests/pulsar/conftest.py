"""A topic, a commit log and drivers without Spark; a topic like a receipt topic."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from tests.client.conftest import proxy, through  # noqa: F401 - fixtures
from tests.recovery.conftest import dies_behind, recovery  # noqa: F401 - fixtures
from tests.support.drivers import make_driver, topic  # noqa: F401 - fixtures


@pytest.fixture
def receipts(client: PulsarClient, name: str) -> str:
    """An unpartitioned topic that keeps its messages; its full name."""
    full = f"persistent://public/default/{name}"
    client.create_unpartitioned(full)
    client.subscribe_durably(full, "keeps-it")
    return full
