"""Fixtures of the whole suite: one broker, one Spark session, unique names for each test.

The broker comes from the package's pytest plugin (``pulsar_standalone``), as for users.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from eos.chaos.cluster import spark_rehearsal
from eos.chaos.cluster.spark_env import jvm_options
from eos.client import PulsarClient
from eos.testing import PulsarStandalone, _settings

# Before any import of Spark: executors must find the driver, and the right Python.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


# Property tests have no deadline: on a busy machine one example may take any time.
settings.register_profile("eos", deadline=None)
settings.load_profile("eos")


def _share_ports_among_workers() -> None:
    """Let each worker of pytest-xdist pick its brokers' ports from its own part.

    A broker binds its ports seconds after they were picked: another worker could pick the same.
    """
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        number = int(worker.removeprefix("gw")) % count  # one that replaces a dead one has more
        _settings._PORTS = _settings._PORTS[number::count]


_share_ports_among_workers()

# A test that uses one of these needs a broker or a Spark session. It is marked `broker`, and
# make test-fast leaves it out. Tests that start their own broker have the mark in their file.
_SLOW_FIXTURES = {"pulsar_standalone", "broker", "secured", "elsewhere", "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a broker or a JVM."""
    for item in items:
        if _SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set options for a quick start of all Spark JVMs in the tests, drivers and executors.

    Measured, for a few small jobs: a ``local[2]`` takes 23 s of processor time instead of 36, and a
    ``local-cluster`` of two executors 33 s instead of 90.
    """
    if any(item.get_closest_marker("broker") for item in session.items):
        spark_rehearsal.create()
        options = jvm_options()
        executors = f'"-Dspark.executor.extraJavaOptions={options}"'
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{options} {executors}")


@pytest.fixture(autouse=True)
def no_broker_without_its_mark(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail a test that starts a broker without the mark: it would slow down the fast tests."""
    if request.node.get_closest_marker("broker") or request.node.get_closest_marker("chaos"):
        return

    def refuse(self: PulsarStandalone) -> None:
        pytest.fail("this test starts a broker: mark it @pytest.mark.broker")

    monkeypatch.setattr(PulsarStandalone, "start", refuse)


@pytest.fixture
def name() -> str:
    """A name for topics and sinks that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(pulsar_standalone: PulsarStandalone) -> Iterator[PulsarClient]:
    """Our own client, connected to the session's broker."""
    with PulsarClient(pulsar_standalone.service_url, timeout_s=20) as connected:
        yield connected


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """The session of the fixture ``spark``."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("eos-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: Any) -> Any:
    """A local Spark session with two cores, for all tests that kill no process.

    If a signal interrupts Python while it releases a Java object, this thread loses its connection
    to the JVM. The next connection has no active session, and Spark finds no Python data source
    through it. A test that sends signals must not affect the next test in this way.
    """
    in_java = spark_session._jsparkSession  # a static method of its class, which has moved in 4.0
    in_java.setActiveSession(in_java)
    return spark_session
