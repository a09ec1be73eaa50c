"""Fixtures for users' tests: a real broker, and the chaos harness.

::

    def test_orders_survive(chaos_cluster, assert_exactly_once):
        result = chaos_cluster.run("my_jobs.orders:pipeline", seed=7)
        assert_exactly_once(result)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

# pytest loads this module in every run where eos is installed: only a fixture that is used
# imports more, and nothing by a top-level name that a user's folder may have.
if TYPE_CHECKING:
    from eos.testing._broker import PulsarStandalone


_BROKER: pytest.StashKey[PulsarStandalone] = pytest.StashKey()


@pytest.fixture(scope="session")
def pulsar_standalone(request: pytest.FixtureRequest) -> Iterator[PulsarStandalone]:
    """A running broker with transactions, one for the whole test session.

    ``pulsar_standalone.service_url`` and ``.admin_url`` are its addresses. Tests share it: use
    unique topic names, and don't kill it unless you ``restart()`` it. If a test
    leaves it dead, the next one gets a new one.
    """
    from eos.testing._broker import PulsarStandalone

    with PulsarStandalone() as broker:
        request.session.stash[_BROKER] = broker
        yield broker


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replace a dead broker before a test that uses it."""
    broker = item.session.stash.get(_BROKER, None)
    if broker is None or "pulsar_standalone" not in getattr(item, "fixturenames", ()):
        return
    if not broker.is_running():
        broker.stop()
        broker.start()


@pytest.fixture(scope="session")
def chaos_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An ``eos.chaos.testing.ChaosCluster``, one for the session: a broker, and the tools to run
    jobs against it and to inject faults."""
    with _harness().ChaosCluster(tmp_path_factory.mktemp("chaos")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def assert_exactly_once() -> Callable[[Any], None]:
    """A function that fails with the anomalies of a result, its seed and its faults."""
    check: Callable[[Any], None] = _harness().check_exactly_once
    return check


def _harness() -> Any:
    # By name: this package is below it.
    return importlib.import_module("eos.chaos.testing")
