"""For tests of a job: ask for ``chaos_cluster``, and check with ``assert_exactly_once``.

pytest loads this module in every run where the project is installed, so it imports nothing
before a fixture is used::

    def test_orders_survive(chaos_cluster, assert_exactly_once):
        result = chaos_cluster.run("my_jobs.orders:pipeline", seed=7)
        assert_exactly_once(result)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chaos._run import Result
    from chaos.testing import ChaosCluster


@pytest.fixture(scope="session")
def chaos_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    """A broker, and what is needed to run jobs against it and break them; one for the session."""
    from chaos.testing import ChaosCluster

    with ChaosCluster(tmp_path_factory.mktemp("chaos")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def assert_exactly_once() -> Callable[[Result], None]:
    """Fails with the anomalies of a result, its seed, and the faults that there were."""
    from chaos.testing import check_exactly_once

    return check_exactly_once
